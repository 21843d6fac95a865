"""Memory benchmarks and sweeps of a GPU: their grids, the bytes they count, and wrong kernels that must be found."""

from types import SimpleNamespace

import fake_gpu
import numpy
import pytest
from fake_gpu import nvml_card, open_gpu, record_launches, use_nvml

from roofline.core.levels import TARGETS
from roofline.core.terms import UnsupportedError
from roofline.core.units import KIB, MIB
from roofline.devices.gpu import cache_benchmarks, nvml

RAGGED = MIB // 4 + 32 * 7
# What CUDA reports of cards of three kinds; on a T4 one block may have all of the shared memory.
PROPERTIES = ("MultiProcessorCount", "L2CacheSize", "MaxSharedMemoryPerBlockOptin", "MaxSharedMemoryPerMultiprocessor")
PROPERTIES += ("MaxThreadsPerMultiProcessor",)
CARDS = {
    "T4": ("7.5", 40, 4 * MIB, 64 * KIB, 64 * KIB, 1024),
    "H200": ("9.0", 132, 60 * MIB, 227 * KIB, 228 * KIB, 2048),
    "a slice of an H200": ("9.0", 16, 7 * MIB, 227 * KIB, 228 * KIB, 2048),
}

gpu = fake_gpu.gpu  # the fixture


@pytest.fixture
def device(monkeypatch):
    return open_gpu(monkeypatch)


@pytest.fixture(params=CARDS)
def any_card(request, monkeypatch):
    capability, *values = CARDS[request.param]
    return open_gpu(monkeypatch, capability, **dict(zip(PROPERTIES, values, strict=True)))


def of_level(device, level, size_bytes=RAGGED) -> dict:
    return {benchmark.name: benchmark for benchmark in device.bandwidth_benchmarks(level, size_bytes)}


def test_the_streams_of_device_memory_and_the_bytes_they_count(device):
    benchmarks = of_level(device, "hbm", MIB)
    counted = {name: benchmark.counted_bytes / MIB for name, benchmark in benchmarks.items()}
    assert counted == {"hbm_read": 1, "hbm_write": 1, "hbm_copy": 2, "hbm_triad": 3}
    assert {(benchmark.level, benchmark.clock_mhz()) for benchmark in benchmarks.values()} == {("hbm", None)}
    (copy,) = of_level(device, "d2d").values()
    assert (copy.name, copy.level, copy.mix, copy.counted_bytes) == ("d2d", "hbm", "copy", 2 * RAGGED)


def ragged(gpu) -> int:
    """Bytes that are not a multiple of the tiles of any grid; a real card needs several rounds for them."""
    return RAGGED if hasattr(gpu, "cublaslt") else 64 * MIB + 32 * 7


@pytest.mark.parametrize("size_bytes", [32, None])
def test_every_stream_is_verified_on_every_grid(gpu, size_bytes):
    for level in ("hbm", "d2d", "h2d", "d2h"):
        for benchmark in gpu.bandwidth_benchmarks(level, size_bytes or ragged(gpu)):
            assert all(benchmark.verify(grid) for grid in list(benchmark.steps_by_grid))


@pytest.mark.parametrize("level", cache_benchmarks.BENCHMARKS)
def test_every_grid_of_a_cache_reads_the_same_bytes_from_a_set_that_fits(monkeypatch, any_card, level):
    device = any_card
    if TARGETS[level].needs_clusters and device.capability < (9, 0):
        with pytest.raises(UnsupportedError, match="no clusters"):
            device.bandwidth_benchmarks(level, None)
        return
    launches = record_launches(monkeypatch, device)
    holds = device.last_level_cache_bytes if level == "l2" else device.l1_bytes
    for benchmark in device.bandwidth_benchmarks(level, None):
        assert benchmark.steps_by_grid and (benchmark.level, benchmark.mix) == (level, "read")
        for grid, step in benchmark.steps_by_grid.items():
            step(0)
            name, blocks, threads, arguments = launches[-1]
            waves = 8 if level == "dsmem" else 1
            assert threads * blocks <= device.max_threads * device.multiprocessors * waves
            scalars = [int(value) for value in arguments if numpy.ndim(value) == 0]
            vectors, passes = scalars[0], scalars[1 if level != "l1" else 2]
            readers = 1 if name == "read_l2" else blocks  # which share the set out, or read all of it each
            assert vectors * 16 <= holds
            assert vectors * 16 * passes * readers == benchmark.counted_bytes, grid
            assert benchmark.verify(grid)


