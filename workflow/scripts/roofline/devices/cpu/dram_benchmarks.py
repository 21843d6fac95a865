"""The CPU's memory by compiled loops: streams over arrays far larger than its caches, and sweeps over sizes of a set.

Imported once the threads of the BLAS are set: it loads NumPy.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import NamedTuple

import numpy

from roofline.core.units import MIB
from roofline.devices.base import BandwidthBenchmark, SweepBenchmark
from roofline.devices.cpu import loops
from roofline.devices.cpu.loops import ITERATION_BYTES, TRIAD_SCALE, run_together
from roofline.devices.cpu.topology import (
    UNLISTED_CACHE_BYTES,
    UNLISTED_L2_BYTES,
    ceiling_name_on_cores,
    measured_core_counts,
)
from roofline.devices.cpu.workers import StepSeconds, Workers
from roofline.devices.levels import ALL_CORES

# Where arrays and sets begin. A Zen 4 core was seen to read a third slower from its first cache where a set of 16 KiB
# lay across this boundary.
ALIGNED_BYTES = 2 * MIB
CHUNK_ITEMS = 1 << 18  # of float32, that are filled and checked together: their temporaries stay in a cache
# What arrays hold: 1 + (i mod PERIOD), whole numbers from 1 on, so that sums and products are exact in float32, and so
# that a word left out is missed in any sum.
NUMBER_PERIOD = 4093
# Never zeros: on a Zen 4 machine memset was seen to write those 2.5 times as fast as any other byte.
CLEARED_VALUE = -1.0

# An array is four times the last-level caches; no smaller than this, so that steps take milliseconds; and where it is
# more than twice the caches no larger than what cores touch first in about half a second.
STREAM_CACHES, LEAST_CACHES, FEWEST_BYTES, FEWEST_A_CORE, MOST_A_CORE = 4, 2, 256 * MIB, 16 * MIB, 256 * MIB
TIMED_BLOCKS = 2  # of which the faster counts: others use the memory too
PARTS_PER_ARRAY = 8  # of an array, of which a step goes over one
STREAMING = "non-temporal stores"
WRITE_ALLOCATE_TEXT = (
    f"; without {STREAMING} (see grid) each line is read before it is written, which is not counted: it would be"
)
COUNTING_RULES = {
    "read": "bytes read, by a loop that adds up 8-byte words",
    "write": f"bytes written{WRITE_ALLOCATE_TEXT} 2 x (write-allocate)",
    "copy": f"bytes read plus bytes written{WRITE_ALLOCATE_TEXT} 1.5 x (write-allocate)",
    "triad": f"bytes of a and b read plus bytes of c written{WRITE_ALLOCATE_TEXT} 1.33 x (write-allocate)",
}

SWEEP_OWN_CACHES, SWEEP_ALL_CACHES = (
    4,
    2,
)  # as many of a reader's own, or of all together, are swept: the memory must be seen
SMALLEST_SET_BYTES, LARGEST_SET_BYTES = 4096, 64 * MIB
NEAR_STEP_BYTES, FAR_STEP_BYTES = 128 * MIB, 16 * MIB  # that a reader reads in a step: in its second cache, and beyond


# ---------------------------------------------------------------- streams


def default_array_bytes(readers: int, last_level_cache_bytes: int, free_bytes: int) -> int:
    """Of an array that no cache holds: at least twice the last-level caches, and up to four times them."""
    wanted = max(FEWEST_BYTES, FEWEST_A_CORE * readers, STREAM_CACHES * last_level_cache_bytes)
    within = min(wanted, max(FEWEST_BYTES, MOST_A_CORE * readers), free_bytes // 8)
    return _round_down(max(LEAST_CACHES * last_level_cache_bytes, within), PARTS_PER_ARRAY * ITERATION_BYTES)


def bandwidth_benchmarks(workers: Workers, array_bytes: int) -> list[BandwidthBenchmark]:
    """The mixes on all cores, reads on fewer too, and a copy on one, all over the same arrays of so many bytes each.

    A step goes over one part of them, which was touched the longest ago, in milliseconds. Fewer cores read the memory
    of all sockets.
    """
    arrays, counts = StreamArrays(workers, array_bytes), measured_core_counts(workers.count)
    found = [_read_benchmark(arrays, "dram_read", counts[:2])]  # half of the cores may be faster than all
    found += [_write_benchmark(arrays, mix, f"dram_{mix}", counts[:2]) for mix in ("write", "copy", "triad")]
    found += [
        _read_benchmark(arrays, ceiling_name_on_cores("dram_read", count), [count], count) for count in counts[1:]
    ]
    if workers.count > 1:
        found.append(_write_benchmark(arrays, "copy", ceiling_name_on_cores("dram_copy", 1), [1], 1))
    return found


class StreamArrays:
    """Float32 arrays a, b and c, one after the other in memory, which each worker touches first where it works."""

    def __init__(self, workers: Workers, array_bytes: int):
        self.workers = workers
        self.bytes = _round_down(array_bytes, PARTS_PER_ARRAY * ITERATION_BYTES)
        self.memory = loops.allocate_aligned(3 * self.bytes, ALIGNED_BYTES).view(numpy.float32)
        self.each_chunk(
            range(2 * PARTS_PER_ARRAY), lambda first, chunk: numpy.copyto(chunk, expected_numbers(first, chunk.size))
        )
        self.each_chunk(range(2 * PARTS_PER_ARRAY, 3 * PARTS_PER_ARRAY), lambda first, chunk: chunk.fill(CLEARED_VALUE))

    def written(self, step: Callable[[int], object], index: int, expected: Callable[[int, int], object]) -> bool:
        """Whether a step over its part of c, cleared, leaves the numbers expected(first, count)."""
        own, before = [2 * PARTS_PER_ARRAY + index % PARTS_PER_ARRAY], 2 * self.bytes // 4
        self.each_chunk(own, lambda first, chunk: chunk.fill(CLEARED_VALUE))
        step(index)
        return all(
            self.each_chunk(own, lambda first, chunk: numpy.array_equal(chunk, expected(first - before, chunk.size)))
        )

    def each_chunk(self, parts: Sequence[int], work: Callable) -> list:
        """work(number of the first item, chunk) for each chunk of these parts, by the worker whose it is."""

        def of(worker: int) -> list:
            done = []
            for part in parts:
                begin, end = (edge // 4 for edge in self.pieces(part, self.workers.count)[worker])
                for start in range(begin, end, CHUNK_ITEMS):
                    done.append(work(start, self.memory[start : min(start + CHUNK_ITEMS, end)]))
            return done

        return list(itertools.chain(*self.workers.run(self.workers.count, of)))

    def pieces(self, part: int, count: int) -> list[tuple[int, int]]:
        """First and last byte of each thread's piece of a part, whole blocks; parts are numbered on from a to c."""
        blocks = self.bytes // PARTS_PER_ARRAY // ITERATION_BYTES
        edges = [(part * blocks + blocks * number // count) * ITERATION_BYTES for number in range(count + 1)]
        return list(itertools.pairwise(edges))


def _read_benchmark(
    arrays: StreamArrays, name: str, counts: Sequence[int], cores: int | None = None
) -> BandwidthBenchmark:
    """Of a and b; `cores` where the ceiling is of fewer than all. Every step's sum is compared."""

    def step(count: int, index: int) -> StepSeconds:
        base, pieces = arrays.memory.ctypes.data, arrays.pieces(index % (2 * PARTS_PER_ARRAY), count)
        run = run_together(
            arrays.workers,
            loops.compile_access_loop("read"),
            [(base + first, 0, 0, last - first, 1) for first, last in pieces],
        )
        expected = expected_word_sum(pieces[-1][1]) - expected_word_sum(pieces[0][0])
        if (sum(run.results) - expected) % 2**64:
            raise ArithmeticError(f"{name} with {_grid_name(count)}: the sum of 8-byte words is wrong")
        return StepSeconds(run.seconds)

    def verify(grid: str) -> str:
        steps[grid](0)
        return "the sum of every 8-byte word, in every step, against that of the numbers written there"

    steps = {_grid_name(count): partial(step, count) for count in counts}
    size = arrays.bytes // PARTS_PER_ARRAY
    return BandwidthBenchmark(
        name,
        "dram",
        "read",
        COUNTING_RULES["read"],
        size,
        steps,
        verify,
        _threads_of_grid,
        blocks=TIMED_BLOCKS,
        cores=cores,
    )


def _write_benchmark(
    arrays: StreamArrays, mix: str, name: str, counts: Sequence[int], cores: int | None = None
) -> BandwidthBenchmark:
    """What writes c, past the caches or by ordinary stores."""

    def step(streaming: bool, count: int, index: int) -> StepSeconds:
        a, b, c = (arrays.memory.ctypes.data + place * arrays.bytes for place in range(3))
        if mix == "copy" and index // PARTS_PER_ARRAY % 2:  # from b in turn: of a alone, caches would keep more
            a = b
        pieces = arrays.pieces(index % PARTS_PER_ARRAY, count)
        arguments = [(a + first, b + first, c + first, last - first, 1) for first, last in pieces]
        return StepSeconds(run_together(arrays.workers, loops.compile_access_loop(mix, streaming), arguments).seconds)

    def expected(index: int, first: int, count: int):
        if mix == "write":
            return numpy.full(count, TRIAD_SCALE, numpy.float32)
        a, b = (expected_numbers(place * arrays.bytes // 4 + first, count) for place in range(2))
        if mix == "copy":
            return b if index // PARTS_PER_ARRAY % 2 else a
        return a + TRIAD_SCALE * b

    def verify(grid: str) -> str:
        ends = (0, PARTS_PER_ARRAY - 1, PARTS_PER_ARRAY, 2 * PARTS_PER_ARRAY - 1)
        if not all(arrays.written(steps[grid], index, partial(expected, index)) for index in ends):
            raise ArithmeticError(f"{name} with {grid}: what was written is wrong")
        return f"every number of the first and the last of {PARTS_PER_ARRAY} parts, cleared before, compared"

    ways = itertools.product(counts, (True, False))
    steps = {_grid_name(count, streaming): partial(step, streaming, count) for count, streaming in ways}
    size = {"write": 1, "copy": 2, "triad": 3}[mix] * arrays.bytes // PARTS_PER_ARRAY
    return BandwidthBenchmark(
        name, "dram", mix, COUNTING_RULES[mix], size, steps, verify, _threads_of_grid, blocks=TIMED_BLOCKS, cores=cores
    )


def _grid_name(threads: int, streaming: bool = False) -> str:
    return f"{threads} thread{'s' if threads > 1 else ''}{f', {STREAMING}' if streaming else ''}"


def _threads_of_grid(grid: str) -> int:
    return int(grid.split()[0])


def expected_numbers(first: int, count: int):
    """Of an array from item `first` on, CHUNK_ITEMS at most."""
    return _number_buffer()[first % NUMBER_PERIOD :][:count]


@cache
def _number_buffer():
    return numpy.resize(numpy.arange(1, NUMBER_PERIOD + 1, dtype=numpy.float32), CHUNK_ITEMS + NUMBER_PERIOD)


def expected_word_sum(size_bytes: int) -> int:
    """Of the first so many bytes of an array, as 8-byte words; as the numbers do, these repeat after PERIOD."""
    sums = _prefix_word_sums()
    rounds, rest = divmod(size_bytes // 8, NUMBER_PERIOD)
    return rounds * sums[-1] + sums[rest]


@cache
def _prefix_word_sums() -> list[int]:
    return [0, *itertools.accumulate(_number_buffer()[: 2 * NUMBER_PERIOD].view(numpy.uint64).tolist())]


def _round_down(size_bytes: int, of_bytes: int) -> int:
    return max(of_bytes, size_bytes - size_bytes % of_bytes)


# ---------------------------------------------------------------- sweeps


class ReaderCaches(NamedTuple):
    """What each of so many readers has of the caches: bytes by level, and at most of all last-level caches together."""

    readers: int
    levels: dict[str, int]
    all_bytes: int


def sweep_benchmarks(
    workers: Workers, each: list[ReaderCaches], free_bytes: int, points_per_octave: int
) -> list[SweepBenchmark]:
    """Reads of a working set that each of the readers has for itself, up to four times the largest cache.

    All sets are parts of one array, each core's where its worker touched it first. One core's largest sets are
    therefore also in the memory of other sockets.
    """
    largest = {one.readers: _largest_set_bytes(one, free_bytes) for one in each}
    apart = {readers: -(-size // ALIGNED_BYTES) * ALIGNED_BYTES for readers, size in largest.items()}

    @cache
    def memory():
        return _allocate_filled(workers, max(readers * size for readers, size in apart.items()))

    return [
        _sweep_benchmark(
            workers, one, divide_sets(one, largest[one.readers], points_per_octave), apart[one.readers], memory
        )
        for one in each
    ]


def _largest_set_bytes(caches: ReaderCaches, free_bytes: int) -> int:
    largest = max(caches.levels.values(), default=UNLISTED_CACHE_BYTES // caches.readers)
    wanted = max(SWEEP_OWN_CACHES * largest, SWEEP_ALL_CACHES * caches.all_bytes, LARGEST_SET_BYTES)
    return min(wanted, free_bytes // 4 // caches.readers)


def divide_sets(caches: ReaderCaches, largest: int, points_per_octave: int) -> dict[int, tuple[int, int]]:
    """By bytes of the sets, so many an octave: the equal parts of a set, of which a step reads one, and how often."""
    cuts, near_bytes = {}, caches.levels.get("l2", UNLISTED_L2_BYTES)
    for point in itertools.count():
        wanted = int(SMALLEST_SET_BYTES * 2 ** (point / points_per_octave))
        if wanted > largest:
            return cuts
        step_bytes = NEAR_STEP_BYTES if wanted <= near_bytes else FAR_STEP_BYTES
        parts, passes = -(-wanted // step_bytes), max(1, step_bytes // wanted)
        cuts[_round_down(wanted, parts * ITERATION_BYTES)] = parts, passes


def _sweep_benchmark(
    workers: Workers, caches: ReaderCaches, cuts: dict[int, tuple[int, int]], apart: int, memory: Callable[[], object]
) -> SweepBenchmark:
    """A step reads a small set repeatedly, of a large one the part that was read longest ago. All sums are compared."""
    readers = caches.readers

    def step(size_bytes: int) -> tuple[Callable[[int], object], int]:
        parts, passes = cuts[size_bytes]
        part_bytes, starts = size_bytes // parts, [apart * reader for reader in range(readers)]

        def read(first: int, count: int, passes: int) -> StepSeconds:
            base = memory().ctypes.data
            arguments = [(base + start + first, 0, 0, count, passes) for start in starts]
            run = run_together(workers, loops.compile_access_loop("read"), arguments)
            expected = [expected_word_sum(start + first + count) - expected_word_sum(start + first) for start in starts]
            if any((found - passes * one) % 2**64 for found, one in zip(run.results, expected, strict=True)):
                raise ArithmeticError(f"a sweep's reads of {size_bytes} bytes give another sum")
            return StepSeconds(run.seconds)

        read(0, size_bytes, 1)  # so that the caches have what they can
        return lambda index: read(index % parts * part_bytes, part_bytes, passes), readers * passes * part_bytes

    return SweepBenchmark(
        series="one_core" if readers == 1 else ALL_CORES,
        reader="one core" if readers == 1 else "each core",
        counted=COUNTING_RULES["read"],
        sizes=list(cuts),
        step=step,
        levels=caches.levels,
        cached_bytes=caches.all_bytes,
    )


def _allocate_filled(workers: Workers, size_bytes: int):
    """Memory with numbers, each worker's part written by it."""
    memory = loops.allocate_aligned(size_bytes, ALIGNED_BYTES).view(numpy.float32)

    def fill(worker: int) -> None:
        first, last = (memory.size * edge // workers.count for edge in (worker, worker + 1))
        for start in range(first, last, CHUNK_ITEMS):
            chunk = memory[start : min(start + CHUNK_ITEMS, last)]
            chunk[:] = expected_numbers(start, chunk.size)

    workers.run(workers.count, fill)
    return memory
