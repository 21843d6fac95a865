"""The memory of a GPU, level by level, by kernels of ours and by the driver's copies."""

from collections.abc import Callable

from roofline.core.terms import MIXES
from roofline.devices.base import Stream, SweepSeries

GIB, MIB, KIB = 1 << 30, 1 << 20, 1 << 10
# Beyond it, beginning and end of a kernel no longer show, nor does what L2 may still hold of the pass before.
LARGEST_ARRAY_BYTES, TIMES_L2 = 4 * GIB, 64
ROUND_BYTES = 32  # the widest vector of kernels/memory.cu
CACHE_VECTOR_BYTES = 16  # of kernels/caches.cu

DEPTHS = (1, 2, 4, 8)  # vectors in flight per thread, as kernels/memory.cu has them
THREADS = (256, 1024, 128, 512)
WHOLE = 0  # as many blocks as there are tiles, instead of so many a multiprocessor
ARRAYS = {"read": 1, "write": 1, "copy": 2, "triad": 3}
COUNTED = {
    "read": "bytes read",
    "write": "bytes written; a sample begins with the L2 as full of lines yet to be written back as it ends, "
    "so that as many bytes leave for the memory as are counted",
    "copy": "bytes read plus bytes written",
    "triad": "bytes of two arrays read plus one written",
}
START = 0x9E3779B9  # of the pattern that is written
TRIAD_SCALE = 2.0

HOST_BLOCKS = 8  # in which a copy from or to the host is timed: others use the host's memory and its links too

CACHE_GRIDS = ((256, 4), (256, 8), (512, 2), (512, 4), (1024, 1), (1024, 2))  # threads, blocks per multiprocessor
# Blocks by which each pass over the L2's set is turned on, so that neighbours follow one another over the same lines.
FOLLOWING = (1, 2)
BROADCAST_THREADS = (512, 1024)
# Bytes that one step reads on each multiprocessor: about a millisecond of what an L1, and of what an L2 gives.
L1_STEP_BYTES, L2_STEP_BYTES = 256 * MIB, 64 * MIB
SWEEP_STEP_SHARE = 4  # a sweep asks for the course of many sizes, a ceiling for one figure
SWEEP_THREADS, ROUND_OF_SWEEP = 256, 32 * KIB  # sizes are whole rounds of a block's loads, so that none has a slow end
LARGEST_OF_L1 = 2 * MIB  # past it the L2 answers all the same
SMALLEST_OF_L2 = 2 * MIB
READERS = 8  # one multiprocessor in so many reads through its L1
SWEEP_BEYOND_L2 = 24  # times the L2's size: at 6 times it a tenth of the reads still hits it


def streams(device, level: str, size_bytes: int | None) -> list[Stream]:
    """The ceilings of one level. `size_bytes` is that of each array, None for as large as is needed."""
    if level in ("hbm", "d2d"):
        size = array_bytes(device, size_bytes)
        return [_hbm(device, mix, size) for mix in MIXES] if level == "hbm" else [_device_copy(device, size)]
    if level in ("h2d", "d2h"):
        return [_host_copy(device, level, size_bytes, pinned) for pinned in (True, False)]
    return {"l2": _l2, "l1": _l1, "shared": _shared}[level](device)


