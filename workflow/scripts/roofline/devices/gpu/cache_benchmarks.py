"""The caches of a GPU and its shared memory, and the sweep that finds the levels by itself, by kernels of ours."""

from typing import TYPE_CHECKING, NamedTuple

import numpy

from roofline.core.levels import L2_SHARED_BY_NEIGHBOURS
from roofline.core.terms import UnsupportedError
from roofline.core.units import KIB, MIB
from roofline.devices.base import RESERVED_SHARED_BYTES, BandwidthBenchmark, PointerChase, Step, SweepBenchmark
from roofline.devices.gpu.hbm_benchmarks import ROUND_BYTES, make_launch_step, pattern_sum, require_sum, write_pattern
from roofline.devices.gpu.pointer_chase import make_pointer_chase, require_chain_end, shuffle_chain

if TYPE_CHECKING:
    from roofline.devices.gpu.gpu_device import GpuDevice

KERNELS = (("caches.cu", ""),)  # compiled ahead
VECTOR_BYTES = 16  # of kernels/caches.cu
GRIDS = ((256, 4), (256, 8), (512, 2), (512, 4), (1024, 1), (1024, 2))  # threads, blocks per multiprocessor
# Blocks by which each pass over the L2's set is shifted, so that neighbours follow one another over the same lines.
NEIGHBOUR_SHIFTS = (1, 2)
BROADCAST_THREADS = (512, 1024)
CLUSTER_BLOCKS = (2, 4, 8, 16)
PORTABLE_CLUSTER_BLOCKS, NON_PORTABLE_CLUSTER_ATTRIBUTE = 8, 14  # of CUDA's CUfunction_attribute
CLUSTER_WAVES, CLUSTER_STEP_BYTES = 8, 8 * MIB  # bytes that a block of one of so many waves reads
DSMEM_CHAIN_LINES, CHASE_THREADS = 128, 256
TIMED_BLOCKS = 5  # of which the fastest counts
# Bytes that one step reads on each multiprocessor: an L1 and an L2 deliver them in one or two milliseconds.
L1_STEP_BYTES, L2_STEP_BYTES = 256 * MIB, 128 * MIB
# A sweep asks for the course of many sizes, a ceiling for one figure.
L1_SWEEP_BYTES, L2_SWEEP_BYTES = 64 * MIB, 16 * MIB
SWEEP_THREADS = 256
SWEEP_UNIT_BYTES = 32 * KIB  # sizes are whole rounds of a block's loads, so that none has a slow end
LARGEST_L1_SET_BYTES = 2 * MIB  # larger sets are all read from the L2
SMALLEST_L2_SET_BYTES = 2 * MIB
SMS_PER_READER = 8  # one multiprocessor in so many reads through its L1
# In sizes of the L2: the largest set of the sweep, and the set from which hits in the L2 no longer show.
LARGEST_SET_L2_SIZES, MEMORY_FROM_L2_SIZES = 24, 8
# How evenly a set spreads over the parts of an L2 depends on where it lies in memory: steps rotate among placements.
SET_PLACEMENTS = 16

SHARED_SET_TEXT = "that they share out among them, past L1"
BROADCAST_TEXT = "that each of them reads whole, all at once, past L1"
NEXT_BLOCK_TEXT = "that each of them reads in the shared memory of the next one, in clusters of {}"
OWN_SET_TEXT = "that each of them reads again and again"


class CacheReads(NamedTuple):
    """The ways to read a working set again and again, each equally often."""

    steps: dict[str, Step]  # by grid
    times_read: int  # how often a step reads the set, over all blocks
    cluster_blocks: int = 1

    def word_sum(self, set_sum: int, vectors: int) -> int:
        """Return the sum that a step reports, of a set of `vectors` vectors whose words have the sum `set_sum`.

        In a cluster the block of rank r adds r to each vector of its copy, and what it reads counts r + 1 times: so the
        sum shows whose copy was read.
        """
        ranks = range(self.cluster_blocks)
        of_cluster = sum((rank + 1) * (set_sum + vectors * ((rank + 1) % self.cluster_blocks)) for rank in ranks)
        return self.times_read // self.cluster_blocks * of_cluster % 2**32


