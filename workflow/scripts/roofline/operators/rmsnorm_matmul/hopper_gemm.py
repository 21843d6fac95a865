"""Products on Hopper: how blocks divide the work, by rows of x and outputs, and the arguments of a launch. The rules
were found on an H200."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from roofline.core.dtypes import FLOAT_BYTES
from roofline.core.roofline_model import LANES_PER_WARP
from roofline.core.terms import Array
from roofline.core.units import KIB
from roofline.devices.base import CudaDevice, GpuLimits
from roofline.devices.gpu.kernel_compiler import HOPPER_OPTIONS
from roofline.operators.base import macro_options
from roofline.operators.gemm.tensor_matmul import half_type_option
from roofline.operators.rmsnorm_matmul.mma_plan import ProductPlan

KERNELS = {name: Path(__file__).parent / "kernels" / f"{name}.cu" for name in ("few_rows", "many_rows")}
SIZE_NAMES = ("rows", "outputs", "inputs")  # with which the argument Shape of every kernel begins

THREADS = 320
FEWEST_ROWS, FEW_ROWS, MOST_ROWS = 8, 32, 256  # of x, a block
FEWEST_OF_MANY = 64
MOST_NORMED = 32768  # inputs of few rows whose norm's weights leave room for two stages
SLICE_DEPTH, SLICE_BYTES = 64, 128  # numbers of k in a slice, and bytes of a row of it
FETCHED_BYTES = {"few_rows": SLICE_BYTES, "many_rows": 2 * SLICE_BYTES}  # to the L2, by a row of a slice
ALIGNMENT = KIB  # of the first stage. A multiprocessor has one block: two with half the stages each were slower
BARRIER_BYTES = 8
MULTIPLYING_WARPS = 8  # of a block, besides two that fetch
MMA_FLOPS = 4096.0  # of one mma.m16n8k16
MOST_STAGES = 16
# Few rows.
OUTPUTS_PER_GROUP = 16  # outputs that belong together
MOST_GROUPS, MOST_SUMS = 8, 20  # groups of a tile; groups times eights of rows
BLOCKS_PER_HEAD = 2  # that have whole heads: clusters of four do not reach all multiprocessors
LONG_INPUTS = 4096  # inputs from which a block has enough to do with one group
EVEN_FACTOR = 1.04  # of the least work of the busiest block: within it larger tiles are better
STAGE_BYTES = 16 * KIB  # of W, about
# Many rows: what a division costs, in bytes and clocks of an H200.
MOST_OUTPUTS = 256
SPLITS = (1, 2)  # parts of k: clusters of four blocks do not reach all multiprocessors, and come late
SHARED_BYTES_PER_CLOCK = 115  # through the shared memory of a block
MEMORY_BYTES_PER_CLOCK = 2600  # from memory, by all blocks
EXCHANGE_BYTES_PER_CLOCK = 18  # of the sums of a block
EXCHANGE_CLOCKS = 1000
# Of queries, keys and values: 64 rows of Llama-3-8B took 20.0 us in clusters of 96 outputs, 19.0 us in blocks of 64.
EXCHANGE_CLOCKS_OF_HEADS = 2500


@dataclass(frozen=True)
class Epilogue:
    """Work of a kernel on its sums before it stores them: sources of kernels that include it, and its macros.

    `sizes` are the fields of the argument Shape after SIZE_NAMES, with their dtypes; `tensors` those of Tensors.
    """

    sources: Mapping[str, Path]
    sizes: tuple[tuple[str, str], ...]
    tensors: tuple[str, ...]
    macros: tuple[tuple[str, int], ...] = ()

    @property
    def shape_fields(self) -> list[tuple[str, str]]:
        """The fields of Shape, with their dtypes."""
        return [*((name, "i4") for name in SIZE_NAMES), *self.sizes]


PLAIN = Epilogue(KERNELS, (("eps", "f4"),), ("y", "norm"))  # epilogue.cuh


@dataclass(frozen=True)
class HopperGemmPlan(ProductPlan):
    """The macros that divide a kernel's work, next to those of its epilogue, and its launch."""

    kernel: str
    tiles: int
    macros: tuple[tuple[str, int], ...]
    w_rows_per_copy: int  # rows of W in the box of its tensor map
    threads, arguments = THREADS, 4  # of a block, of a launch

    def kernel_spec(self, dtype: str, epilogue: Epilogue) -> tuple[Path, str, tuple[str, ...]]:
        """Return the kernel's file, its name, and the options that compile it for a dtype and an epilogue."""
        macros = {"ROWS": self.rows, **dict(self.macros), "BOX": self.w_rows_per_copy, **dict(epilogue.macros)}
        options = *HOPPER_OPTIONS, half_type_option(dtype), *macro_options(**macros)
        return epilogue.sources[self.kernel], self.kernel, options

    @property
    def padded_batch(self) -> int:
        """Rows of all blocks."""
        return self.grid[1] * self.rows

    @property
    def squares_parts(self) -> int:
        """Sums of squares that the kernel leaves of each row of the residual stream."""
        return self.tiles * output_parts(self.rows)

    @property
    def squares_on_tensor_cores(self) -> bool:
        """True where the kernel takes x's norm itself, whose sums of squares are tensor products."""
        return bool(dict(self.macros).get("NORM"))

    def _slices(self, inputs: int) -> int:
        """Return the slices that a block goes through, of all its tiles."""
        tiles_per_block = math.ceil(self.tiles * self.splits / self.grid[0])
        return math.ceil(inputs // SLICE_DEPTH / self.splits) * tiles_per_block

    def fetched_bytes(self, inputs: int) -> int:
        """Return the bytes of W and x that one block fetches, for a product of `inputs` inputs."""
        return self._slices(inputs) * SLICE_BYTES * (self.columns + self.rows)

    def staged_bytes(self, inputs: int) -> int:
        """Return the bytes that one block moves through its shared memory, W and x in and out, for a product of
        `inputs` inputs."""
        return self._slices(inputs) * staged_slice_bytes(self.columns, self.rows)

    def tensor_flops(self, inputs: int) -> float:
        """Return the FLOPs of whole tiles, of few rows with the squares of the norm, which are tensor products too."""
        if self.kernel == "many_rows":
            return 2.0 * self.grid[1] * self.rows * self.tiles * self.columns * inputs
        slices_per_stage = dict(self.macros)["SLICES"]
        slices = math.ceil(inputs // SLICE_DEPTH / slices_per_stage) * slices_per_stage
        eights, groups = self.rows // 8, self.columns // OUTPUTS_PER_GROUP
        products_per_warp = math.ceil(groups / 2) * eights
        if self.squares_on_tensor_cores:
            products_per_warp += math.ceil(eights / 2)
        return MMA_FLOPS * self.tiles * slices * MULTIPLYING_WARPS * products_per_warp


def output_parts(rows: int) -> int:
    """Return the parts of a tile's outputs: two where rows are too few for both warpgroups, one for each."""
    return 2 if rows == FEWEST_OF_MANY else 1


def staged_slice_bytes(columns: int, rows: int) -> int:
    """Return the bytes of a slice through shared memory: W and x come in, every 64 rows read W, and every part of the
    outputs reads x."""
    return SLICE_BYTES * (columns * (1 + math.ceil(rows / 64)) + rows * (1 + output_parts(rows)))


def kernel_takes_norm(batch: int) -> bool:
    """Return whether the product's kernel also takes x's norm.

    Blocks of many rows would have to take it in registers, each block of outputs all of it again: this made a card at
    its power limit slower.
    """
    return batch <= FEW_ROWS


def padded_rows(batch: int) -> int:
    """Return the rows that a kernel computes for a batch: a power of two from FEWEST_ROWS to MOST_ROWS."""
    return min(max(FEWEST_ROWS, 1 << (batch - 1).bit_length()), MOST_ROWS)


@dataclass(frozen=True)
class GemmTask:
    """A product of x [batch, inputs] and W [outputs, inputs], and what its kernel does besides."""

    batch: int
    outputs: int
    inputs: int
    norm: bool = False  # the kernel takes x's norm itself: of few rows
    leaves_squares: bool = False  # it leaves sums of squares
    head_size: int = 0  # of heads, whose two halves are rows of W that lie apart
    whole_heads: bool = False  # each block of many rows, or cluster of few, has whole heads
    splits_rows: bool = False  # x's rows may be divided among blocks: no other kernel's data belong to them
    groups: int | None = None  # of OUTPUTS_PER_GROUP in a tile of few rows; None: by choose_groups

    @property
    def slices(self) -> int:
        """Slices of k."""
        return self.inputs // SLICE_DEPTH


def plan_gemm(task: GemmTask, limits: GpuLimits) -> HopperGemmPlan:
    """Return the plan of a product, with one block on a multiprocessor. Raises ValueError for too many rows."""
    many_rows = task.batch > FEW_ROWS
    if many_rows and (task.norm or (task.batch > MOST_ROWS and not task.splits_rows)):
        raise ValueError(f"{task.batch} rows; with a norm a product takes {FEW_ROWS} at most, in a chain {MOST_ROWS}")
    room_bytes = limits.shared_per_block - ALIGNMENT
    if many_rows:
        return _plan_many_rows(task, limits.multiprocessors, room_bytes)
    return _plan_few_rows(task, limits.multiprocessors, room_bytes)


def _plan_few_rows(task: GemmTask, multiprocessors: int, room_bytes: int) -> HopperGemmPlan:
    rows = padded_rows(task.batch)
    cluster = BLOCKS_PER_HEAD if task.whole_heads else 1
    if task.whole_heads:
        groups = task.head_size // OUTPUTS_PER_GROUP // cluster
    else:
        groups = task.groups or choose_groups(task, multiprocessors)
    columns = groups * OUTPUTS_PER_GROUP
    slices = 1 << max(0, int(math.log2(STAGE_BYTES / (columns * SLICE_BYTES))))
    stage_bytes = slices * (columns + rows) * SLICE_BYTES
    norm_bytes = math.ceil(task.slices / slices) * slices * SLICE_BYTES if task.norm else 0  # the norm's weights
    # What few_rows.cuh declares: partial_sums, squares_of_group, factors, partial_squares, barriers and those of heads.
    partial_sums = 4 * groups * (rows // 8) * LANES_PER_WARP * 4 * FLOAT_BYTES  # four parts of k, float4
    squares = FLOAT_BYTES * groups * rows
    factors = FLOAT_BYTES * rows
    scratch = FLOAT_BYTES * LANES_PER_WARP * MULTIPLYING_WARPS
    barriers = BARRIER_BYTES * (2 * MOST_STAGES + 1)
    of_heads = FLOAT_BYTES * (2 * cluster + 1) * rows + 2 * BARRIER_BYTES if task.whole_heads else 0
    static_bytes = partial_sums + squares + factors + scratch + barriers + of_heads
    stages = min(MOST_STAGES, (room_bytes - static_bytes - norm_bytes) // stage_bytes)
    tiles = math.ceil(task.outputs / columns)
    return HopperGemmPlan(
        kernel="few_rows",
        rows=rows,
        columns=columns,
        tiles=tiles,
        splits=1,
        stages=stages,
        macros=(
            ("GROUPS", groups),
            ("SLICES", slices),
            ("STAGES", stages),
            ("NORM", int(task.norm)),
            ("CLUSTER", cluster),
        ),
        grid=(min(multiprocessors // cluster * cluster, tiles), 1),
        w_rows_per_copy=8 * math.gcd(groups, task.head_size // OUTPUTS_PER_GROUP),
        shared_bytes=stages * stage_bytes + norm_bytes + ALIGNMENT,
    )


def choose_groups(task: GemmTask, multiprocessors: int) -> int:
    """Return the groups of the largest tile with which the busiest block has about the least to do."""

    def groups_of_busiest_block(groups: int) -> int:
        tiles = math.ceil(task.outputs / (groups * OUTPUTS_PER_GROUP))
        return groups * math.ceil(tiles / multiprocessors)

    fewest = 1 if task.inputs >= LONG_INPUTS else 2
    most_groups = min(MOST_GROUPS, MOST_SUMS * 8 // padded_rows(task.batch))
    group_counts = range(fewest, most_groups + 1)
    least_work = min(map(groups_of_busiest_block, group_counts))
    return max(groups for groups in group_counts if groups_of_busiest_block(groups) <= EVEN_FACTOR * least_work)


def _plan_many_rows(task: GemmTask, multiprocessors: int, room_bytes: int) -> HopperGemmPlan:
    """Return the plan with the division of the least cost."""
    padded = padded_rows(task.batch)
    most_rows = MOST_ROWS // 2 if task.splits_rows else MOST_ROWS  # fewer were faster
    rows = min(max(FEWEST_OF_MANY, padded), most_rows)
    costs = division_costs(task, rows, multiprocessors)
    columns, splits = min(costs, key=lambda division: costs[division])
    part_columns = columns // output_parts(rows)
    stage_bytes = (columns + rows) * SLICE_BYTES
    # What many_rows.cuh declares: squares_of_unit, of the rows that a block finishes, barriers, factors and scratch.
    finished_rows = rows * output_parts(rows) // splits
    squares = FLOAT_BYTES * finished_rows * (part_columns // OUTPUTS_PER_GROUP if task.leaves_squares else 1)
    barriers = BARRIER_BYTES * (2 * MOST_STAGES + 2)  # with padding
    factors = FLOAT_BYTES * rows
    scratch = FLOAT_BYTES * 4 * LANES_PER_WARP * MULTIPLYING_WARPS  # float4
    static_bytes = squares + barriers + factors + scratch
    stages = min(MOST_STAGES, (room_bytes - static_bytes) // stage_bytes)
    tiles = math.ceil(task.outputs / columns)
    if splits > 1:
        inbox_bytes = FLOAT_BYTES * rows * columns  # for sums of the other blocks, in the place of the stages
        blocks_across = tiles * splits
    else:
        inbox_bytes = 0
        blocks_across = min(multiprocessors, tiles)
    return HopperGemmPlan(
        kernel="many_rows",
        rows=rows,
        columns=columns,
        tiles=tiles,
        splits=splits,
        stages=stages,
        macros=(("PADDED", min(padded, rows)), ("OUTPUTS", columns), ("SPLITS", splits), ("STAGES", stages)),
        grid=(blocks_across, math.ceil(task.batch / rows)),
        w_rows_per_copy=8 * math.gcd(part_columns // OUTPUTS_PER_GROUP, task.head_size // OUTPUTS_PER_GROUP),
        shared_bytes=max(stages * stage_bytes, inbox_bytes) + ALIGNMENT,
    )


def division_costs(task: GemmTask, rows: int, multiprocessors: int) -> dict[tuple[int, int], float]:
    """Return the clocks that each division costs, by outputs of a tile and parts of k."""
    step = (task.head_size if task.whole_heads else OUTPUTS_PER_GROUP) * output_parts(rows)
    most_columns = MOST_OUTPUTS // 2 if rows == MOST_ROWS else MOST_OUTPUTS
    blocks_at_once = max(1, multiprocessors // math.ceil(task.batch / rows))
    costs = {}
    for splits in SPLITS:
        if splits > task.slices:
            continue
        whole_tiles_at_once = max(1, blocks_at_once // splits) * splits  # in blocks
        for columns in range(step, most_columns + 1, step):
            blocks = math.ceil(task.outputs / columns) * splits
            through_shared = staged_slice_bytes(columns, rows) / SHARED_BYTES_PER_CLOCK
            from_memory = SLICE_BYTES * columns * min(blocks, whole_tiles_at_once) / MEMORY_BYTES_PER_CLOCK
            clocks_per_slice = max(through_shared, from_memory)
            exchange = 0.0
            if splits > 1:
                base_clocks = EXCHANGE_CLOCKS_OF_HEADS if task.head_size else EXCHANGE_CLOCKS
                exchange = base_clocks + FLOAT_BYTES * rows * columns / EXCHANGE_BYTES_PER_CLOCK
            waves = math.ceil(blocks / whole_tiles_at_once)
            costs[columns, splits] = waves * (math.ceil(task.slices / splits) * clocks_per_slice + exchange)
    return costs


class HopperGemm:
    """One kernel on a device, for products of x [batch, inputs] and W [outputs, inputs] with an epilogue.

    x may have padding: a tensor map's box is fetched slowly where it reaches beyond the last of many rows.
    """

    def __init__(self, device: CudaDevice, dtype: str, launch_plan: HopperGemmPlan, epilogue: Epilogue):
        self.launch_plan, self.epilogue = launch_plan, epilogue
        self.kernel = device.load_kernel(*launch_plan.kernel_spec(dtype, epilogue))
        # All that there is: the limit is the kernel's, which other sizes launch with more or less.
        room_bytes = device.limits.shared_per_block - self.kernel.shared_size_bytes
        self.kernel.max_dynamic_shared_size_bytes = room_bytes

    def make_arguments(self, batch: int, x: Array, w: Array, sizes: tuple, tensors: dict[str, Array]) -> tuple:
        """Return the arguments of a launch.

        `sizes` are those of the epilogue; `tensors` are named as the epilogue's, and the kernel gets null pointers for
        the others.
        """
        import numpy

        from roofline.devices.gpu.driver_calls import make_tensor_map

        plan, names = self.launch_plan, self.epilogue.tensors
        fetched_bytes = FETCHED_BYTES[plan.kernel]
        pointers = tuple(tensors[name].data.ptr if name in tensors else 0 for name in names)
        return (
            make_tensor_map(x, plan.rows, fetched_bytes),
            make_tensor_map(w, plan.w_rows_per_copy, fetched_bytes),
            numpy.array((batch, *w.shape, *sizes), self.epilogue.shape_fields)[()],
            numpy.array(pointers, [(name, "u8") for name in names])[()],
        )
