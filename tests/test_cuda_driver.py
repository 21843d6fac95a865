"""What CUDA's driver tells of the cards, by a library of Python functions in the place of libcuda.so.1."""

import ctypes
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from roofline.devices.gpu import cuda_driver

REFUSED = 801
H200 = {
    "name": b"NVIDIA H200",
    "uuid": bytes(range(16)),
    "memory": 150_754_820_096,
    16: 132,
    38: 62_914_560,
    50: 0,
    33: 0x17,
    34: 0,
    75: 9,
    76: 0,
}
TOLD = cuda_driver.Card(
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

    def answering(value, write):
        if value is None:
            return REFUSED
        write(value)
        return 0

    def put(pointer, value):
        pointer._obj.value = value

    def of(device, fact):
        return cards[device - first_handle].get(fact)

    def put_bytes(pointer, value):
        ctypes.memmove(pointer._obj, value, len(value))

    functions = {
        "cuInit": lambda flags: init,
        "cuDriverGetVersion": lambda version_: answering(version, lambda value: put(version_, value)),
        "cuDeviceGetCount": lambda count: answering(len(cards), lambda value: put(count, value)),
        "cuDeviceGet": lambda device, ordinal: answering(first_handle + ordinal, lambda value: put(device, value)),
        "cuDeviceGetName": lambda name, size, device: answering(
            of(device, "name"), lambda value: put_bytes(name, value[: size - 1] + b"\0")
        ),
        "cuDeviceGetUuid_v2": lambda uuid, device: answering(of(device, "uuid"), lambda value: put_bytes(uuid, value)),
        "cuDeviceGetUuid": lambda uuid, device: answering(
            of(device, "cards_uuid") or of(device, "uuid"), lambda value: put_bytes(uuid, value)
        ),
        "cuDeviceTotalMem_v2": lambda size, device: answering(of(device, "memory"), lambda value: put(size, value)),
        "cuDeviceGetAttribute": lambda value_, attribute, device: answering(
            of(device, attribute), lambda value: put(value_, value)
        ),
    }
    return SimpleNamespace(**{name: function for name, function in functions.items() if name not in missing})


@pytest.mark.parametrize("first_handle", [0, 40])
def test_what_is_told_of_a_card(first_handle):
    """A card is asked for by its handle, which need not be its number."""
    assert cuda_driver.cards_of(fake_cuda(H200, first_handle=first_handle)) == [TOLD]


def test_cards_in_pci_order_and_those_without_an_address_last():
    addresses = [(1, 0x01, 0), (0, 0xCA, 0), (None, 0x02, 0), (0, 0x17, 1), (0, 0x17, 0)]
    cards = [H200 | {50: domain, 33: bus, 34: slot} for domain, bus, slot in addresses]
    found = cuda_driver.cards_of(fake_cuda(*cards))
    assert [one.pci_bus_id for one in found] == ["0000:17:00.0", "0000:17:01.0", "0000:ca:00.0", "0001:01:00.0", None]


@pytest.mark.parametrize(
    ("refused", "untold"),
    [
        ("name", ["name"]),
        ("uuid", ["uuid"]),
        ("memory", ["memory_total_bytes"]),
        (75, ["compute_capability"]),
        (76, ["compute_capability"]),
        (16, ["multiprocessors"]),
        (38, ["l2_bytes"]),
        (33, ["pci_bus_id"]),
    ],
)
def test_what_the_driver_refuses_is_none_and_the_rest_stays(refused, untold):
    assert cuda_driver.cards_of(fake_cuda(H200 | {refused: None})) == [TOLD._replace(**dict.fromkeys(untold))]


SLICE = H200 | {"name": b"NVIDIA H200 MIG 1g.18gb", "uuid": bytes(16), "cards_uuid": bytes(range(16))}


@pytest.mark.parametrize(
    ("card", "missing", "uuid"),
    [
        (H200, ["cuDeviceGetUuid_v2"], TOLD.uuid),
        (H200, ["cuDeviceGetUuid"], TOLD.uuid),
        (H200, ["cuDeviceGetUuid_v2", "cuDeviceGetUuid"], None),
        (SLICE, [], "MIG-00000000-0000-0000-0000-000000000000"),
        (SLICE, ["cuDeviceGetUuid_v2"], TOLD.uuid),
    ],
)
def test_the_uuid_by_either_version_and_a_slices_own_by_the_second(card, missing, uuid):
    assert [one.uuid for one in cuda_driver.cards_of(fake_cuda(card, missing=missing))] == [uuid]


@pytest.mark.parametrize(
    "library",
    [
        fake_cuda(),
        fake_cuda(H200, init=100),  # CUDA_VISIBLE_DEVICES is empty
        fake_cuda(H200, missing=["cuInit"]),
        fake_cuda(H200, missing=["cuDeviceGetCount"]),
        fake_cuda(H200, missing=["cuDeviceGet"]),
        SimpleNamespace(),
    ],
)
def test_a_driver_that_shows_no_card(library):
    assert cuda_driver.cards_of(library) == []


def test_a_driver_that_tells_nothing_of_its_card():
    assert cuda_driver.cards_of(fake_cuda({})) == [cuda_driver.Card(*[None] * 7)]


@pytest.mark.parametrize(("version", "told"), [(13000, 13000), (12090, 12090), (0, None), (None, None)])
def test_the_newest_cuda_of_the_driver(monkeypatch, version, told):
    monkeypatch.setattr(cuda_driver, "_library", lambda: fake_cuda(version=version))
    assert cuda_driver.driver_cuda_version() == told


# ---------------------------------------------------------------------------------------------- in a process of its own


@pytest.fixture
def asked(monkeypatch):
    """Answer in the place of the other process; a list of the calls."""
    calls = []

    def install(answer):
        def run(command, **options):
            calls.append((command, options))
            if isinstance(answer, Exception):
                raise answer
            return SimpleNamespace(stdout=answer)

        monkeypatch.setattr(cuda_driver, "_library", fake_cuda)
        monkeypatch.setattr(subprocess, "run", run)
        return calls

    return install


def test_cards_are_asked_for_in_another_process_in_pci_order(asked):
    calls = asked(json.dumps([TOLD._asdict()]).encode())
    assert cuda_driver.cards() == [TOLD]
    ((command, options),) = calls
    assert options["env"]["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID" and options["timeout"] > 0
    assert Path(command[0]).is_file() and command[-1] == cuda_driver.__file__


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"no JSON",
        b"3",
        b'[{"name": "of another version"}]',
        OSError("cannot fork"),
        subprocess.TimeoutExpired("python", 1),
        subprocess.CalledProcessError(-11, "python"),
    ],
)
def test_another_process_that_fails_tells_of_no_card(asked, answer):
    asked(answer)
    assert cuda_driver.cards() == []


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
