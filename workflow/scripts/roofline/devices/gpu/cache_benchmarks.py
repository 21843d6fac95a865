"""The caches of a GPU and its shared memory, and the sweep that finds the levels by itself, by kernels of ours."""

from collections.abc import Callable

import numpy

from roofline.core.units import KIB, MIB
from roofline.devices.base import BandwidthBenchmark, SweepBenchmark
from roofline.devices.gpu.hbm_benchmarks import (
    ROUND_BYTES,
    make_launch_step,
    pattern_sum,
    require_sum,
    write_pattern,
)

VECTOR_BYTES = 16  # of kernels/caches.cu
GRIDS = ((256, 4), (256, 8), (512, 2), (512, 4), (1024, 1), (1024, 2))  # threads, blocks per multiprocessor
# Blocks by which each pass over the L2's set is turned on, so that neighbours follow one another over the same lines.
NEIGHBOUR_SHIFTS = (1, 2)
BROADCAST_THREADS = (512, 1024)
TIMED_BLOCKS = 5  # of which the fastest counts
# Bytes that one step reads on each multiprocessor: one or two milliseconds of what an L1, and of what an L2 gives.
L1_STEP_BYTES, L2_STEP_BYTES = 256 * MIB, 128 * MIB
# A sweep asks for the course of many sizes, a ceiling for one figure.
L1_SWEEP_BYTES, L2_SWEEP_BYTES = 64 * MIB, 16 * MIB
SWEEP_THREADS, SWEEP_UNIT_BYTES = (
    256,
    32 * KIB,
)  # sizes are whole rounds of a block's loads, so that none has a slow end
LARGEST_L1_SET_BYTES = 2 * MIB  # past it the L2 answers all the same
SMALLEST_L2_SET_BYTES = 2 * MIB
SMS_PER_READER = 8  # one multiprocessor in so many reads through its L1
LARGEST_SET_L2_SIZES, MEMORY_FROM_L2_SIZES = 24, 8  # times the L2's size: where it ends, and where hits no longer show
# Where a set lies in memory decides how evenly it spreads over the parts of an L2: steps take turns among these.
SET_PLACEMENTS = 16


def bandwidth_benchmarks(device, level: str) -> list[BandwidthBenchmark]:
    """The ceilings of one level: l2, l1 or shared."""
    if level == "l2":
        return _l2_benchmarks(device)
    room = device.l1_bytes // 2
    if level == "shared":
        room = min(device.properties["MaxSharedMemoryPerBlockOptin"], device.l1_bytes - KIB)
    size = 1 << min(64 * KIB, room).bit_length() - 1  # a power of two
    return [_cache_benchmark(device, level, level, size, _l1_launches(device, f"read_{level}", size), OWN_SET_TEXT)]


def _l2_benchmarks(device) -> list[BandwidthBenchmark]:
    """The fastest that L2 gives to reads of which each is counted once, and two figures that frame it. On an H200: 11
    to 12 TB/s if neighbours follow one another over the same lines, since some of their reads are answered together;
    9.2 if no two want a line at about the same time; 18 to 20 at the multiprocessors if all want the same one at once.
    """
    size = device.last_level_cache_bytes // 2 // KIB * KIB
    apart = _l2_launches(device, size, following=(), places=SET_PLACEMENTS)
    # A small card has no blocks that are far from one another.
    far = _far_shift(device.multiprocessors) > max(NEIGHBOUR_SHIFTS)
    following = _l2_launches(device, size, NEIGHBOUR_SHIFTS, places=SET_PLACEMENTS) if far else {}
    at_once = _broadcast_launches(device, size)
    return [
        _cache_benchmark(device, "l2", "l2", size, apart | following, f"{SHARED_SET_TEXT}, each line once per pass"),
        _cache_benchmark(device, "l2_apart", "l2", size, apart, f"{SHARED_SET_TEXT}, no two after the same line"),
        _cache_benchmark(
            device, "l2_broadcast", "l2", size, at_once, "that each of them reads whole, all at once, past L1"
        ),
    ]


