"""Products on Hopper: how blocks divide the work, by rows of x and outputs, and the arguments of a launch. The rules
were found on an H200."""

import math
from dataclasses import dataclass
from pathlib import Path

from roofline.devices.gpu.kernel_compiler import HOPPER_OPTIONS, list_kernel_files

KERNELS = {name: Path(__file__).parent / "kernels" / f"{name}.cu" for name in ("few_rows", "many_rows")}
SOURCES = tuple(sorted(set().union(*map(list_kernel_files, KERNELS.values()))))
EPILOGUE_QKV, EPILOGUE_ADDED, EPILOGUE_GATED, EPILOGUE_NONE = range(4)  # what follows a product: EPILOGUE
SHAPE_FIELDS = [
    ("rows", "i4"),
    ("outputs", "i4"),
    ("inputs", "i4"),
    ("heads", "i4"),
    ("key_heads", "i4"),
    ("context", "i4"),
]
SHAPE_FIELDS += [("parts", "i4"), ("eps", "f4")]
TENSOR_FIELDS = (
    "y",
    "stream",
    "g",
    "squares",
    "next_squares",
    "keys",
    "values",
    "turns",
    "bias",
    "query_norm",
    "key_norm",
)
TENSOR_FIELDS += ("norm",)

THREADS = 320
FEWEST_ROWS, FEW_ROWS, MOST_ROWS = 8, 32, 256  # of x, a block
FEWEST_OF_MANY = 64
MOST_NORMED = 32768  # inputs of few rows whose norm's weights leave room for two stages
DEPTH, SLICE_BYTES = 64, 128  # of k, and of a row: a slice
ALIGNMENT = 1 << 10  # of the first stage. A multiprocessor has one block: two with half the stages each were slower
# Of few rows.
OUTPUTS_PER_GROUP = 16  # outputs that belong together
MOST_GROUPS, MOST_SUMS = 8, 20  # of a tile; groups times eights of rows
LONG_INPUTS = 4096  # inputs from which a block has enough to do with one group
EVEN_FACTOR = 1.04  # of the least work of the busiest block: within it larger tiles are better
STAGE_BYTES, MOST_STAGES = 16 << 10, 16  # of W, about
# Of many rows: what a division costs, in bytes and clocks of an H200.
MOST_OUTPUTS = 256
SPLITS = (1, 2)  # parts of k: clusters of four blocks do not reach all multiprocessors, and come late
SHARED_BYTES_PER_CLOCK = 115  # bytes a clock through a block's shared memory
MEMORY_BYTES_PER_CLOCK, EXCHANGE_BYTES_PER_CLOCK = 2600, 18  # bytes a clock, of all blocks; of a block's sums
EXCHANGE_CLOCKS = 1000


