"""The memory streams and sweeps of a GPU without one: their grids, what they count, and that a wrong one is found."""

import math
from itertools import pairwise

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy_card import MIB, Idle, Short, open_card, record_launches, replace_kernels

from roofline.devices.gpu import device as gpu
from roofline.devices.gpu import memory as gpu_memory

KIB = 1 << 10
RAGGED = MIB // 4 + 32 * 7
CACHES = ("l2", "l1", "shared")
# What CUDA tells of cards of four generations; a T4 has no more shared memory than what one of its blocks may have.
CARDS = {
    "T4": {
        "capability": "7.5",
        "multiProcessorCount": 40,
        "l2CacheSize": 4 * MIB,
        "sharedMemPerBlockOptin": 64 * KIB,
        "sharedMemPerMultiprocessor": 64 * KIB,
        "maxThreadsPerMultiProcessor": 1024,
    },
    "L4": {
        "capability": "8.9",
        "multiProcessorCount": 58,
        "l2CacheSize": 48 * MIB,
        "sharedMemPerBlockOptin": 99 * KIB,
        "sharedMemPerMultiprocessor": 100 * KIB,
        "maxThreadsPerMultiProcessor": 1536,
    },
    "H200": {"capability": "9.0", "l2CacheSize": 60 * MIB},
    "a slice of an H200": {"capability": "9.0", "multiProcessorCount": 16, "l2CacheSize": 7 * MIB},
}


@pytest.fixture
def device(monkeypatch):
    return open_card(monkeypatch)


@pytest.fixture(params=CARDS)
def any_card(request, monkeypatch):
    return open_card(monkeypatch, **CARDS[request.param])


def of_level(device, level, size_bytes=RAGGED) -> dict:
    return {stream.name: stream for stream in device.streams(level, size_bytes)}


# ---------------------------------------------------------------------------------------------- sizes


@pytest.mark.parametrize(
    ("asked", "free", "expected"),
    [
        (None, 1 << 40, 4 << 30),
        (None, 16 << 30, 2 << 30),
        (None, (8 << 30) + 8 * 33, (1 << 30) + 32),
        (64 * MIB, 1 << 40, 64 * MIB),
        (64 * MIB + 31, 1 << 40, 64 * MIB),
        (64 * MIB + 32 * 7, 1 << 40, 64 * MIB + 32 * 7),
        (33, 0, 32),
    ],
)
def test_array_bytes_as_asked_or_what_fits_in_whole_vectors(monkeypatch, asked, free, expected):
    assert gpu_memory.array_bytes(open_card(monkeypatch, free_bytes=free), asked) == expected


@pytest.mark.parametrize(
    ("l2", "asked", "free", "expected"),
    [
        (60 * MIB, None, 140 << 30, 4 << 30),
        (126 * MIB, None, 180 << 30, 64 * 126 * MIB),
        (126 * MIB, None, 32 << 30, 4 << 30),
        (126 * MIB, 64 * MIB, 180 << 30, 64 * MIB),
    ],
)
def test_an_array_is_many_times_the_l2_where_the_memory_allows(monkeypatch, l2, asked, free, expected):
    """What the L2 holds of the pass before would count as memory's."""
    device = open_card(monkeypatch, free_bytes=free, l2CacheSize=l2)
    assert gpu_memory.array_bytes(device, asked) == expected


@given(
    smallest=st.integers(1, 64).map(lambda n: n * KIB),
    octaves=st.floats(0, 8),
    points=st.integers(1, 16),
    unit=st.sampled_from([KIB, 32 * KIB]),
)
def test_sizes_of_a_sweep_rise_in_whole_units_and_near_their_place(smallest, octaves, points, unit):
    smallest = max(smallest, unit)
    largest = int(smallest * 2**octaves)
    sizes = gpu_memory._sizes(smallest, largest, points, unit)
    assert sizes == sorted(set(sizes)) and all(size % unit == 0 and size <= largest for size in sizes)
    assert len(sizes) <= points * math.log2((largest + unit / 2) / smallest) + 1 + 1e-9
    for size, following in pairwise(sizes):
        assert following - size <= size * (2 ** (1 / points) - 1) * 1.01 + 2 * unit


