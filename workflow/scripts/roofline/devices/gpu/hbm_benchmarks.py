"""The memory of a GPU and its link to the host, by kernels of ours and by the driver's copies."""

from collections.abc import Callable, Iterable

import numpy

from roofline.core.terms import ACCESS_PATTERNS
from roofline.core.units import GIB
from roofline.devices.base import BandwidthBenchmark

# Beyond it, beginning and end of a kernel no longer show, nor does what L2 may still hold of the pass before.
LARGEST_ARRAY_BYTES, LARGEST_ARRAY_L2_SIZES = 4 * GIB, 64
ROUND_BYTES = 32  # the widest vector of kernels/memory.cu

VECTORS_IN_FLIGHT = (1, 2, 4, 8)  # vectors in flight per thread, as kernels/memory.cu has them
THREADS = (256, 1024, 128, 512)
BLOCK_PER_TILE = 0  # as many blocks as there are tiles, instead of so many a multiprocessor
ARRAYS_PER_PATTERN = {"read": 1, "write": 1, "copy": 2, "triad": 3}
COUNTING_RULES = {
    "read": "bytes read",
    "write": "bytes written; a sample begins with the L2 as full of lines yet to be written back as it ends, "
    "so that as many bytes leave for the memory as are counted",
    "copy": "bytes read plus bytes written",
    "triad": "bytes of two arrays read plus one written",
}
PATTERN_START = 0x9E3779B9  # of the pattern that is written
TRIAD_SCALE = 2.0

# Of a copy from or to the host, whose memory and links others use too: at most these blocks, of at least these samples.
HOST_TIMED_BLOCKS, HOST_SAMPLES = 8, 20


def bandwidth_benchmarks(device, level: str, size_bytes: int | None) -> list[BandwidthBenchmark]:
    """Streams of device memory or of the host link. `size_bytes`: of each array; None: as large as needed."""
    if level in ("hbm", "d2d"):
        size = array_bytes(device, size_bytes)
        return (
            [_hbm_benchmark(device, mix, size) for mix in ACCESS_PATTERNS]
            if level == "hbm"
            else [_device_copy_benchmark(device, size)]
        )
    return [_host_copy_benchmark(device, level, size_bytes, pinned) for pinned in (True, False)]


