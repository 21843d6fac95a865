"""How the fused kernel is compiled and launched for a case: rows and outputs of a block, parts of k, and how far ahead
W is fetched. The rules were found on an H200 (132 multiprocessors); on other cards they are extrapolated."""

import math
from dataclasses import dataclass

from roofline.devices.gpu.kernel_compiler import HOPPER

DEPTH = 64  # of k, a stage: 128 bytes of a row
FEWEST_ROWS, MOST_ROWS = 8, 128  # of x, a block
SMALL_ROWS = 32  # up to which a second block has room on a multiprocessor
SQUARED_ROWS = 8  # of which a block sums the squares for all, where it has more rows than that
# Outputs of a block, parts of k and, of many rows, the most; the one with the longest reads first. Clusters of two fit
# every multiprocessor; of four or eight, with a block each, only 120 of 132: where few rows let two blocks share one,
# more fit.
OF_FEW_ROWS, ELSEWHERE = ((128, 2), (64, 2), (128, 8)), ((128, 2), (64, 2), (128, 4))
OF_MANY_ROWS = ((128, 2), (64, 2), (64, 2, 64))
FILLED = 0.9  # of the multiprocessors that have a block
# More at once let the first of them come later.
MOST_STAGES, MOST_OF_MANY_ROWS, MOST_ELSEWHERE = {128: 8, 64: 10}, 6, 4
RESERVED_BYTES = 1 << 10  # of shared memory, by every resident block
STATIC_BYTES = 2 << 10  # at most, of what the kernel declares itself


@dataclass(frozen=True)
class Plan:
    """BATCH, COLUMNS, SPLITS, STAGES, BLOCKS and SHARED of the kernel, and its launch. `resident` blocks of it fit a
    multiprocessor; `shared`: blocks share the squares of x, and all are resident at once."""

    rows: int
    columns: int
    splits: int
    stages: int
    resident: int
    shared: bool
    grid: tuple[int, int]
    threads: int
    shared_bytes: int

    def defines(self, dtype: str) -> tuple[str, ...]:
        macros = {
            "BF16": int(dtype == "bf16"),
            "BATCH": self.rows,
            "COLUMNS": self.columns,
            "SPLITS": self.splits,
            "STAGES": self.stages,
            "BLOCKS": self.resident,
            "SHARED": int(self.shared),
        }
        return tuple(f"-D{name}={value}" for name, value in macros.items())

    @property
    def blocks(self) -> int:
        return math.prod(self.grid)

    @property
    def sums_bytes(self) -> int:
        """That a block hands on: with 64 outputs each of its warpgroups."""
        return 4 * self.rows * self.columns * (2 if self.columns == DEPTH else 1)

    @property
    def sets(self) -> int:
        """Of outputs and rows: in each, blocks share k."""
        return self.blocks // self.splits

    @property
    def workspace_floats(self) -> int:
        """What blocks leave for one another where there are no clusters: sums, and squares of rows."""
        return self.blocks * self.rows * (self.columns + 1)

    def staged_bytes(self, hidden: int) -> int:
        """Through shared memory, by a block: W and x come, W is read once, and x once for every 64 outputs."""
        slices = math.ceil(math.ceil(hidden / DEPTH) / self.splits)
        return slices * DEPTH * 2 * (2 * self.columns + self.rows * (1 + self.columns // 64))

    @property
    def chunks(self) -> int:
        """Of rows."""
        return self.grid[1]

    @property
    def squares(self) -> int:
        """Sums of squares that blocks share."""
        return self.chunks * self.splits * self.rows

    def __str__(self) -> str:
        k = f"k in {self.splits} parts" if self.splits > 1 else "k whole"
        return (
            f"{self.blocks} blocks of {self.threads} threads, {self.columns} outputs of {self.rows} rows each, {k}, "
            f"{self.stages} stages ahead"
        )


def plan(
    batch: int,
    hidden: int,
    outputs: int,
    capability: tuple[int, int],
    multiprocessors: int,
    shared_per_block: int,
    shared_per_multiprocessor: int,
) -> Plan:
    """The first division of which nearly every multiprocessor has a block, with as many stages as fit.

    Half of the outputs a block where two stages would not fit.
    """
    on_hopper = capability == HOPPER
    rows = min(max(FEWEST_ROWS, 1 << (batch - 1).bit_length()), MOST_ROWS)
    slices = math.ceil(hidden / DEPTH)
    many = on_hopper and rows > SMALL_ROWS
    divisions = OF_MANY_ROWS if many else OF_FEW_ROWS if on_hopper else ELSEWHERE
    candidates = [(min(rows, *most) if most else rows, columns, splits) for columns, splits, *most in divisions]
    rows, columns, splits = next(
        (one for one in candidates if _sets(batch, outputs, *one[:2]) * one[2] >= FILLED * multiprocessors),
        candidates[-1],
    )
    while splits > slices:
        splits //= 2
    resident = 2 if splits > 2 and rows <= SMALL_ROWS else 1
    room = min(shared_per_block, shared_per_multiprocessor // resident - RESERVED_BYTES) - STATIC_BYTES
    if _stages(room, rows, columns, splits, slices, on_hopper) < 2:
        columns = 64
    most = (MOST_OF_MANY_ROWS if many else MOST_STAGES[columns]) if on_hopper else MOST_ELSEWHERE
    sets, chunks = math.ceil(outputs / columns), math.ceil(batch / rows)
    stages = min(_stages(room, rows, columns, splits, slices, on_hopper), most)
    return Plan(
        rows=rows,
        columns=columns,
        splits=splits,
        stages=stages,
        resident=resident,
        shared=many and sets * splits * chunks <= multiprocessors and sets * SQUARED_ROWS >= rows,
        grid=(sets * splits, chunks),
        threads=384 if on_hopper else 2 * columns,
        shared_bytes=_shared_bytes(stages, rows, columns, splits, slices, on_hopper),
    )


def _sets(batch: int, outputs: int, rows: int, columns: int) -> int:
    """Of rows and outputs: a block for each, and for each part of k."""
    return math.ceil(batch / rows) * math.ceil(outputs / columns)


def _stages(room: int, rows: int, columns: int, splits: int, slices: int, on_hopper: bool) -> int:
    """So many fit."""
    fitting = (
        stages
        for stages in range(MOST_STAGES[64], 0, -1)
        if _shared_bytes(stages, rows, columns, splits, slices, on_hopper) <= room
    )
    return next(fitting, 0)


def _shared_bytes(stages: int, rows: int, columns: int, splits: int, slices: int, on_hopper: bool) -> int:
    """Stages of W and x; on Hopper also g, what the blocks of a cluster send one another (with 64 outputs both
    warpgroups; of many rows in the place of the stages), and room to begin at a multiple of 1024. Elsewhere a stage has
    its part of g."""
    staged = stages * (columns + rows + (not on_hopper)) * DEPTH * 2
    if not on_hopper:
        return staged
    sent = 4 * rows * (columns * (2 if columns == DEPTH else 1) + splits + 1)
    return math.ceil(slices / splits) * DEPTH * 2 + 1024 + (staged + sent if rows <= SMALL_ROWS else max(staged, sent))
