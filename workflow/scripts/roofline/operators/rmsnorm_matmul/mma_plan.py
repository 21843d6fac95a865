"""How the kernel for other cards than Hopper's is compiled and launched for a case: rows and outputs of a block, parts
of k, and how far ahead W is fetched. The rules were found on an H200; on other cards they are extrapolated."""

import math
from dataclasses import dataclass

from roofline.core.dtypes import FLOAT_BYTES
from roofline.core.units import KIB
from roofline.devices.base import RESERVED_SHARED_BYTES, GpuLimits
from roofline.operators.base import macro_options
from roofline.operators.gemm.tensor_matmul import half_type_option

STAGE_DEPTH = 64  # numbers of k in a stage
HALF_BYTES = 2  # of fp16 and bf16
FEWEST_BLOCK_ROWS, MOST_BLOCK_ROWS = 8, 128  # of x
MOST_ROWS_OF_TWO_BLOCKS = 32  # up to which a second block has room on a multiprocessor
COLUMNS_AND_SPLITS = ((128, 2), (64, 2), (128, 4))  # outputs of a block and parts of k, those with longest reads first
FILLED_SHARE = 0.9  # of the multiprocessors that have a block
MOST_STAGES = 4  # more at once let the first of them come later
STATIC_BYTES = 2 * KIB  # at most, of shared memory that the kernel declares itself


@dataclass(frozen=True)
class ProductPlan:
    """The division of a product among the blocks of its kernel, and its launch."""

    rows: int
    columns: int  # outputs of a tile
    splits: int  # of k
    stages: int
    grid: tuple[int, int]
    shared_bytes: int

    @property
    def blocks(self) -> int:
        return math.prod(self.grid)

    @property
    def exchanged_bytes(self) -> int:
        """Bytes of sums that a block exchanges with the others that share k."""
        return FLOAT_BYTES * self.rows * self.columns if self.splits > 1 else 0


@dataclass(frozen=True)
class MmaPlan(ProductPlan):
    """The macros BATCH, COLUMNS, SPLITS, STAGES and BLOCKS of the kernel, and its launch.

    `resident` blocks fit a multiprocessor.
    """

    resident: int
    threads: int
    kernel, arguments, squares_on_tensor_cores = "rmsnorm_matmul", 10, False

    def defines(self, dtype: str) -> tuple[str, ...]:
        """Return the -D options of the compiler for a dtype."""
        macros = {"BATCH": self.rows, "COLUMNS": self.columns, "SPLITS": self.splits}
        macros |= {"STAGES": self.stages, "BLOCKS": self.resident}
        return half_type_option(dtype), *macro_options(**macros)

    @property
    def split_groups(self) -> int:
        """Groups of blocks that share k, each for other outputs or rows."""
        return self.blocks // self.splits

    @property
    def workspace_floats(self) -> int:
        """Floats that blocks leave for one another: sums, and squares of rows."""
        return self.blocks * self.rows * (self.columns + 1)

    def _depth(self, hidden: int) -> int:
        """Return the numbers of k that a block goes through, in whole stages."""
        return math.ceil(math.ceil(hidden / STAGE_DEPTH) / self.splits) * STAGE_DEPTH

    def fetched_bytes(self, hidden: int) -> int:
        """Return the bytes of W and x that one block fetches, for rows of `hidden` inputs."""
        return self._depth(hidden) * HALF_BYTES * (self.columns + self.rows)

    def staged_bytes(self, hidden: int) -> int:
        """Return the bytes that one block moves through its shared memory, for rows of `hidden` inputs: W and x come
        in, W is read once, and x once for every 64 outputs."""
        return self._depth(hidden) * HALF_BYTES * (2 * self.columns + self.rows * (1 + self.columns // 64))

    def tensor_flops(self, hidden: int) -> float:
        """Return the FLOPs of whole tiles, for rows of `hidden` inputs."""
        blocks_across = self.grid[0] // self.splits
        return 2.0 * self.grid[1] * self.rows * blocks_across * self.columns * hidden


def plan_mma(batch: int, hidden: int, outputs: int, limits: GpuLimits) -> MmaPlan:
    """Return the first division that gives nearly every multiprocessor a block, with as many stages as fit.

    Where two stages would not fit, a block has half of the outputs.
    """
    rows = min(max(FEWEST_BLOCK_ROWS, 1 << (batch - 1).bit_length()), MOST_BLOCK_ROWS)
    row_blocks = math.ceil(batch / rows)
    columns, splits = _choose_division(row_blocks, outputs, limits.multiprocessors)
    while splits > math.ceil(hidden / STAGE_DEPTH):
        splits //= 2
    resident = 2 if splits > 2 and rows <= MOST_ROWS_OF_TWO_BLOCKS else 1
    shared_bytes = min(limits.shared_per_block, limits.shared_per_sm // resident - RESERVED_SHARED_BYTES)
    stage_room_bytes = shared_bytes - STATIC_BYTES
    if stage_room_bytes // stage_bytes(rows, columns) < 2:
        columns = 64
    stages = min(stage_room_bytes // stage_bytes(rows, columns), MOST_STAGES)
    return MmaPlan(
        rows=rows,
        columns=columns,
        splits=splits,
        stages=stages,
        resident=resident,
        grid=(math.ceil(outputs / columns) * splits, row_blocks),
        threads=2 * columns,
        shared_bytes=stages * stage_bytes(rows, columns),
    )


def _choose_division(row_blocks: int, outputs: int, multiprocessors: int) -> tuple[int, int]:
    """Return the first outputs and parts of k that give nearly every multiprocessor a block, or the last of all."""
    for columns, splits in COLUMNS_AND_SPLITS:
        blocks = row_blocks * math.ceil(outputs / columns) * splits
        if blocks >= FILLED_SHARE * multiprocessors:
            return columns, splits
    return COLUMNS_AND_SPLITS[-1]


def stage_bytes(rows: int, columns: int) -> int:
    """Return the bytes of a stage: W, x, and the norm weights of its part of k."""
    return (columns + rows + 1) * STAGE_DEPTH * HALF_BYTES
