"""Cells drawn at random, predicted and then measured: the model on what its constants were not taken from.

    python workflow/commands/draw_cells.py FOLDER [COMMIT]

Of decode attention a preset, dtype, batch size, S and implementation each, of GEMM a dtype and shape. The seed is the
hash of the commit that holds the model: by default the checkout's, which then must not have changes. So the first draw
is the one that is published. Measures for about a minute on the first GPU; writes FOLDER/drawn.json and drawn.md.
"""

import math
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from roofline.core.device_kinds import accelerators
from roofline.operators.base import Case
from roofline.operators.decode_attention import DecodeAttention
from roofline.operators.decode_attention.counts import Shape
from roofline.run import checkout, settings

ATTENTION_CELLS, GEMM_CELLS = 24, 16
BUDGET_S = 70.0  # after which nothing more is begun
DTYPES = ("fp32", "fp16", "bf16")
PRODUCT_DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8_e4m3", "int8")
IMPLEMENTATIONS = ("eager", "fused", "fused_graph")
LONGEST, LARGEST_BATCH = 8192, 256
MOST_BYTES = 6 * 10**9  # of a cell with its rotated copies: so that data are drawn in a moment
CACHE_BYTES = 64 << 20  # taken for the last-level cache, through whose multiple a cell's copies rotate
MODEL = ("workflow/",)


def draw(seed: int) -> tuple[list[dict], list[dict]]:
    """Cells of attention and of GEMM; an attention cell that is too large is drawn anew."""
    chance, presets = random.Random(seed), settings.complete({}).config.model.presets
    attention: list[dict] = []
    while len(attention) < ATTENTION_CELLS:
        drawn = {
            "preset": chance.choice(sorted(presets)),
            "dtype": chance.choice(DTYPES),
            "batch": by_octave(chance, LARGEST_BATCH),
            "seq_len": by_octave(chance, LONGEST),
            "implementation": chance.choice(IMPLEMENTATIONS),
        }
        if memory_needed(drawn, presets[drawn["preset"]]) <= MOST_BYTES:
            attention.append(drawn)
    products = [
        {
            "dtype": chance.choice(PRODUCT_DTYPES),
            "m": 16 * by_octave(chance, 512),
            "n": 64 * by_octave(chance, 128),
            "k": 64 * by_octave(chance, 128),
        }
        for _ in range(GEMM_CELLS)
    ]
    return attention, products


def by_octave(chance: random.Random, largest: int) -> int:
    """A number from 1 to the largest, each octave as likely as another."""
    return min(largest, int(math.exp(chance.uniform(0, math.log(largest + 1)))))


def memory_needed(drawn: dict, preset) -> int:
    shape = Shape(drawn["batch"], preset.heads, preset.kv_heads or preset.heads, preset.head_size, drawn["seq_len"])
    return DecodeAttention().memory_needed(Case(shape.as_dict(), drawn["dtype"]), CACHE_BYTES)


def wanted(seed: int) -> list:
    """What a trial measures of a draw, attention and GEMM in turn, so that a deadline cuts both."""
    from roofline.analysis.trial import Product, jobs

    attention, products = draw(seed)
    found = []
    for cell in attention:
        section = {key: [cell[key]] for key in ("dtype", "seq_len", "batch")}
        section = {"dtypes": section["dtype"], "seq_lens": section["seq_len"], "batch_sizes": section["batch"]}
        config = settings.complete({"decode_attn": section | {"presets": [cell["preset"]]}}).config
        found += jobs(DecodeAttention(), config, [cell["implementation"]])
    gemm = [Product(cell["dtype"], {side: cell[side] for side in "mnk"}) for cell in products]
    places = [(place / len(group), i, one) for i, group in enumerate((found, gemm)) for place, one in enumerate(group)]
    return [one for *_, one in sorted(places, key=lambda place: place[:2])]


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
