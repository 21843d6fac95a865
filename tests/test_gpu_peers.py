"""Between two GPUs, on stand-ins that share one memory: what is counted, and that wrong data is found."""

import contextlib
from types import SimpleNamespace

import bandwidth
import numpy
import pytest
from fake_gpu import MIB, Idle, Short, nvml_card, open_gpu, replace_kernels, use_nvml

from roofline.devices.base import Unsupported
from roofline.devices.gpu import nvml
from roofline.measure import lock
from roofline.measure.memory_ceiling import latencies

RAGGED = MIB // 4 + 32 * 7
ONE_WAY = ("p2p_gpu1", "p2p_gpu1_read", "p2p_gpu1_write")
UNTOLD = ("nvlinks", "nvlink_version", "pcie_ancestor")
OPTIONS = {"warmup": 1, "iterations": 3, "time_budget_s": 0.05}


@pytest.fixture
def device(monkeypatch):
    return open_gpu(monkeypatch, multiProcessorCount=2, peer=True)


@pytest.fixture
def pair(device):
    return device.with_peer(RAGGED)


def streams_of(pair) -> dict:
    return {stream.name: stream for stream in pair.streams()}


def test_each_way_is_measured_alone_and_both_ways_at_once_as_their_sum(pair):
    streams = streams_of(pair)
    assert list(streams) == [name + both for name in ONE_WAY for both in ("", "_both")]
    for name in ONE_WAY:
        alone, both = streams[name], streams[f"{name}_both"]
        assert (alone.counted_bytes, both.counted_bytes) == (RAGGED, 2 * RAGGED)
        assert "this is the sum" in both.counted and "sum" not in alone.counted
        assert alone.level == both.level == "p2p"


def test_what_arrives_is_checked_in_every_way(pair):
    for stream in pair.streams():
        assert all(stream.verify(grid) for grid in stream.grids)
    step, _, verify = pair.chase()
    step(0)
    assert verify() and pair.small_copy()[1]()


def test_only_the_peers_memory_is_read_and_written(pair):
    near, far = pair.near, pair.far
    near.into[:], far.into[:], far.out[:] = 1, 1, 2
    streams = streams_of(pair)
    streams["p2p_gpu1"].grids["the driver's copy"](0)
    assert numpy.array_equal(far.into, near.out) and (near.into == 1).all()
    next(iter(streams["p2p_gpu1_write"].grids.values()))(0)
    assert not numpy.array_equal(far.into, near.out) and (near.into == 1).all()
    streams["p2p_gpu1_both"].grids["the driver's copy"](0)
    assert numpy.array_equal(far.into, near.out) and numpy.array_equal(near.into, far.out)


@pytest.mark.parametrize("by", [Idle, Short])
@pytest.mark.parametrize(("way", "depths"), [("read", (1, 4)), ("write", (4,))])
def test_a_kernel_that_leaves_out_a_vector_is_found(monkeypatch, device, by, way, depths):
    replace_kernels(monkeypatch, device, [f"{way}_{depth}" for depth in depths], by)
    streams = streams_of(device.with_peer(RAGGED))
    for stream in (streams[f"p2p_gpu1_{way}"], streams[f"p2p_gpu1_{way}_both"]):
        with pytest.raises(ArithmeticError, match="peer"):
            stream.verify(next(iter(stream.grids)))


def test_a_copy_that_does_not_arrive_is_found_in_either_direction(monkeypatch, device, pair):
    runtime = device.xp.cuda.runtime
    copy = runtime.memcpyPeerAsync
    streams = streams_of(pair)
    for lost in (0, 1):

        def losing(destination, to, source, card, size, stream, lost=lost):
            copy(destination, to, source, card, size if card != lost else size - 4, stream)

        monkeypatch.setattr(runtime, "memcpyPeerAsync", losing)
        with pytest.raises(ArithmeticError, match="differs from its source"):
            streams["p2p_gpu1_both"].verify("the driver's copy")


def test_loads_that_lead_elsewhere_are_found(monkeypatch, device, pair):
    replace_kernels(monkeypatch, device, ["chase"], Short)
    with pytest.raises(ArithmeticError, match="did not lead"):
        pair.chase()[2]()