def test_sizes_of_a_sweep_by_hand():
    assert gpu_memory._sizes(64 * KIB, 256 * KIB, 2) == [size * KIB for size in (64, 91, 128, 181, 256)]
    assert gpu_memory._sizes(32 * KIB, 100 * KIB, 8, 32 * KIB) == [32 * KIB, 64 * KIB, 96 * KIB], "each once"
    assert gpu_memory._sizes(64 * KIB, 63 * KIB, 2) == []


@given(words=st.integers(0, 5000))
def test_the_sum_of_the_pattern_is_that_of_wrapping_words(words):
    pattern = numpy.arange(words, dtype=numpy.uint32) + numpy.uint32(gpu_memory.START)
    assert gpu_memory._pattern_sum(words) == int(pattern.sum(dtype=numpy.uint32))


def test_the_sum_of_the_pattern_of_gigabytes():
    words = (4 << 30) // 4
    low, high = gpu_memory.START, gpu_memory.START + words - 1
    assert gpu_memory._pattern_sum(words) == (low + high) * words // 2 % 2**32


@given(words=st.integers(1, 5000), place=st.integers(0), wrong=st.integers(1, 2**32 - 1))
def test_one_wrong_or_missing_word_changes_the_sum(words, place, wrong):
    pattern = numpy.arange(words, dtype=numpy.uint32) + numpy.uint32(gpu_memory.START)
    pattern[place % words : place % words + 1] += numpy.uint32(wrong)
    assert int(pattern.sum(dtype=numpy.uint32)) != gpu_memory._pattern_sum(words)


# ---------------------------------------------------------------------------------------------- device memory


def test_the_streams_of_device_memory_and_what_they_count(device):
    streams = of_level(device, "hbm")
    assert {name: stream.counted_bytes / RAGGED for name, stream in streams.items()} == {
        "hbm_read": 1,
        "hbm_write": 1,
        "hbm_copy": 2,
        "hbm_triad": 3,
    }
    assert {(stream.level, stream.on_chip) for stream in streams.values()} == {("hbm", False)}
    assert {stream.clock_mhz() for stream in streams.values()} == {None}, "a clock says nothing of memory"
    (copy,) = of_level(device, "d2d").values()
    assert (copy.name, copy.level, copy.mix, copy.counted_bytes) == ("d2d", "hbm", "copy", 2 * RAGGED)
    assert copy.clock_mhz() is None


