"""The CPU as a device: its cores, its random numbers, its memory, its formula and its products."""

import itertools
import json
import math
import os
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from types import SimpleNamespace

import numpy
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline import devices
from roofline.devices import host
from roofline.devices.cpu import device as cpu
from roofline.devices.cpu import memory as cpu_memory
from roofline.measure.levels import find_levels
from roofline.operators.gemm import operator as gemm
from roofline.operators.gemm.operator import Gemm
from roofline.records.compute import Product

SCRIPTS = Path(host.__file__).parents[1]
GB, MIB = 10**9, 1 << 20


@pytest.fixture(scope="module")
def device():
    return devices.open_device("cpu")


@pytest.fixture(scope="module")
def hardware(device):
    return device.hardware()


# ---------------------------------------------------------------------------------------------- cores and threads

REPORT = """
import json, os, sys
if sys.argv[1]:
    os.sched_setaffinity(0, [int(sys.argv[1])])
if sys.argv[2]:
    import numpy
from roofline import devices
device = devices.open_device("cpu")
import numpy, threadpoolctl
numpy.ones((256, 256)) @ numpy.ones((256, 256))
blas = [library["num_threads"] for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"]
print(json.dumps({"cores": device.cores, "blas": blas, "told": device.software()["blas_threads"]}))
"""


def threads_of_a_job(core="", numpy_first=""):
    """What a job has for threads that an engine started with one thread for each of them."""
    one = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    command = [sys.executable, "-c", REPORT, str(core), numpy_first]
    environment = {**os.environ, **one, "PYTHONPATH": str(SCRIPTS)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("numpy_first", ["", "numpy is imported before"])
def test_all_usable_cores_although_the_engine_hands_out_one(numpy_first):
    cores = host.usable_cores()
    assert threads_of_a_job(numpy_first=numpy_first) == {"cores": cores, "blas": [cores], "told": str(cores)}


def test_no_more_cores_than_the_affinity_mask_has():
    core = min(os.sched_getaffinity(0))
    assert threads_of_a_job(core) == {"cores": 1, "blas": [1], "told": "1"}


@pytest.fixture
def container(tmp_path, monkeypatch):
    """Eight cores and 64 GB of memory, and what a container's control group says of them, by file."""

    def limited(files):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(f"{text}\n")

    monkeypatch.setattr(host, "CGROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=64 * GB))
    return limited


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 8),
        ({"cpu.max": "max 100000"}, 8),
        ({"cpu.max": "400000 100000"}, 4),
        ({"cpu.max": "250000 100000"}, 3),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "9900000 100000"}, 8),
        ({"cpu/cpu.cfs_quota_us": 300_000, "cpu/cpu.cfs_period_us": 100_000}, 3),  # version 1
        ({"cpu/cpu.cfs_quota_us": -1, "cpu/cpu.cfs_period_us": 100_000}, 8),
    ],
)
def test_no_more_cores_than_the_containers_quota(container, files, cores):
    container(files)
    assert host.usable_cores() == cores


