"""Cells drawn at random, predicted and then measured: the model on what its constants were not taken from.

    python workflow/commands/draw_cells.py FOLDER [COMMIT]

Of all four operators: dtype, shape and implementation each, of decode attention a preset too. The seed is the hash of
the commit that holds the model: by default the checkout's, which then must not have changes. So the first draw is the
one that is published. Measures for up to two minutes on the first GPU; writes FOLDER/drawn.json and drawn.md.
"""

import math
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from roofline.core.device_kinds import accelerators
from roofline.operators.base import Case
from roofline.operators.decode_attention import DecodeAttention
from roofline.operators.decode_attention.counts import Shape
from roofline.operators.rmsnorm_matmul import RmsNormMatmul
from roofline.operators.rmsnorm_matmul.operator import SMALLEST_HIDDEN
from roofline.operators.row_norm import RowNorm
from roofline.run import checkout, settings

CELLS = {"decode_attn": 24, "gemm": 16, "row_norm": 12, "rmsnorm_matmul": 16}
BUDGET_S = 100.0  # after which nothing more is begun
DTYPES = ("fp32", "fp16", "bf16")
PRODUCT_DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8_e4m3", "int8")
LONGEST, LARGEST_BATCH = 8192, 256
MOST_BYTES = 6 * 10**9  # of a cell with its rotated copies: so that data are drawn in a moment
CACHE_BYTES = 64 << 20  # taken for the last-level cache, through whose multiple a cell's copies rotate
MODEL = ("workflow/",)
PRESETS = settings.complete({}).config.model.presets


def draw(seed: int) -> dict[str, list[dict]]:
    """Cells of each operator, by its section of the config; one that is too large is drawn anew."""
    chance = random.Random(seed)
    return {name: [_fitting(DRAWN[name], chance) for _ in range(count)] for name, count in CELLS.items()}


def _fitting(drawn: Callable[[random.Random], tuple[dict, int]], chance: random.Random) -> dict:
    while True:
        cell, needed = drawn(chance)
        if needed <= MOST_BYTES:
            return cell


def _attention(chance: random.Random) -> tuple[dict, int]:
    cell = {
        "preset": chance.choice(sorted(PRESETS)),
        "dtype": chance.choice(DTYPES),
        "batch": by_octave(chance, LARGEST_BATCH),
        "seq_len": by_octave(chance, LONGEST),
        "implementation": chance.choice(_of_gpu(DecodeAttention)),
    }
    one = PRESETS[cell["preset"]]
    shape = Shape(cell["batch"], one.heads, one.kv_heads or one.heads, one.head_size, cell["seq_len"])
    return cell, DecodeAttention().memory_needed(Case(shape.as_dict(), cell["dtype"]), CACHE_BYTES)


def _product(chance: random.Random) -> tuple[dict, int]:
    cell = {
        "dtype": chance.choice(PRODUCT_DTYPES),
        "m": 16 * by_octave(chance, 512),
        "n": 64 * by_octave(chance, 128),
        "k": 64 * by_octave(chance, 128),
    }
    return cell, 0


def _rows(chance: random.Random) -> tuple[dict, int]:
    cell = {"rows": by_octave(chance, 1 << 16), "columns": by_octave(chance, 1 << 14)}
    needed = RowNorm().memory_needed(Case(cell, "fp32"), CACHE_BYTES)
    return cell | {"implementation": chance.choice(_of_gpu(RowNorm))}, needed


def _norm_and_product(chance: random.Random) -> tuple[dict, int]:
    hidden = 64 * by_octave(chance, 128)
    cell = {"batch": by_octave(chance, LARGEST_BATCH), "hidden": max(SMALLEST_HIDDEN, hidden)}
    dtype = chance.choice(("fp16", "bf16"))
    needed = RmsNormMatmul().memory_needed(Case(cell, dtype), CACHE_BYTES)
    return cell | {"dtype": dtype, "implementation": chance.choice(_of_gpu(RmsNormMatmul))}, needed


DRAWN = {"decode_attn": _attention, "gemm": _product, "row_norm": _rows, "rmsnorm_matmul": _norm_and_product}


def _of_gpu(operator) -> list[str]:
    return [one.name for one in operator.implementations if one.kind == "gpu"]


def by_octave(chance: random.Random, largest: int) -> int:
    """A number from 1 to the largest, each octave as likely as another."""
    return min(largest, int(math.exp(chance.uniform(0, math.log(largest + 1)))))


def wanted(seed: int) -> list:
    """What a trial measures of a draw, the operators in turn, so that a deadline cuts all of them."""
    from roofline.analysis.trial import Product, jobs

    drawn = draw(seed)
    found = [Product(cell["dtype"], {side: cell[side] for side in "mnk"}) for cell in drawn["gemm"]]
    groups = [found]
    for operator in (DecodeAttention(), RowNorm(), RmsNormMatmul()):
        groups.append([])
        for cell in drawn[operator.rule]:
            config = settings.complete({operator.rule: SECTIONS[operator.rule](cell)}).config
            groups[-1] += jobs(operator, config, [cell["implementation"]])
    places = [(place / len(group), i, one) for i, group in enumerate(groups) for place, one in enumerate(group)]
    return [one for *_, one in sorted(places, key=lambda place: place[:2])]


# The config that asks for a cell.
SECTIONS = {
    "decode_attn": lambda cell: {
        "presets": [cell["preset"]],
        "dtypes": [cell["dtype"]],
        "seq_lens": [cell["seq_len"]],
        "batch_sizes": [cell["batch"]],
    },
    "row_norm": lambda cell: {"shapes": [f"{cell['rows']}x{cell['columns']}"]},
    "rmsnorm_matmul": lambda cell: {
        "dtypes": [cell["dtype"]],
        "hidden_sizes": [cell["hidden"]],
        "batch_sizes": [cell["batch"]],
    },
}


def frozen_commit() -> str:
    """The checkout's commit. Exits where git does not tell, or where the model was changed since."""
    sources = checkout.describe(Path("."))
    if not sources.commit:
        sys.exit(f"which commit froze the model: {sources.reason}; name it: draw_cells.py FOLDER COMMIT")
    changed = [path for path in sources.changed_files or [] if path.startswith(MODEL)]
    if changed:
        sys.exit(f"changed since {sources.commit[:12]}: {', '.join(changed)}; commit the model first, then draw")
    return sources.commit


def main(folder: Path, commit: str) -> None:
    started = time.monotonic()
    from roofline import devices
    from roofline.analysis import trial
    from roofline.devices.description import describe
    from roofline.measure import lock
    from roofline.records.base import write
    from roofline.records.files import write_text
    from roofline.report.trial_page import markdown

    name = next(iter(accelerators(devices.discover(), devices.kind_of)), None)
    if name is None:
        sys.exit("no GPU is here; the draw is of a GPU's cells")
    print(f"drawn by commit {commit}", flush=True)
    with lock.measuring([lock.HOST]):
        device = devices.open_device(name)
        found = trial.run(device, describe(device), wanted(int(commit, 16)), started + BUDGET_S)
    folder.mkdir(parents=True, exist_ok=True)
    write(found, folder / "drawn.json")
    seed = f"Seed: commit {commit}, whose model predicted them before they were measured."
    write_text(f"# Cells drawn at random\n\n{seed}\n\n{markdown(found)}", folder / "drawn.md")
    print(markdown(found))


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    given = sys.argv[2] if len(sys.argv) == 3 else frozen_commit()
    try:
        int(given, 16)
    except ValueError:
        sys.exit(f"{given} is not the hash of a commit")
    main(Path(sys.argv[1]), given)
