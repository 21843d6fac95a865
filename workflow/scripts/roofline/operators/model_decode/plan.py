"""How the chain's products are compiled and launched, by rows of x and outputs. Found on an H200."""

import math
from dataclasses import dataclass

FEWEST_ROWS, FEW_ROWS, MOST_ROWS = 8, 32, 256  # of x: sequences
DEPTH = 64  # of k, a slice: 128 bytes of a row
THREADS = 320
# What a block has of shared memory is its own, so that the next kernel's comes with its weights as soon as it goes.
# Two kernels at once on a multiprocessor were slower: their blocks came to lie unevenly.
RESERVED_BYTES = 1 << 10
ALIGNMENT = 1 << 10
OUTPUTS, CHUNK_ROWS = 128, 64  # of a tile of many rows, and rows whose results are in shared memory at once
GROUP = 16  # outputs of few rows that belong together
MOST_GROUPS, MOST_SUMS = 8, 20  # of a tile; groups times eights of rows
EVEN = 1.04  # of the least work of the busiest block: within it larger tiles are better
STAGE_BYTES = 16 << 10  # of W, about
MOST_STAGES = 16


@dataclass(frozen=True)
class Plan:
    """A kernel's macros beside those of the model, its blocks, and its shared memory as launched. `box` rows of W come
    at once; `parts` sums of squares are left of each row."""

    kernel: str  # few_rows or linear
    rows: int
    macros: tuple[tuple[str, int], ...]
    blocks: int
    box: int
    parts: int
    shared_bytes: int

    def defines(self, dtype: str, way: int, head_size: int, norms: bool, bias: bool) -> tuple[str, ...]:
        macros = {"BF16": int(dtype == "bf16"), "ROWS": self.rows, **dict(self.macros), "WAY": way}
        macros |= {"HEAD_SIZE": head_size, "NORMS": int(norms), "BIAS": int(bias)}
        return tuple(f"-D{name}={value}" for name, value in macros.items())


def rows_of(batch: int) -> int:
    return max(FEWEST_ROWS, 1 << (batch - 1).bit_length())


def plan(
    batch: int, outputs: int, inputs: int, multiprocessors: int, shared_bytes: int, *, whole_heads: bool, pairs: bool
) -> Plan:
    """Of a product [batch, inputs] by [outputs, inputs]. `shared_bytes`: of a multiprocessor's one block at most;
    `whole_heads`: a block needs all outputs of a head; `pairs`: its halves' rows come eight at a time."""
    rows, room = rows_of(batch), shared_bytes - RESERVED_BYTES - ALIGNMENT
    if rows > FEW_ROWS or whole_heads:
        return _many(rows, outputs, inputs, multiprocessors, room)
    return _few(rows, outputs, multiprocessors, room, 8 if pairs else None)


def _many(rows: int, outputs: int, inputs: int, multiprocessors: int, room: int) -> Plan:
    stage = (OUTPUTS + rows) * DEPTH * 2
    chunk = min(rows, CHUNK_ROWS)
    own = 4 * rows + 4 * chunk * (OUTPUTS + 4) + 16 * MOST_STAGES  # that the kernel declares itself
    stages = min(MOST_STAGES, (room - own) // stage)
    tiles = math.ceil(outputs / OUTPUTS)
    blocks = min(multiprocessors, tiles * (inputs // DEPTH))
    macros = (("CHUNK", chunk), ("STAGES", stages))
    return Plan("linear", rows, macros, blocks, DEPTH, tiles, stages * stage + ALIGNMENT)


def _few(rows: int, outputs: int, multiprocessors: int, room: int, box: int | None) -> Plan:
    groups = groups_of(outputs, rows, multiprocessors)
    slices = 1 << max(0, int(math.log2(STAGE_BYTES / (groups * GROUP * DEPTH * 2))))
    stage = slices * (groups * GROUP + rows) * DEPTH * 2
    own = 4 * groups * (rows // 8) * 512 + 4 * groups * rows + 4 * rows + (1 << 10) + 16 * MOST_STAGES
    stages = min(MOST_STAGES, (room - own) // stage)
    tiles = math.ceil(outputs / (groups * GROUP))
    macros = (("GROUPS", groups), ("SLICES", slices), ("STAGES", stages))
    return Plan(
        "few_rows", rows, macros, min(multiprocessors, tiles), box or 8 * groups, tiles, stages * stage + ALIGNMENT
    )


def groups_of(outputs: int, rows: int, multiprocessors: int) -> int:
    """The largest tile of those with which the busiest block has about the least to do."""

    def busiest(groups: int) -> int:
        return groups * math.ceil(math.ceil(outputs / (groups * GROUP)) / multiprocessors)

    ways = range(1, min(MOST_GROUPS, MOST_SUMS * 8 // rows) + 1)
    least = min(map(busiest, ways))
    return max(groups for groups in ways if busiest(groups) <= EVEN * least)