def test_the_grids_go_from_few_blocks_to_a_block_a_tile(monkeypatch, device):
    launches = record_launches(monkeypatch, device)
    stream = of_level(device, "hbm", 64 * MIB)["hbm_read"]
    assert len(stream.grids) == len(gpu_memory.DEPTHS) * len(gpu_memory.THREADS) * 3
    vectors = 64 * MIB // device.vector_bytes
    for name, step in stream.grids.items():
        step(0)
        kernel, blocks, threads, arguments = launches[-1]
        depth = int(kernel.removeprefix("read_"))
        tiles = -(-vectors // (threads * depth))
        told = name.split(", ")
        assert (told[1], told[2]) == (f"{threads} threads", f"{depth} in flight")
        assert arguments[1] == vectors
        if told[0] == "a block a tile":
            assert blocks == tiles
        else:
            each = int(told[0].split()[0])
            assert blocks == min(each * 132, tiles) and each * threads <= 2048
    assert {name.split(",")[0] for name in stream.grids if ", 256 threads" in name} == {
        "a block a tile",
        "8 blocks a multiprocessor",
        "4 blocks a multiprocessor",
    }


def test_how_many_times_the_l2_an_array_is_is_told(monkeypatch):
    device = open_card(monkeypatch, l2CacheSize=MIB // 8)
    for stream in of_level(device, "hbm", MIB).values():
        assert stream.counted.endswith(" once; an array is 8 times the L2")


def test_the_grids_that_are_mostly_the_fastest_are_the_first(device):
    """A budget may end the trials: a block a tile of every depth, of 256 and 1024 threads, before any other."""
    for stream in of_level(device, "hbm", 64 * MIB).values():
        grids = [name.split(", ") for name in stream.grids]
        whole = len(gpu_memory.DEPTHS) * len(gpu_memory.THREADS)
        assert [blocks == "a block a tile" for blocks, _, _ in grids] == [True] * whole + [False] * (len(grids) - whole)
        first = [(int(threads.split()[0]), int(depth.split()[0])) for _, threads, depth in grids[:8]]
        assert first == [(threads, depth) for threads in (256, 1024) for depth in gpu_memory.DEPTHS]


def test_no_grid_has_more_threads_than_the_kernels_registers_allow(monkeypatch, device):
    kernel = device.kernel

    def hungry(source, name):
        found = kernel(source, name)
        if name in ("triad_8", "copy_8"):
            found.max_threads_per_block = 768
        return found

    monkeypatch.setattr(device, "kernel", hungry)
    for name, stream in of_level(device, "hbm").items():
        most = {grid for grid in stream.grids if "1024 threads, 8 in" in grid}
        assert bool(most) == (name in ("hbm_read", "hbm_write"))
        for step in stream.grids.values():
            step(0)


@pytest.mark.parametrize("size_bytes", [32, 4096, RAGGED])
def test_every_stream_of_device_memory_is_verified_on_every_grid(device, size_bytes):
    for stream in (*device.streams("hbm", size_bytes), *device.streams("d2d", size_bytes)):
        for grid in list(stream.grids)[:: 1 if size_bytes < RAGGED else 7]:
            assert stream.verify(grid)


def test_one_check_does_not_spoil_the_next(device):
    """The read's leaves its pattern where the others have numbers."""
    streams = of_level(device, "hbm")
    for mix in ("read", "triad", "write", "read", "copy", "triad", "read"):
        stream = streams[f"hbm_{mix}"]
        assert stream.verify(next(iter(stream.grids)))


def test_all_mixes_share_three_arrays(device):
    of_level(device, "hbm")
    arrays = device._arrays
    of_level(device, "hbm")
    assert device._arrays is arrays and set(arrays._made) == {"a", "b", "c"}
    of_level(device, "hbm", RAGGED + 32)
    assert device._arrays is not arrays


def test_arrays_of_a_stream_are_made_when_they_are_needed(monkeypatch, device):
    arrays = gpu_memory._Arrays(device, 64)
    assert arrays._made == {}
    assert arrays["a"] is arrays["a"] and arrays["a"].nbytes == 64
    assert not numpy.array_equal(arrays["a"], arrays["b"])


@pytest.mark.parametrize("mix", gpu_memory.MIXES)
def test_a_kernel_that_leaves_out_the_last_vector_is_found(monkeypatch, device, mix):
    replace_kernels(monkeypatch, device, {f"{mix}_{depth}" for depth in (2, 4, 8)}, Short)
    stream = of_level(device, "hbm")[f"hbm_{mix}"]
    for grid in stream.grids:
        if grid.endswith(" 1 in flight"):
            assert stream.verify(grid)
        else:
            with pytest.raises(ArithmeticError):
                stream.verify(grid)


@pytest.mark.parametrize(("level", "kernel"), [("l2", "read_l2"), ("l1", "read_l1"), ("shared", "read_shared")])
def test_a_reader_of_a_cache_that_leaves_out_a_vector_is_found(monkeypatch, device, level, kernel):
    replace_kernels(monkeypatch, device, {kernel}, Short)
    for stream in device.streams(level, None):
        with pytest.raises(ArithmeticError, match="the words read add up to"):
            stream.verify(next(iter(stream.grids)))


@pytest.mark.parametrize("level", ["hbm", "d2d", "h2d", "d2h", *CACHES])
def test_a_step_that_does_nothing_is_found(monkeypatch, device, level):
    """Also where a step before has left the right result."""
    if level in ("hbm", *CACHES):
        idle = {f"{mix}_8" for mix in gpu_memory.MIXES} | {f"read_{cache}" for cache in CACHES}
        replace_kernels(monkeypatch, device, idle, Idle)
    for stream in device.streams(level, RAGGED):
        first, *_, last = [*stream.grids] * 2
        if level in ("hbm", "d2d", "h2d", "d2h"):
            assert stream.verify(first)
        with monkeypatch.context() as patch:
            patch.setattr(device.xp._Memory, "copy_from_device_async", lambda *arguments: None)
            patch.setattr(device.xp.cuda.runtime, "memcpyAsync", lambda *arguments: None)
            with pytest.raises(ArithmeticError):
                stream.verify(last)


# ---------------------------------------------------------------------------------------------- the sum that is told


@pytest.mark.parametrize("found", [0, 1, 4, 6])
def test_a_sum_that_is_not_the_expected_one_raises(device, found):
    def read():
        assert device.tell[0] != 0 and device.total[0] == 0
        device.total[0] = found

    with pytest.raises(ArithmeticError, match=rf"^the words read add up to {found}, and 2 words there to 5$"):
        gpu_memory._require_sum(device, read, 5, 2)
    assert device.tell[0] == 0, "else every later step would tell its sum"


def test_the_expected_sum_passes_whatever_stood_there(device):
    device.total[0] = 17

    def read():
        device.total[0] += 5

    gpu_memory._require_sum(device, read, 5, 2)


# ---------------------------------------------------------------------------------------------- host and device


@pytest.mark.parametrize(("level", "way"), [("h2d", "from"), ("d2h", "to")])
def test_copies_between_host_and_device_from_pinned_and_from_pageable_memory(device, level, way):
    streams = of_level(device, level)
    assert list(streams) == [level, f"{level}_pageable"]
    for name, stream in streams.items():
        assert (stream.level, stream.mix, stream.counted_bytes) == ("pcie", "copy", RAGGED)
        assert stream.blocks == gpu_memory.HOST_BLOCKS, "the host's other work slows them now and then"
        assert f", {way} p{'ageable' if 'pageable' in name else 'inned'} memory" in stream.counted
        (grid,) = stream.grids
        assert stream.verify(grid) == "every byte of the destination compared with the source"


@pytest.mark.parametrize("count", [1, 6, 7, 8, 14, 20])
def test_a_pattern_is_repeated_to_the_last_word(count):
    pattern, found = numpy.arange(1, 8, dtype=numpy.uint32), numpy.zeros(count, numpy.uint32)
    gpu_memory._repeat(pattern, found)
    assert (found == numpy.resize(pattern, count)).all()


@pytest.mark.parametrize(("level", "kind"), [("h2d", 1), ("d2h", 2)])
def test_a_transfer_goes_its_own_way_alone(monkeypatch, device, level, kind):
    copied = []
    for stream in device.streams(level, RAGGED):
        runtime = device.xp.cuda.runtime
        with monkeypatch.context() as patch:
            patch.setattr(runtime, "memcpyAsync", lambda to, source, size, kind, queue: copied.append((kind, size)))
            (step,) = stream.grids.values()
            step(0)
    assert copied == [(kind, RAGGED)] * 2


# ---------------------------------------------------------------------------------------------- caches


@pytest.mark.parametrize("level", CACHES)
def test_every_grid_of_a_cache_reads_equally_many_bytes_and_is_verified(monkeypatch, any_card, level):
    device = any_card
    launches = record_launches(monkeypatch, device)
    for stream in device.streams(level, None):
        assert stream.grids, stream.name
        assert (stream.level, stream.mix, stream.on_chip) == (level, "read", level != "l2")
        for grid, step in stream.grids.items():
            step(0)
            name, blocks, threads, arguments = launches[-1]
            assert name == f"read_{level}" and threads * blocks <= device.max_threads * device.multiprocessors
            scalars = [int(value) for value in arguments if numpy.ndim(value) == 0]
            vectors, passes = scalars[0], scalars[1 if level != "l1" else 2]
            readers = 1 if level == "l2" else blocks  # which share the set out, or read all of it each
            assert vectors * 16 * passes * readers == stream.counted_bytes, grid
            assert stream.verify(grid)


def test_the_sets_of_the_caches_fit_them(monkeypatch, any_card):
    device = any_card
    launches = record_launches(monkeypatch, device)
    for level, most in (("l2", device.last_level_cache_bytes / 2), ("l1", device.l1_bytes / 2)):
        for stream in device.streams(level, None):
            next(iter(stream.grids.values()))(0)
            size = launches[-1][3][0].nbytes
            assert most / 2 < size <= most or size == 64 * KIB
    asked = []
    kernel = device.kernel

    class Told:
        def __init__(self, source, name):
            self.max_dynamic_shared_size_bytes = None

        def __call__(self, grid, block, arguments, shared_mem):
            asked.append((grid[0] // device.multiprocessors, shared_mem, self.max_dynamic_shared_size_bytes))

    monkeypatch.setattr(device, "kernel", lambda *names: (Told if names[1] == "read_shared" else kernel)(*names))
    (stream,) = device.streams("shared", None)
    for step in stream.grids.values():
        step(0)
    for each, size, allowed in asked:
        assert size == allowed <= device.properties["sharedMemPerBlockOptin"]
        assert each * (size + KIB) <= device.properties["sharedMemPerMultiprocessor"], "no block waits for another"


def test_no_two_blocks_follow_one_another_through_the_l2_but_in_a_stream_of_its_own(device):
    alone, following = device.streams("l2", None)
    assert (alone.name, following.name) == ("l2", "l2_following")
    assert alone.counted_bytes == following.counted_bytes and not set(alone.grids) & set(following.grids)
    assert "no two after the same line" in alone.counted
    assert "neighbours after the same lines" in following.counted
    for stream, shifts in ((alone, {gpu_memory._far(132)}), (following, set(gpu_memory.FOLLOWING))):
        assert {int(name.split("turned on by ")[1].split()[0]) for name in stream.grids} == shifts


@pytest.mark.parametrize(("multiprocessors", "names"), [(16, ["l2"]), (36, ["l2"]), (40, ["l2", "l2_following"])])
def test_a_small_card_has_no_blocks_far_enough_apart_to_tell_two_streams_of_l2_apart(
    monkeypatch, multiprocessors, names
):
    """On 36 multiprocessors the distance is 7 blocks, which is one of those that follow one another."""
    device = open_card(monkeypatch, multiProcessorCount=multiprocessors)
    found = device.streams("l2", None)
    assert [stream.name for stream in found] == names
    for stream in found:
        assert stream.verify(next(iter(stream.grids)))


# ---------------------------------------------------------------------------------------------- sweeps


def total_of(device, step) -> int:
    device.total[0] = 0
    step(0)
    return int(device.total[0])


def test_a_step_of_a_sweep_reads_what_it_says(any_card):
    device = any_card
    readers = max(1, device.multiprocessors // 8)
    for series, sets in zip(device.sweeps(1), (readers, 1), strict=True):
        for size in {series.sizes[0], series.sizes[len(series.sizes) // 2], series.sizes[-1]}:
            step, bytes_read = series.step(size)
            assert bytes_read % size == 0
            words = device._words[: sets * size // 4]
            gpu_memory._write_pattern(device, words)
            assert total_of(device, step) == gpu_memory._pattern_sum(sets * size // 4) * (bytes_read // size) % 2**32


def test_the_sweeps_cover_the_caches_they_look_for(any_card):
    through, past = any_card.sweeps(3)
    assert (through.series, past.series) == ("through L1", "past L1")
    l2, readers = any_card.last_level_cache_bytes, max(1, any_card.multiprocessors // 8)
    assert through.levels == {"l1": any_card.l1_bytes, "l2": l2 // readers} and past.levels == {"l2": l2}
    assert through.sizes[0] <= any_card.l1_bytes / 2
    assert any_card.l1_bytes < through.sizes[-1] <= l2 // readers, "all sets together stay in L2"
    assert past.sizes[0] < l2 / 1.9 and past.sizes[-1] > 2 * l2
    assert past.sizes[-1] <= any_card.identity.memory_free_bytes // 4
    assert len(set(through.sizes)) == len(through.sizes)


def test_little_free_memory_ends_the_sweep_early(monkeypatch):
    device = open_card(monkeypatch, free_bytes=100 * MIB, l2CacheSize=50 * MIB)
    assert device.sweeps(2)[1].sizes[-1] <= 25 * MIB


# ---------------------------------------------------------------------------------------------- arrays of the device


def test_the_words_of_the_caches_are_one_array_that_grows(device):
    few, again = device.cache_words(1024), device.cache_words(1024)
    assert few.nbytes == 1024 and few.ctypes.data == again.ctypes.data
    more = device.cache_words(4096)
    assert more.nbytes == 4096
    assert device.cache_words(1024).ctypes.data == more.ctypes.data


def test_pinned_arrays_are_as_large_as_asked(device):
    array = device.pinned_array(4096)
    assert (array.nbytes, array.dtype) == (4096, numpy.uint32)
    array[:] = 7


@pytest.mark.parametrize("capability", ["7.5", "9.0", "10.0", "12.0"])
def test_vectors_are_as_wide_as_the_kernels_have_them(monkeypatch, capability):
    source = (gpu.KERNELS / "memory.cu").read_text(encoding="utf-8")
    assert "#if __CUDA_ARCH__ >= 1000\n#define WORDS 8\n#else\n#define WORDS 4\n" in source
    device = open_card(monkeypatch, capability=capability)
    assert device.vector_bytes == (32 if device.capability >= (10, 0) else 16)
    assert gpu_memory.ROUND_BYTES % device.vector_bytes == 0
