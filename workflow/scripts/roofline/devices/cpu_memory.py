"""The CPU's memory by NumPy: streams over arrays far larger than its caches, and sweeps over the size of a set.

Imported once the threads of the BLAS are set: it loads NumPy.
"""

import itertools
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property, partial

import numpy
from numpy.lib.stride_tricks import as_strided

from roofline.devices import Stream, SweepSeries

MIB = 1 << 20
LINE_BYTES = 64
LINE_ITEMS = LINE_BYTES // 4  # of float32
PAGE_BYTES = 4096
CHUNK_ITEMS = 1 << 18  # that checks look at together: their temporaries stay small

# What arrays hold: 1 + (i mod period), whole numbers from 1 on, so that sums and products are exact in float32, and so
# that a word left out is missed in any sum.
PERIOD_A, PERIOD_B = 4093, 2039
SCALE = 3  # of b in the triad, and what the write stream writes
# Never zeros: on a Zen 4 machine memset was seen to write those 2.5 times as fast as any other byte.
CLEARED = -1.0

FEWEST_BYTES, CACHES, BYTES_A_CORE = 256 * MIB, 4, 64 * MIB
WRITE_ALLOCATE = "the write-allocate read of a cached store is not counted"
COUNTED = {
    "read": "bytes read, by NumPy's sum of 8-byte words",
    "write": f"bytes written, by NumPy's fill; its stores are ordinary ones, and {WRITE_ALLOCATE}",
    "copy": f"bytes read plus bytes written, by NumPy's copyto; {WRITE_ALLOCATE}, and there is none where the C "
    "library's memmove stores past the caches, as glibc's does for large pieces",
    "triad": "bytes of a and b read plus bytes of c written, by two NumPy calls a block, the product between them kept "
    f"in the cache; {WRITE_ALLOCATE}",
}

SMALLEST_SET_BYTES, LARGEST_SET_BYTES = 4096, 64 * MIB
SWEEP_COUNTED = "bytes read, by NumPy's dot products of one half of the working set with the other, through its BLAS"
DOT_BYTES = 128 << 10  # that one dot product reads at most: OpenBLAS would spread more than 10 000 items over threads
CACHED_STEP_BYTES, STEP_BYTES = 256 * MIB, 64 * MIB  # one to three milliseconds of a core, within its caches or not


class Workers:
    """A thread a core. Piece i is always worker i's: a pool would hand it to whichever comes first, and what a core
    has in its caches, or on its socket, would be another core's the next time."""

    def __init__(self, count: int):
        self.count = count
        self._threads = [ThreadPoolExecutor(1) for _ in range(count)]

    def run(self, count: int, work: Callable[[int], object]) -> list:
        """The results of work(0), work(1), ... on the first `count` of them, once all are done."""
        futures = [thread.submit(work, number) for number, thread in enumerate(self._threads[:count])]
        return [future.result() for future in futures]


# ---------------------------------------------------------------- streams


