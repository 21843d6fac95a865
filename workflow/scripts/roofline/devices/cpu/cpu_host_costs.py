"""The host's costs on a CPU: the pieces that operators consist of, each as a step to be timed.

Imported once the threads of the BLAS are set: it loads NumPy. The steps use what operators use: NumPy's calls, its
BLAS, the threads of workers.py and the loops of loops.py. Their operands come from memory.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy

from roofline.core.units import MIB
from roofline.devices import host
from roofline.devices.base import HostCostBenchmark, Step
from roofline.devices.cpu import loops

if TYPE_CHECKING:
    from roofline.devices.cpu.cpu_device import CpuDevice

# Steps read memory of several times the last-level caches, within these limits and an eighth of the free memory.
LAST_LEVEL_CACHES, LEAST_SOURCE_BYTES, MOST_SOURCE_BYTES = 3, 256 * MIB, 1024 * MIB
READ_BYTES, READ_BYTES_PER_CORE = 16 * MIB, 8 * MIB  # by one step
CALLS_PER_STEP, HANDOVERS_PER_STEP = 50, 10
ROWS, DEPTH, WEIGHT_ROWS = 128, 64, 2  # of stacked fp32 matrices, and rows of the weights that multiply them
PASSED_BYTES, COLUMNS = 12 * MIB, 256  # bytes of a core's array, and numbers in its rows
MEMORY_PASSES = 7  # over such an array: read and written twice, read once, read and written again
# The C library keeps freed memory for the next array once an array as large was freed, up to 32 MiB.
ALLOCATOR_KEEPS_BYTES = 31 * MIB


def host_cost_benchmarks(device: "CpuDevice") -> Iterator[HostCostBenchmark]:
    """Yield the benchmarks of a CPU's host costs. All read the same memory, each step the part used longest ago."""
    several_caches = max(LEAST_SOURCE_BYTES, LAST_LEVEL_CACHES * device.last_level_cache_bytes)
    most_bytes = min(MOST_SOURCE_BYTES, host.memory_available_bytes() // 8)
    source_bytes = max(2 * READ_BYTES, min(several_caches, most_bytes))
    bytes_per_core = max(1, source_bytes // (device.cores * MIB)) * MIB
    memory = loops.allocate_aligned(bytes_per_core * device.cores, 2 * MIB).view(numpy.float32)
    memory_by_core = memory.reshape(device.cores, -1)
    device.workers.run(device.cores, lambda core: memory_by_core[core].fill(1))
    numpy.empty(ALLOCATOR_KEEPS_BYTES, numpy.uint8)  # freed at once, as operators free such arrays sooner or later
    yield from _call_benchmarks(device)
    for count in sorted({1, device.cores}):
        read_bytes, read_step = _read_step(device, memory, count)
        yield HostCostBenchmark("read_s_per_byte", count, read_bytes, read_step)
        passed_bytes, pass_step = _pass_step(device, memory, count)
        yield HostCostBenchmark("pass_s_per_byte", count, passed_bytes, pass_step)
    scores = numpy.linspace(-10, 0, 1 << 16, dtype=numpy.float32).reshape(-1, ROWS)
    out = numpy.empty_like(scores)

    def softmax(index: int) -> None:
        numpy.subtract(scores, numpy.maximum.reduce(scores, axis=-1, keepdims=True), out=out)
        numpy.exp(out, out=out)
        numpy.add.reduce(out, axis=-1, keepdims=True)

    yield HostCostBenchmark("softmax_s_per_score", 1, scores.size, softmax)


def _slice_of_memory(memory: numpy.ndarray, index: int, size_bytes: int) -> numpy.ndarray:
    """Return the index-th slice of `size_bytes` of a float32 array, counted from its start again after its end."""
    slices = memory.nbytes // size_bytes
    first = index % slices * (size_bytes // 4)
    return memory[first : first + size_bytes // 4]


def _call_benchmarks(device: "CpuDevice") -> Iterator[HostCostBenchmark]:
    """Yield calls of NumPy on tiny arrays, and work handed to threads that have next to nothing to do."""
    ones, out = numpy.ones((8, 64), numpy.float32), numpy.empty((8, 64), numpy.float32)
    count, loop = device.cores, loops.compile_access_loop("read")

    def call_numpy(index: int) -> None:
        for _ in range(CALLS_PER_STEP):
            numpy.subtract(ones, ones[:, :1], out=out)
            numpy.maximum.reduce(ones, axis=-1, keepdims=True)
            numpy.matmul(ones[:2], ones[2:4].T)
            numpy.exp(ones, out=out)
            ones.mean(axis=1)

    def hand_over(index: int) -> None:
        for _ in range(HANDOVERS_PER_STEP):
            device.workers.run(count, lambda core: None)

    def run_loops(index: int) -> None:
        for _ in range(HANDOVERS_PER_STEP):
            loops.run_together(device.workers, loop, [(0, 0, 0, 0, 1)] * count)

    yield HostCostBenchmark("array_operation_s", 1, 5 * CALLS_PER_STEP, call_numpy)
    yield HostCostBenchmark("handover_s", count, HANDOVERS_PER_STEP * count, hand_over)
    yield HostCostBenchmark("loop_s", count, HANDOVERS_PER_STEP * count, run_loops)


def _read_step(device: "CpuDevice", memory: numpy.ndarray, count: int) -> tuple[float, Step]:
    """Return the bytes that a step reads, and the step: one product for each of `count` cores.

    It multiplies stacked matrices by a column each, and in the next step two rows by each of them.
    """
    step_bytes = min(max(READ_BYTES, READ_BYTES_PER_CORE * count), memory.nbytes // 2)
    units = step_bytes // count // (4 * ROWS * DEPTH)
    columns = numpy.ones((units, 1, DEPTH), numpy.float32)
    weights = numpy.ones((units, WEIGHT_ROWS, ROWS), numpy.float32)

    def step(index: int) -> None:
        matrices = _slice_of_memory(memory, index, 4 * units * ROWS * DEPTH * count).reshape(count, units, ROWS, DEPTH)
        if index % 2:
            device.run_on_cores(count, lambda core: numpy.matmul(weights, matrices[core]))
        else:
            device.run_on_cores(count, lambda core: numpy.vecdot(matrices[core], columns))

    return 4.0 * units * ROWS * DEPTH * count, step


def _pass_step(device: "CpuDevice", memory: numpy.ndarray, count: int) -> tuple[float, Step]:
    """Return the bytes that a step passes over, and the step: array operations on each of `count` cores.

    They run one after the other on PASSED_BYTES per core, each with a new array for its result.
    """

    def step(index: int) -> None:
        def work(core: int) -> None:
            rows = _slice_of_memory(memory, index * count + core, PASSED_BYTES).reshape(-1, COLUMNS)
            differences = rows - rows[:, :1]
            squared = differences * differences
            differences / (1 + squared.mean(axis=1, keepdims=True))

        device.workers.run(count, work)

    return float(MEMORY_PASSES * PASSED_BYTES * count), step
