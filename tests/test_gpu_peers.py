"""Traffic between two GPUs, on stand-ins that share one memory."""

from types import SimpleNamespace

import pytest
from fake_gpu import MIB, nvml_card, open_gpu, use_nvml

from roofline.devices.gpu import nvml

RAGGED = MIB // 4 + 32 * 7
ONE_WAY = ("p2p_gpu1", "p2p_gpu1_read", "p2p_gpu1_write")


@pytest.fixture
def device(monkeypatch):
    return open_gpu(monkeypatch, multiProcessorCount=2, peer=True)


@pytest.fixture
def pair(device):
    return device.with_peer(RAGGED)


def streams_of(pair) -> dict:
    return {stream.name: stream for stream in pair.streams()}


def test_six_ways_are_counted_and_checked(pair):
    streams = streams_of(pair)
    assert list(streams) == [name + both for name in ONE_WAY for both in ("", "_both")]
    for name, stream in streams.items():
        assert stream.counted_bytes == RAGGED * (2 if name.endswith("_both") else 1) and stream.level == "p2p"
        assert all(stream.verify(grid) for grid in stream.grids)
    step, _, verify = pair.chase()
    step(0)
    assert verify() and pair.small_copy()[1]()


A, B = nvml_card("GPU-A", "0000:01:00.0"), nvml_card("GPU-B", "0000:02:00.0")


def test_the_path_between_two_cards(monkeypatch):
    fake = use_nvml(monkeypatch, A, B)
    unknown = {"nvlinks": None, "nvlink_version": None}
    assert nvml.path_between(A, B) == unknown | {"path": "pcie", "pcie_ancestor": "node"}
    assert set(nvml.path_between(A, None).values()) == {None}
    monkeypatch.setenv("FAKE_NVLINKS", "18")  # to a switch, which leads to every card
    monkeypatch.setenv("FAKE_DOWN", "7")
    known = {"path": "nvlink", "nvlinks": 17, "nvlink_version": "4.0", "nvlinks_down": [7], "pcie_ancestor": "node"}
    assert nvml.path_between(A, B) == known
    monkeypatch.setattr(fake, "nvmlDeviceGetNvLinkRemoteDeviceType", lambda one, link: fake.NVML_NVLINK_DEVICE_TYPE_GPU)
    for remote, links in ((B.bus, 17), (A.bus, 0)):  # the card at the end of each link
        end = SimpleNamespace(busId=remote)
        monkeypatch.setattr(fake, "nvmlDeviceGetNvLinkRemotePciInfo", lambda one, link, end=end: end)
        assert nvml.path_between(A, B)["nvlinks"] == links