@pytest.mark.parametrize("level", ["l1", "l2", "dsmem", "hbm"])
def test_the_loads_of_a_chain_lead_where_it_leads(gpu, level):
    step, loads, verify = gpu.pointer_chase(level)
    for index in range(3):
        step(index)
    assert loads >= 4096 and verify()


def test_a_step_of_a_sweep_reads_what_it_counts(gpu):
    readers = max(1, gpu.multiprocessors // 8)
    for series, sets in zip(gpu.sweep_benchmarks(1), (readers, 1), strict=True):
        for size in {series.sizes[0], series.sizes[len(series.sizes) // 2], series.sizes[-1]}:
            step, bytes_read = series.step(size)
            words = gpu.cache_buffer(sets * size).view("uint32")
            words[...] = gpu.to_device(numpy.arange(words.size, dtype=numpy.uint32))
            gpu.word_sum[...] = 0
            step(0)
            gpu.synchronize()
            once = words.size * (words.size - 1) // 2
            assert bytes_read % size == 0 and int(gpu.word_sum[0]) == once * (bytes_read // size) % 2**32


# ---------------------------------------------------------------- two GPUs, on stand-ins that share one memory

ONE_WAY = ("p2p_gpu1", "p2p_gpu1_read", "p2p_gpu1_write")
A, B = nvml_card("GPU-A", "0000:01:00.0"), nvml_card("GPU-B", "0000:02:00.0")


def test_six_transfers_are_counted_and_checked(monkeypatch):
    pair = open_gpu(monkeypatch, MultiProcessorCount=2, peer=True).open_peer_pair(RAGGED)
    benchmarks = {benchmark.name: benchmark for benchmark in pair.bandwidth_benchmarks()}
    assert list(benchmarks) == [name + suffix for name in ONE_WAY for suffix in ("", "_both")]
    for name, benchmark in benchmarks.items():
        assert benchmark.counted_bytes == RAGGED * (2 if name.endswith("_both") else 1) and benchmark.level == "p2p"
        assert all(benchmark.verify(grid) for grid in benchmark.steps_by_grid)
    step, _, verify = pair.pointer_chase()
    step(0)
    assert verify() and pair.small_copy_step()[1]()


def test_the_path_between_two_cards(monkeypatch):
    fake = use_nvml(monkeypatch, A, B)
    unknown = {"active_nvlinks": None, "nvlink_version": None}
    assert nvml.describe_path(A, B) == unknown | {"link": "pcie", "pcie_ancestor": "node"}
    assert set(nvml.describe_path(A, None).values()) == {None}
    monkeypatch.setenv("FAKE_NVLINKS", "18")  # to a switch, which leads to every card
    monkeypatch.setenv("FAKE_DOWN", "7")
    path = {"link": "nvlink", "active_nvlinks": 17, "nvlink_version": "4.0", "inactive_nvlinks": [7]}
    path |= {"pcie_ancestor": "node"}
    assert nvml.describe_path(A, B) == path
    monkeypatch.setattr(fake, "nvmlDeviceGetNvLinkRemoteDeviceType", lambda *_: fake.NVML_NVLINK_DEVICE_TYPE_GPU)
    for remote, links in ((B.bus, 17), (A.bus, 0)):  # the card at the end of each link
        end = SimpleNamespace(busId=remote)
        monkeypatch.setattr(fake, "nvmlDeviceGetNvLinkRemotePciInfo", lambda card, link, end=end: end)
        assert nvml.describe_path(A, B)["active_nvlinks"] == links
