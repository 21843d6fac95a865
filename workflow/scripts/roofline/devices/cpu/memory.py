"""The CPU's memory by NumPy: streams over arrays far larger than its caches, and sweeps over the size of a set.

Imported once the threads of the BLAS are set: it loads NumPy.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from functools import cache, cached_property, partial
from typing import NamedTuple

import numpy

from roofline.devices.base import Stream, SweepSeries
from roofline.devices.cpu.workers import Timed, Workers

MIB = 1 << 20
LINE_BYTES = 64
LINE_ITEMS = LINE_BYTES // 4  # of float32
# Where sets begin. A Zen 4 core was seen to read a third slower from its first cache where a set of 16 KiB lay across
# such a boundary.
ALIGNED_BYTES = 2 * MIB
CHUNK_ITEMS = 1 << 18  # that checks look at together: their temporaries stay small

# What arrays hold: 1 + (i mod period), whole numbers from 1 on, so that sums and products are exact in float32, and so
# that a word left out is missed in any sum.
PERIOD_A, PERIOD_B = 4093, 2039
SCALE = 3  # of b in the triad, and what the write stream writes
# Never zeros: on a Zen 4 machine memset was seen to write those 2.5 times as fast as any other byte.
CLEARED = -1.0

# An array is twice the last-level caches, and no smaller than this: else handing out the pieces would count.
STREAM_CACHES, FEWEST_BYTES, BYTES_A_CORE = 2, 256 * MIB, 16 * MIB
GRIDS = 3  # numbers of threads: all, half, a quarter
BLOCK_BYTES_A_THREAD = 16 << 10  # of the triad: with less, many threads would wait for the interpreter's lock
WRITE_ALLOCATE = "the write-allocate read of a cached store is not counted"
COUNTED = {
    "read": "bytes read, by NumPy's sum of 8-byte words",
    "write": f"bytes written, by NumPy's fill; its stores are ordinary ones, and {WRITE_ALLOCATE}",
    "copy": f"bytes read plus bytes written, by NumPy's copyto; {WRITE_ALLOCATE}, and there is none where the C "
    "library's memmove stores past the caches, as glibc's does for large pieces",
    "triad": "bytes of a and b read plus bytes of c written, by two NumPy calls a block, the product between them kept "
    f"in the cache; {WRITE_ALLOCATE}",
}

CACHES = 4  # as many last-level caches are swept: the memory's plateau must be seen
SMALLEST_SET_BYTES, LARGEST_SET_BYTES = 4096, 64 * MIB
SWEEP_COUNTED = "bytes read, by NumPy's dot products of one half of the working set with the other, through its BLAS"
DOT_BYTES = 128 << 10  # that one dot product reads at most: OpenBLAS would spread more than 10 000 items over threads
# NumPy keeps the interpreter's lock in a call of 500 products or fewer: all readers but one would wait.
FEWEST_DOTS = 512
CALLS = 4  # of NumPy, that a reader makes in a step
NEAR_CALL_BYTES, FAR_CALL_BYTES = 32 * MIB, 16 * MIB  # of sets that the second cache holds, and of others
READERS_A_CALL = 8  # for each so many, near calls are longer by as much: all begin under the interpreter's lock


# ---------------------------------------------------------------- streams


def automatic_bytes(readers: int, last_level_cache_bytes: int, free_bytes: int) -> int:
    """Of an array that no cache holds, and at which readers work long enough for handing out the pieces not to count;
    beyond twice the caches, at most an eighth of the free memory."""
    wanted = min(max(FEWEST_BYTES, BYTES_A_CORE * readers), free_bytes // 8)
    return _whole_lines(max(STREAM_CACHES * last_level_cache_bytes, wanted))


def streams(workers: Workers, array_bytes: int, block_bytes: int) -> list[Stream]:
    """The mixes on all cores and two of them on one core, all over the same arrays; blocks are the triad's.

    Where memory is of several sockets, the one core reads that of all of them.
    """
    arrays = _Arrays(workers, array_bytes)
    every = _thread_counts(workers.count)
    block = max(LINE_ITEMS, _whole_lines(max(block_bytes, BLOCK_BYTES_A_THREAD * workers.count)) // 4)
    return [
        _stream("dram_read", "read", arrays, every, 1, _read(arrays), _check_read),
        _stream("dram_write", "write", arrays, every, 1, _write(arrays), _check_write),
        _stream("dram_copy", "copy", arrays, every, 2, _copy(arrays), _check_copy),
        _stream("dram_triad", "triad", arrays, every, 3, _triad(arrays, block), _check_triad),
        _stream("dram_read_one_core", "read", arrays, [1], 1, _read(arrays), _check_read),
        _stream("dram_copy_one_core", "copy", arrays, [1], 2, _copy(arrays), _check_copy),
    ]


class _Arrays:
    """Float32 arrays a and b, which are read, and c, which is written; each worker touches its own pages first.

    Made when first asked for, by all the workers: never ask from within their work.
    """

    def __init__(self, workers: Workers, array_bytes: int):
        self.workers = workers
        self.items = _whole_lines(array_bytes) // 4

    @cached_property
    def a(self):
        return self.fill(numpy.empty(self.items, numpy.float32), _a)

    @cached_property
    def b(self):
        return self.fill(numpy.empty(self.items, numpy.float32), _b)

    @cached_property
    def c(self):
        return self.fill(numpy.empty(self.items, numpy.float32), lambda start, stop: CLEARED)

    def fill(self, array, numbers: Callable[[int, int], object]):
        """The array, with numbers(start, stop) written to each chunk of it."""

        def fill(chunk: slice) -> None:
            array[chunk] = numbers(chunk.start, chunk.stop)

        self.each_chunk(fill)
        return array

    def holds(self, array, numbers: Callable[[int, int], object]) -> bool:
        return all(self.each_chunk(lambda chunk: numpy.all(array[chunk] == numbers(chunk.start, chunk.stop))))

    def each_chunk(self, work: Callable[[slice], object]) -> list:
        pieces = _pieces(self.items, self.workers.count)
        found = self.workers.run(len(pieces), lambda i: [work(chunk) for chunk in _chunks(pieces[i], CHUNK_ITEMS)])
        return list(itertools.chain(*found))


def _stream(
    name: str,
    mix: str,
    arrays: _Arrays,
    thread_counts: list[int],
    touched: int,
    work: Callable[[slice], object],
    check: Callable[[_Arrays, Callable[[], list]], tuple[bool, str]],
) -> Stream:
    """`work(piece)` is a worker's part of a step, which touches so many arrays; `check(arrays, run)` runs it and
    compares what came of it."""

    def run(threads: int, pieces: list[slice], index: int) -> list:
        return arrays.workers.run(threads, lambda i: work(pieces[i]))

    steps = {_grid(n): partial(run, n, _pieces(arrays.items, n)) for n in thread_counts}

    def verify(grid: str) -> str:
        right, how = check(arrays, lambda: steps[grid](0))
        if not right:
            raise ArithmeticError(f"{name} with {grid}: wrong by {how}")
        return how

    return Stream(
        name=name,
        level="dram",
        mix=mix,
        counted=COUNTED[mix],
        counted_bytes=touched * 4 * arrays.items,
        grids=steps,
        verify=verify,
        threads=lambda grid: int(grid.split()[0]),
    )


def _read(arrays: _Arrays) -> Callable[[slice], object]:
    # Of NumPy's reductions this was among the fastest; it wraps around, so that it tells every bit.
    words = arrays.a.view(numpy.uint64)
    return lambda piece: numpy.add.reduce(words[piece.start // 2 : piece.stop // 2])


def _write(arrays: _Arrays) -> Callable[[slice], object]:
    c = arrays.c
    return lambda piece: c[piece].fill(SCALE)


def _copy(arrays: _Arrays) -> Callable[[slice], object]:
    a, c = arrays.a, arrays.c
    return lambda piece: numpy.copyto(c[piece], a[piece])


def _triad(arrays: _Arrays, block: int) -> Callable[[slice], object]:
    """c = a + SCALE b, block by block, so that what lies between the two calls stays in the cache.

    A block takes the interpreter's lock for about 2 microseconds, so that too small ones make threads wait for each
    other; and one thread alone was seen to lose half of its bandwidth to blocks of 32 KiB, which stop the prefetching.
    """
    a, b, c = arrays.a, arrays.b, arrays.c

    def work(piece: slice) -> None:
        product = numpy.empty(block, numpy.float32)
        for part in _chunks(piece, block):
            scaled = product[: part.stop - part.start]
            numpy.multiply(b[part], numpy.float32(SCALE), out=scaled)
            numpy.add(a[part], scaled, out=c[part])

    return work


def _check_read(arrays: _Arrays, run: Callable[[], list]) -> tuple[bool, str]:
    expected = _sum_of_words(arrays.items)
    found = sum(int(part) for part in run())
    return (found - expected) % 2**64 == 0, "the sum of every 8-byte word against that of the numbers written there"


def _check_write(arrays: _Arrays, run: Callable[[], list]) -> tuple[bool, str]:
    return _writes(arrays, run, lambda start, stop: SCALE), "every byte of the array compared, cleared before"


def _check_copy(arrays: _Arrays, run: Callable[[], list]) -> tuple[bool, str]:
    return _writes(arrays, run, _a), "every byte of the destination compared with the source's numbers, cleared before"


def _check_triad(arrays: _Arrays, run: Callable[[], list]) -> tuple[bool, str]:
    def expected(start: int, stop: int):
        a, b = (numbers(start, stop).astype(numpy.int32) for numbers in (_a, _b))
        return (a + SCALE * b).astype(numpy.float32)

    return _writes(arrays, run, expected), "every result compared with whole numbers, exact in float32, cleared before"


def _writes(arrays: _Arrays, run: Callable[[], list], numbers: Callable[[int, int], object]) -> bool:
    """Whether a run over cleared memory leaves these numbers in c."""
    arrays.fill(arrays.c, lambda start, stop: CLEARED)
    run()
    return arrays.holds(arrays.c, numbers)


def _a(start: int, stop: int):
    return _numbers(start, stop, PERIOD_A)


def _b(start: int, stop: int):
    return _numbers(start, stop, PERIOD_B)


def _numbers(start: int, stop: int, period: int):
    """A chunk of an array, CHUNK_ITEMS at most."""
    return _repeated(period)[start % period :][: stop - start]


@cache
def _repeated(period: int):
    return numpy.resize(numpy.arange(1, period + 1, dtype=numpy.float32), CHUNK_ITEMS + period)


def _sum_of_words(items: int) -> int:
    """Of so many float32 numbers of a, two by two as 8-byte words; as the numbers do, these repeat after PERIOD_A."""
    words = _repeated(PERIOD_A)[: 2 * PERIOD_A].view(numpy.uint64).tolist()
    rounds, rest = divmod(items // 2, PERIOD_A)
    return rounds * sum(words) + sum(words[:rest])


def _thread_counts(cores: int) -> list[int]:
    """All, half and a quarter: the likeliest first, since a budget may end the trials. Fewer threads do not come near
    in any mix, and their trials would take longer than all the others."""
    return [cores >> halvings for halvings in range(GRIDS) if cores >> halvings]


def _grid(threads: int) -> str:
    return f"{threads} thread{'s' if threads > 1 else ''}"


def _pieces(items: int, count: int) -> list[slice]:
    """Of whole cache lines."""
    lines = items // LINE_ITEMS
    return [slice(lines * i // count * LINE_ITEMS, lines * (i + 1) // count * LINE_ITEMS) for i in range(count)]


def _chunks(piece: slice, items: int) -> Iterator[slice]:
    return (slice(start, min(start + items, piece.stop)) for start in range(piece.start, piece.stop, items))


def _whole_lines(size_bytes: int) -> int:
    return max(LINE_BYTES, size_bytes - size_bytes % LINE_BYTES)


# ---------------------------------------------------------------- sweeps


class Caches(NamedTuple):
    """What each of so many readers has of the caches: bytes by level, in the second one, and in the largest."""

    readers: int
    levels: dict[str, int]
    near_bytes: int
    largest_bytes: int


def sweeps(workers: Workers, each: list[Caches], free_bytes: int, points_per_octave: int) -> list[SweepSeries]:
    """Reads of a working set that each of the readers has for itself, up to four times the largest cache.

    All sets are parts of one array, each core's where its worker touched it first. Where there are other sockets, one
    core's largest sets are therefore also in their memory.
    """
    largest = {one.readers: _largest_set(one, free_bytes) for one in each}
    room = max(readers * _aligned(size_bytes) for readers, size_bytes in largest.items())

    @cache
    def numbers():
        return _aligned_numbers(workers, room)

    return [_sweep(workers, one, set_cuts(one, largest[one.readers], points_per_octave), numbers) for one in each]


def _largest_set(caches: Caches, free_bytes: int) -> int:
    wanted = max(CACHES * caches.largest_bytes, LARGEST_SET_BYTES)
    return min(wanted, free_bytes // 4 // caches.readers)


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNED_BYTES) * ALIGNED_BYTES


class Cut(NamedTuple):
    """A set in equal parts, of which a call reads one so many times, each of dot products of whole cache lines."""

    parts: int
    dots: int
    passes: int


def set_cuts(caches: Caches, largest: int, points_per_octave: int) -> dict[int, Cut]:
    """By bytes of the sets, so many an octave."""
    cuts = {}
    for point in itertools.count():
        wanted = int(SMALLEST_SET_BYTES * 2 ** (point / points_per_octave))
        if wanted > largest:
            return cuts
        cut = _cut(caches, wanted)
        cuts[wanted - wanted % (2 * LINE_BYTES * cut.parts * cut.dots)] = cut


def _cut(caches: Caches, size_bytes: int) -> Cut:
    near_call_bytes = NEAR_CALL_BYTES * (1 + caches.readers // READERS_A_CALL)
    call_bytes = near_call_bytes if size_bytes <= caches.near_bytes else FAR_CALL_BYTES
    parts, passes = -(-size_bytes // call_bytes), max(1, call_bytes // size_bytes)
    dots = max(-(-size_bytes // (parts * DOT_BYTES)), -(-FEWEST_DOTS // passes))
    return Cut(parts, dots, passes)


def _sweep(workers: Workers, caches: Caches, cuts: dict[int, Cut], numbers: Callable[[], object]) -> SweepSeries:
    """A dot product reads two items for one multiply-add, which is what keeps up with the first cache: of NumPy's
    reductions none does, they stay at the second one's rate. Whether it keeps up is up to the BLAS; where it does not,
    the sweep shows one level for both.

    Small sets are read again and again in a call. Of large ones a step reads only the next few parts, which are those
    that were read the longest ago, just as if the whole set were read in every step. Steps time themselves, see
    `seconds_of`. All that they read is compared, in every step. One core's set is read by the caller's own thread.
    """
    readers = caches.readers

    def step(size_bytes: int) -> tuple[Callable[[int], object], int]:
        cut = cuts[size_bytes]
        apart = numbers().nbytes // readers // ALIGNED_BYTES * ALIGNED_BYTES // 8
        sets = [_Set(numbers(), apart * i, size_bytes, cut) for i in range(readers)]
        _each(workers, readers, lambda i: sets[i].read_once())  # so that the caches have what they can
        read_bytes = readers * CALLS * cut.passes * size_bytes // cut.parts
        return lambda index: Timed(seconds_of(_each(workers, readers, lambda i: sets[i].read()))), read_bytes

    return SweepSeries(
        series="one_core" if readers == 1 else "all_cores",
        reader="one core" if readers == 1 else "each core",
        counted=SWEEP_COUNTED,
        sizes=list(cuts),
        step=step,
        levels=caches.levels,
    )


class _Set:
    """A working set of one reader: of float64 numbers, those from `first` on."""

    def __init__(self, numbers, first: int, size_bytes: int, cut: Cut):
        half, dots = size_bytes // 16, cut.parts * cut.dots
        halves = [numbers[start : start + half].reshape(cut.parts, cut.dots, -1) for start in (first, first + half)]
        # A stride of 0 is what makes a part be read again, without a Python call for each pass.
        self._parts = [
            [numpy.broadcast_to(part, (cut.passes, *part.shape)) for part in both] for both in zip(*halves, strict=True)
        ]
        self._expected = _expected_dots(first, half, dots).reshape(cut.parts, cut.dots)
        self._results = numpy.empty((CALLS, cut.passes, cut.dots))
        self._next = 0
        self._what = f"a sweep's reads of {size_bytes} bytes"

    def read_once(self) -> None:
        """Reads each part by one call."""
        for first in range(0, len(self._parts), CALLS):
            self.read(min(CALLS, len(self._parts) - first))

    def read(self, calls: int = CALLS) -> list[tuple[int, int]]:
        """Reads the next parts, round and round; the nanoseconds at which each call began and ended.

        Raises ArithmeticError where a dot product of any pass is not what it must be: those of whole numbers are exact.
        """
        order = [(self._next + call) % len(self._parts) for call in range(calls)]
        self._next = (order[-1] + 1) % len(self._parts)
        self._results.fill(numpy.nan)  # what is not written shows
        results = self._results[:calls]
        stamps = []
        for left, right, out in [(*self._parts[part], out) for part, out in zip(order, results, strict=True)]:
            began = time.perf_counter_ns()
            numpy.vecdot(left, right, out=out)
            stamps.append((began, time.perf_counter_ns()))
        if not all(numpy.all(out == self._expected[part]) for part, out in zip(order, results, strict=True)):
            raise ArithmeticError(f"{self._what} give another dot product")
        return stamps


def seconds_of(readers: list[list[tuple[int, int]]]) -> float:
    """The time of a step in which each reader made these calls, from its nanoseconds to its nanoseconds.

    Readers do not begin nor end together, and a step of milliseconds would mostly show how they were woken. What counts
    is the time in which all of them read, from the last one's begin to the first one's end: the bytes of the calls in
    it, by their share where they reach beyond, are the bandwidth, and the step's time is that of all of its bytes at
    it. Where that is less than half of the time from the first begin to the last end, as where two of them had to share
    a core, the whole time counts: what then ran alone must not pass for what all of them get.
    """
    begins, ends = [calls[0][0] for calls in readers], [calls[-1][1] for calls in readers]
    opened, closed, whole = max(begins), min(ends), max(ends) - min(begins)
    if closed - opened < whole / 2:
        return whole / 1e9
    calls = [call for reader in readers for call in reader]
    done = sum(max(0, min(end, closed) - max(begin, opened)) / max(1, end - begin) for begin, end in calls)
    return (closed - opened) / 1e9 * len(calls) / done


def _expected_dots(first: int, half: int, count: int):
    """Of the halves of a set that begins with number `first`, cut into so many; by sums over a period alone."""
    index = first + numpy.arange(PERIOD_B)
    products = (1 + index % PERIOD_B) * (1 + (index + half) % PERIOD_B)
    sums = numpy.concatenate([[0], numpy.cumsum(products)])
    edges = numpy.arange(count + 1) * (half // count)
    return numpy.diff(edges // PERIOD_B * sums[-1] + sums[edges % PERIOD_B]).astype(numpy.float64)


def _aligned_numbers(workers: Workers, size_bytes: int):
    """Float64 numbers, each worker's part written by it."""
    room = numpy.empty(size_bytes + ALIGNED_BYTES, numpy.uint8)
    start = -room.ctypes.data % ALIGNED_BYTES
    numbers = room[start : start + size_bytes].view(numpy.float64)
    pieces = _pieces(numbers.size, workers.count)

    def fill(worker: int) -> None:
        for chunk in _chunks(pieces[worker], CHUNK_ITEMS):
            numbers[chunk] = _numbers(chunk.start, chunk.stop, PERIOD_B)

    workers.run(workers.count, fill)
    return numbers


def _each(workers: Workers, readers: int, work: Callable[[int], object]) -> list:
    return [work(0)] if readers == 1 else workers.run(readers, work)