@dataclass(frozen=True)
class HopperGemmPlan:
    """A kernel's macros next to those of what follows it, and its launch. `box` rows of W come at once."""

    kernel: str
    rows: int
    columns: int  # outputs of a tile
    tiles: int
    splits: int  # of k
    stages: int
    macros: tuple[tuple[str, int], ...]
    grid: tuple[int, int]
    box: int
    shared_bytes: int
    threads, arguments = THREADS, 4  # of a block, of a launch

    def source(self, dtype: str, way: int, head_size: int = 128, norms: bool = False, bias: bool = False) -> tuple:
        """The kernel by its file, name and macros."""
        macros = {
            "BF16": int(dtype == "bf16"),
            "ROWS": self.rows,
            **dict(self.macros),
            "BOX": self.box,
            "EPILOGUE": way,
        }
        macros |= {"HEAD_SIZE": head_size, "HEAD_NORMS": int(norms and way == EPILOGUE_QKV), "BIAS": int(bias)}
        defines = (f"-D{name}={value}" for name, value in macros.items())
        return KERNELS[self.kernel], self.kernel, (*HOPPER_OPTIONS, *defines)

    @property
    def blocks(self) -> int:
        return math.prod(self.grid)

    @property
    def padded_batch(self) -> int:
        return self.grid[1] * self.rows

    @property
    def parts(self) -> int:
        """Sums of squares that are left of each row of what is added."""
        return self.tiles * output_parts(self.rows)

    @property
    def squares_on_tensor_cores(self) -> bool:
        """Whether those of x's norm are, which the kernel takes itself."""
        return bool(dict(self.macros).get("NORM"))

    @property
    def sums_bytes(self) -> int:
        """Of a block, where blocks share k and hand sums on."""
        return 4 * self.rows * self.columns if self.splits > 1 else 0

    def _slices(self, inputs: int) -> int:
        """Of a block."""
        return math.ceil(inputs // DEPTH / self.splits) * math.ceil(self.tiles * self.splits / self.grid[0])

    def fetched_bytes(self, inputs: int) -> int:
        """Of W and x, by a block."""
        return self._slices(inputs) * SLICE_BYTES * (self.columns + self.rows)

    def staged_bytes(self, inputs: int) -> int:
        """Through shared memory, by a block."""
        return self._slices(inputs) * staged_slice_bytes(self.columns, self.rows)

    def tensor_flops(self, inputs: int) -> float:
        """Of whole tiles; of few rows with the squares, which are tensor products too."""
        macros = dict(self.macros)
        if self.kernel == "many_rows":
            return 2.0 * self.grid[1] * self.rows * self.tiles * self.columns * inputs
        slices = math.ceil(inputs // DEPTH / macros["SLICES"]) * macros["SLICES"]
        eights, groups = self.rows // 8, self.columns // OUTPUTS_PER_GROUP
        of_warp = math.ceil(groups / 2) * eights + self.squares_on_tensor_cores * math.ceil(eights / 2)
        return 4096.0 * self.tiles * slices * 8 * of_warp


def output_parts(rows: int) -> int:
    """Parts that a tile's outputs are divided into: one for each warpgroup, where rows are too few for both."""
    return 2 if rows == FEWEST_OF_MANY else 1


def staged_slice_bytes(columns: int, rows: int) -> int:
    """Through shared memory, of a slice: W and x come, each 64 rows read W, and each part of the outputs reads x."""
    return SLICE_BYTES * (columns * (1 + math.ceil(rows / 64)) + rows * (1 + output_parts(rows)))


def kernel_takes_norm(batch: int) -> bool:
    """Whether the product's kernel can take x's norm too. In registers, as blocks of many rows would have to, it made a
    card at its power limit slower: each block of outputs takes all of it again."""
    return batch <= FEW_ROWS


def padded_rows(batch: int) -> int:
    """As kernels have them: a power of two."""
    return min(max(FEWEST_ROWS, 1 << (batch - 1).bit_length()), MOST_ROWS)


@dataclass(frozen=True)
class GemmTask:
    """A product [batch, inputs] by [outputs, inputs]. `norm`: the kernel takes x's norm itself (of few rows); `added`:
    it leaves sums of squares; `head`: the size of heads, whose halves' rows of W lie apart; `whole_heads`: a block has
    whole ones; `alone`: no data of other kernels belong to x's rows, so that these may be divided among blocks."""

    batch: int
    outputs: int
    inputs: int
    norm: bool = False
    added: bool = False
    head: int = 0
    whole_heads: bool = False
    alone: bool = False

    @property
    def slices(self) -> int:
        return self.inputs // DEPTH


def plan_gemm(work: GemmTask, multiprocessors: int, shared_bytes: int) -> HopperGemmPlan:
    """`shared_bytes`: what a multiprocessor's one block has at most. Raises ValueError for too many rows."""
    many = work.batch > FEW_ROWS or work.whole_heads
    if many and (work.norm or (work.batch > MOST_ROWS and not work.alone)):
        raise ValueError(f"{work.batch} rows; with a norm a product takes {FEW_ROWS} at most, in a chain {MOST_ROWS}")
    return (_plan_many_rows if many else _plan_few_rows)(work, multiprocessors, shared_bytes - ALIGNMENT)


def _plan_few_rows(work: GemmTask, multiprocessors: int, room: int) -> HopperGemmPlan:
    rows = padded_rows(work.batch)
    groups = choose_groups(work, multiprocessors)
    slices = 1 << max(0, int(math.log2(STAGE_BYTES / (groups * OUTPUTS_PER_GROUP * SLICE_BYTES))))
    stage = slices * (groups * OUTPUTS_PER_GROUP + rows) * SLICE_BYTES
    weights = math.ceil(work.slices / slices) * slices * SLICE_BYTES if work.norm else 0
    own = 4 * groups * (rows // 8) * 512 + 4 * groups * rows + 4 * rows + (1 << 10) + 16 * MOST_STAGES + 8
    stages = min(MOST_STAGES, (room - own - weights) // stage)
    tiles = math.ceil(work.outputs / (groups * OUTPUTS_PER_GROUP))
    return HopperGemmPlan(
        kernel="few_rows",
        rows=rows,
        columns=groups * OUTPUTS_PER_GROUP,
        tiles=tiles,
        splits=1,
        stages=stages,
        macros=(("GROUPS", groups), ("SLICES", slices), ("STAGES", stages), ("NORM", int(work.norm))),
        grid=(min(multiprocessors, tiles), 1),
        box=8 * math.gcd(groups, work.head // OUTPUTS_PER_GROUP),
        shared_bytes=stages * stage + weights + ALIGNMENT,
    )


def choose_groups(work: GemmTask, multiprocessors: int) -> int:
    """The largest tile of those with which the busiest block has about the least to do."""

    def busiest(groups: int) -> int:
        return groups * math.ceil(math.ceil(work.outputs / (groups * OUTPUTS_PER_GROUP)) / multiprocessors)

    ways = range(1 if work.inputs >= LONG_INPUTS else 2, min(MOST_GROUPS, MOST_SUMS * 8 // padded_rows(work.batch)) + 1)
    least = min(map(busiest, ways))
    return max(groups for groups in ways if busiest(groups) <= EVEN_FACTOR * least)


def _plan_many_rows(work: GemmTask, multiprocessors: int, room: int) -> HopperGemmPlan:
    """The division that costs least."""
    padded = padded_rows(work.batch)
    rows = min(max(FEWEST_OF_MANY, padded), MOST_ROWS // 2 if work.alone else MOST_ROWS)  # fewer were faster
    ways = division_costs(work, rows, multiprocessors)
    columns, splits = min(ways, key=ways.get)
    part = columns // output_parts(rows)
    stage = (columns + rows) * SLICE_BYTES
    finished = rows * output_parts(rows) // splits  # rows of parts, by a block
    own = 4 * finished * (part // OUTPUTS_PER_GROUP if work.added else 1) + 16 * MOST_STAGES + 16 + 4 * rows + (4 << 10)
    stages = min(MOST_STAGES, (room - own) // stage)
    inbox = 4 * rows * columns if splits > 1 else 0
    tiles = math.ceil(work.outputs / columns)
    return HopperGemmPlan(
        kernel="many_rows",
        rows=rows,
        columns=columns,
        tiles=tiles,
        splits=splits,
        stages=stages,
        macros=(("PADDED", min(padded, rows)), ("OUTPUTS", columns), ("SPLITS", splits), ("STAGES", stages)),
        grid=(tiles * splits if splits > 1 else min(multiprocessors, tiles), math.ceil(work.batch / rows)),
        box=8 * math.gcd(part // OUTPUTS_PER_GROUP, work.head // OUTPUTS_PER_GROUP),
        shared_bytes=max(stages * stage, inbox) + ALIGNMENT,
    )


def division_costs(work: GemmTask, rows: int, multiprocessors: int) -> dict[tuple[int, int], float]:
    """What each division (outputs of a tile, parts of k) costs, in clocks."""
    step = (work.head if work.whole_heads else OUTPUTS_PER_GROUP) * output_parts(rows)
    most = MOST_OUTPUTS // (2 if rows == MOST_ROWS else 1)
    reach = max(1, multiprocessors // math.ceil(work.batch / rows))
    found = {}
    for splits in SPLITS:
        at_once = max(1, reach // splits) * splits
        for columns in range(step, most + 1, step):
            blocks = math.ceil(work.outputs / columns) * splits
            through_shared = staged_slice_bytes(columns, rows) / SHARED_BYTES_PER_CLOCK
            from_memory = SLICE_BYTES * columns * min(blocks, at_once) / MEMORY_BYTES_PER_CLOCK
            of_slice = max(through_shared, from_memory)
            exchange = EXCHANGE_CLOCKS + 4 * rows * columns / EXCHANGE_BYTES_PER_CLOCK if splits > 1 else 0
            waves = math.ceil(blocks / at_once)
            found[columns, splits] = waves * (math.ceil(work.slices / splits) * of_slice + exchange)
    return {way: cost for way, cost in found.items() if way[1] <= work.slices}


class HopperGemm:
    """Products of one kernel on a device: x [batch, inputs] with w [outputs, inputs], and what follows. x may have
    padding: a tensor map's box is fetched slowly where it reaches beyond the last of many rows."""

    def __init__(
        self, device, dtype: str, division: HopperGemmPlan, way: int, head_size: int = 128, norms=False, bias=False
    ):
        self.division = division
        self.kernel = device.load_kernel(*division.source(dtype, way, head_size, norms, bias))
        # All that there is: the limit is the kernel's, which other sizes launch with more or less.
        room = device.properties["MaxSharedMemoryPerBlockOptin"] - self.kernel.shared_size_bytes
        self.kernel.max_dynamic_shared_size_bytes = room

    def arguments(self, batch: int, x, w, sizes: tuple, tensors: dict) -> tuple:
        """Of a launch. `sizes`: of SHAPE, after rows, outputs and inputs; tensors by their names in TENSORS."""
        import numpy

        from roofline.devices.gpu.driver_calls import make_tensor_map

        pointers = tuple(tensors[name].data.ptr if name in tensors else 0 for name in TENSOR_FIELDS)
        return (
            make_tensor_map(x, self.division.rows),
            make_tensor_map(w, self.division.box),
            numpy.array((batch, *w.shape, *sizes), SHAPE_FIELDS)[()],
            numpy.array(pointers, [(name, "u8") for name in TENSOR_FIELDS])[()],
        )

    def launcher(self, device, overlap: bool):
        return device.make_launcher(self.kernel, self.division.grid, (THREADS,), self.division.shared_bytes, overlap)
