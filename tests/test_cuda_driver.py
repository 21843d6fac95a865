"""What CUDA's driver reports of the cards, by a library of Python functions in the place of libcuda.so.1."""

import ctypes
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from roofline.devices.gpu import cuda_driver

REFUSED = 801
# Attributes by their numbers: multiprocessors, L2, PCI domain, bus and device, compute capability.
H200 = {"name": b"NVIDIA H200", "uuid": bytes(range(16)), "memory": 150_754_820_096}
H200 |= {16: 132, 38: 62_914_560, 50: 0, 33: 0x17, 34: 0, 75: 9, 76: 0}
CARD = cuda_driver.Card(
    name="NVIDIA H200",
    uuid="GPU-00010203-0405-0607-0809-0a0b0c0d0e0f",
    memory_total_bytes=150_754_820_096,
    compute_capability="9.0",
    multiprocessors=132,
    l2_bytes=62_914_560,
    pci_bus_id="0000:17:00.0",
)


def fake_cuda(*cards, missing=(), init=0, version=13000, first_handle=0):
    """The driver's functions for such cards; what a card lacks is refused, and functions in `missing` are not there."""

    def write(pointer, value):
        if value is None:
            return REFUSED
        if isinstance(value, bytes):
            ctypes.memmove(pointer._obj, value, len(value))
        else:
            pointer._obj.value = value
        return 0

    def of(device, *facts):
        found = (cards[device - first_handle].get(fact) for fact in facts)
        return next((value for value in found if value is not None), None)

    def name(pointer, size, device):
        return write(pointer, of(device, "name") and of(device, "name")[: size - 1] + b"\0")

    functions = {
        "cuInit": lambda flags: init,
        "cuDriverGetVersion": lambda pointer: write(pointer, version),
        "cuDeviceGetCount": lambda pointer: write(pointer, len(cards)),
        "cuDeviceGet": lambda pointer, ordinal: write(pointer, first_handle + ordinal),
        "cuDeviceGetName": name,
        "cuDeviceGetUuid_v2": lambda pointer, device: write(pointer, of(device, "uuid")),
        "cuDeviceGetUuid": lambda pointer, device: write(pointer, of(device, "cards_uuid", "uuid")),
        "cuDeviceTotalMem_v2": lambda pointer, device: write(pointer, of(device, "memory")),
        "cuDeviceGetAttribute": lambda pointer, attribute, device: write(pointer, of(device, attribute)),
    }
    return SimpleNamespace(**{name: function for name, function in functions.items() if name not in missing})


@pytest.mark.parametrize("first_handle", [0, 40])
@pytest.mark.parametrize(
    ("refused", "unknown"),
    [
        ([], []),
        (["name"], ["name"]),
        (["uuid"], ["uuid"]),
        (["memory"], ["memory_total_bytes"]),
        ([76], ["compute_capability"]),
        ([16, 38], ["multiprocessors", "l2_bytes"]),
        ([33], ["pci_bus_id"]),
        (list(H200), CARD._fields),
    ],
)
def test_what_the_driver_reports_of_a_card_and_none_for_what_it_refuses(first_handle, refused, unknown):
    """A card is asked for by its handle, which need not be its number."""
    found = cuda_driver.cards_of(fake_cuda(H200 | dict.fromkeys(refused), first_handle=first_handle))
    assert found == [CARD._replace(**dict.fromkeys(unknown))]


def test_cards_in_pci_order_and_those_without_an_address_last():
    addresses = [(1, 0x01, 0), (0, 0xCA, 0), (None, 0x02, 0), (0, 0x17, 1), (0, 0x17, 0)]
    cards = [H200 | {50: domain, 33: bus, 34: slot} for domain, bus, slot in addresses]
    found = cuda_driver.cards_of(fake_cuda(*cards))
    assert [one.pci_bus_id for one in found] == ["0000:17:00.0", "0000:17:01.0", "0000:ca:00.0", "0001:01:00.0", None]


SLICE = H200 | {"name": b"NVIDIA H200 MIG 1g.18gb", "uuid": bytes(16), "cards_uuid": bytes(range(16))}


@pytest.mark.parametrize(
    ("card", "missing", "uuid"),
    [
        (H200, ["cuDeviceGetUuid_v2"], CARD.uuid),
        (H200, ["cuDeviceGetUuid_v2", "cuDeviceGetUuid"], None),
        (SLICE, [], "MIG-00000000-0000-0000-0000-000000000000"),
        (SLICE, ["cuDeviceGetUuid_v2"], CARD.uuid),
    ],
)
def test_the_uuid_by_either_version_and_a_slices_own_by_the_second(card, missing, uuid):
    assert [one.uuid for one in cuda_driver.cards_of(fake_cuda(card, missing=missing))] == [uuid]


@pytest.mark.parametrize(
    "library",
    [
        fake_cuda(),
        fake_cuda(H200, init=100),  # CUDA_VISIBLE_DEVICES is empty
        fake_cuda(H200, missing=["cuDeviceGetCount"]),
        SimpleNamespace(),
    ],
)
def test_a_driver_that_shows_no_card(library):
    assert cuda_driver.cards_of(library) == []


@pytest.mark.parametrize(("version", "newest"), [(13000, 13000), (0, None), (None, None)])
def test_the_newest_cuda_of_the_driver(monkeypatch, version, newest):
    monkeypatch.setattr(cuda_driver, "_library", lambda: fake_cuda(version=version))
    assert cuda_driver.driver_cuda_version() == newest


# ---------------------------------------------------------------------------------------------- in a process of its own


@pytest.mark.parametrize(
    ("answer", "cards"),
    [
        (json.dumps([CARD._asdict()]).encode(), [CARD]),
        (b"", []),
        (b"3", []),
        (b'[{"name": "of another version"}]', []),
        (OSError("cannot fork"), []),
        (subprocess.TimeoutExpired("python", 1), []),
        (subprocess.CalledProcessError(-11, "python"), []),
    ],
)
def test_cards_are_asked_for_in_another_process_and_where_it_fails_there_are_none(monkeypatch, answer, cards):
    def run(command, **options):
        assert options["env"]["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID" and options["timeout"] > 0
        assert Path(command[0]).is_file() and command[-1] == cuda_driver.__file__
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(stdout=answer)

    monkeypatch.setattr(cuda_driver, "_library", fake_cuda)
    monkeypatch.setattr(subprocess, "run", run)
    assert cuda_driver.cards() == cards


def test_without_a_driver_there_is_neither_a_card_nor_another_process(monkeypatch):
    monkeypatch.setattr(cuda_driver, "LIBRARY", "libcuda-that-is-not-here.so.1")
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **options: pytest.fail("another process was started"))
    assert (cuda_driver.cards(), cuda_driver.driver_cuda_version()) == ([], None)


def test_the_other_process_needs_no_package_of_ours(monkeypatch, tmp_path):
    """It runs the file alone, whatever the folder and Python's own variables say, and sees no card that is hidden."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "json.py").write_text("raise ImportError")
    command = [sys.executable, "-I", "-S", cuda_driver.__file__]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