def _l1_benchmarks(device: "GpuDevice") -> list[BandwidthBenchmark]:
    return _own_set_benchmarks(device, "l1", _set_bytes(device.l1_bytes // 2))


def _shared_benchmarks(device: "GpuDevice") -> list[BandwidthBenchmark]:
    return _own_set_benchmarks(device, "shared", _shared_set_bytes(device))


def _own_set_benchmarks(device: "GpuDevice", level: str, size: int) -> list[BandwidthBenchmark]:
    reads = _own_set_reads(device, f"read_{level}", size)
    return [_cache_benchmark(device, level, level, size, reads, OWN_SET_TEXT)]


def _set_bytes(largest: int) -> int:
    """Return the size of a multiprocessor's set: at most 64 KiB, rounded down to a power of two."""
    return 1 << min(64 * KIB, largest).bit_length() - 1


def _shared_set_bytes(device: "GpuDevice") -> int:
    return _set_bytes(min(device.limits.shared_per_block, device.l1_bytes - RESERVED_SHARED_BYTES))


def _chase_l1(device: "GpuDevice") -> PointerChase:
    """Return a chase whose steps make many laps of the chain."""
    return make_pointer_chase(device, min(16 * KIB, device.l1_bytes // 4), 1 << 18, "chase_l1")


def _chase_l2(device: "GpuDevice") -> PointerChase:
    """Return a chase whose steps make one lap of the chain, which the previous launch has left in the L2."""
    return make_pointer_chase(device, min(2 * MIB, device.last_level_cache_bytes // 4), 1 << 14)


def _l2_benchmarks(device: "GpuDevice") -> list[BandwidthBenchmark]:
    """Return the bandwidth of L2, and what multiprocessors receive where it answers reads of several together.

    On an H200: 9.4 to 9.5 TB/s if no two want a line at about the same time; 11 to 14 if neighbours follow one another
    over the same lines; 17 to 20, as much as all their ports take, if all want the same one at once.
    """
    size = device.last_level_cache_bytes // 2 // KIB * KIB
    far_shift = _far_shift(device.multiprocessors)
    spaced = _l2_reads(device, size, GRIDS, shifts=(far_shift,), placements=SET_PLACEMENTS)
    by_all = _cache_benchmark(device, "l2_shared_by_all", "l2", size, _broadcast_reads(device, size), BROADCAST_TEXT)
    if far_shift <= max(NEIGHBOUR_SHIFTS):  # the card is small, and its blocks follow one another anyway
        text = f"{SHARED_SET_TEXT}, each line once per pass"
        return [_cache_benchmark(device, "l2", "l2", size, spaced, text), by_all]
    following = _l2_reads(device, size, GRIDS, shifts=NEIGHBOUR_SHIFTS, placements=SET_PLACEMENTS)
    neighbours = f"{SHARED_SET_TEXT}, neighbours after the same lines"
    return [
        _cache_benchmark(device, "l2", "l2", size, spaced, f"{SHARED_SET_TEXT}, no two after the same line"),
        _cache_benchmark(device, L2_SHARED_BY_NEIGHBOURS, "l2", size, following, neighbours),
        by_all,
    ]


def _cache_benchmark(
    device: "GpuDevice", name: str, level: str, size: int, reads: CacheReads, reads_text: str
) -> BandwidthBenchmark:
    """Return a benchmark of reads from a set of `size` bytes."""
    set_words = device.cache_buffer(size)

    def verify(grid: str) -> str:
        write_pattern(device, set_words[: max(size, ROUND_BYTES) // 4])
        expected = reads.word_sum(pattern_sum(size // 4), size // VECTOR_BYTES)
        require_sum(device, lambda: reads.steps[grid](0), expected, size // 4)
        return "the sum of every word of every pass against the sum of what had been written there"

    return BandwidthBenchmark(
        name=name,
        level=level,
        mix="read",
        counting_rule=f"bytes read by the multiprocessors, from {size:,} bytes {reads_text}",
        counted_bytes=reads.times_read * size,
        steps_by_grid=reads.steps,
        verify=verify,
        clock_mhz=device.kernel_clock_mhz,
        most_timed_blocks=TIMED_BLOCKS,
        least_samples=SET_PLACEMENTS if level == "l2" else 1,
    )


def _own_set_reads(device: "GpuDevice", kernel_name: str, size: int, cluster_blocks: int = 1) -> CacheReads:
    """Return reads on each grid that fits. Every block reads the same set of `size` bytes.

    Blocks of a cluster read one another's copies of it, in several waves: not every number of multiprocessors is a
    multiple of a cluster's.
    """
    kernel, words = device.load_kernel("caches.cu", kernel_name), device.cache_buffer(size)
    waves, step_bytes = (CLUSTER_WAVES, CLUSTER_STEP_BYTES) if cluster_blocks > 1 else (1, L1_STEP_BYTES)
    vectors = numpy.uint32(size // VECTOR_BYTES)
    if kernel_name == "read_l1":
        shared_bytes, strides = 0, [numpy.uint32(0)]  # 0 vectors lie between two blocks' sets
    else:  # each block copies the set to its shared memory
        shared_bytes, strides = size, []
        kernel.max_dynamic_shared_size_bytes = shared_bytes
    if cluster_blocks > PORTABLE_CLUSTER_BLOCKS:
        device.xp.cuda.driver.funcSetAttribute(kernel.kernel.ptr, NON_PORTABLE_CLUSTER_ATTRIBUTE, 1)
    passes = max(1, step_bytes // size // 8) * 8  # a multiple of every number of blocks: all grids read as much
    clusters, steps = waves * device.multiprocessors // cluster_blocks, {}
    for threads, blocks_per_sm in GRIDS:
        fits = threads * blocks_per_sm <= device.max_threads
        if not fits or (shared_bytes + RESERVED_SHARED_BYTES) * blocks_per_sm > device.l1_bytes:
            continue
        blocks, block_passes = blocks_per_sm * clusters * cluster_blocks, numpy.uint32(passes // blocks_per_sm)
        arguments = (words, vectors, *strides, block_passes, device.word_sum, device.kernel_clock)
        name = f"{waves * blocks_per_sm} blocks per multiprocessor, {threads} threads"
        steps[name] = make_launch_step(kernel, blocks, threads, arguments, shared_bytes)
    return CacheReads(steps, passes * clusters * cluster_blocks, cluster_blocks)


def _broadcast_reads(device: "GpuDevice", size: int) -> CacheReads:
    """Return reads in which every block reads the whole set past L1.

    One block per multiprocessor: with more, its L1 would join their reads.
    """
    kernel, words = device.load_kernel("caches.cu", "read_l2_broadcast"), device.cache_buffer(size)
    passes = max(2, L2_STEP_BYTES // size)
    vectors = numpy.uint32(size // VECTOR_BYTES)
    arguments = (words, vectors, numpy.uint32(passes), device.word_sum, device.kernel_clock)
    steps = {}
    for threads in BROADCAST_THREADS:
        name = f"1 block per multiprocessor, {threads} threads, all after the same lines"
        steps[name] = make_launch_step(kernel, device.multiprocessors, threads, arguments)
    return CacheReads(steps, times_read=passes * device.multiprocessors)


def _l2_reads(
    device: "GpuDevice", size: int, grids: tuple, shifts: tuple, step_bytes: int = L2_STEP_BYTES, placements: int = 1
) -> CacheReads:
    """Return reads in which all blocks share out a set of `size` bytes: for each grid, and for each number of blocks by
    which the set is shifted from pass to pass.

    Steps rotate among `placements` sets that lie one after another.
    """
    kernel, words = device.load_kernel("caches.cu", "read_l2"), device.cache_buffer(placements * size)
    set_words = size // 4
    sets = [words[index * set_words : (index + 1) * set_words] for index in range(placements)]
    passes, vectors = max(2, step_bytes * device.multiprocessors // size), numpy.uint64(size // VECTOR_BYTES)
    steps = {}
    for threads, blocks_per_sm in grids:
        if threads * blocks_per_sm > device.max_threads:
            continue
        blocks = blocks_per_sm * device.multiprocessors
        for shift in shifts:
            arguments = (vectors, numpy.uint32(passes), numpy.uint32(shift), device.word_sum, device.kernel_clock)
            placed = [make_launch_step(kernel, blocks, threads, (working_set, *arguments)) for working_set in sets]
            name = f"{blocks_per_sm} blocks per multiprocessor, {threads} threads, turned on by {shift} blocks per pass"
            steps[name] = _rotate_steps(placed)
    return CacheReads(steps, times_read=passes)


def _rotate_steps(steps: list[Step]) -> Step:
    return lambda index: steps[index % len(steps)](index)


def _dsmem_benchmarks(device: "GpuDevice") -> list[BandwidthBenchmark]:
    """Return reads of another multiprocessor's shared memory, for each size of a cluster that this card can launch.

    Raises UnsupportedError if it can launch none.
    """
    size = _shared_set_bytes(device)
    benchmarks: list[BandwidthBenchmark] = []
    for blocks in CLUSTER_BLOCKS:
        try:
            reads = _own_set_reads(device, f"read_dsmem_{blocks}", size, cluster_blocks=blocks)
            next(iter(reads.steps.values()))(0)
            device.synchronize()
        except device.xp.cuda.driver.CUDADriverError as error:
            if not benchmarks:
                raise UnsupportedError(f"a cluster of {blocks} blocks cannot be launched: {error}") from None
            break
        text = NEXT_BLOCK_TEXT.format(blocks)
        benchmarks.append(_cache_benchmark(device, f"dsmem_{blocks}", "dsmem", size, reads, text))
    return benchmarks


def _chase_dsmem(device: "GpuDevice") -> PointerChase:
    """Return a chase through the shared memory of another multiprocessor: many laps of a chain of 16 KiB."""
    links, offsets = shuffle_chain(0, DSMEM_CHAIN_LINES)
    words, loads = device.to_device(links), 1 << 14
    kernel, last_offset = device.load_kernel("caches.cu", "chase_dsmem"), device.xp.zeros(1, numpy.uint64)

    def step(index: int) -> None:
        first_offset = numpy.uint64(offsets[index * loads % len(offsets)])
        arguments = (words, numpy.uint32(links.size), first_offset, numpy.uint32(loads), last_offset)
        kernel((2,), (CHASE_THREADS,), arguments, shared_mem=links.nbytes)

    return step, loads, lambda: require_chain_end(device, step, last_offset, offsets[loads % len(offsets)])


# The benchmarks and the latency of each target of core/levels.py that a cache or shared memory serves.
BENCHMARKS = {
    "l2": _l2_benchmarks,
    "l1": _l1_benchmarks,
    "shared": _shared_benchmarks,
    "dsmem": _dsmem_benchmarks,
}
CHASES = {"l1": _chase_l1, "l2": _chase_l2, "dsmem": _chase_dsmem}


# ---------------------------------------------------------------- the sweep over working sets


def sweep_benchmarks(device: "GpuDevice", points_per_octave: int) -> list[SweepBenchmark]:
    """Return two series: one multiprocessor's set through L1, and the device's set past it.

    In one series the levels would hide one another: on an H200 all L1s hold half of what the L2 does. In the first so
    few multiprocessors read that all their sets fit in L2. Each reads a set that no other reads: a line that several
    read at once takes one access for all.
    """
    l2, readers = device.last_level_cache_bytes, max(1, device.multiprocessors // SMS_PER_READER)
    largest_l1_set = min(LARGEST_L1_SET_BYTES, l2 // readers // 2)
    largest_set = min(LARGEST_SET_L2_SIZES * l2, device.identity.memory_free_bytes // 4)
    device.cache_buffer(largest_set)  # once, in place of a new buffer for every larger set
    return [
        SweepBenchmark(
            series="through L1",
            reader=f"one multiprocessor, of {readers} that read at once",
            counting_rule="bytes that one multiprocessor reads, each from its own set",
            sizes=_geometric_sizes(SWEEP_UNIT_BYTES, largest_l1_set, 2 * points_per_octave, SWEEP_UNIT_BYTES),
            step=lambda size: _own_sets_step(device, size, readers),
            levels={"l1": device.l1_bytes, "l2": l2 // readers},
            assumed=("l1", "l2"),  # CUDA reports what of an L1 may be shared memory, and the whole L2
        ),
        SweepBenchmark(
            series="past L1",
            reader="the device",
            counting_rule="bytes read by the multiprocessors, which share the set out among them",
            sizes=_geometric_sizes(min(SMALLEST_L2_SET_BYTES, l2 // 4), largest_set, points_per_octave),
            step=lambda size: _shared_set_step(device, size),
            levels={"l2": l2},
            memory_from_bytes=MEMORY_FROM_L2_SIZES * l2,
        ),
    ]


def _own_sets_step(device: "GpuDevice", size: int, readers: int) -> tuple[Step, int]:
    """Return a step in which each reader reads a set of `size` bytes, and the bytes of one reader.

    A reader is one block on a multiprocessor: two would serve one another's misses.
    """
    vectors = block_stride = numpy.uint32(size // VECTOR_BYTES)
    passes = max(1, L1_SWEEP_BYTES // size)
    words = device.cache_buffer(readers * size)
    arguments = (words, vectors, block_stride, numpy.uint32(passes), device.word_sum, device.kernel_clock)
    kernel = device.load_kernel("caches.cu", "read_l1")
    return make_launch_step(kernel, readers, SWEEP_THREADS, arguments), passes * size


def _far_shift(multiprocessors: int) -> int:
    """Return a shift by so many blocks that none catches up with the previous one. It differs from a quarter of a wave
    of blocks, at which a neighbour would follow."""
    return max(2, multiprocessors // 4 - 2)


def _shared_set_step(device: "GpuDevice", size: int) -> tuple[Step, int]:
    """Return a step in which all blocks share out a set of `size` bytes, and the bytes that it reads."""
    full_grid = (SWEEP_THREADS, device.max_threads // SWEEP_THREADS)
    shifts = (_far_shift(device.multiprocessors),)
    reads = _l2_reads(device, size, (full_grid,), shifts, step_bytes=L2_SWEEP_BYTES)
    (step,) = reads.steps.values()
    return step, reads.times_read * size


def _geometric_sizes(smallest: int, largest: int, points_per_octave: int, unit: int = KIB) -> list[int]:
    """Return sizes in a geometric series, rounded to whole units, each once."""
    sizes: list[int] = []
    index = 0
    while (size := round(smallest * 2 ** (index / points_per_octave) / unit) * unit) <= largest:
        sizes.append(size)
        index += 1
    return list(dict.fromkeys(sizes))
