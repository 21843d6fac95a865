"""The memory of a GPU and its link to the host, by kernels of ours and by the driver's copies."""

import itertools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy

from roofline.core.dtypes import COMMON_DTYPE
from roofline.core.terms import ACCESS_PATTERNS, AccessPattern, Array
from roofline.core.units import GIB, MIB
from roofline.devices.base import BandwidthBenchmark, PointerChase, Step
from roofline.devices.gpu.cuda_arrays import TriadArrays
from roofline.devices.gpu.pointer_chase import evicting_bytes, make_pointer_chase

if TYPE_CHECKING:
    from cupy import RawKernel

    from roofline.devices.gpu.gpu_device import GpuDevice

# In a larger array the beginning and end of a kernel no longer show, nor what L2 may still hold of the pass before.
LARGEST_ARRAY_BYTES, LARGEST_ARRAY_L2_SIZES = 4 * GIB, 64
ROUND_BYTES = 32  # the widest vector of kernels/memory.cu; sizes are multiples of it

VECTORS_IN_FLIGHT = (1, 2, 4, 8)  # of a thread, as in kernels/memory.cu
THREADS = (256, 1024, 128, 512)  # of a block
BLOCK_PER_TILE = 0  # as many blocks as there are tiles, in place of a number of blocks per multiprocessor
ARRAYS_PER_PATTERN = {"read": 1, "write": 1, "copy": 2, "triad": 3}
COUNTING_RULES = {
    "read": "bytes read",
    "write": "bytes written; a sample begins with the L2 as full of lines yet to be written back as it ends, "
    "so that as many bytes leave for the memory as are counted",
    "copy": "bytes read plus bytes written",
    "triad": "bytes of two arrays read plus one written",
}
PATTERN_START = 0x9E3779B9  # the first word of the pattern start, start + 1, ... that is written
TRIAD_SCALE = 2.0

# A copy from or to the host shares memory and links with other users: at most these timed blocks, of at least these
# samples.
HOST_TIMED_BLOCKS, HOST_SAMPLES = 8, 20
USUAL_TRANSFER_BYTES = 256 * MIB


class KernelGrid(NamedTuple):
    """A kernel and the grid of its launches."""

    kernel: "RawKernel"
    blocks: int
    threads: int  # of a block


def _hbm_benchmarks(device: "GpuDevice", size_bytes: int | None) -> list[BandwidthBenchmark]:
    return [_hbm_benchmark(device, mix, array_bytes(device, size_bytes)) for mix in ACCESS_PATTERNS]


def _chase_hbm(device: "GpuDevice") -> PointerChase:
    """Return a chase that meets no line twice in a step."""
    return make_pointer_chase(device, evicting_bytes(device), 1 << 12)


