"""The CPU's memory: streams, sweeps, and the threads that run them."""

import itertools
import os
from types import SimpleNamespace

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline import devices
from roofline.devices import host
from roofline.devices.cpu import memory
from roofline.devices.cpu.identity import MEMORY_LEVELS
from roofline.devices.cpu.workers import Workers

MIB = 1 << 20
SIZE = 3 * MIB
MIXES = {"read": 1, "write": 1, "copy": 2, "triad": 3}
NAMES = [*(f"dram_{mix}" for mix in MIXES), "dram_read_one_core", "dram_copy_one_core"]


@pytest.fixture(scope="module")
def device():
    return devices.open_device("cpu")


@pytest.fixture
def made(monkeypatch):
    """Every array that is made by numpy.empty from now on, with its number of items."""
    found, empty = [], numpy.empty

    def noted(items, *dtype):
        found.append((items, empty(items, *dtype)))
        return found[-1][1]

    monkeypatch.setattr(numpy, "empty", noted)
    return found


# ---------------------------------------------------------------------------------------------- threads


def test_an_error_in_a_worker_is_raised_and_the_next_work_is_done_as_ever():
    workers = Workers(2)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            workers.run(2, lambda number: 1 // (1 - number))
        assert workers.run(2, lambda number: 10 * number) == [0, 10]


def test_a_worker_stays_on_its_core():
    cpus = sorted(os.sched_getaffinity(0))
    workers = Workers(len(cpus), cpus)
    assert workers.run(len(cpus), lambda number: os.sched_getaffinity(0)) == [{number} for number in cpus]
    for elsewhere in ((), [1 << 20]):  # of no such core: it goes wherever it may
        assert Workers(1, elsewhere).run(1, lambda number: os.sched_getaffinity(0)) == [set(cpus)]


# ---------------------------------------------------------------------------------------------- streams


def streams_of(device, size_bytes=SIZE):
    return {stream.name: stream for stream in device.streams("dram", size_bytes)}


def test_the_mixes_and_their_bytes(device):
    streams = streams_of(device, SIZE + 100)  # whole cache lines of it
    assert list(streams) == NAMES and MEMORY_LEVELS == ("dram", "sweep")
    for name, stream in streams.items():
        assert stream.level == "dram" and name.startswith(f"dram_{stream.mix}")
        assert stream.counted_bytes == MIXES[stream.mix] * (SIZE + 64)
        assert ("write-allocate" in stream.counted) == (stream.mix != "read")
        assert not stream.on_chip and stream.clock_mhz() is None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size_bytes", [64, 192, SIZE + 64])
def test_every_way_to_run_a_stream_is_right(device, name, size_bytes):
    """Also of fewer cache lines than cores, and of more chunks than one."""
    stream = streams_of(device, size_bytes)[name]
    for grid, step in stream.grids.items():
        step(0)
        assert stream.threads(grid) == int(grid.split()[0])
        assert stream.verify(grid).startswith(("the sum of every 8-byte word", "every"))


@pytest.mark.parametrize("fault", ["nothing is done", "a number is wrong"])
@pytest.mark.parametrize("mix", MIXES)
def test_a_stream_that_leaves_bytes_out_is_found(device, made, mix, fault):
    """Also where it went right before, and has left the right bytes behind."""
    stream = streams_of(device)[f"dram_{mix}"]
    _, written = made[1]  # a is read first, then c is written
    for grid, step in list(stream.grids.items()):
        stream.verify(grid)

        def faulty(index, step=step):
            if fault == "nothing is done":
                return []
            first, *others = step(index)
            written[written.size // 3] += 1
            return [int(first or 0) + 1, *others]

        stream.grids[grid] = faulty
        with pytest.raises(ArithmeticError, match=f"dram_{mix} with {grid}: wrong by"):
            stream.verify(grid)


@pytest.mark.parametrize(("cores", "counts"), [(1, [1]), (2, [2, 1]), (6, [6, 3, 1]), (16, [16, 8, 4])])
def test_all_cores_are_tried_first_then_halves(cores, counts):
    """A budget may end the trials: the likeliest way must not be the last."""
    workers = SimpleNamespace(count=cores, run=lambda count, work: [work(number) for number in range(count)])
    for stream in memory.streams(workers, SIZE, 1 << 20):
        threads = [stream.threads(grid) for grid in stream.grids]
        assert threads == ([1] if stream.name.endswith("one_core") else counts)


@pytest.mark.parametrize(
    ("readers", "cache_mib", "free_mib", "mib"),
    [
        (1, 32, 1 << 20, 256),
        (16, 32, 1 << 20, 256),
        (64, 32, 1 << 20, 1024),  # 16 MiB per core
        (16, 300, 1 << 20, 600),  # twice the caches
        (16, 300, 2048, 600),  # and never less
        (2, 32, 1024, 128),  # an eighth of the memory
        (2, 32, 100, 64),
    ],
)
def test_arrays_are_larger_than_the_caches(readers, cache_mib, free_mib, mib):
    assert memory.automatic_bytes(readers, cache_mib * MIB, free_mib * MIB) == mib * MIB


# ---------------------------------------------------------------------------------------------- sweeps


def caches_of(readers, near_bytes, largest_bytes):
    return memory.Caches(readers, {"l2": largest_bytes}, near_bytes, largest_bytes)


@settings(deadline=None, max_examples=30)
@given(st.integers(4096, 1 << 31), st.integers(1, 12), st.integers(1, 256), st.sampled_from([MIB // 4, 2 * MIB]))
def test_sizes_of_a_sweep(largest, points_per_octave, readers, near_bytes):
    cuts = memory.set_cuts(caches_of(readers, near_bytes, 32 * MIB), largest, points_per_octave)
    sizes = list(cuts)
    assert sizes[0] == 4096 and sizes[-1] <= largest < 2.1 * sizes[-1]
    growth = 2 ** (1 / points_per_octave)
    assert all(after / before == pytest.approx(growth, rel=0.04) for before, after in itertools.pairwise(sizes))
    for size, (parts, dots, passes) in cuts.items():
        assert size % (128 * parts * dots) == 0
        assert size / parts / dots <= memory.DOT_BYTES
        assert passes == 1 or parts == 1
        assert passes * dots >= memory.FEWEST_DOTS


@pytest.fixture
def small_sweep(monkeypatch):
    """Of a machine whose cores have 64 KiB each: sets up to 256 KiB, of which a step reads half or more."""
    monkeypatch.setattr(memory, "NEAR_CALL_BYTES", MIB // 4)
    monkeypatch.setattr(memory, "FAR_CALL_BYTES", MIB // 32)
    monkeypatch.setattr(memory, "FEWEST_DOTS", 1)

    def of(readers, points_per_octave=2):
        caches = caches_of(readers, MIB // 32, MIB // 16)
        (series,) = memory.sweeps(Workers(readers), [caches], readers * MIB, points_per_octave)
        return series

    return of


@pytest.fixture
def reads(monkeypatch):
    """(address of one half, of the other, bytes of both) of every dot product."""
    made = []

    def vecdot(left, right, out, dot=numpy.vecdot):
        assert left.ctypes.data % 64 == 0 and right.ctypes.data % 64 == 0
        made.append((left.ctypes.data, right.ctypes.data, 8 * (left.size + right.size)))
        return dot(left, right, out=out)

    monkeypatch.setattr(numpy, "vecdot", vecdot)
    return made


@pytest.mark.parametrize("readers", [1, 2, 9])
def test_a_step_reads_what_it_says_and_before_the_first_all_of_the_set_is_read_once(small_sweep, reads, readers):
    series = small_sweep(readers)
    assert series.reader == ("one core" if readers == 1 else "each core")
    assert series.sizes[-1] == 256 << 10
    for size in series.sizes:
        reads.clear()
        step, step_bytes = series.step(size)
        addresses = [address for address, _, _ in reads]
        assert len(set(addresses)) == len(addresses)
        assert sum(count for _, _, count in reads) >= readers * size
        reads.clear()
        step(0)
        assert len(reads) == memory.CALLS * readers
        assert sum(count for _, _, count in reads) == step_bytes


SLACKER = {
    "nothing is read": lambda left, right, out: None,
    "the last pass is left out": lambda left, right, out, dot=numpy.vecdot: dot(left[:-1], right[:-1], out=out[:-1]),
    "a line is left out": lambda left, right, out, dot=numpy.vecdot: dot(left[..., 8:], right[..., 8:], out=out),
}


@pytest.mark.parametrize("slacker", SLACKER)
@pytest.mark.parametrize("readers", [1, 2])
def test_a_step_that_leaves_bytes_out_is_found(small_sweep, monkeypatch, readers, slacker):
    """Also where those before read all: the fastest counts, and nothing is as fast as not reading."""
    step, _ = small_sweep(readers).step(16384)
    step(0)
    monkeypatch.setattr(numpy, "vecdot", SLACKER[slacker])
    with pytest.raises(ArithmeticError, match="a sweep's reads of 16384 bytes"):
        step(1)


@pytest.mark.parametrize(
    ("readers", "seconds"),
    [
        ([[(0, 10), (10, 20)]], 20),
        ([[(0, 10), (11, 20)]], 20),  # a pause counts
        ([[(0, 10), (10, 20)], [(0, 10), (10, 20)]], 20),
        ([[(0, 10), (10, 20)], [(4, 14), (14, 24)]], 20),  # woken late: 1.6 calls each within 16
        ([[(0, 10), (10, 20)], [(0, 20), (20, 40)]], 4 * 20 / 3),  # one of half the speed: 3 calls within 20
        ([[(0, 10), (10, 20)], [(20, 30), (30, 40)]], 40),  # one after the other
        ([[(0, 10), (10, 20)], [(11, 21), (21, 31)]], 31),  # hardly together
    ],
)
def test_the_time_in_which_all_read_counts(readers, seconds):
    stamps = [[(begin * 10**9, end * 10**9) for begin, end in calls] for calls in readers]
    assert memory.seconds_of(stamps) == pytest.approx(seconds)


def test_one_core_and_all_of_them_are_swept_over_one_array(device, monkeypatch, made):
    series = device.sweeps(2)
    assert [one.series for one in series] == ["one_core", "all_cores"][: len({1, device.cores})]
    for one in series:
        assert one.sizes[0] == 4096
        assert one.sizes[-1] >= 4 * max(one.levels.values(), default=0) * 0.7
    monkeypatch.setattr(host, "memory_available_bytes", lambda: 64 * MIB)
    made.clear()
    for one in device.sweeps(2):
        assert one.sizes[-1] <= 16 * MIB // (1 if one.series == "one_core" else device.cores)
        for size in (one.sizes[0], one.sizes[-1]):
            one.step(size)[0](0)
    large = [array for _, array in made if array.nbytes >= 16 * MIB]
    assert len(large) == 1 and large[0].nbytes < 20 * MIB