def test_8_bytes_are_timed_as_a_load_of_many_and_as_a_copy(device, pair):
    load, copy = latencies(device, pair, **OPTIONS)
    assert (load.name, load.bytes, copy.name, copy.bytes) == ("load", 8, "copy", 8)
    assert 0 < load.timing.median_s < copy.timing.median_s < 0.01
    assert "4096 times" in load.timing.method and load.verified and copy.verified


def test_without_access_to_one_another_nothing_is_measured(monkeypatch, device):
    """The driver would copy through the host."""
    monkeypatch.setenv("FAKE_NO_PEER_ACCESS", "1")
    with pytest.raises(Unsupported, match="gpu0 and gpu1 may not access one another's memory"):
        device.with_peer(RAGGED)


def test_a_second_slice_that_cuda_does_not_show_is_told(monkeypatch, device):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1")
    with pytest.raises(Unsupported, match="only one of gpu0 and gpu1"):
        device.with_peer(RAGGED)


# ---------------------------------------------------------------------------------------------- how they are connected

A, B = nvml_card("GPU-A", "0000:01:00.0"), nvml_card("GPU-B", "0000:02:00.0")


def test_links_to_a_switch_lead_to_every_card(monkeypatch):
    monkeypatch.setenv("FAKE_NVLINKS", "18")
    use_nvml(monkeypatch, A, B)
    assert nvml.path_between(A, B) == {
        "path": "nvlink",
        "nvlinks": 18,
        "nvlink_version": "4.0",
        "nvlinks_down": [],
        "pcie_ancestor": "node",
    }


def test_a_link_that_is_down_is_named(monkeypatch):
    monkeypatch.setenv("FAKE_NVLINKS", "18")
    monkeypatch.setenv("FAKE_DOWN", "7")
    use_nvml(monkeypatch, A, B)
    known = nvml.path_between(A, B)
    assert (known["nvlinks"], known["nvlinks_down"]) == (17, [7])


@pytest.mark.parametrize(("remote", "links"), [(B.bus, 4), (A.bus, 0)])
def test_links_between_cards_lead_to_the_one_at_their_end(monkeypatch, remote, links):
    monkeypatch.setenv("FAKE_NVLINKS", "4")
    fake = use_nvml(monkeypatch, A, B)
    monkeypatch.setattr(fake, "nvmlDeviceGetNvLinkRemoteDeviceType", lambda one, link: fake.NVML_NVLINK_DEVICE_TYPE_GPU)
    monkeypatch.setattr(fake, "nvmlDeviceGetNvLinkRemotePciInfo", lambda one, link: SimpleNamespace(busId=remote))
    assert nvml.path_between(A, B)["nvlinks"] == links


def test_without_nvlink_the_path_is_pcie_and_without_nvml_not_known(monkeypatch):
    use_nvml(monkeypatch, A, B)
    unknown = {"nvlinks": None, "nvlink_version": None}
    assert nvml.path_between(A, B) == unknown | {"path": "pcie", "pcie_ancestor": "node"}
    assert set(nvml.path_between(A, None).values()) == {None}


def test_the_vendors_figure_is_of_the_links_that_lead_to_the_peer(monkeypatch, device):
    monkeypatch.setattr(device, "hardware", lambda: {"nvlinks_active": 12})
    monkeypatch.setattr(device, "path_to_peer", lambda: {"path": "nvlink", "nvlinks": 4})
    streams = streams_of(device.with_peer(RAGGED))
    assert streams["p2p_gpu1"].nvlink_share == pytest.approx(4 / 12)
    assert streams["p2p_gpu1_both"].nvlink_share == pytest.approx(8 / 12)


@pytest.mark.parametrize(("path", "held"), [("nvlink", []), ("pcie", [lock.HOST_PATH]), (None, [lock.HOST_PATH])])
def test_over_pcie_no_other_cards_transfers_run_meanwhile(monkeypatch, device, path, held):
    taken = []
    monkeypatch.setattr(lock, "measuring", lambda uses: taken.append(list(uses)) or contextlib.nullcontext())
    monkeypatch.setattr(device, "path_to_peer", lambda: dict.fromkeys(UNTOLD) | {"path": path})
    monkeypatch.setattr(device, "with_peer", lambda size: SimpleNamespace(streams=lambda: []))
    monkeypatch.setattr(bandwidth, "latencies", lambda *given, **options: [])
    bandwidth.between(device, None, RAGGED, OPTIONS)
    assert taken == [held]