def array_bytes(device, size_bytes: int | None) -> int:
    """The size of each array of device memory: as asked, or what fills the card and fits three times."""
    enough = max(LARGEST_ARRAY_BYTES, TIMES_L2 * device.last_level_cache_bytes)
    size = size_bytes or min(enough, device.identity.memory_free_bytes // 8)
    return size // ROUND_BYTES * ROUND_BYTES


# ---------------------------------------------------------------- device memory


class _Arrays:
    """Up to three arrays of device memory, made when they are first asked for and shared by all mixes."""

    def __init__(self, device, size: int):
        self._device, self.size, self._made = device, size, {}

    def __getitem__(self, name: str):
        if name not in self._made:
            seed = {"a": 0, "b": 1, "c": 2}[name]
            self._made[name] = self._device.normal((self.size // 4,), "fp32", seed)
        return self._made[name]


def _hbm(device, mix: str, size: int) -> Stream:
    arrays = device.shared_arrays(size, lambda: _Arrays(device, size))
    vectors = size // device.vector_bytes
    arguments = _arguments(device, mix, arrays, vectors)
    kernels = {depth: device.kernel("memory.cu", f"{mix}_{depth}") for depth in DEPTHS}
    grids = {}
    # One block per tile, or few that go round and round: which is faster differs by card and mix, mostly the first.
    for whole in (True, False):
        for threads in THREADS:
            for depth, kernel in kernels.items():
                # Vectors in flight take registers, and not every card has enough of them for a thousand threads.
                if threads > kernel.max_threads_per_block:
                    continue
                for blocks_each in (WHOLE,) if whole else _halvings(device.max_threads // threads):
                    tiles = -(-vectors // (threads * depth))
                    blocks = min(blocks_each * device.multiprocessors or tiles, tiles)
                    grids[grid_name(blocks_each, threads, depth)] = _launch(kernel, blocks, threads, arguments)
    return Stream(
        name=f"hbm_{mix}",
        level="hbm",
        mix=mix,
        counted=f"{COUNTED[mix]}, each byte of {size:,} in each of {ARRAYS[mix]} arrays once; an array is "
        f"{size / device.last_level_cache_bytes:.0f} times the L2",
        counted_bytes=ARRAYS[mix] * size,
        grids=grids,
        verify=lambda grid: VERIFY[mix](device, arrays, grids[grid]),
    )


def _halvings(most: int) -> list[int]:
    return [most, most // 2] if most > 1 else [most]


def grid_name(blocks_each: int, threads: int, depth: int) -> str:
    blocks = f"{blocks_each} blocks per multiprocessor" if blocks_each else "one block per tile"
    return f"{blocks}, {threads} threads, {depth} in flight"


def _launch(kernel, blocks: int, threads: int, arguments: tuple, **options) -> Callable[[int], None]:
    def step(index: int) -> None:
        kernel((blocks,), (threads,), arguments, **options)

    return step


def _arguments(device, mix: str, arrays: _Arrays, vectors: int) -> tuple:
    import numpy

    count, clock = numpy.uint64(vectors), device.kernel_clock
    if mix == "read":
        return arrays["a"], count, device.total, device.tell, clock
    if mix == "write":
        return arrays["c"], count, numpy.uint32(START), clock
    if mix == "copy":
        return arrays["a"], arrays["c"], count, clock
    return arrays["a"], arrays["b"], arrays["c"], count, numpy.float32(TRIAD_SCALE), clock


def _verify_read(device, arrays: _Arrays, step) -> str:
    """The sum of all words, over a pattern whose sum is known."""
    words = arrays.size // 4
    _write_pattern(device, arrays["a"])
    _require_sum(device, lambda: step(0), pattern_sum(words), words)
    return "the sum of every word read against the sum of what had been written there"


def _verify_write(device, arrays: _Arrays, step) -> str:
    import numpy

    c = arrays["c"]
    c.data.memset_async(0xFF, c.nbytes, device.stream)
    step(0)
    vectors, words = numpy.uint64(arrays.size // device.vector_bytes), arrays.size // 4
    arguments = (c, vectors, device.total, device.tell, device.kernel_clock)
    read = _launch(device.kernel("memory.cu", "read_1"), 8 * device.multiprocessors, 256, arguments)
    _require_sum(device, lambda: read(0), pattern_sum(words), words)
    return "the sum of every word read back against the sum of what was to be written"


def _verify_copy(device, arrays: _Arrays, step) -> str:
    c = arrays["c"]
    c.data.memset_async(0xFF, c.nbytes, device.stream)
    step(0)
    return require_equal(same_bits(device, arrays["a"], c))


def _verify_triad(device, arrays: _Arrays, step) -> str:
    import numpy

    a, b, c = (arrays[name] for name in "abc")
    for seed, array in ((0, a), (1, b)):  # the pattern of another check may stand there
        array[...] = device.normal(array.shape, "fp32", seed)
    c.data.memset_async(0xFF, c.nbytes, device.stream)
    step(0)
    wrong = device.xp.zeros(1, device.xp.uint64)
    arguments = (a, b, c, numpy.float32(TRIAD_SCALE), numpy.uint64(c.size), wrong)
    device.kernel("compare.cu", "count_wrong_triads")((8 * device.multiprocessors,), (256,), arguments)
    if int(wrong[0]):
        raise ArithmeticError(f"{int(wrong[0])} of {c.size} results of the triad are wrong")
    return "every result against a plain loop's"


VERIFY = {"read": _verify_read, "write": _verify_write, "copy": _verify_copy, "triad": _verify_triad}


def _write_pattern(device, array) -> None:
    import numpy

    arguments = (array, numpy.uint64(array.nbytes // device.vector_bytes), numpy.uint32(START), device.kernel_clock)
    device.kernel("memory.cu", "write_1")((8 * device.multiprocessors,), (256,), arguments)


def pattern_sum(words: int, start: int = START) -> int:
    """Of the words start, start + 1, ... modulo 2^32."""
    return (start * words + words * (words - 1) // 2) % 2**32


def _require_sum(device, read: Callable[[], object], expected: int, words: int) -> None:
    device.total.data.memset_async(0, device.total.nbytes, device.stream)
    device.tell.data.memset_async(1, device.tell.nbytes, device.stream)
    read()
    device.tell.data.memset_async(0, device.tell.nbytes, device.stream)
    device.synchronize()
    found = int(device.to_host(device.total)[0])
    if found != expected:
        raise ArithmeticError(f"the words read add up to {found}, and {words:,} words there to {expected}")


def _device_copy(device, size: int) -> Stream:
    source = device.normal((size // 4,), "fp32", seed=0)
    destination = device.xp.zeros_like(source)

    def copy(index: int) -> None:
        destination.data.copy_from_device_async(source.data, source.nbytes, device.stream)

    def verify(grid: str) -> str:
        destination.data.memset_async(0xFF, destination.nbytes, device.stream)
        copy(0)
        return require_equal(same_bits(device, source, destination))

    return Stream(
        name="d2d",
        level="hbm",
        mix="copy",
        counted="bytes read plus bytes written, by the driver's own copy",
        counted_bytes=2 * source.nbytes,
        grids={"the driver's copy": copy},
        verify=verify,
    )


def same_bits(device, source, destination) -> bool:
    differences = device.xp.zeros(1, device.xp.uint64)
    device.count_differences(source, destination, differences)
    return int(differences[0]) == 0


def require_equal(equal: bool) -> str:
    if not equal:
        raise ArithmeticError("the copy differs from its source")
    return "every byte of the destination compared with the source"


# ---------------------------------------------------------------- between host and device


def _host_copy(device, level: str, size_bytes: int, pinned: bool) -> Stream:
    import numpy

    make = device.pinned_array if pinned else (lambda count: numpy.zeros(count // 4, numpy.uint32))
    host, returned = make(size_bytes), make(size_bytes)
    _repeat(numpy.random.default_rng(0).integers(0, 2**32, 1 << 20, numpy.uint32), host)
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
        return require_equal(numpy.array_equal(host, returned))

    to_device()
    return Stream(
        name=level if pinned else f"{level}_pageable",
        level="pcie",
        mix="copy",
        host_memory="pinned" if pinned else "pageable",
        counted=f"bytes transferred, once, {'from' if level == 'h2d' else 'to'} "
        + (
            "pinned memory" if pinned else "pageable memory, which the driver copies through a pinned buffer of its own"
        ),
        counted_bytes=host.nbytes,
        grids={"the driver's copy": to_device if level == "h2d" else to_host},
        verify=verify,
        blocks=HOST_BLOCKS,
    )


def _repeat(pattern, into) -> None:
    """The pattern again and again; numpy.resize would make the whole first, which takes thirty times as long."""
    whole = into.size // pattern.size * pattern.size
    into[:whole].reshape(-1, pattern.size)[:] = pattern
    into[whole:] = pattern[: into.size - whole]


# ---------------------------------------------------------------- caches


def _l2(device) -> list[Stream]:
    """The fastest that L2 gives to reads of which each is counted once; and two figures that frame it.

    Where neighbours follow one another over the same lines, some of their reads are answered together: on an H200 11 to
    12 TB/s. Where no two want a line at about the same time it is 9.2, to 0.1 % in every run. Where all want the same
    one at once, it is 18 to 20 at the multiprocessors, of which L2 reads each line only once for many.
    """
    size = device.last_level_cache_bytes // 2 // KIB * KIB
    apart = _l2_grids(device, size, following=())
    # A small card has no blocks that are far from one another.
    following = _l2_grids(device, size, FOLLOWING) if _far(device.multiprocessors) > max(FOLLOWING) else {}
    at_once = _broadcast_grids(device, size)
    return [
        _cache_stream(device, "l2", "l2", size, apart | following, f"{SHARED_OUT}, each line once per pass"),
        _cache_stream(device, "l2_apart", "l2", size, apart, f"{SHARED_OUT}, no two after the same line"),
        _cache_stream(
            device, "l2_broadcast", "l2", size, at_once, "that each of them reads whole, all at once, past L1"
        ),
    ]


def _l1(device) -> list[Stream]:
    size = _power_of_two(min(64 * KIB, device.l1_bytes // 2))
    return [_cache_stream(device, "l1", "l1", size, _l1_grids(device, "read_l1", size), EACH_AGAIN)]


def _shared(device) -> list[Stream]:
    size = _power_of_two(min(64 * KIB, device.properties["sharedMemPerBlockOptin"], device.l1_bytes - KIB))
    return [_cache_stream(device, "shared", "shared", size, _l1_grids(device, "read_shared", size), EACH_AGAIN)]


def _power_of_two(size: int) -> int:
    return 1 << (size.bit_length() - 1)


SHARED_OUT = "that they share out among them, past L1"
EACH_AGAIN = "that each of them reads again and again"


def _cache_stream(device, name: str, level: str, size: int, grids: dict, how: str) -> Stream:
    """`grids` are (step, how many times it reads the set of `size` bytes) by name; all read as many bytes."""
    set_words = device.cache_words(size)

    def verify(grid: str) -> str:
        step, times_read = grids[grid][0], grids[grid][1]
        _write_pattern(device, set_words[: max(size, ROUND_BYTES) // 4])
        expected = pattern_sum(size // 4) * times_read % 2**32
        _require_sum(device, lambda: step(0), expected, size // 4)
        return "the sum of every word of every pass against the sum of what had been written there"

    counted = next(iter(grids.values()))[1] * size
    return Stream(
        name=name,
        level=level,
        mix="read",
        counted=f"bytes read by the multiprocessors, from {size:,} bytes {how}",
        counted_bytes=counted,
        grids={grid: step for grid, (step, _) in grids.items()},
        verify=verify,
        clock_mhz=device.clock_of_kernel,
        on_chip=level != "l2",
    )


def _l1_grids(device, kernel_name: str, size: int) -> dict:
    """By name: the step, and how many times it reads the set in all."""
    import numpy

    kernel, words = device.kernel("caches.cu", kernel_name), device.cache_words(size)
    shared = size if kernel_name == "read_shared" else 0
    apart = () if shared else (numpy.uint32(0),)
    if shared:
        kernel.max_dynamic_shared_size_bytes = shared
    passes = max(1, L1_STEP_BYTES // size // 8) * 8  # a multiple of every number of blocks: all grids read as much
    found = {}
    for threads, each in CACHE_GRIDS:
        if threads * each > device.max_threads or (shared + KIB) * each > device.l1_bytes:
            continue
        blocks = each * device.multiprocessors
        count = numpy.uint32(size // CACHE_VECTOR_BYTES)
        arguments = (words, count, *apart, numpy.uint32(passes // each), device.total, device.kernel_clock)
        name = f"{each} blocks per multiprocessor, {threads} threads"
        found[name] = (_launch(kernel, blocks, threads, arguments, shared_mem=shared), passes // each * blocks)
    return found


def _broadcast_grids(device, size: int) -> dict:
    """By name: the step, and how many times it reads the set. One block per multiprocessor: its L1 joins no reads."""
    import numpy

    kernel, words = device.kernel("caches.cu", "read_l2_broadcast"), device.cache_words(size)
    passes = max(2, L2_STEP_BYTES // size)
    count = numpy.uint32(size // CACHE_VECTOR_BYTES)
    arguments = (words, count, numpy.uint32(passes), device.total, device.kernel_clock)
    return {
        f"1 block per multiprocessor, {threads} threads, all after the same lines": (
            _launch(kernel, device.multiprocessors, threads, arguments),
            passes * device.multiprocessors,
        )
        for threads in BROADCAST_THREADS
    }


def _l2_grids(device, size: int, following, grids=CACHE_GRIDS, step_bytes: int = L2_STEP_BYTES) -> dict:
    """By name: the step, and how many times it reads the set; turned on far where none is to follow."""
    import numpy

    kernel, words = device.kernel("caches.cu", "read_l2"), device.cache_words(size)
    passes = max(2, step_bytes * device.multiprocessors // size)
    found = {}
    for threads, each in grids:
        if threads * each > device.max_threads:
            continue
        for shift in following or (_far(device.multiprocessors),):
            arguments = (
                words,
                numpy.uint64(size // CACHE_VECTOR_BYTES),
                numpy.uint32(passes),
                numpy.uint32(shift),
                device.total,
                device.kernel_clock,
            )
            name = f"{each} blocks per multiprocessor, {threads} threads, turned on by {shift} blocks per pass"
            found[name] = (_launch(kernel, each * device.multiprocessors, threads, arguments), passes)
    return found


# ---------------------------------------------------------------- the sweep over working sets


def sweeps(device, points_per_octave: int) -> list[SweepSeries]:
    """Two series: one multiprocessor's set through L1, and the device's set past it.

    In one series the levels would hide one another: on an H200 all L1s together hold half of what the L2 does. So few
    multiprocessors read in the first that all their sets fit in L2; each has its own, since a line that many read at
    once is served to all of them by one access.
    """
    l2, readers = device.last_level_cache_bytes, max(1, device.multiprocessors // READERS)
    largest = min(SWEEP_BEYOND_L2 * l2, device.identity.memory_free_bytes // 4)
    device.cache_words(largest)  # at once, instead of anew for every larger set
    return [
        SweepSeries(
            series="through L1",
            reader=f"one multiprocessor, of {readers} that read at once",
            counted="bytes that one multiprocessor reads, each from a set of its own",
            sizes=_sizes(ROUND_OF_SWEEP, min(LARGEST_OF_L1, l2 // readers // 2), 2 * points_per_octave, ROUND_OF_SWEEP),
            step=lambda size: _own_sets(device, size, readers),
            levels={"l1": device.l1_bytes, "l2": l2 // readers},
            assumed=("l1",),  # CUDA tells what of an L1 may be shared memory
        ),
        SweepSeries(
            series="past L1",
            reader="the device",
            counted="bytes read by the multiprocessors, which share the set out among them",
            sizes=_sizes(min(SMALLEST_OF_L2, l2 // 4), largest, points_per_octave),
            step=lambda size: _sweep_step(_l2_sweep_grids(device, size), size),
            levels={"l2": l2},
        ),
    ]


def _own_sets(device, size: int, readers: int) -> tuple[Callable[[int], None], int]:
    """One block per multiprocessor: two would serve one another's misses."""
    import numpy

    count = numpy.uint32(size // CACHE_VECTOR_BYTES)
    passes = max(1, L1_STEP_BYTES // SWEEP_STEP_SHARE // size)
    words = device.cache_words(readers * size)
    arguments = (words, count, count, numpy.uint32(passes), device.total, device.kernel_clock)
    kernel = device.kernel("caches.cu", "read_l1")
    return _launch(kernel, readers, SWEEP_THREADS, arguments), passes * size


def _far(multiprocessors: int) -> int:
    """So many blocks that none catches up with the one before it; no part of a wave, or a neighbour would follow."""
    return max(2, multiprocessors // 4 - 2)


def _l2_sweep_grids(device, size: int) -> dict:
    grid = (SWEEP_THREADS, device.max_threads // SWEEP_THREADS)
    return _l2_grids(device, size, (), (grid,), L2_STEP_BYTES // SWEEP_STEP_SHARE)


def _sweep_step(grids: dict, size: int) -> tuple[Callable[[int], None], int]:
    step, times_read = next(iter(grids.values()))
    return step, times_read * size


def _sizes(smallest: int, largest: int, points_per_octave: int, unit: int = KIB) -> list[int]:
    """Sizes in a geometric series, in whole units, each once."""
    found, place = [], 0
    while (size := round(smallest * 2 ** (place / points_per_octave) / unit) * unit) <= largest:
        found.append(size)
        place += 1
    return list(dict.fromkeys(found))