def array_bytes(device, size_bytes: int | None) -> int:
    """The size of each array of device memory: as asked, or what fills the card and fits three times."""
    enough = max(LARGEST_ARRAY_BYTES, LARGEST_ARRAY_L2_SIZES * device.last_level_cache_bytes)
    size = size_bytes or min(enough, device.identity.memory_free_bytes // 8)
    return size // ROUND_BYTES * ROUND_BYTES


# ---------------------------------------------------------------- device memory


def _hbm_benchmark(device, mix: str, size: int) -> BandwidthBenchmark:
    arrays = device.triad_arrays(size)
    # One block per tile, or few that go round and round: which is faster differs by card and mix, mostly the first.
    shapes = [(BLOCK_PER_TILE, threads, depth) for threads in THREADS for depth in VECTORS_IN_FLIGHT]
    shapes += [
        (blocks, threads, depth)
        for threads in THREADS
        for depth in VECTORS_IN_FLIGHT
        for blocks in _full_and_half(device.max_threads // threads)
    ]
    arguments = _kernel_arguments(device, mix, *arrays, size // device.vector_bytes)
    found = list_grids(device, mix, size, shapes)
    ways = {name: make_launch_step(*grid, arguments) for name, grid in found.items()}
    return BandwidthBenchmark(
        name=f"hbm_{mix}",
        level="hbm",
        mix=mix,
        counting_rule=f"{COUNTING_RULES[mix]}, each byte of {size:,} in each of {ARRAYS_PER_PATTERN[mix]} arrays once; "
        f"an array is {size / device.last_level_cache_bytes:.0f} times the L2",
        counted_bytes=ARRAYS_PER_PATTERN[mix] * size,
        steps_by_grid=ways,
        verify=lambda grid: VERIFIERS[mix](device, *arrays, ways[grid]),
    )


def list_grids(device, mix: str, size: int, shapes: Iterable[tuple[int, int, int]]) -> dict[str, tuple]:
    """By name: the kernel, its blocks and their threads, for shapes of (blocks per multiprocessor, threads, vectors in
    flight) that the registers allow."""
    kernels = {depth: device.load_kernel("memory.cu", f"{mix}_{depth}") for depth in VECTORS_IN_FLIGHT}
    found = {}
    for each, threads, depth in shapes:
        if threads <= kernels[depth].max_threads_per_block:
            tiles = -(-size // device.vector_bytes // (threads * depth))
            blocks = min(each * device.multiprocessors or tiles, tiles)
            how = f"{each} blocks per multiprocessor" if each else "one block per tile"
            found[f"{how}, {threads} threads, {depth} in flight"] = kernels[depth], blocks, threads
    return found


def _full_and_half(most: int) -> list[int]:
    return [most, most // 2] if most > 1 else [most]


def make_launch_step(kernel, blocks: int, threads: int, arguments: tuple, **options) -> Callable[[int], None]:
    def step(index: int) -> None:
        kernel((blocks,), (threads,), arguments, **options)

    return step


def _kernel_arguments(device, mix: str, a, b, c, vectors: int) -> tuple:
    count, clock = numpy.uint64(vectors), device.kernel_clock
    if mix == "read":
        return a, count, device.word_sum, device.report_sum, clock
    if mix == "write":
        return c, count, numpy.uint32(PATTERN_START), clock
    if mix == "copy":
        return a, c, count, clock
    return a, b, c, count, numpy.float32(TRIAD_SCALE), clock


def _verify_read(device, a, b, c, step) -> str:
    """The sum of all words, over a pattern whose sum is known."""
    write_pattern(device, a)
    require_sum(device, lambda: step(0), pattern_sum(a.size), a.size)
    return "the sum of every word read against the sum of what had been written there"


def _verify_write(device, a, b, c, step) -> str:
    device.poison(c)
    step(0)
    arguments = (
        c,
        numpy.uint64(c.nbytes // device.vector_bytes),
        device.word_sum,
        device.report_sum,
        device.kernel_clock,
    )
    read = make_launch_step(device.load_kernel("memory.cu", "read_1"), 8 * device.multiprocessors, 256, arguments)
    require_sum(device, lambda: read(0), pattern_sum(c.size), c.size)
    return "the sum of every word read back against the sum of what was to be written"


def _verify_copy(device, a, b, c, step) -> str:
    device.poison(c)
    step(0)
    return require_copied(have_same_bits(device, a, c))


def _verify_triad(device, a, b, c, step) -> str:
    for seed, array in ((0, a), (1, b)):  # the pattern of another check may stand there
        device.fill_normal(array, "fp32", seed)
    device.poison(c)
    step(0)
    wrong = device.xp.zeros(1, device.xp.uint64)
    arguments = (a, b, c, numpy.float32(TRIAD_SCALE), numpy.uint64(c.size), wrong)
    device.load_kernel("compare.cu", "count_wrong_triads")((8 * device.multiprocessors,), (256,), arguments)
    if int(wrong[0]):
        raise ArithmeticError(f"{int(wrong[0])} of {c.size} results of the triad are wrong")
    return "every result against a plain loop's"


VERIFIERS = {"read": _verify_read, "write": _verify_write, "copy": _verify_copy, "triad": _verify_triad}


def write_pattern(device, array) -> None:
    arguments = (
        array,
        numpy.uint64(array.nbytes // device.vector_bytes),
        numpy.uint32(PATTERN_START),
        device.kernel_clock,
    )
    device.load_kernel("memory.cu", "write_1")((8 * device.multiprocessors,), (256,), arguments)


def pattern_sum(words: int, start: int = PATTERN_START) -> int:
    """Of the words start, start + 1, ... modulo 2^32."""
    return (start * words + words * (words - 1) // 2) % 2**32


def require_sum(device, read: Callable[[], object], expected: int, words: int) -> None:
    device.word_sum.data.memset_async(0, device.word_sum.nbytes, device.stream)
    device.report_sum.data.memset_async(1, device.report_sum.nbytes, device.stream)
    read()
    device.report_sum.data.memset_async(0, device.report_sum.nbytes, device.stream)
    device.synchronize()
    found = int(device.to_host(device.word_sum)[0])
    if found != expected:
        raise ArithmeticError(f"the words read add up to {found}, and {words:,} words there to {expected}")


def _device_copy_benchmark(device, size: int) -> BandwidthBenchmark:
    source = device.normal((size // 4,), "fp32", seed=0)
    destination = device.xp.zeros_like(source)

    def copy(index: int) -> None:
        device.copy(source, destination)

    def verify(grid: str) -> str:
        device.poison(destination)
        copy(0)
        return require_copied(have_same_bits(device, source, destination))

    return BandwidthBenchmark(
        name="d2d",
        level="hbm",
        mix="copy",
        counting_rule="bytes read plus bytes written, by the driver's own copy",
        counted_bytes=2 * source.nbytes,
        steps_by_grid={"the driver's copy": copy},
        verify=verify,
    )


def have_same_bits(device, source, destination) -> bool:
    differences = device.xp.zeros(1, device.xp.uint64)
    device.count_differences(source, destination, differences)
    return int(differences[0]) == 0


def require_copied(equal: bool) -> str:
    if not equal:
        raise ArithmeticError("the copy differs from its source")
    return "every byte of the destination compared with the source"


# ---------------------------------------------------------------- between host and device


def _host_copy_benchmark(device, level: str, size_bytes: int, pinned: bool) -> BandwidthBenchmark:
    make = device.allocate_pinned if pinned else (lambda count: numpy.zeros(count // 4, numpy.uint32))
    host, returned = make(size_bytes), make(size_bytes)
    _fill_repeating(numpy.random.default_rng(0).integers(0, 2**32, 1 << 20, numpy.uint32), host)
    on_device = device.xp.zeros(host.size, numpy.uint32)
    runtime, down = device.xp.cuda.runtime, device.xp.cuda.runtime.memcpyDeviceToHost
    up = runtime.memcpyHostToDevice

    def to_device(index: int = 0) -> None:
        runtime.memcpyAsync(on_device.data.ptr, host.ctypes.data, host.nbytes, up, device.stream.ptr)

    def to_host(index: int = 0) -> None:
        runtime.memcpyAsync(returned.ctypes.data, on_device.data.ptr, host.nbytes, down, device.stream.ptr)

    def verify(grid: str) -> str:
        returned[:] = 0
        on_device.data.memset_async(0, on_device.nbytes, device.stream)
        to_device()
        to_host()
        device.synchronize()
        return require_copied(numpy.array_equal(host, returned))

    to_device()
    return BandwidthBenchmark(
        name=level if pinned else f"{level}_pageable",
        level="pcie",
        mix="copy",
        host_memory="pinned" if pinned else "pageable",
        counting_rule=f"bytes transferred, once, {'from' if level == 'h2d' else 'to'} "
        + ("pinned memory" if pinned else "pageable memory, which the driver copies through its own pinned buffer"),
        counted_bytes=host.nbytes,
        steps_by_grid={"the driver's copy": to_device if level == "h2d" else to_host},
        verify=verify,
        most_timed_blocks=HOST_TIMED_BLOCKS,
        least_samples=HOST_SAMPLES,
    )


def _fill_repeating(pattern, into) -> None:
    """The pattern again and again; numpy.resize would make the whole first, which takes thirty times as long."""
    whole = into.size // pattern.size * pattern.size
    into[:whole].reshape(-1, pattern.size)[:] = pattern
    into[whole:] = pattern[: into.size - whole]
