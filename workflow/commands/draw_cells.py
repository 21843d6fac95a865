"""Draw cells of decode attention at random into config/drawn.yaml: a check of the model on what it was not fitted to.

    python workflow/commands/draw_cells.py SEED

The same seed draws the same cells. Measure them with: make ARGS="--configfile config/drawn.yaml"
"""

import math
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from roofline.operators.base import Case
from roofline.operators.decode_attention import DecodeAttention
from roofline.operators.decode_attention.counts import Shape
from roofline.records.files import write_text
from roofline.run import settings

DTYPES = ("fp32", "fp16", "bf16")
TARGET = Path("config/drawn.yaml")
LONGEST, LENGTHS = 16384, 10  # of S: the largest value, and how many
LARGEST_BATCH, BATCHES = 512, 2
CHOSEN_DTYPES = 2
MOST_BYTES = 32 * 10**9  # of a cell, so that every card of 40 GB and more can measure it
CACHE_BYTES = 64 << 20  # taken for the last-level cache, through whose multiple a cell's copies rotate

TEMPLATE = """\
# Cells of decode attention drawn at random, for a check of the model on cells that it was not fitted to.
# Seed {seed}; written by: python workflow/commands/draw_cells.py {seed}
# Measure them: make ARGS="--configfile config/drawn.yaml"; results/verification.md holds the model against them.
devices: [gpu0]
peak_flops:
  dtypes: {ceilings}
bandwidth:
  levels: [hbm, l2]
decode_attn:
  presets: [{preset}]
  seq_lens: {seq_lens}
  dtypes: {dtypes}
  batch_sizes: {batch_sizes}
  implementations: [fused, fused_graph]
"""


def draw(seed: int) -> dict:
    """A preset, values of S, batch sizes and dtypes of which every cell fits; a draw that does not is drawn anew."""
    model = settings.complete({}).config.model
    chance = random.Random(seed)
    while True:
        drawn = {
            "preset": chance.choice(sorted(model.presets)),
            "seq_lens": distinct(chance, LONGEST, LENGTHS),
            "batch_sizes": distinct(chance, LARGEST_BATCH, BATCHES),
            "dtypes": sorted(chance.sample(DTYPES, CHOSEN_DTYPES), key=DTYPES.index),
        }
        if largest_cell_bytes(drawn, model.presets[drawn["preset"]]) <= MOST_BYTES:
            return drawn


def distinct(chance: random.Random, largest: int, count: int) -> list[int]:
    """So many numbers from 1 to the largest, each octave as likely as another, in order."""
    found: set[int] = set()
    while len(found) < count:
        found.add(min(largest, int(math.exp(chance.uniform(0, math.log(largest + 1))))))
    return sorted(found)


def largest_cell_bytes(drawn: dict, preset) -> int:
    kv_heads, needed = preset.kv_heads or preset.heads, DecodeAttention().memory_needed
    return max(
        needed(Case(Shape(batch, preset.heads, kv_heads, preset.head_size, seq_len).as_dict(), dtype), CACHE_BYTES)
        for batch in drawn["batch_sizes"]
        for seq_len in drawn["seq_lens"]
        for dtype in drawn["dtypes"]
    )


def config(seed: int) -> str:
    """The configuration file of a draw; on a GPU a dtype stands under the compute ceiling of its own name."""
    drawn = draw(seed)
    listed = {name: f"[{', '.join(map(str, values))}]" for name, values in drawn.items() if name != "preset"}
    return TEMPLATE.format(seed=seed, preset=drawn["preset"], ceilings=listed["dtypes"], **listed)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1].isdecimal():
        sys.exit(__doc__)
    write_text(config(int(sys.argv[1])), TARGET)
    print(TARGET)
