"""How the kernel for other cards than Hopper's is compiled and launched for a case: rows and outputs of a block, parts
of k, and how far ahead W is fetched. The rules were found on an H200; on other cards they are extrapolated."""

import math
from dataclasses import dataclass

DEPTH = 64  # of k, a stage: 128 bytes of a row
FEWEST_ROWS, MOST_ROWS = 8, 128  # of x, a block
MOST_ROWS_OF_TWO_BLOCKS = 32  # up to which a second block has room on a multiprocessor
COLUMNS_AND_SPLITS = (
    (128, 2),
    (64, 2),
    (128, 4),
)  # outputs of a block and parts of k; the one with the longest reads first
FILLED_SHARE = 0.9  # of the multiprocessors that have a block
MOST_STAGES = 4  # more at once let the first of them come later
RESERVED_BYTES = 1 << 10  # of shared memory, by every resident block
STATIC_BYTES = 2 << 10  # at most, of what the kernel declares itself


@dataclass(frozen=True)
class MmaPlan:
    """BATCH, COLUMNS, SPLITS, STAGES and BLOCKS of the kernel, and its launch. `resident` blocks of it fit a
    multiprocessor."""

    rows: int
    columns: int
    splits: int
    stages: int
    resident: int
    grid: tuple[int, int]
    threads: int
    shared_bytes: int
    kernel, arguments, squares_on_tensor_cores = "rmsnorm_matmul", 10, False

    def defines(self, dtype: str) -> tuple[str, ...]:
        macros = {
            "BF16": int(dtype == "bf16"),
            "BATCH": self.rows,
            "COLUMNS": self.columns,
            "SPLITS": self.splits,
            "STAGES": self.stages,
            "BLOCKS": self.resident,
        }
        return tuple(f"-D{name}={value}" for name, value in macros.items())

    @property
    def blocks(self) -> int:
        return math.prod(self.grid)

    @property
    def sums_bytes(self) -> int:
        """That a block hands on."""
        return 4 * self.rows * self.columns if self.splits > 1 else 0

    @property
    def sets(self) -> int:
        """Of outputs and rows: in each, blocks share k."""
        return self.blocks // self.splits

    @property
    def workspace_floats(self) -> int:
        """What blocks leave for one another: sums, and squares of rows."""
        return self.blocks * self.rows * (self.columns + 1)

    def _slices(self, hidden: int) -> int:
        return math.ceil(math.ceil(hidden / DEPTH) / self.splits)

    def fetched_bytes(self, hidden: int) -> int:
        """Of W and x, by a block."""
        return self._slices(hidden) * DEPTH * 2 * (self.columns + self.rows)

    def staged_bytes(self, hidden: int) -> int:
        """Through shared memory, by a block: W and x come, W is read once, and x once for every 64 outputs."""
        return self._slices(hidden) * DEPTH * 2 * (2 * self.columns + self.rows * (1 + self.columns // 64))

    def tensor_flops(self, hidden: int) -> float:
        """Of whole tiles."""
        return 2.0 * self.grid[1] * self.rows * self.grid[0] // self.splits * self.columns * hidden


def plan_mma(
    batch: int, hidden: int, outputs: int, multiprocessors: int, shared_per_block: int, shared_per_multiprocessor: int
) -> MmaPlan:
    """The first division of which nearly every multiprocessor has a block, with as many stages as fit.

    Half of the outputs a block where two stages would not fit.
    """
    rows = min(max(FEWEST_ROWS, 1 << (batch - 1).bit_length()), MOST_ROWS)
    slices, chunks = math.ceil(hidden / DEPTH), math.ceil(batch / rows)
    columns, splits = next(
        (
            way
            for way in COLUMNS_AND_SPLITS
            if chunks * math.ceil(outputs / way[0]) * way[1] >= FILLED_SHARE * multiprocessors
        ),
        COLUMNS_AND_SPLITS[-1],
    )
    while splits > slices:
        splits //= 2
    resident = 2 if splits > 2 and rows <= MOST_ROWS_OF_TWO_BLOCKS else 1
    room = min(shared_per_block, shared_per_multiprocessor // resident - RESERVED_BYTES) - STATIC_BYTES
    if room // stage_bytes(rows, columns) < 2:
        columns = 64
    stages = min(room // stage_bytes(rows, columns), MOST_STAGES)
    return MmaPlan(
        rows=rows,
        columns=columns,
        splits=splits,
        stages=stages,
        resident=resident,
        grid=(math.ceil(outputs / columns) * splits, chunks),
        threads=2 * columns,
        shared_bytes=stages * stage_bytes(rows, columns),
    )


def stage_bytes(rows: int, columns: int) -> int:
    """Of W, x, and g's part."""
    return (columns + rows + 1) * DEPTH * 2
