"""What the CUDA driver reports of the cards, by Python functions in place of libcuda.so.1."""

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
H200 = {"name": b"NVIDIA H200\0", "uuid": bytes(range(16)), "memory": 150_754_820_096}
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
    """The functions of the driver for these cards; what a card lacks is refused, and `missing` functions are absent."""

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

    functions = {
        "cuInit": lambda flags: init,
        "cuDriverGetVersion": lambda pointer: write(pointer, version),
        "cuDeviceGetCount": lambda pointer: write(pointer, len(cards)),
        "cuDeviceGet": lambda pointer, ordinal: write(pointer, first_handle + ordinal),
        "cuDeviceGetName": lambda pointer, size, device: write(pointer, of(device, "name")),
        "cuDeviceGetUuid_v2": lambda pointer, device: write(pointer, of(device, "uuid")),
        "cuDeviceGetUuid": lambda pointer, device: write(pointer, of(device, "cards_uuid", "uuid")),
        "cuDeviceTotalMem_v2": lambda pointer, device: write(pointer, of(device, "memory")),
        "cuDeviceGetAttribute": lambda pointer, attribute, device: write(pointer, of(device, attribute)),
    }
    return SimpleNamespace(**{name: function for name, function in functions.items() if name not in missing})


SLICE = H200 | {"name": b"NVIDIA H200 MIG 1g.18gb\0", "uuid": bytes(16), "cards_uuid": bytes(range(16))}
V2, V1 = "cuDeviceGetUuid_v2", "cuDeviceGetUuid"


def test_refused_readings_of_a_card_are_none():
    fields = {"name": ["name"], "uuid": ["uuid"], "memory": ["memory_total_bytes"], 76: ["compute_capability"]}
    fields |= {16: ["multiprocessors"], 38: ["l2_bytes"], 33: ["pci_bus_id"]}
    for first_handle in (0, 40):  # a card is queried by its handle, which need not be its number
        for refused in ([], *([one] for one in fields), list(H200)):
            unknown = CARD._fields if len(refused) > 1 else fields[refused[0]] if refused else []
            library = fake_cuda(H200 | dict.fromkeys(refused), first_handle=first_handle)
            assert cuda_driver.cards_of(library) == [CARD._replace(**dict.fromkeys(unknown))]


def test_cards_are_in_pci_order_and_those_without_an_address_last():
    addresses = [(1, 0x01, 0), (0, 0xCA, 0), (None, 0x02, 0), (0, 0x17, 1), (0, 0x17, 0)]
    found = cuda_driver.cards_of(fake_cuda(*(H200 | {50: one, 33: bus, 34: slot} for one, bus, slot in addresses)))
    assert [one.pci_bus_id for one in found] == ["0000:17:00.0", "0000:17:01.0", "0000:ca:00.0", "0001:01:00.0", None]


@pytest.mark.parametrize(
    ("library", "uuids"),
    [
        (fake_cuda(H200, missing=[V2]), [CARD.uuid]),
        (fake_cuda(H200, missing=[V2, V1]), [None]),
        (fake_cuda(SLICE), ["MIG-00000000-0000-0000-0000-000000000000"]),
        (fake_cuda(SLICE, missing=[V2]), [CARD.uuid]),  # only the second version reports that of a slice
        (fake_cuda(), []),
        (fake_cuda(H200, init=100), []),  # CUDA_VISIBLE_DEVICES is empty
        (fake_cuda(H200, missing=["cuDeviceGetCount"]), []),
        (SimpleNamespace(), []),
    ],
)
def test_uuids_of_the_cards_of_a_driver(library, uuids):
    assert [one.uuid for one in cuda_driver.cards_of(library)] == uuids


def test_the_newest_cuda_of_the_driver(monkeypatch):
    for version, newest in ((13000, 13000), (0, None), (None, None)):
        monkeypatch.setattr(cuda_driver, "_library", lambda version=version: fake_cuda(version=version))
        assert cuda_driver.driver_cuda_version() == newest


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
def test_another_process_asks_the_driver_and_its_failure_means_no_cards(monkeypatch, answer, cards):
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
    """It runs the file alone, whatever the folder and the variables of Python, and sees no hidden card."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "json.py").write_text("raise ImportError")
    command = [sys.executable, "-I", "-S", cuda_driver.__file__]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