@pytest.mark.parametrize(
    ("files", "available"),
    [
        ({}, 64),
        ({"memory.max": "max", "memory.current": 9 * GB}, 64),
        ({"memory.max": 16 * GB, "memory.current": 9 * GB}, 7),
        ({"memory.max": 16 * GB, "memory.current": 9 * GB, "memory.stat": f"anon 5\ninactive_file {4 * GB}"}, 11),
        ({"memory.max": 128 * GB, "memory.current": 9 * GB}, 64),
        ({"memory/memory.limit_in_bytes": 16 * GB, "memory/memory.usage_in_bytes": 9 * GB}, 7),  # version 1
        ({"memory/memory.limit_in_bytes": 2**63 - 4096, "memory/memory.usage_in_bytes": 9 * GB}, 64),
    ],
)
def test_memory_is_what_the_container_may_still_take(container, files, available):
    """Files that its processes once read are counted as used, and are none: a fresh install reads gigabytes."""
    container(files)
    assert host.memory_available_bytes() == available * GB


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine of two sockets, each of two cores of two threads and with an L3 of its own, as the kernel lists it."""
    for number in range(8):
        socket, sibling = number % 2, (number + 4) % 8
        topology = tmp_path / f"cpu{number}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(f"{min(number, sibling)},{max(number, sibling)}\n")
        both = f"{min(number, sibling)},{max(number, sibling)}"
        caches = [("1", "Data", "48K", both), ("1", "Instruction", "32K", both), ("2", "Unified", "1024K", both)]
        for index, (level, kind, size, shared) in enumerate([*caches, ("3", "Unified", "32M", f"of {socket}")]):
            cache = tmp_path / f"cpu{number}" / "cache" / f"index{index}"
            cache.mkdir(parents=True)
            for name, value in (("level", level), ("type", kind), ("size", size), ("shared_cpu_list", shared)):
                (cache / name).write_text(f"{value}\n")
    monkeypatch.setattr(host, "CPUS", tmp_path)
    return lambda *numbers: monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(numbers))


@pytest.mark.parametrize(
    ("numbers", "physical", "cache_mib"),
    [(range(8), 4, 64), ((0, 1, 2, 3), 4, 64), ((0, 4, 2), 2, 32), ((1, 5), 1, 32)],
)
def test_threads_of_one_core_and_its_caches_count_once(machine, numbers, physical, cache_mib):
    """The formula's ports are a core's; a rotation must be larger than every L3 that the cores in use can fill."""
    machine(*numbers)
    assert host.physical_cores() == physical
    assert cpu._last_level_cache_bytes() == cache_mib << 20
    assert cpu._cache_bytes() == {"l1": 48 << 10, "l2": 1 << 20, "l3": 32 << 20}


@pytest.mark.parametrize(
    ("numbers", "order"),
    [
        (range(8), [0, 2, 1, 3, 4, 6, 5, 7]),  # 4 to 7 are the second threads of 0 to 3
        ((0, 1, 4, 5, 6), [0, 6, 1, 4, 5]),
        ((3,), [3]),
    ],
)
def test_few_threads_are_spread_over_the_cores(machine, numbers, order):
    machine(*numbers)
    assert cpu._spread(host.usable_cpus()) == order


def test_threads_are_spread_where_no_cache_is_listed(tmp_path, monkeypatch):
    monkeypatch.setattr(host, "CPUS", tmp_path)
    assert cpu._spread(set(range(6))) == [0, 4, 2, 1, 5, 3]


def test_where_no_cache_is_listed_a_large_one_is_assumed(tmp_path, monkeypatch):
    """Else one buffer would do for 'cold'."""
    monkeypatch.setattr(host, "CPUS", tmp_path)
    assert cpu._last_level_cache_bytes() == cpu.UNLISTED_CACHE_BYTES >= 64 << 20
    assert cpu._cache_bytes() == {}
    assert host.physical_cores() == host.usable_cores()


# ---------------------------------------------------------------------------------------------- random numbers


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16", "fp64"])
def test_normal_numbers_are_normal(device, dtype):
    values = device.normal((512, 1024), dtype, seed=1)
    assert values.shape == (512, 1024)
    assert values.dtype.itemsize == {"fp64": 8, "fp32": 4}.get(dtype, 2)
    wide = values.astype(numpy.float64)
    error = 1 / math.sqrt(wide.size)
    assert abs(wide.mean()) < 5 * error
    assert wide.var() == pytest.approx(1, abs=5 * math.sqrt(2) * error + 1e-3)
    assert (wide**4).mean() == pytest.approx(3, abs=5 * math.sqrt(96) * error + 5e-3)


def test_normal_numbers_are_the_same_for_any_number_of_cores(device, monkeypatch):
    """More than one piece of a million, the last of them short."""
    shape = (3, 700_001)
    values = device.normal(shape, "fp32", seed=7)
    monkeypatch.setattr(host, "usable_cores", lambda: 1)
    alone = cpu.Device(device.identity)
    assert alone.cores == 1
    assert numpy.array_equal(values, alone.normal(shape, "fp32", seed=7))
    monkeypatch.undo()
    cpu.Device(device.identity)  # gives the BLAS its threads back
    assert not numpy.array_equal(values, device.normal(shape, "fp32", seed=8))
    halves = values.reshape(-1)
    assert abs(numpy.corrcoef(halves[: 1 << 20], halves[1 << 20 : 1 << 21])[0, 1]) < 0.01


def test_copies_are_equal_and_each_in_memory_of_its_own(device):
    array = device.normal((3, 5), "fp32", seed=0)
    copies = device.copies(array, 7)
    assert len(copies) == 7 and device.copies(array, 0) == []
    copies[0][:] = 0
    assert all(numpy.array_equal(copy, array) for copy in copies[1:])


# ---------------------------------------------------------------------------------------------- streams

MIXES = {"read": 1, "write": 1, "copy": 2, "triad": 3}
ALL_CORES = [f"dram_{mix}" for mix in MIXES]
ONE_CORE = ["dram_read_one_core", "dram_copy_one_core"]
SIZE = 3 << 20


def streams_of(device, size_bytes=SIZE):
    return {stream.name: stream for stream in device.streams("dram", size_bytes)}


def test_the_mixes_and_their_bytes(device):
    streams = streams_of(device, SIZE + 100)  # whole cache lines of it
    assert list(streams) == ALL_CORES + ONE_CORE
    for name, stream in streams.items():
        assert stream.level == "dram" and name.startswith(f"dram_{stream.mix}")
        assert stream.counted_bytes == MIXES[stream.mix] * (SIZE + 64)
        assert ("write-allocate" in stream.counted) == (stream.mix != "read")
        assert not stream.on_chip and stream.clock_mhz() is None
    assert cpu.MEMORY_LEVELS == ("dram", "sweep")
    assert device.memory_ceilings == ["dram_read", "dram_copy"]


@pytest.mark.parametrize("name", ALL_CORES + ONE_CORE)
@pytest.mark.parametrize("size_bytes", [64, 192, SIZE + 64])
def test_every_way_to_run_a_stream_is_right(device, name, size_bytes):
    """Also of fewer cache lines than cores, and of more chunks than one."""
    stream = streams_of(device, size_bytes)[name]
    for grid, step in stream.grids.items():
        step(0)
        assert stream.threads(grid) == int(grid.split()[0])
        assert stream.verify(grid).startswith(("the sum of every 8-byte word", "every"))


FAULTS = {
    "the end is left out": lambda work, piece: work(slice(piece.start, piece.stop - 2)),
    "the start is left out": lambda work, piece: work(slice(piece.start + 2, piece.stop)),
    "nothing is done": lambda work, piece: 0,
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("mix", MIXES)
def test_a_stream_that_leaves_bytes_out_is_found(device, monkeypatch, mix, fault):
    """Also where it went right before, and has left the right bytes behind."""
    works, right = getattr(cpu_memory, f"_{mix}"), [True]

    def faulty(*arguments):
        work = works(*arguments)
        return lambda piece: work(piece) if right else FAULTS[fault](work, piece)

    monkeypatch.setattr(cpu_memory, f"_{mix}", faulty)
    stream = streams_of(device)[f"dram_{mix}"]
    for grid in stream.grids:
        stream.verify(grid)
    right.clear()
    for grid in stream.grids:
        with pytest.raises(ArithmeticError, match=f"dram_{mix} with {grid}: wrong by"):
            stream.verify(grid)


@pytest.fixture
def arrays(monkeypatch):
    """The arrays of the streams made since: all cores' first."""
    made = []

    class Kept(cpu_memory._Arrays):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            made.append(self)

    monkeypatch.setattr(cpu_memory, "_Arrays", Kept)
    return made