SHARED_SET_TEXT = "that they share out among them, past L1"
OWN_SET_TEXT = "that each of them reads again and again"


def _cache_benchmark(device, name: str, level: str, size: int, grids: dict, how: str) -> BandwidthBenchmark:
    """`grids` are (step, how many times it reads the set of `size` bytes) by name; all read as many bytes."""
    set_words = device.cache_buffer(size)

    def verify(grid: str) -> str:
        step, times_read = grids[grid][0], grids[grid][1]
        write_pattern(device, set_words[: max(size, ROUND_BYTES) // 4])
        expected = pattern_sum(size // 4) * times_read % 2**32
        require_sum(device, lambda: step(0), expected, size // 4)
        return "the sum of every word of every pass against the sum of what had been written there"

    counted = next(iter(grids.values()))[1] * size
    return BandwidthBenchmark(
        name=name,
        level=level,
        mix="read",
        counting_rule=f"bytes read by the multiprocessors, from {size:,} bytes {how}",
        counted_bytes=counted,
        steps_by_grid={grid: step for grid, (step, _) in grids.items()},
        verify=verify,
        clock_mhz=device.kernel_clock_mhz,
        most_timed_blocks=TIMED_BLOCKS,
        least_samples=SET_PLACEMENTS if level == "l2" else 1,
    )


def _l1_launches(device, kernel_name: str, size: int) -> dict:
    """By name: the step, and how many times it reads the set in all."""
    kernel, words = device.load_kernel("caches.cu", kernel_name), device.cache_buffer(size)
    shared = size if kernel_name == "read_shared" else 0
    apart = () if shared else (numpy.uint32(0),)
    if shared:
        kernel.max_dynamic_shared_size_bytes = shared
    passes = max(1, L1_STEP_BYTES // size // 8) * 8  # a multiple of every number of blocks: all grids read as much
    found = {}
    for threads, each in GRIDS:
        if threads * each > device.max_threads or (shared + KIB) * each > device.l1_bytes:
            continue
        blocks = each * device.multiprocessors
        count = numpy.uint32(size // VECTOR_BYTES)
        arguments = (words, count, *apart, numpy.uint32(passes // each), device.word_sum, device.kernel_clock)
        name = f"{each} blocks per multiprocessor, {threads} threads"
        found[name] = (make_launch_step(kernel, blocks, threads, arguments, shared_mem=shared), passes // each * blocks)
    return found


def _broadcast_launches(device, size: int) -> dict:
    """By name: the step, and how many times it reads the set. One block per multiprocessor: its L1 joins no reads."""
    kernel, words = device.load_kernel("caches.cu", "read_l2_broadcast"), device.cache_buffer(size)
    passes = max(2, L2_STEP_BYTES // size)
    count = numpy.uint32(size // VECTOR_BYTES)
    arguments = (words, count, numpy.uint32(passes), device.word_sum, device.kernel_clock)
    return {
        f"1 block per multiprocessor, {threads} threads, all after the same lines": (
            make_launch_step(kernel, device.multiprocessors, threads, arguments),
            passes * device.multiprocessors,
        )
        for threads in BROADCAST_THREADS
    }


def _l2_launches(device, size: int, following, grids=GRIDS, step_bytes: int = L2_STEP_BYTES, places: int = 1) -> dict:
    """By name: the step, and how many times it reads the set; turned on far where none is to follow."""
    kernel, words = device.load_kernel("caches.cu", "read_l2"), device.cache_buffer(places * size)
    sets = [words[place * size // 4 : (place + 1) * size // 4] for place in range(places)]
    passes, vectors = max(2, step_bytes * device.multiprocessors // size), numpy.uint64(size // VECTOR_BYTES)
    found = {}
    for threads, each in grids:
        if threads * each > device.max_threads:
            continue
        for shift in following or (_far_shift(device.multiprocessors),):
            arguments = (vectors, numpy.uint32(passes), numpy.uint32(shift), device.word_sum, device.kernel_clock)
            name = f"{each} blocks per multiprocessor, {threads} threads, turned on by {shift} blocks per pass"
            steps = [
                make_launch_step(kernel, each * device.multiprocessors, threads, (one, *arguments)) for one in sets
            ]
            found[name] = (_rotate_steps(steps), passes)
    return found


def _rotate_steps(steps: list[Callable[[int], None]]) -> Callable[[int], None]:
    return lambda index: steps[index % len(steps)](index)


# ---------------------------------------------------------------- the sweep over working sets


def sweep_benchmarks(device, points_per_octave: int) -> list[SweepBenchmark]:
    """Two series: one multiprocessor's set through L1, and the device's set past it.

    In one series the levels would hide one another: on an H200 all L1s hold half of what the L2 does. In the first so
    few read that all their sets fit in L2, each its own: a line that many read at once takes one access for all.
    """
    l2, readers = device.last_level_cache_bytes, max(1, device.multiprocessors // SMS_PER_READER)
    largest = min(LARGEST_SET_L2_SIZES * l2, device.identity.memory_free_bytes // 4)
    device.cache_buffer(largest)  # at once, instead of anew for every larger set
    return [
        SweepBenchmark(
            series="through L1",
            reader=f"one multiprocessor, of {readers} that read at once",
            counting_rule="bytes that one multiprocessor reads, each from its own set",
            sizes=_geometric_sizes(
                SWEEP_UNIT_BYTES, min(LARGEST_L1_SET_BYTES, l2 // readers // 2), 2 * points_per_octave, SWEEP_UNIT_BYTES
            ),
            step=lambda size: _own_sets_step(device, size, readers),
            levels={"l1": device.l1_bytes, "l2": l2 // readers},
            assumed=("l1", "l2"),  # CUDA reports what of an L1 may be shared memory, and the whole L2
        ),
        SweepBenchmark(
            series="past L1",
            reader="the device",
            counting_rule="bytes read by the multiprocessors, which share the set out among them",
            sizes=_geometric_sizes(min(SMALLEST_L2_SET_BYTES, l2 // 4), largest, points_per_octave),
            step=lambda size: _shared_set_step(device, size),
            levels={"l2": l2},
            memory_from_bytes=MEMORY_FROM_L2_SIZES * l2,
        ),
    ]


def _own_sets_step(device, size: int, readers: int) -> tuple[Callable[[int], None], int]:
    """One block per multiprocessor: two would serve one another's misses."""
    count = numpy.uint32(size // VECTOR_BYTES)
    passes = max(1, L1_SWEEP_BYTES // size)
    words = device.cache_buffer(readers * size)
    arguments = (words, count, count, numpy.uint32(passes), device.word_sum, device.kernel_clock)
    kernel = device.load_kernel("caches.cu", "read_l1")
    return make_launch_step(kernel, readers, SWEEP_THREADS, arguments), passes * size


def _far_shift(multiprocessors: int) -> int:
    """So many blocks that none catches up with the one before it; no part of a wave, or a neighbour would follow."""
    return max(2, multiprocessors // 4 - 2)


def _shared_set_step(device, size: int) -> tuple[Callable[[int], None], int]:
    grid = (SWEEP_THREADS, device.max_threads // SWEEP_THREADS)
    grids = _l2_launches(device, size, (), (grid,), L2_SWEEP_BYTES)
    ((step, times_read),) = grids.values()
    return step, times_read * size


def _geometric_sizes(smallest: int, largest: int, points_per_octave: int, unit: int = KIB) -> list[int]:
    """Sizes in a geometric series, in whole units, each once."""
    found, place = [], 0
    while (size := round(smallest * 2 ** (place / points_per_octave) / unit) * unit) <= largest:
        found.append(size)
        place += 1
    return list(dict.fromkeys(found))
