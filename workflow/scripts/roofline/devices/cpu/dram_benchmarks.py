"""The CPU's memory by compiled loops: access patterns over arrays larger than the caches, and sweeps over set sizes.

Imported once the threads of the BLAS are set: it loads NumPy.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import NamedTuple

import numpy

from roofline.core.levels import ALL_CORES, MAIN_MEMORY, main_memory_ceiling
from roofline.core.terms import ACCESS_PATTERNS, CACHE_LEVELS, AccessPattern
from roofline.core.units import MIB
from roofline.devices.base import BandwidthBenchmark, Step, SweepBenchmark
from roofline.devices.cpu import loops, topology
from roofline.devices.cpu.loops import ITERATION_BYTES, TRIAD_SCALE, run_together
from roofline.devices.cpu.topology import ceiling_name_on_cores, measured_core_counts
from roofline.devices.cpu.workers import StepSeconds, Workers

READ_CEILING = main_memory_ceiling("cpu", "read")
# Arrays and sets begin at its multiples. A Zen 4 core was seen to read a third slower from its first cache where a set
# of 16 KiB lay across such a boundary.
ALIGNED_BYTES = 2 * MIB
CHUNK_ITEMS = 1 << 18  # float32 numbers that are filled and checked together: their temporaries stay in a cache
# Item i of an array is 1 + (i mod NUMBER_PERIOD). Items are whole numbers, so that sums and products are exact in
# float32, and at least 1, so that a word left out changes any sum.
NUMBER_PERIOD = 4093
# Not zero: on a Zen 4 machine memset was seen to write zeros 2.5 times as fast as any other byte.
CLEARED_VALUE = -1.0

# An array is four times the last-level caches. It has at least LEAST_ARRAY_BYTES and LEAST_BYTES_PER_CORE, so that
# steps take milliseconds. Beyond twice the caches it has at most MOST_BYTES_PER_CORE: cores touch as much for the first
# time in about half a second.
USUAL_CACHES, LEAST_CACHES = 4, 2
LEAST_ARRAY_BYTES, LEAST_BYTES_PER_CORE, MOST_BYTES_PER_CORE = 256 * MIB, 16 * MIB, 256 * MIB
TIMED_BLOCKS = 2  # the faster one counts: others use the memory too
PARTS_PER_ARRAY = 8  # a step goes over one part
NON_TEMPORAL_TEXT = "non-temporal stores"
READ_FIRST_TEXT = f"; without {NON_TEMPORAL_TEXT} (see grid) each line is read before it is written"
WRITE_ALLOCATE_TEXT = f"{READ_FIRST_TEXT}, which is not counted: it would be"
COUNTING_RULES = {
    "read": "bytes read, by a loop that adds up 8-byte words",
    "write": f"bytes written{WRITE_ALLOCATE_TEXT} 2 x (write-allocate)",
    "copy": f"bytes read plus bytes written{WRITE_ALLOCATE_TEXT} 1.5 x (write-allocate)",
    "triad": f"bytes of a and b read plus bytes of c written{WRITE_ALLOCATE_TEXT} 1.33 x (write-allocate)",
}
ARRAYS_COUNTED = {"read": 1, "write": 1, "copy": 2, "triad": 3}

# A sweep goes up to so many times the caches of one reader, or all last-level caches: the memory must show.
SWEEP_OWN_CACHES, SWEEP_ALL_CACHES = 4, 2
SMALLEST_SET_BYTES, LARGEST_SET_BYTES = 4096, 64 * MIB
NEAR_STEP_BYTES, FAR_STEP_BYTES = 128 * MIB, 16 * MIB  # a reader reads so much in a step: in its L2, and beyond


# ---------------------------------------------------------------- arrays in memory


def default_array_bytes(readers: int, last_level_cache_bytes: int, free_bytes: int) -> int:
    """Return the bytes of an array that no cache holds: at least twice the last-level caches, usually four times."""
    usual_bytes = max(LEAST_ARRAY_BYTES, LEAST_BYTES_PER_CORE * readers, USUAL_CACHES * last_level_cache_bytes)
    most_bytes = min(max(LEAST_ARRAY_BYTES, MOST_BYTES_PER_CORE * readers), free_bytes // 8)
    array_bytes = max(LEAST_CACHES * last_level_cache_bytes, min(usual_bytes, most_bytes))
    return _round_down(array_bytes, PARTS_PER_ARRAY * ITERATION_BYTES)


def bandwidth_benchmarks(workers: Workers, array_bytes: int) -> list[BandwidthBenchmark]:
    """Return the access patterns on all cores, reads on fewer cores too, and a copy on one core.

    All use the same arrays of `array_bytes` each. A step goes over the part of them that was touched longest ago, in
    milliseconds. Fewer cores read the memory of all sockets.
    """
    arrays, counts = StreamArrays(workers, array_bytes), measured_core_counts(workers.count)
    benchmarks = [_read_benchmark(arrays, READ_CEILING, counts[:2])]  # half of the cores may be faster than all
    benchmarks += [_write_benchmark(arrays, mix, f"dram_{mix}", counts[:2]) for mix in ACCESS_PATTERNS if mix != "read"]
    for count in counts[1:]:
        benchmarks.append(_read_benchmark(arrays, ceiling_name_on_cores(READ_CEILING, count), [count]))
    if workers.count > 1:
        benchmarks.append(_write_benchmark(arrays, "copy", ceiling_name_on_cores("dram_copy", 1), [1]))
    return benchmarks


class StreamArrays:
    """Float32 arrays a, b and c, one after the other in memory, each part touched first by the worker that uses it.

    Each array has PARTS_PER_ARRAY parts. They are numbered through: first those of a, then of b, then of c.
    """

    def __init__(self, workers: Workers, array_bytes: int):
        self.workers = workers
        self.bytes = _round_down(array_bytes, PARTS_PER_ARRAY * ITERATION_BYTES)
        self.memory = loops.allocate_aligned(3 * self.bytes, ALIGNED_BYTES).view(numpy.float32)
        parts_of_a_and_b, parts_of_c = range(2 * PARTS_PER_ARRAY), range(2 * PARTS_PER_ARRAY, 3 * PARTS_PER_ARRAY)
        self.map_chunks(parts_of_a_and_b, lambda first, chunk: numpy.copyto(chunk, expected_numbers(first, chunk.size)))
        self.map_chunks(parts_of_c, lambda first, chunk: chunk.fill(CLEARED_VALUE))

    def writes_expected_values(self, step: Step, index: int, expected: Callable[[int, int], numpy.ndarray]) -> bool:
        """Clear the part of c that step `index` writes, run it, and return whether each number is as expected.

        `expected(first, count)` returns `count` numbers of c from item `first` on.
        """
        part_of_c, first_of_c = [2 * PARTS_PER_ARRAY + index % PARTS_PER_ARRAY], 2 * self.bytes // 4

        def is_expected(first: int, chunk: numpy.ndarray) -> bool:
            return numpy.array_equal(chunk, expected(first - first_of_c, chunk.size))

        self.map_chunks(part_of_c, lambda first, chunk: chunk.fill(CLEARED_VALUE))
        step(index)
        return all(self.map_chunks(part_of_c, is_expected))

    def map_chunks(self, parts: Sequence[int], work: Callable[[int, numpy.ndarray], object]) -> list:
        """Return work(index of the first item, chunk) for each chunk of these parts, run by the worker that uses it."""

        def map_chunks_of(worker: int) -> list:
            results = []
            for part in parts:
                first_byte, last_byte = self.thread_ranges(part, self.workers.count)[worker]
                end = last_byte // 4
                for start in range(first_byte // 4, end, CHUNK_ITEMS):
                    results.append(work(start, self.memory[start : min(start + CHUNK_ITEMS, end)]))
            return results

        return list(itertools.chain(*self.workers.run(self.workers.count, map_chunks_of)))

    def thread_ranges(self, part: int, count: int) -> list[tuple[int, int]]:
        """Return the byte range of a part, from the start of a, that each of `count` threads uses.

        The ranges are whole iterations of a loop. The first value is the first byte, the second is one past the last.
        """
        iterations = self.bytes // PARTS_PER_ARRAY // ITERATION_BYTES
        edges = [(part * iterations + iterations * thread // count) * ITERATION_BYTES for thread in range(count + 1)]
        return list(itertools.pairwise(edges))


def _read_benchmark(arrays: StreamArrays, name: str, counts: Sequence[int]) -> BandwidthBenchmark:
    """Return reads of a and b by each of the numbers of threads. Every step compares its sum."""

    def step(count: int, index: int) -> StepSeconds:
        base = arrays.memory.ctypes.data
        ranges = arrays.thread_ranges(index % (2 * PARTS_PER_ARRAY), count)
        arguments = [(base + first, 0, 0, last - first, 1) for first, last in ranges]
        run = run_together(arrays.workers, loops.compile_access_loop("read"), arguments)
        expected = expected_word_sum(ranges[-1][1]) - expected_word_sum(ranges[0][0])
        if (sum(run.results) - expected) % 2**64:
            raise ArithmeticError(f"{name} with {_grid_name(count)}: the sum of 8-byte words is wrong")
        return StepSeconds(run.seconds)

    def verify(grid: str) -> str:
        steps[grid](0)
        return "the sum of every 8-byte word, in every step, against that of the numbers written there"

    steps: dict[str, Step] = {_grid_name(count): partial(step, count) for count in counts}
    return _benchmark(name, "read", arrays, counts, steps, verify)


def _write_benchmark(arrays: StreamArrays, mix: AccessPattern, name: str, counts: Sequence[int]) -> BandwidthBenchmark:
    """Return an access pattern that writes c, by each of the numbers of threads, past the caches and through them."""

    def step(count: int, non_temporal: bool, index: int) -> StepSeconds:
        a, b, c = (arrays.memory.ctypes.data + array * arrays.bytes for array in range(3))
        if mix == "copy" and _copies_b(index):
            a = b
        ranges = arrays.thread_ranges(index % PARTS_PER_ARRAY, count)
        arguments = [(a + first, b + first, c + first, last - first, 1) for first, last in ranges]
        loop = loops.compile_access_loop(mix, non_temporal)
        return StepSeconds(run_together(arrays.workers, loop, arguments).seconds)

    def expected(index: int, first: int, count: int) -> numpy.ndarray:
        if mix == "write":
            return numpy.full(count, TRIAD_SCALE, numpy.float32)
        a, b = (expected_numbers(array * arrays.bytes // 4 + first, count) for array in range(2))
        if mix == "copy":
            return b if _copies_b(index) else a
        return a + TRIAD_SCALE * b

    def verify(grid: str) -> str:
        ends = (0, PARTS_PER_ARRAY - 1, PARTS_PER_ARRAY, 2 * PARTS_PER_ARRAY - 1)
        if not all(arrays.writes_expected_values(steps[grid], index, partial(expected, index)) for index in ends):
            raise ArithmeticError(f"{name} with {grid}: what was written is wrong")
        return f"every number of the first and the last of {PARTS_PER_ARRAY} parts, cleared before, compared"

    variants = itertools.product(counts, (True, False))
    steps: dict[str, Step] = {_grid_name(*variant): partial(step, *variant) for variant in variants}
    return _benchmark(name, mix, arrays, counts, steps, verify)


def _benchmark(
    name: str, mix: AccessPattern, arrays: StreamArrays, counts: Sequence[int], steps: dict[str, Step], verify: Callable
) -> BandwidthBenchmark:
    """Return a benchmark by each of the numbers of threads. If the first one, the largest, is not all, it is of so many
    cores."""
    return BandwidthBenchmark(
        name=name,
        level=MAIN_MEMORY["cpu"],
        mix=mix,
        counting_rule=COUNTING_RULES[mix],
        counted_bytes=ARRAYS_COUNTED[mix] * arrays.bytes // PARTS_PER_ARRAY,
        steps_by_grid=steps,
        verify=verify,
        threads_of_grid=lambda grid: int(grid.split()[0]),
        most_timed_blocks=TIMED_BLOCKS,
        cores=counts[0] if counts[0] < arrays.workers.count else None,
    )


def _copies_b(index: int) -> bool:
    """Return whether step `index` of a copy reads b: a and b take turns, since caches would keep more of a alone."""
    return index // PARTS_PER_ARRAY % 2 == 1


def _grid_name(threads: int, non_temporal: bool = False) -> str:
    stores = f", {NON_TEMPORAL_TEXT}" if non_temporal else ""
    return f"{threads} thread{'s' if threads > 1 else ''}{stores}"


def expected_numbers(first: int, count: int) -> numpy.ndarray:
    """Return the numbers that an array holds from item `first` on, CHUNK_ITEMS at most."""
    return _number_buffer()[first % NUMBER_PERIOD :][:count]


@cache
def _number_buffer() -> numpy.ndarray:
    return numpy.resize(numpy.arange(1, NUMBER_PERIOD + 1, dtype=numpy.float32), CHUNK_ITEMS + NUMBER_PERIOD)


def expected_word_sum(size_bytes: int) -> int:
    """Return the sum of the first `size_bytes` bytes of an array as 8-byte words.

    Like the numbers, the words repeat after NUMBER_PERIOD.
    """
    sums = _prefix_word_sums()
    periods, rest = divmod(size_bytes // 8, NUMBER_PERIOD)
    return periods * sums[-1] + sums[rest]


@cache
def _prefix_word_sums() -> list[int]:
    return [0, *itertools.accumulate(_number_buffer()[: 2 * NUMBER_PERIOD].view(numpy.uint64).tolist())]


def _round_down(size_bytes: int, to_bytes: int) -> int:
    """Return the largest multiple of `to_bytes` within `size_bytes`, but at least one."""
    return max(to_bytes, size_bytes - size_bytes % to_bytes)


# ---------------------------------------------------------------- sweeps


class ReaderCaches(NamedTuple):
    """The caches that each of several readers has for itself."""

    readers: int
    levels: dict[str, int]  # bytes by level
    all_bytes: int  # its part of all last-level caches together


class SetDivision(NamedTuple):
    """The division of a set: each step of a sweep reads one of its equal `parts`, `passes` times."""

    parts: int
    passes: int


def sweep_benchmarks(
    workers: Workers, caches_of_sweeps: list[ReaderCaches], free_bytes: int, points_per_octave: int
) -> list[SweepBenchmark]:
    """Return sweeps over sets that each reader has for itself, up to four times the largest cache.

    All sets are parts of one array, each core's where its worker touched it first. One core's largest sets are
    therefore also in the memory of other sockets.
    """
    largest_sets = [_largest_set_bytes(caches, free_bytes) for caches in caches_of_sweeps]
    strides = [math.ceil(largest / ALIGNED_BYTES) * ALIGNED_BYTES for largest in largest_sets]
    memory_bytes = max(caches.readers * stride for caches, stride in zip(caches_of_sweeps, strides, strict=True))

    @cache
    def memory() -> numpy.ndarray:
        return _allocate_filled(workers, memory_bytes)

    benchmarks = []
    for caches, largest, stride in zip(caches_of_sweeps, largest_sets, strides, strict=True):
        divisions = divide_sets(caches, largest, points_per_octave)
        benchmarks.append(_sweep_benchmark(workers, caches, divisions, stride, memory))
    return benchmarks


def _largest_set_bytes(caches: ReaderCaches, free_bytes: int) -> int:
    largest_cache = max(caches.levels.values(), default=topology.UNLISTED_CACHE_BYTES // caches.readers)
    seen_memory_bytes = max(SWEEP_OWN_CACHES * largest_cache, SWEEP_ALL_CACHES * caches.all_bytes, LARGEST_SET_BYTES)
    return min(seen_memory_bytes, free_bytes // 4 // caches.readers)


def divide_sets(caches: ReaderCaches, largest: int, points_per_octave: int) -> dict[int, SetDivision]:
    """Return the sets up to `largest` bytes, `points_per_octave` of them per octave, and how a step reads each.

    The keys are the bytes of a set, a multiple of its parts.
    """
    point, divisions = 0, {}
    near_bytes = caches.levels.get(CACHE_LEVELS[1], topology.UNLISTED_L2_BYTES)
    while (size_bytes := int(SMALLEST_SET_BYTES * 2 ** (point / points_per_octave))) <= largest:
        step_bytes = NEAR_STEP_BYTES if size_bytes <= near_bytes else FAR_STEP_BYTES
        parts = math.ceil(size_bytes / step_bytes)
        whole_parts_bytes = _round_down(size_bytes, parts * ITERATION_BYTES)
        divisions[whole_parts_bytes] = SetDivision(parts, passes=max(1, step_bytes // size_bytes))
        point += 1
    return divisions


def _sweep_benchmark(
    workers: Workers, caches: ReaderCaches, divisions: dict[int, SetDivision], stride_bytes: int, memory: Callable
) -> SweepBenchmark:
    """Return the sweep of readers whose sets lie `stride_bytes` from one another in `memory()`.

    A step reads a small set repeatedly, and of a large one the part that was read longest ago. All sums are compared.
    """
    readers = caches.readers

    def step(size_bytes: int) -> tuple[Step, int]:
        parts, passes = divisions[size_bytes]
        part_bytes = size_bytes // parts
        starts = [stride_bytes * reader for reader in range(readers)]

        def read(first: int, count: int, passes: int) -> StepSeconds:
            base = memory().ctypes.data
            arguments = [(base + start + first, 0, 0, count, passes) for start in starts]
            run = run_together(workers, loops.compile_access_loop("read"), arguments)
            for start, word_sum in zip(starts, run.results, strict=True):
                one_pass = expected_word_sum(start + first + count) - expected_word_sum(start + first)
                if (word_sum - passes * one_pass) % 2**64:
                    raise ArithmeticError(f"a sweep's reads of {size_bytes} bytes give another sum")
            return StepSeconds(run.seconds)

        read(0, size_bytes, 1)  # brings into the caches what they can hold
        return lambda index: read(index % parts * part_bytes, part_bytes, passes), readers * passes * part_bytes

    return SweepBenchmark(
        series="one_core" if readers == 1 else ALL_CORES,
        reader="one core" if readers == 1 else "each core",
        counting_rule=COUNTING_RULES["read"],
        sizes=list(divisions),
        step=step,
        levels=caches.levels,
        cached_bytes=caches.all_bytes,
    )


def _allocate_filled(workers: Workers, size_bytes: int) -> numpy.ndarray:
    """Return memory filled with the expected numbers, each worker's part written by it."""
    memory = loops.allocate_aligned(size_bytes, ALIGNED_BYTES).view(numpy.float32)

    def fill(worker: int) -> None:
        first, last = (memory.size * edge // workers.count for edge in (worker, worker + 1))
        for start in range(first, last, CHUNK_ITEMS):
            chunk = memory[start : min(start + CHUNK_ITEMS, last)]
            chunk[:] = expected_numbers(start, chunk.size)

    workers.run(workers.count, fill)
    return memory


BENCHMARKS = {MAIN_MEMORY["cpu"]: bandwidth_benchmarks}  # of each target of core/levels.py that a CPU has
