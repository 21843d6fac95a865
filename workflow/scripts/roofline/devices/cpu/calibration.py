"""What work costs this host: the pieces that operators consist of, each as a step to be timed.

Imported once the threads of the BLAS are set: it loads NumPy. The steps use what operators use: NumPy's calls, its
BLAS, the threads of workers.py and the loops of loops.py. What they read comes from memory.
"""

from collections.abc import Callable, Iterator

import numpy

from roofline.devices import host
from roofline.devices.base import HostWork
from roofline.devices.cpu import loops
from roofline.devices.cpu.loops import together
from roofline.devices.cpu.widening import piece_items, widened
from roofline.devices.cpu.workers import Timed

MIB = 1 << 20
# Of memory: several times the last-level caches, as far as these and the free memory allow.
CACHES, LEAST_BYTES, MOST_BYTES = 3, 256 * MIB, 1024 * MIB
LEAST_STEP_BYTES, STEP_BYTES_PER_CORE = 16 * MIB, 8 * MIB  # that one step reads
CALLS, CORE_CALLS, HANDOVERS = 50, 24, 10  # in one step
CORE_CALL_ITEMS = 4096  # enough for NumPy to release the interpreter's lock, which it then has to take again
ROWS, DEPTH, LANES = 128, 64, 2  # of stacked matrices, 1 MiB of fp32, and of what multiplies them
SIDE, FEW_ROWS, MANY_ROWS = 2048, 32, 128  # of a thin product: the weights' side, and rows
PROJECTED_SIDE, PROJECTED_ROWS = 512, 256
CACHED_BYTES, PASSED_BYTES, COLUMNS = 4 * MIB, 12 * MIB, 256  # of a core's temporaries, and numbers in their rows
PASSES, PASS_CALLS = 7, 6  # over such an array: read and written twice, read once, read and written again
# The C library keeps what was freed for the next array, once an array as large was freed, up to 32 MiB.
KEPT_BYTES, FRESH_BYTES = 31 * MIB, 48 * MIB


def works(device) -> Iterator[HostWork]:
    """All of them read the same memory."""
    memory, counts = Memory(device), sorted({1, device.cores})
    numpy.empty(KEPT_BYTES, numpy.uint8)  # freed at once, as operators do by and by
    yield from _calls(device, counts)
    for count in counts:
        yield HostWork("product_read_s_per_byte", count, *_reads(device, memory, count), count, count)
        yield HostWork("fp16_read_s_per_element", count, *_widened_reads(device, memory, count, numpy.float16))
        yield HostWork("bf16_read_s_per_element", count, *_widened_reads(device, memory, count, _bf16(device)))
        yield HostWork("projection_s_per_flop", count, *_projections(device, memory, count))
        for name, size in (("pass_s_per_byte", CACHED_BYTES), ("memory_pass_s_per_byte", PASSED_BYTES)):
            yield HostWork(name, count, *_passes(device, memory, count, size), PASS_CALLS * count, count)
        yield HostWork("copy_s_per_byte", count, *_copies(device, memory, count))
    yield from _on_one_core(device, memory)
    yield from _thin_products(memory)