def automatic_bytes(readers: int, last_level_cache_bytes: int, free_bytes: int) -> int:
    """Of an array that no cache holds, and at which readers work long enough for handing out the pieces not to count;
    at most an eighth of the free memory."""
    wanted = max(FEWEST_BYTES, CACHES * last_level_cache_bytes, BYTES_A_CORE * readers)
    return _whole_lines(min(wanted, free_bytes // 8))


def streams(workers: Workers, array_bytes: int, one_core_bytes: int, block_bytes: int) -> list[Stream]:
    """The mixes on all cores, over arrays of `array_bytes`, and two of them on one core; blocks are the triad's."""
    every = _Arrays(workers, workers.count, array_bytes)
    alone = _Arrays(workers, 1, one_core_bytes)
    block = max(LINE_ITEMS, _whole_lines(block_bytes) // 4)
    return [
        _stream("dram_read", "read", every, 1, _read(every), _check_read),
        _stream("dram_write", "write", every, 1, _write(every), _check_write),
        _stream("dram_copy", "copy", every, 2, _copy(every), _check_copy),
        _stream("dram_triad", "triad", every, 3, _triad(every, block), _check_triad),
        _stream("dram_read_one_core", "read", alone, 1, _read(alone), _check_read),
        _stream("dram_copy_one_core", "copy", alone, 2, _copy(alone), _check_copy),
    ]


class _Arrays:
    """Float32 arrays a and b, which are read, and c, which is written; each worker touches its own pages first.

    Made when first asked for, by the workers: never ask from within their work.
    """

    def __init__(self, workers: Workers, readers: int, array_bytes: int):
        self.workers = workers
        self.readers = readers
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
        pieces = _pieces(self.items, self.readers)
        found = self.workers.run(self.readers, lambda i: [work(chunk) for chunk in _chunks(pieces[i], CHUNK_ITEMS)])
        return list(itertools.chain(*found))


def _stream(name: str, mix: str, arrays: _Arrays, touched: int, work: Callable[[slice], object], check) -> Stream:
    """`work(piece)` is a worker's part of a step, which touches so many arrays; `check(arrays, run)` runs it and
    compares what came of it."""

    def run(threads: int, pieces: list[slice], index: int) -> list:
        return arrays.workers.run(threads, lambda i: work(pieces[i]))

    steps = {_grid(n): partial(run, n, _pieces(arrays.items, n)) for n in _thread_counts(arrays.readers)}

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
    """c = a + SCALE b, block by block, so that what lies between the two calls stays in the cache."""
    a, b, c = arrays.a, arrays.b, arrays.c

    def work(piece: slice) -> None:
        product = numpy.empty(block, numpy.float32)
        for part in _chunks(piece, block):
            scaled = product[: part.stop - part.start]
            numpy.multiply(b[part], numpy.float32(SCALE), out=scaled)
            numpy.add(a[part], scaled, out=c[part])

    return work


def _check_read(arrays: _Arrays, run: Callable[[], list]) -> tuple[bool, str]:
    arrays.fill(arrays.a, _a)
    expected = sum(arrays.each_chunk(lambda chunk: _sum_of_words(_a(chunk.start, chunk.stop))))
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


def _sum_of_words(numbers) -> int:
    """Of float32 numbers taken two by two as 8-byte words, in Python's whole numbers."""
    halves = numbers.view(numpy.uint32)
    first, second = (int(part.sum(dtype=numpy.uint64)) for part in (halves[0::2], halves[1::2]))
    return first + (second << 32) if sys.byteorder == "little" else (first << 32) + second


def _thread_counts(cores: int) -> list[int]:
    """1, 2, 4, ... and all."""
    return [2**power for power in range(cores.bit_length()) if 2**power < cores] + [cores]


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


def sweep(
    workers: Workers, readers: int, levels: dict[str, int], cache_bytes: int, free_bytes: int, points_an_octave: int
) -> SweepSeries:
    """Reads of a working set that each of the readers has for itself, up to four times the `cache_bytes` that each has.

    A dot product reads two items for one multiply-add, which is what keeps up with the first cache: of NumPy's
    reductions none does, they stay at the second one's rate. Whether it keeps up is up to the BLAS; where it does not,
    the sweep shows one level for both. One core's set is read by the caller's own thread.
    """
    largest = max(CACHES * cache_bytes, LARGEST_SET_BYTES)
    sizes = set_sizes(min(largest, free_bytes // 4 // readers), points_an_octave)

    @cache
    def sets() -> list:
        return _each(workers, readers, lambda i: _aligned_numbers(sizes[-1]))

    def step(size_bytes: int) -> tuple[Callable[[int], object], int]:
        # Where there are many readers, handing out their parts takes time: they read more, so that it does not count.
        cached = size_bytes <= cache_bytes
        passes = max(1, (CACHED_STEP_BYTES * (1 + readers // 8) if cached else STEP_BYTES) // size_bytes)
        parts = [_dots(numbers, size_bytes, passes) for numbers in sets()]
        results = _each(workers, readers, lambda i: parts[i]())
        _require_whole_sets(sets(), size_bytes, results)
        return lambda index: _each(workers, readers, lambda i: parts[i]()), passes * size_bytes * readers

    return SweepSeries(
        series="one_core" if readers == 1 else "all_cores",
        reader="one core" if readers == 1 else "each core",
        counted=SWEEP_COUNTED,
        sizes=sizes,
        step=step,
        levels=levels,
    )


def set_sizes(largest: int, points_an_octave: int) -> list[int]:
    """Bytes of the sets, so many an octave, each of whole cache lines and of dot products of one length."""
    sizes = set()
    for point in itertools.count():
        size = int(SMALLEST_SET_BYTES * 2 ** (point / points_an_octave))
        if size > largest:
            break
        unit = 2 * LINE_BYTES * -(-size // DOT_BYTES)
        sizes.add(size - size % unit)
    return sorted(sizes)


def _dots_of(size_bytes: int) -> int:
    """The fewest dot products that read so many bytes in equal parts of whole cache lines."""
    fewest = -(-size_bytes // DOT_BYTES)
    return next(dots for dots in itertools.count(fewest) if size_bytes % (2 * LINE_BYTES * dots) == 0)


def _dots(numbers, size_bytes: int, passes: int) -> Callable[[], object]:
    """Reads the first bytes of float64 numbers in one NumPy call; returns the dot products, passes x dots of a pass.

    A stride of 0 is what makes the set be read again, without a Python call for each pass.
    """
    dots = _dots_of(size_bytes)
    half, items = size_bytes // 16, size_bytes // 16 // dots
    halves = numbers[:half], numbers[half : 2 * half]
    left, right = (as_strided(part, (passes, dots, items), (0, 8 * items, 8)) for part in halves)
    results = numpy.empty((passes, dots))
    return lambda: numpy.vecdot(left, right, out=results)


def _require_whole_sets(sets: list, size_bytes: int, results: list) -> None:
    """Raises ArithmeticError where any pass over a set did not read all of it: sums of whole numbers are exact."""
    half = size_bytes // 16
    for numbers, dots in zip(sets, results, strict=True):
        expected = numpy.sum(numbers[:half] * numbers[half : 2 * half])
        if not numpy.all(dots.sum(axis=1) == expected):
            raise ArithmeticError(f"a sweep's reads of {size_bytes} bytes give another dot product")


def _aligned_numbers(size_bytes: int):
    """Float64 numbers at the start of a page: reads across two cache lines would count for less."""
    room = numpy.empty(size_bytes + PAGE_BYTES, numpy.uint8)
    start = -room.ctypes.data % PAGE_BYTES
    numbers = room[start : start + size_bytes].view(numpy.float64)
    for chunk in _chunks(slice(0, numbers.size), CHUNK_ITEMS):
        numbers[chunk] = _numbers(chunk.start, chunk.stop, PERIOD_B)
    return numbers


def _each(workers: Workers, readers: int, work: Callable[[int], object]) -> list:
    return [work(0)] if readers == 1 else workers.run(readers, work)