def array_bytes(device: "GpuDevice", size_bytes: int | None) -> int:
    """Return the size of each array in device memory: as requested, else as large as bandwidth needs, and at most an
    eighth of free memory, so that three fit."""
    large_enough = max(LARGEST_ARRAY_BYTES, LARGEST_ARRAY_L2_SIZES * device.last_level_cache_bytes)
    size = size_bytes or min(large_enough, device.identity.memory_free_bytes // 8)
    return size // ROUND_BYTES * ROUND_BYTES


# ---------------------------------------------------------------- device memory


def _hbm_benchmark(device: "GpuDevice", mix: AccessPattern, size: int) -> BandwidthBenchmark:
    arrays = device.triad_arrays(size)
    # One block per tile, or a few per multiprocessor that go round and round: which is faster differs by card and
    # access pattern, mostly the first.
    shapes = [(BLOCK_PER_TILE, threads, depth) for threads in THREADS for depth in VECTORS_IN_FLIGHT]
    for threads, depth in itertools.product(THREADS, VECTORS_IN_FLIGHT):
        shapes += [(blocks, threads, depth) for blocks in _full_and_half(device.max_threads // threads)]
    arguments = _kernel_arguments(device, mix, arrays)
    grids = list_grids(device, mix, size, shapes)
    steps = {name: make_launch_step(*grid, arguments) for name, grid in grids.items()}
    array_count, l2_sizes = ARRAYS_PER_PATTERN[mix], size / device.last_level_cache_bytes
    return BandwidthBenchmark(
        name=f"hbm_{mix}",
        level="hbm",
        mix=mix,
        counting_rule=f"{COUNTING_RULES[mix]}, each byte of {size:,} in each of {array_count} arrays once; an array is "
        f"{l2_sizes:.0f} times the L2",
        counted_bytes=array_count * size,
        steps_by_grid=steps,
        verify=lambda grid: VERIFIERS[mix](device, arrays, steps[grid]),
    )


def list_grids(device: "GpuDevice", mix: str, size: int, shapes: Iterable[tuple]) -> dict[str, KernelGrid]:
    """Return, by their names, the grids of a kernel on arrays of `size` bytes.

    Shapes are (blocks per multiprocessor, threads, vectors in flight); those that need too many registers are left out.
    """
    kernels = {depth: device.load_kernel("memory.cu", f"{mix}_{depth}") for depth in VECTORS_IN_FLIGHT}
    grids = {}
    for blocks_per_sm, threads, depth in shapes:
        if threads > kernels[depth].max_threads_per_block:
            continue
        tiles = -(-size // device.vector_bytes // (threads * depth))
        if blocks_per_sm == BLOCK_PER_TILE:
            blocks, blocks_text = tiles, "one block per tile"
        else:
            blocks = min(blocks_per_sm * device.multiprocessors, tiles)
            blocks_text = f"{blocks_per_sm} blocks per multiprocessor"
        grids[f"{blocks_text}, {threads} threads, {depth} in flight"] = KernelGrid(kernels[depth], blocks, threads)
    return grids


def _full_and_half(largest: int) -> list[int]:
    return [largest, largest // 2] if largest > 1 else [largest]


def make_launch_step(kernel: "RawKernel", blocks: int, threads: int, arguments: tuple, shared_bytes: int = 0) -> Step:
    """Return a step that launches a kernel with `blocks` of `threads` and fixed arguments on the current stream.

    The step's number is not used.
    """

    def step(index: int) -> None:
        kernel((blocks,), (threads,), arguments, shared_mem=shared_bytes)

    return step


def _kernel_arguments(device: "GpuDevice", mix: str, arrays: TriadArrays) -> tuple:
    """Return the arguments of an access pattern's kernels in memory.cu."""
    vectors, clock = _count_vectors(device, arrays.a), device.kernel_clock
    if mix == "read":
        return _read_arguments(device, arrays.a)
    if mix == "write":
        return arrays.c, vectors, numpy.uint32(PATTERN_START), clock
    if mix == "copy":
        return arrays.a, arrays.c, vectors, clock
    return *arrays, vectors, numpy.float32(TRIAD_SCALE), clock


def _read_arguments(device: "GpuDevice", array: Array) -> tuple:
    return array, _count_vectors(device, array), device.word_sum, device.report_sum, device.kernel_clock


def _count_vectors(device: "GpuDevice", array: Array) -> numpy.uint64:
    return numpy.uint64(array.nbytes // device.vector_bytes)


def _verify_read(device: "GpuDevice", arrays: TriadArrays, step: Step) -> str:
    """Compare the sum of all words that a step reads with the known sum of a pattern."""
    write_pattern(device, arrays.a)
    require_sum(device, lambda: step(0), pattern_sum(arrays.a.size), arrays.a.size)
    return "the sum of every word read against the sum of what had been written there"


def _verify_write(device: "GpuDevice", arrays: TriadArrays, step: Step) -> str:
    written = arrays.c
    device.poison(written)
    step(0)
    kernel, arguments = device.load_kernel("memory.cu", "read_1"), _read_arguments(device, written)
    require_sum(device, lambda: device.launch_one_pass(kernel, arguments), pattern_sum(written.size), written.size)
    return "the sum of every word read back against the sum of what was to be written"


def _verify_copy(device: "GpuDevice", arrays: TriadArrays, step: Step) -> str:
    device.poison(arrays.c)
    step(0)
    return require_copied(have_same_bits(device, arrays.a, arrays.c))


def _verify_triad(device: "GpuDevice", arrays: TriadArrays, step: Step) -> str:
    for seed, array in ((0, arrays.a), (1, arrays.b)):  # which may hold the pattern of another check
        device.fill_normal(array, COMMON_DTYPE, seed)
    device.poison(arrays.c)
    step(0)
    wrong = device.xp.zeros(1, device.xp.uint64)
    arguments = (*arrays, numpy.float32(TRIAD_SCALE), numpy.uint64(arrays.c.size), wrong)
    device.launch_one_pass(device.load_kernel("compare.cu", "count_wrong_triads"), arguments)
    if int(wrong[0]):
        raise ArithmeticError(f"{int(wrong[0])} of {arrays.c.size} results of the triad are wrong")
    return "every result against a plain loop's"


VERIFIERS = {"read": _verify_read, "write": _verify_write, "copy": _verify_copy, "triad": _verify_triad}


def write_pattern(device: "GpuDevice", array: Array) -> None:
    """Queue the writing of the words start, start + 1, ... to an array, from PATTERN_START on."""
    arguments = (array, _count_vectors(device, array), numpy.uint32(PATTERN_START), device.kernel_clock)
    device.launch_one_pass(device.load_kernel("memory.cu", "write_1"), arguments)


def pattern_sum(words: int, start: int = PATTERN_START) -> int:
    """Return the sum of so many words start, start + 1, ... modulo 2^32."""
    return (start * words + words * (words - 1) // 2) % 2**32


def require_sum(device: "GpuDevice", read: Callable[[], object], expected: int, words: int) -> None:
    """Clear the device's word sum, run `read` with the sum reported, and compare.

    Raises ArithmeticError where the sum modulo 2^32 is not `expected`; `words` is for the message.
    """
    device.word_sum.data.memset_async(0, device.word_sum.nbytes, device.stream)
    device.report_sum.data.memset_async(1, device.report_sum.nbytes, device.stream)
    read()
    device.report_sum.data.memset_async(0, device.report_sum.nbytes, device.stream)
    device.synchronize()
    word_sum = int(device.to_host(device.word_sum)[0])
    if word_sum != expected:
        raise ArithmeticError(f"the words read add up to {word_sum}, and {words:,} words there to {expected}")


def _device_copy_benchmarks(device: "GpuDevice", size_bytes: int | None) -> list[BandwidthBenchmark]:
    size = array_bytes(device, size_bytes)
    source = device.normal((size // 4,), COMMON_DTYPE, seed=0)
    destination = device.xp.zeros_like(source)

    def copy(index: int) -> None:
        device.copy(source, destination)

    def verify(grid: str) -> str:
        device.poison(destination)
        copy(0)
        return require_copied(have_same_bits(device, source, destination))

    benchmark = BandwidthBenchmark(
        name="d2d",
        level="hbm",
        mix="copy",
        counting_rule="bytes read plus bytes written, by the driver's own copy",
        counted_bytes=2 * source.nbytes,
        steps_by_grid={"the driver's copy": copy},
        verify=verify,
    )
    return [benchmark]


def have_same_bits(device: "GpuDevice", source: Array, destination: Array) -> bool:
    """Return whether no 32-bit word of two arrays differs, and wait for the comparison."""
    differences = device.xp.zeros(1, device.xp.uint64)
    device.count_differences(source, destination, differences)
    return int(differences[0]) == 0


def require_copied(equal: bool) -> str:
    """Return what was compared. Raises ArithmeticError where a copy does not equal its source."""
    if not equal:
        raise ArithmeticError("the copy differs from its source")
    return "every byte of the destination compared with the source"


# ---------------------------------------------------------------- between host and device


def _from_host_benchmarks(device: "GpuDevice", size_bytes: int | None) -> list[BandwidthBenchmark]:
    return [_host_copy_benchmark(device, "h2d", size_bytes, pinned) for pinned in (True, False)]


def _to_host_benchmarks(device: "GpuDevice", size_bytes: int | None) -> list[BandwidthBenchmark]:
    return [_host_copy_benchmark(device, "d2h", size_bytes, pinned) for pinned in (True, False)]


def _host_copy_benchmark(device: "GpuDevice", target: str, size_bytes: int | None, pinned: bool) -> BandwidthBenchmark:
    size = size_bytes or USUAL_TRANSFER_BYTES
    source, returned = (_allocate_on_host(device, size, pinned) for _ in range(2))
    _fill_repeating(numpy.random.default_rng(0).integers(0, 2**32, 1 << 20, numpy.uint32), source)
    on_device = device.xp.zeros(source.size, numpy.uint32)
    runtime = device.xp.cuda.runtime
    to_device_kind, to_host_kind = runtime.memcpyHostToDevice, runtime.memcpyDeviceToHost

    def to_device(index: int = 0) -> None:
        runtime.memcpyAsync(on_device.data.ptr, source.ctypes.data, source.nbytes, to_device_kind, device.stream.ptr)

    def to_host(index: int = 0) -> None:
        runtime.memcpyAsync(returned.ctypes.data, on_device.data.ptr, source.nbytes, to_host_kind, device.stream.ptr)

    def verify(grid: str) -> str:
        returned[:] = 0
        on_device.data.memset_async(0, on_device.nbytes, device.stream)
        to_device()
        to_host()
        device.synchronize()
        return require_copied(numpy.array_equal(source, returned))

    to_device()
    direction = "from" if target == "h2d" else "to"
    memory = "pinned memory" if pinned else "pageable memory, which the driver copies through its own pinned buffer"
    return BandwidthBenchmark(
        name=target if pinned else f"{target}_pageable",
        level="pcie",
        mix="copy",
        host_memory="pinned" if pinned else "pageable",
        counting_rule=f"bytes transferred, once, {direction} {memory}",
        counted_bytes=source.nbytes,
        steps_by_grid={"the driver's copy": to_device if target == "h2d" else to_host},
        verify=verify,
        most_timed_blocks=HOST_TIMED_BLOCKS,
        least_samples=HOST_SAMPLES,
    )


def _allocate_on_host(device: "GpuDevice", size_bytes: int, pinned: bool) -> numpy.ndarray:
    return device.allocate_pinned(size_bytes) if pinned else numpy.zeros(size_bytes // 4, numpy.uint32)


def _fill_repeating(pattern: numpy.ndarray, target: numpy.ndarray) -> None:
    """Fill an array with a pattern again and again. numpy.resize would build the result first, which takes thirty times
    as long."""
    repeated = target.size // pattern.size * pattern.size
    target[:repeated].reshape(-1, pattern.size)[:] = pattern
    target[repeated:] = pattern[: target.size - repeated]


# The benchmarks and the latency of each target of core/levels.py that device memory or the host link serves.
BENCHMARKS = {
    "hbm": _hbm_benchmarks,
    "d2d": _device_copy_benchmarks,
    "h2d": _from_host_benchmarks,
    "d2h": _to_host_benchmarks,
}
CHASES = {"hbm": _chase_hbm}