def test_the_read_is_of_every_bit(device, arrays):
    step = list(streams_of(device, 4096)["dram_read"].grids.values())[-1]
    bits = arrays[0].a.view(numpy.uint32)
    before = sum(map(int, step(0))) % 2**64
    for position in (0, 1, 15, 16, 511, 512, 1022, 1023):
        for bit in (0, 31):
            bits[position] ^= numpy.uint32(1 << bit)
            assert sum(map(int, step(0))) % 2**64 != before
            bits[position] ^= numpy.uint32(1 << bit)


def test_the_triad_is_a_plus_three_b(device, arrays):
    """By another formula than the check's."""
    list(streams_of(device, SIZE)["dram_triad"].grids.values())[-1](0)
    index = numpy.arange(SIZE // 4)
    assert numpy.array_equal(arrays[0].c, 1 + index % 4093 + 3.0 * (1 + index % 2039))


def test_one_core_is_one_thread(device, monkeypatch):
    seen = []
    monkeypatch.setattr(cpu_memory, "_read", lambda arrays: lambda piece: seen.append(threading.get_ident()) or 0)
    streams = streams_of(device)
    for name in ONE_CORE:
        assert list(streams[name].grids) == ["1 thread"]
        assert streams[name].threads("1 thread") == 1
    for index in range(5):
        streams["dram_read_one_core"].grids["1 thread"](index)
    assert len(set(seen)) == 1 and len(seen) == 5


def test_all_cores_are_tried_first(device):
    """A budget may end the trials: the likeliest way must not be the last."""
    assert next(iter(streams_of(device)["dram_read"].grids)).startswith(f"{device.cores} thread")
    counts = {1: [1], 2: [2, 1], 4: [4, 2, 1], 6: [6, 3, 1], 16: [16, 8, 4]}
    assert {cores: cpu_memory._thread_counts(cores) for cores in counts} == counts


def test_all_streams_go_over_the_same_three_arrays(device, monkeypatch):
    """Memory that is touched the first time took most of the job's time."""
    made, empty = [], numpy.empty
    monkeypatch.setattr(numpy, "empty", lambda *arguments: made.append(arguments) or empty(*arguments))
    streams = streams_of(device)
    assert [items for items, _ in made] == 3 * [SIZE // 4]
    for stream in streams.values():
        stream.verify(next(iter(stream.grids)))
    assert sum(items == SIZE // 4 for items, _ in made) == 3


@pytest.mark.parametrize(("cores", "items"), [(2, 1 << 18), (64, 1 << 18), (256, 1 << 20)])
def test_blocks_of_many_threads_are_large(device, monkeypatch, cores, items):
    """Each takes the interpreter's lock."""
    blocks = []
    monkeypatch.setattr(cpu_memory, "_triad", lambda arrays, block: blocks.append(block))
    workers = SimpleNamespace(count=cores, run=lambda count, work: [work(number) for number in range(count)])
    cpu_memory.streams(workers, SIZE, 1 << 20)
    assert blocks == [items]


def test_a_piece_is_always_the_same_workers():
    """Else a core would find its set in another one's cache."""
    workers = cpu_memory.Workers(3)
    threads = workers.run(3, lambda number: threading.get_ident())
    assert len(set(threads)) == 3
    for count in (1, 2, 3):
        assert workers.run(count, lambda number: threading.get_ident()) == threads[:count]


def test_what_goes_wrong_in_a_worker_is_told():
    """And the next work is done as ever."""
    workers = cpu_memory.Workers(2)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            workers.run(2, lambda number: 1 // (1 - number))
        assert workers.run(2, lambda number: 10 * number) == [0, 10]


def test_results_are_in_the_workers_order():
    """Whichever ends first."""
    assert cpu_memory.Workers(3).run(3, lambda number: time.sleep(0.02 * (2 - number)) or number) == [0, 1, 2]


def test_a_worker_stays_on_its_core():
    cpus = sorted(os.sched_getaffinity(0))
    workers = cpu_memory.Workers(len(cpus), cpus)
    assert workers.run(len(cpus), lambda number: os.sched_getaffinity(0)) == [{number} for number in cpus]
    assert cpu_memory.Workers(1).run(1, lambda number: os.sched_getaffinity(0)) == [set(cpus)]
    assert os.sched_getaffinity(0) == set(cpus)
    workers = cpu_memory.Workers(1, [1 << 20])  # there is none: it goes wherever it may
    assert workers.run(1, lambda number: os.sched_getaffinity(0)) == [set(cpus)]


def test_workers_end_with_what_they_kept():
    def until(true):
        deadline = time.monotonic() + 10
        while not true() and time.monotonic() < deadline:
            time.sleep(0.001)
        return true()

    workers, array = cpu_memory.Workers(2), numpy.empty(3)
    threads = workers.run(2, lambda number: threading.current_thread())
    alive = weakref.ref(array)
    workers.run(2, lambda number, array=array: None)
    del array
    assert until(lambda: alive() is None)
    assert all(thread.is_alive() for thread in threads)
    del workers
    assert until(lambda: not any(thread.is_alive() for thread in threads))


@given(st.integers(0, 10_000), st.integers(1, 300))
def test_pieces_are_all_of_it_once(lines, count):
    pieces = cpu_memory._pieces(16 * lines, count)
    assert len(pieces) == count
    assert [index for piece in pieces for index in range(piece.start, piece.stop, 16)] == list(range(0, 16 * lines, 16))


@pytest.mark.parametrize(
    ("readers", "cache_mib", "free_mib", "mib"),
    [
        (1, 32, 1 << 20, 256),
        (16, 32, 1 << 20, 256),
        (64, 32, 1 << 20, 1024),  # 16 MiB a core
        (16, 300, 1 << 20, 600),  # twice the caches
        (16, 300, 2048, 600),  # and never less
        (2, 32, 1024, 128),  # an eighth of the memory
        (2, 32, 100, 64),
    ],
)
def test_arrays_are_larger_than_the_caches(readers, cache_mib, free_mib, mib):
    assert cpu_memory.automatic_bytes(readers, cache_mib * MIB, free_mib * MIB) == mib * MIB


def test_sizes_are_chosen_where_none_is_asked_for(device, monkeypatch):
    monkeypatch.setattr(host, "memory_available_bytes", lambda: 8 * MIB + 999)
    monkeypatch.setattr(device, "last_level_cache_bytes", MIB // 4)
    assert streams_of(device, None)["dram_copy"].counted_bytes == 2 * (MIB + 64)
    assert streams_of(device, None)["dram_copy_one_core"].counted_bytes == 2 * (MIB + 64)


# ---------------------------------------------------------------------------------------------- sweeps


def caches_of(readers, near_bytes, largest_bytes):
    return cpu_memory.Caches(readers, {"l2": largest_bytes}, near_bytes, largest_bytes)


@settings(deadline=None, max_examples=30)
@given(st.integers(4096, 1 << 31), st.integers(1, 12), st.integers(1, 256), st.sampled_from([MIB // 4, 2 * MIB]))
def test_sizes_of_a_sweep(largest, points_an_octave, readers, near_bytes):
    cuts = cpu_memory.set_cuts(caches_of(readers, near_bytes, 32 * MIB), largest, points_an_octave)
    sizes = list(cuts)
    assert sizes[0] == 4096 and sizes[-1] <= largest < 2.1 * sizes[-1]
    growth = 2 ** (1 / points_an_octave)
    assert all(after / before == pytest.approx(growth, rel=0.04) for before, after in itertools.pairwise(sizes))
    for size, (parts, dots, passes) in cuts.items():
        assert size % (128 * parts * dots) == 0
        assert size / parts / dots <= cpu_memory.DOT_BYTES
        assert passes == 1 or parts == 1
        assert passes * dots >= cpu_memory.FEWEST_DOTS


def test_readers_do_not_wait_for_each_others_calls():
    """NumPy gives the interpreter's lock away, but not in a call of few products: these would run in turn."""
    left = numpy.ones((cpu_memory.FEWEST_DOTS, 8192))
    calls, seen = [], []

    def read():
        for _ in range(50):
            began = time.perf_counter()
            numpy.vecdot(left, left)
            calls.append((began, time.perf_counter()))

    thread = threading.Thread(target=read)
    thread.start()
    while thread.is_alive():
        seen.append(time.perf_counter())
        time.sleep(0)
    assert sum(any(began < moment < ended for moment in seen) for began, ended in calls) > 10


@pytest.fixture
def small_sweep(monkeypatch):
    """Of a machine whose cores have 64 KiB each: sets up to 256 KiB, of which a step reads half or more."""
    monkeypatch.setattr(cpu_memory, "NEAR_CALL_BYTES", MIB // 4)
    monkeypatch.setattr(cpu_memory, "FAR_CALL_BYTES", MIB // 32)
    monkeypatch.setattr(cpu_memory, "FEWEST_DOTS", 1)

    def of(readers, points_an_octave=2):
        caches = caches_of(readers, MIB // 32, MIB // 16)
        (series,) = cpu_memory.sweeps(cpu_memory.Workers(readers), [caches], readers * MIB, points_an_octave)
        return series

    return of


@pytest.fixture
def reads(monkeypatch):
    """(address, bytes) of every call of vecdot."""
    made = []

    def vecdot(left, right, out, dot=numpy.vecdot):
        assert left.ctypes.data % 64 == 0 and right.ctypes.data % 64 == 0
        made.append((left.ctypes.data, 8 * (left.size + right.size)))
        return dot(left, right, out=out)

    monkeypatch.setattr(numpy, "vecdot", vecdot)
    return made


@pytest.mark.parametrize("readers", [1, 2, 9])
def test_a_step_reads_what_it_says(small_sweep, reads, readers):
    series = small_sweep(readers)
    assert series.reader == ("one core" if readers == 1 else "each core")
    assert series.sizes[-1] == 256 << 10
    for size in series.sizes:
        step, step_bytes = series.step(size)
        reads.clear()
        step(0)
        assert len(reads) == cpu_memory.CALLS * readers
        assert sum(count for _, count in reads) == step_bytes


def test_a_large_set_is_read_part_after_part(small_sweep, reads):
    """All of it before the first step, then the parts that were read the longest ago."""
    series = small_sweep(1)
    size = series.sizes[-1]
    step, step_bytes = series.step(size)
    assert step_bytes == size // 2
    parts = [address for address, _ in reads]
    assert len(set(parts)) == len(parts) == 8
    for half in (parts[:4], parts[4:], parts[:4]):
        reads.clear()
        step(0)
        assert [address for address, _ in reads] == half


@pytest.mark.parametrize("readers", [1, 2])
def test_no_more_is_read_before_the_first_step_than_all_of_the_set(small_sweep, reads, readers):
    series = small_sweep(readers)
    for size in series.sizes:
        reads.clear()
        series.step(size)
        addresses = [address for address, _ in reads]
        assert len(set(addresses)) == len(addresses) > 0
        assert sum(count for _, count in reads) >= readers * size


def test_each_reader_has_a_set_of_its_own(small_sweep, reads):
    series = small_sweep(3)
    series.step(series.sizes[-1])
    sets = sorted({address for address, _ in reads})
    assert len(sets) == 3 * 8
    assert sets[8] - sets[0] == sets[16] - sets[8] >= series.sizes[-1]
    assert sets[0] % (2 * MIB) == sets[8] % (2 * MIB) == 0


def set_of(numbers, size, first=0, parts=1, dots=1, passes=3):
    return cpu_memory._Set(numbers, first, size, cpu_memory.Cut(parts, dots, passes))


NUMBERS = cpu_memory._aligned_numbers(cpu_memory.Workers(2), 2 * MIB)


@settings(deadline=None, max_examples=40)
@given(st.sampled_from([(4096, 1, 1), (5760, 1, 1), (131072 + 256, 1, 2), (524288, 4, 1), (786432, 6, 2)]), st.data())
def test_every_item_of_a_set_is_read_in_every_pass(cut, data):
    size, parts, dots = cut
    first = data.draw(st.sampled_from([0, 512, 131072]))
    numbers = NUMBERS.copy()
    whole = set_of(numbers, size, first, parts, dots)
    for _ in range(parts):
        whole.read()
    part = size // 16 // parts
    item = data.draw(st.integers(0, size // 8 - 1))
    numbers[first + item] += 1
    with pytest.raises(ArithmeticError, match=f"a sweep's reads of {size} bytes"):
        for _ in range(parts):
            whole.read()
    number = item % (size // 16) // part
    wrong = [whole._results[call] for call in range(4) if (whole._next + call) % parts == number]
    assert all((dots != whole._expected[number]).any(axis=1).all() for dots in wrong)


def test_expected_dot_products_by_multiplying():
    for first, half, count in ((0, 2048, 4), (512, 65536, 8), (4096, 98304, 3)):
        left, right = (NUMBERS[start : start + half].reshape(count, -1) for start in (first, first + half))
        assert numpy.array_equal(cpu_memory._expected_dots(first, half, count), (left * right).sum(axis=1))


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
    assert cpu_memory.seconds_of(stamps) == pytest.approx(seconds)


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 99)), min_size=1, max_size=9))
def test_no_bandwidth_above_the_sum_of_what_readers_had(readers):
    """Each in its own time."""
    stamps = [[(begin + each * call, begin + each * (call + 1)) for call in range(4)] for begin, each in readers]
    most = sum(1 / each for _, each in readers)
    assert 4 * len(readers) / (cpu_memory.seconds_of(stamps) * 1e9) <= most * (1 + 1e-9)


def test_a_step_may_time_itself(device):
    steps = [cpu.Timed(0.25), None, cpu.Timed(7.0)]
    first, second, third = device.step_times(lambda index: steps[index - 5], 3, first=5)
    assert (first, third) == (0.25, 7.0)
    assert 0 < second < 0.25
    assert device.step_times(lambda index: 99.0, 1)[0] < 1  # any other result is none


def test_the_blas_spreads_no_dot_product_over_threads():
    """OpenBLAS does from 10 000 items on; then one core's set would be read by many."""
    assert cpu_memory.DOT_BYTES // 16 < 10_000


@pytest.mark.parametrize(
    ("numbers", "readers", "l1", "l2", "l3"),
    [
        (range(8), 1, 48 << 10, 1 << 20, 32 << 20),
        (range(8), 8, 24 << 10, 1 << 19, 8 << 20),
        ((0, 1, 2, 3), 4, 48 << 10, 1 << 20, 16 << 20),
        ((1, 5), 2, 24 << 10, 1 << 19, 16 << 20),
        (range(8), 2, 24 << 10, 1 << 19, 16 << 20),  # a quota of two: they may share a core
    ],
)
def test_a_cores_part_of_the_caches(machine, numbers, readers, l1, l2, l3):
    machine(*numbers)
    assert cpu._cache_bytes(readers) == {"l1": l1, "l2": l2, "l3": l3}


def test_one_core_and_all_of_them_are_swept(device, monkeypatch):
    series = device.sweeps(2)
    assert [one.series for one in series] == ["one_core", "all_cores"][: len({1, device.cores})]
    for one in series:
        assert one.sizes[0] == 4096
        assert one.sizes[-1] >= 4 * max(one.levels.values(), default=0) * 0.7
    monkeypatch.setattr(host, "memory_available_bytes", lambda: 64 * MIB)
    assert device.sweeps(2)[0].sizes[-1] == 16 * MIB
    assert device.sweeps(2)[-1].sizes[-1] <= 16 * MIB // device.cores


def test_all_sweeps_go_over_one_array(device, monkeypatch):
    monkeypatch.setattr(host, "memory_available_bytes", lambda: 64 * MIB)
    made, of = [], cpu_memory._aligned_numbers
    monkeypatch.setattr(cpu_memory, "_aligned_numbers", lambda workers, size: made.append(size) or of(workers, size))
    for one in device.sweeps(1):
        assert not made or made == [16 * MIB]
        for size in (one.sizes[0], one.sizes[-1]):
            one.step(size)[0](0)
    assert made == [16 * MIB]


def test_a_sweep_of_this_machine_has_levels(device):
    series = device.sweeps(2)[0]
    points = []
    for size in [size for size in series.sizes if 16 << 10 <= size <= MIB]:
        step, step_bytes = series.step(size)
        points.append((size, step_bytes / min(device.step_times(step, 5)) / 1e9))
    levels = find_levels(points)
    assert levels and all(level.gb_per_s > 0.1 for level in levels)


# ---------------------------------------------------------------------------------------------- the formula


def test_peak_formula_by_hand():
    """2.1 GHz x 16 cores x 16 fp32 lanes x 2 FLOPs x 2 ports = 2.1504 TFLOPS; half of the lanes in fp64."""
    hardware = {"clock_mhz": 2100, "cores_physical": 16, "simd_bits": 512, "fma_flops": 2, "vector_ports": 2}
    assert cpu.peak_formula_tflops(hardware, 4) == pytest.approx(2.1504)
    assert cpu.peak_formula_tflops(hardware, 8) == pytest.approx(1.0752)


@pytest.mark.parametrize(
    ("flags", "machine", "family", "name", "flops_a_clock"),
    [
        ("sse2", "x86_64", 6, "SSE2", 4 * 1 * 2),
        ("sse2 avx", "x86_64", 6, "AVX", 8 * 1 * 2),
        ("sse2 avx fma", "x86_64", 21, "AVX", 8 * 2 * 2),
        ("sse2 avx avx2 fma", "x86_64", 23, "AVX2", 8 * 2 * 2),
        ("sse2 avx avx2 fma avx512f", "x86_64", 6, "AVX-512", 16 * 2 * 2),
        ("sse2 avx avx2 fma avx512f", "x86_64", 25, "AVX-512", 16 * 2 * 1),  # Zen 4: two halves of 256 bits
        ("sse2 avx avx2 fma avx512f", "x86_64", 26, "AVX-512", 16 * 2 * 2),  # Zen 5
        ("asimd", "aarch64", None, "NEON", 4 * 2 * 2),
        ("", "arm64", None, "NEON", 4 * 2 * 2),
    ],
)
def test_simd_units(flags, machine, family, name, flops_a_clock):
    units = cpu.simd_units(set(flags.split()), machine, family)
    assert units["simd"] == name and units["ports_assumed"]
    assert units["simd_bits"] // 32 * units["fma_flops"] * units["vector_ports"] == flops_a_clock


def test_what_the_device_promises_follows_from_what_it_is(device, hardware):
    promised = device.vendor(hardware, "")
    assert set(promised["peaks"]) == {"fp32", "fp64"}
    assert promised["peaks"]["fp32"]["tflops"] == 2 * promised["peaks"]["fp64"]["tflops"] > 0
    assert all(peak["derived"] and not peak["verified"] for peak in promised["peaks"].values())
    assert f"x {hardware['cores_physical']} cores x" in promised["peaks"]["fp32"]["source"]


def test_without_a_clock_nothing_is_promised(device, hardware):
    assert device.vendor(hardware | {"clock_mhz": None}, "")["peaks"] == {}


def test_what_the_cpu_lacks(device):
    assert [device.unsupported(dtype) for dtype in ("fp32", "fp64")] == [None, None]
    for ceiling in ("fp64_fma", "fp32_fma", "fp16_fma"):
        assert device.unsupported(ceiling) == "NumPy has no register-only loop on the CPU"
    for dtype in ("tf32", "fp8_e4m3", "int8"):
        assert device.unsupported(dtype).startswith(f"NumPy has no {dtype} arithmetic")
    for dtype in ("fp16", "bf16"):
        assert device.unsupported(dtype) == (
            f"NumPy has no {dtype} arithmetic of its own on the CPU, it converts; a ceiling would mislead"
        )
        assert device.emulation_note(dtype).startswith(f"{dtype} is emulated")
        assert device.compute_ceiling(dtype) == "fp32"
    assert device.emulation_note("fp32") is None


def test_what_is_lacking_is_known_without_numpy():
    """A job that is skipped must not wait for it."""
    code = "import sys; from roofline.devices import cpu; print(cpu.unsupported(None, 'fp16'), 'numpy' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("NumPy has no fp16") and done.stdout.endswith(" False\n")


def test_what_is_emulated_is_computed_in_fp32(device):
    half, single = numpy.ones(3, "f2"), numpy.ones(3, "f4")
    assert device.widened(half).dtype == numpy.float32
    assert device.widened(single) is single


# ---------------------------------------------------------------------------------------------- products


def test_a_product_is_checked_and_a_corrupted_one_fails(device):
    product = Gemm(device, 96, "fp32", seed=1)
    assert product.check().error < 1e-6
    product.step = lambda index: product.c.__setitem__((slice(None), 5), 0)
    with pytest.raises(ArithmeticError, match="fp32 matmul 96 differs from float64"):
        product.check()


@pytest.mark.parametrize(("dtype", "error"), [("fp64", 1e-14), ("fp32", 1e-6)])
def test_the_labs_product(device, dtype, error):
    workload = device.lab_product(dtype, 96, seed=1)
    assert workload.product == Product(
        library="numpy.matmul",
        shape={"m": 96, "n": 96, "k": 96},
        layout="NN",
        algorithm=None,
        accumulation=dtype,
        output=dtype,
    )
    assert workload.flops == 2 * 96**3
    workload.step(0)
    assert workload.check().error < error


@pytest.mark.parametrize("dtype", ["fp64", "fp32"])
@pytest.mark.parametrize("row", [0, 95])
def test_a_wrong_product_fails_the_job(device, monkeypatch, dtype, row):
    """Also one that writes nothing, over a right result of before."""
    workload = device.lab_product(dtype, 96, seed=1)
    workload.check()
    monkeypatch.setattr(numpy, "matmul", lambda a, b, out: out.__setitem__(slice(None), a.dot(b)) or out[row].fill(0))
    with pytest.raises(ArithmeticError, match=f"{dtype} matmul 96 differs from float64"):
        workload.check()
    monkeypatch.setattr(numpy, "matmul", lambda a, b, out: None)
    with pytest.raises(ArithmeticError, match="by inf"):
        workload.check()


def test_products_of_two_more_sizes_than_the_labs_are_tried(device):
    workloads = device.peak_candidates("fp32", 48, 1e12, seed=1)
    assert sorted(workload.product.shape["m"] for workload in workloads) == [24, 96]
    for workload in workloads:
        workload.check()  # each by itself: they have operands in common, and results
        afresh = device.peak_workload("fp32", 48, workload.product, seed=9)
        assert (afresh.product, afresh.flops) == (workload.product, workload.flops)
        afresh.check()
        assert device.beside("fp32", workload.product, seed=1) == []


def test_no_product_of_more_operations_than_asked_for(device):
    sizes = {most: device.peak_candidates("fp32", 48, most, seed=1) for most in (2 * 96**3, 2 * 48**3, 1)}
    assert [[workload.product.shape["m"] for workload in found] for found in sizes.values()] == [[24, 96], [24], []]


def test_no_product_that_the_memory_does_not_hold(device, monkeypatch):
    monkeypatch.setattr(host, "memory_available_bytes", lambda: gemm.workspace_bytes(96, "fp32"))
    assert {workload.product.shape["m"] for workload in device.peak_candidates("fp32", 48, 1e12, seed=1)} == {24}


def test_a_product_that_numpy_has_not_is_refused(device):
    product = device.lab_product("fp32", 48, seed=1).product.model_copy(update={"layout": "TN"})
    with pytest.raises(LookupError, match="NumPy has no"):
        device.peak_workload("fp32", 48, product, seed=1)


def test_a_product_takes_four_matrices():
    """A, B, C, and C again where the library returns a new array."""
    assert gemm.workspace_bytes(4096, "fp16") == 4 * 4096 * 4096 * 2
