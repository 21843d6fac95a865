"""What work costs this host: the pieces that operators consist of, each as a step to be timed.

Imported once the threads of the BLAS are set: it loads NumPy. The steps use what operators use: NumPy's calls, its
BLAS, the threads of workers.py and the loops of loops.py. What they read comes from memory.
"""

from collections.abc import Callable, Iterator

import numpy

from roofline.core.units import MIB
from roofline.devices import host
from roofline.devices.base import HostCostBenchmark
from roofline.devices.cpu import loops

# Of memory: several times the last-level caches, as far as these and the free memory allow.
LAST_LEVEL_CACHES, LEAST_SOURCE_BYTES, MOST_SOURCE_BYTES = 3, 256 * MIB, 1024 * MIB
READ_BYTES, READ_BYTES_PER_CORE = 16 * MIB, 8 * MIB  # by one step
CALLS_PER_STEP, HANDOVERS_PER_STEP = 50, 10  # in one step
ROWS, DEPTH, WEIGHT_ROWS = 128, 64, 2  # of stacked matrices, 1 MiB of fp32, and of what multiplies them
PASSED_BYTES, COLUMNS = 12 * MIB, 256  # of a core's temporaries, and numbers in their rows
MEMORY_PASSES = 7  # over such an array: read and written twice, read once, read and written again
# The C library keeps what was freed for the next array once an array as large was freed, up to 32 MiB.
ALLOCATOR_KEEPS_BYTES = 31 * MIB


def host_cost_benchmarks(device) -> Iterator[HostCostBenchmark]:
    """All of them read the same memory, of which each step takes the part that was used the longest ago."""
    wanted = min(max(LEAST_SOURCE_BYTES, LAST_LEVEL_CACHES * device.last_level_cache_bytes), MOST_SOURCE_BYTES)
    size = max(2 * READ_BYTES, min(wanted, host.memory_available_bytes() // 8)) // (device.cores * MIB)
    memory = loops.allocate_aligned(max(size, 1) * device.cores * MIB, 2 * MIB).view(numpy.float32)
    each = memory.size // device.cores
    device.workers.run(device.cores, lambda core: memory[core * each : (core + 1) * each].fill(1))
    numpy.empty(ALLOCATOR_KEEPS_BYTES, numpy.uint8)  # freed at once, as operators do by and by
    yield from _call_benchmarks(device)
    for count in sorted({1, device.cores}):
        yield HostCostBenchmark("read_s_per_byte", count, *_read_step(device, memory, count))
        yield HostCostBenchmark("pass_s_per_byte", count, *_pass_step(device, memory, count))
    scores = numpy.linspace(-10, 0, 1 << 16, dtype=numpy.float32).reshape(-1, ROWS)
    out = numpy.empty_like(scores)

    def softmax(index: int) -> None:
        numpy.subtract(scores, numpy.maximum.reduce(scores, axis=-1, keepdims=True), out=out)
        numpy.exp(out, out=out)
        numpy.add.reduce(out, axis=-1, keepdims=True)

    yield HostCostBenchmark("softmax_s_per_score", 1, scores.size, softmax)


def _slice_of_memory(memory, index: int, size_bytes: int):
    first = index % (memory.nbytes // size_bytes) * (size_bytes // 4)
    return memory[first : first + size_bytes // 4]


def _call_benchmarks(device) -> Iterator[HostCostBenchmark]:
    """Calls of NumPy on next to nothing, and work handed to threads that have next to nothing to do."""
    x, out = numpy.ones((8, 64), numpy.float32), numpy.empty((8, 64), numpy.float32)
    count, loop = device.cores, loops.compile_access_loop("read")

    def operations(index: int) -> None:
        for _ in range(CALLS_PER_STEP):
            numpy.subtract(x, x[:, :1], out=out)
            numpy.maximum.reduce(x, axis=-1, keepdims=True)
            numpy.matmul(x[:2], x[2:4].T)
            numpy.exp(x, out=out)
            x.mean(axis=1)

    def handed_over(index: int) -> None:
        for _ in range(HANDOVERS_PER_STEP):
            device.workers.run(count, lambda core: None)

    def looped(index: int) -> None:
        for _ in range(HANDOVERS_PER_STEP):
            loops.run_together(device.workers, loop, [(0, 0, 0, 0, 1)] * count)

    yield HostCostBenchmark("array_operation_s", 1, 5 * CALLS_PER_STEP, operations)
    yield HostCostBenchmark("handover_s", count, HANDOVERS_PER_STEP * count, handed_over)
    yield HostCostBenchmark("loop_s", count, HANDOVERS_PER_STEP * count, looped)


def _read_step(device, memory, count: int) -> tuple[float, Callable[[int], object]]:
    """Stacked matrices times a column each, or in the next step two rows times them; one call a core."""
    step_bytes = min(max(READ_BYTES, READ_BYTES_PER_CORE * count), memory.nbytes // 2)
    units = step_bytes // count // (4 * ROWS * DEPTH)
    columns, weights = (
        numpy.ones((units, 1, DEPTH), numpy.float32),
        numpy.ones((units, WEIGHT_ROWS, ROWS), numpy.float32),
    )

    def step(index: int) -> None:
        matrices = _slice_of_memory(memory, index, 4 * units * ROWS * DEPTH * count).reshape(count, units, ROWS, DEPTH)
        if index % 2:
            device.run_on_cores(count, lambda core: numpy.matmul(weights, matrices[core]))
        else:
            device.run_on_cores(count, lambda core: numpy.vecdot(matrices[core], columns))

    return 4.0 * units * ROWS * DEPTH * count, step


def _pass_step(device, memory, count: int) -> tuple[float, Callable[[int], object]]:
    """Array operations one after the other on so many bytes a core, each with a new array for its result."""

    def step(index: int) -> None:
        def work(core: int) -> None:
            x = _slice_of_memory(memory, index * count + core, PASSED_BYTES).reshape(-1, COLUMNS)
            apart = x - x[:, :1]
            squared = apart * apart
            apart / (1 + squared.mean(axis=1, keepdims=True))

        device.workers.run(count, work)

    return float(MEMORY_PASSES * PASSED_BYTES * count), step