class Memory:
    """Ones, of which each step takes the next part: the one that was used the longest ago."""

    def __init__(self, device):
        wanted = min(max(LEAST_BYTES, CACHES * device.last_level_cache_bytes), MOST_BYTES)
        self.bytes = max(2 * LEAST_STEP_BYTES, min(wanted, host.memory_available_bytes() // 8))
        self.bytes = max(self.bytes // (device.cores * MIB), 1) * device.cores * MIB
        self.floats = loops.aligned(self.bytes, 2 * MIB).view(numpy.float32)
        each = self.floats.size // device.cores
        device.workers.run(device.cores, lambda core: self.floats[core * each : (core + 1) * each].fill(1))

    def step_bytes(self, count: int) -> int:
        """That one step of so many cores reads, of half of the memory at most."""
        return min(max(LEAST_STEP_BYTES, STEP_BYTES_PER_CORE * count), self.bytes // 2)

    def part(self, index: int, size_bytes: int):
        """As float32."""
        first = index % (self.bytes // size_bytes) * (size_bytes // 4)
        return self.floats[first : first + size_bytes // 4]


def _calls(device, counts: list[int]) -> Iterator[HostWork]:
    """Calls of NumPy on next to nothing, and work handed to threads that have next to nothing to do."""
    x, out = numpy.ones((8, 64), numpy.float32), numpy.empty((8, 64), numpy.float32)

    def operations(index: int) -> None:
        for _ in range(CALLS):
            numpy.subtract(x, x[:, :1], out=out)
            numpy.maximum.reduce(x, axis=-1, keepdims=True)
            numpy.matmul(x[:2], x[2:4].T)
            numpy.exp(x, out=out)
            x.mean(axis=1)

    yield HostWork("array_operation_s", 1, 5 * CALLS, operations)
    numbers, loop = numpy.ones((device.cores, 2, CORE_CALL_ITEMS), numpy.float32), loops.stream("read")
    for count in counts:

        def on_each(core: int) -> None:
            for _ in range(CORE_CALLS):
                numpy.add(numbers[core, 0], 1, out=numbers[core, 1])

        yield HostWork(
            "core_operation_s", count, CORE_CALLS * count, lambda index, n=count: device.on_cores(n, on_each)
        )

        def handed_over(index: int, count=count) -> None:
            for _ in range(HANDOVERS):
                device.workers.run(count, lambda core: None)

        def looped(index: int, count=count) -> None:
            for _ in range(HANDOVERS):
                together(device.workers, loop, [(0, 0, 0, 0, 1)] * count)

        yield HostWork("handover_s", count, HANDOVERS, handed_over)
        yield HostWork("loop_s", count, HANDOVERS, looped)


def _bf16(device):
    return device.empty((0,), "bf16").dtype


def _reads(device, memory: Memory, count: int) -> tuple[float, Callable[[int], object]]:
    """Stacked matrices times a column each, or in the next step two rows times them; one call a core."""
    units = memory.step_bytes(count) // count // (4 * ROWS * DEPTH)
    columns, weights = numpy.ones((units, 1, DEPTH), numpy.float32), numpy.ones((units, LANES, ROWS), numpy.float32)

    def step(index: int) -> None:
        matrices = memory.part(index, 4 * units * ROWS * DEPTH * count).reshape(count, units, ROWS, DEPTH)
        if index % 2:
            device.on_cores(count, lambda core: numpy.matmul(weights, matrices[core]))
        else:
            device.on_cores(count, lambda core: numpy.vecdot(matrices[core], columns))

    return 4.0 * units * ROWS * DEPTH * count, step


def _widened_reads(device, memory: Memory, count: int, dtype) -> tuple[float, Callable[[int], object]]:
    """The same of narrow numbers, widened piece by piece; the calls for a piece are part of the cost."""
    most = memory.step_bytes(count) // (2 * 2 * count)
    units = max(1, min(piece_items(device), most) // (ROWS * DEPTH))
    items = units * ROWS * DEPTH
    columns, weights = numpy.ones((units, DEPTH), numpy.float32), numpy.ones((units, LANES, ROWS), numpy.float32)
    wide = [numpy.empty(items, numpy.float32) for _ in range(count)]

    def step(index: int) -> None:
        pieces = memory.part(index, 2 * 2 * items * count).view(dtype).reshape(count, 2, items)

        def work(core: int) -> None:
            keys, values = pieces[core]
            numpy.matvec(widened(keys, wide[core]).reshape(units, ROWS, DEPTH), columns)
            numpy.matmul(weights, widened(values, wide[core]).reshape(units, ROWS, DEPTH))

        device.on_cores(count, work)

    return 2.0 * items * count, step


def _projections(device, memory: Memory, count: int) -> tuple[float, Callable[[int], object]]:
    """Rows times square weights, each core for some of the columns."""
    side, left = PROJECTED_SIDE, numpy.ones((PROJECTED_ROWS, PROJECTED_SIDE), numpy.float32)
    edges = [side * core // count for core in range(count + 1)]

    def step(index: int) -> None:
        weights = memory.part(index, 4 * side**2).reshape(side, side)
        device.on_cores(count, lambda core: left @ weights[:, edges[core] : edges[core + 1]])

    return 2.0 * PROJECTED_ROWS * side**2, step


def _passes(device, memory: Memory, count: int, size: int) -> tuple[float, Callable[[int], object]]:
    """Array operations one after the other on so many bytes a core, each with a new array for its result."""

    def step(index: int) -> None:
        def work(core: int) -> None:
            x = memory.part(index * count + core, size).reshape(-1, COLUMNS)
            apart = x - x[:, :1]
            squared = apart * apart
            apart / (1 + squared.mean(axis=1, keepdims=True))

        device.workers.run(count, work)

    return float(PASSES * size * count), step


def _copies(device, memory: Memory, count: int) -> tuple[float, Callable[[int], object]]:
    """By ordinary stores, of the half of the memory to the other."""
    size, half = memory.step_bytes(count) // 2, memory.bytes // 2
    each, loop = size // count // loops.BLOCK_BYTES * loops.BLOCK_BYTES, loops.stream("copy")

    def step(index: int) -> Timed:
        first = memory.floats.ctypes.data + index % (half // size) * size
        starts = [first + each * core for core in range(count)]
        arguments = [(start, start, start + half, each, 1) for start in starts]
        return Timed(together(device.workers, loop, arguments).seconds)

    return 2.0 * each * count, step


def _on_one_core(device, memory: Memory) -> Iterator[HostWork]:
    """What a single thread does: attention's exponentials, copies in fp32, new memory, and one row times weights."""
    scores = numpy.linspace(-10, 0, 1 << 16, dtype=numpy.float32).reshape(-1, ROWS)
    out = numpy.empty_like(scores)

    def softmax(index: int) -> None:
        numpy.minimum.reduce(scores, axis=-1, keepdims=True)
        numpy.subtract(scores, numpy.maximum.reduce(scores, axis=-1, keepdims=True), out=out)
        numpy.exp(out, out=out)
        numpy.add.reduce(out, axis=-1, keepdims=True)

    yield HostWork("softmax_s_per_score", 1, scores.size, softmax)
    for dtype, kind in (("fp16", numpy.float16), ("bf16", _bf16(device))):

        def convert(index: int, kind=kind) -> None:
            device.widened(memory.part(index, CACHED_BYTES).view(kind))

        yield HostWork(f"{dtype}_convert_s_per_element", 1, CACHED_BYTES // 2, convert)

    def touch(index: int) -> None:
        numpy.empty(FRESH_BYTES, numpy.uint8)[:: loops.PAGE_BYTES] = 1

    yield HostWork("fresh_page_s_per_byte", 1, FRESH_BYTES, touch)
    row, size = numpy.ones((1, PROJECTED_SIDE), numpy.float32), 4 * PROJECTED_SIDE**2

    def one_row(index: int) -> None:
        device.on_cores(1, lambda core: row @ memory.part(index, size).reshape(PROJECTED_SIDE, -1))

    yield HostWork("row_product_s_per_byte", 1, size, one_row)


def _thin_products(memory: Memory) -> Iterator[HostWork]:
    """A few rows times square weights by the BLAS on all cores, which packs the weights first."""
    weights = memory.part(0, 4 * SIDE**2).reshape(SIDE, SIDE)
    for rows in (FEW_ROWS, MANY_ROWS):
        left = numpy.ones((rows, SIDE), numpy.float32)
        yield HostWork("pack_s_per_element", rows, SIDE**2, lambda index, left=left: left @ weights.T)
