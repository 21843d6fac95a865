"""What the CUDA driver reports of the cards, by Python functions in place of libcuda.so.1."""

import ctypes
import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from roofline.devices.gpu import cuda_driver

# Attributes by their numbers: multiprocessors, L2, compute capability.
H200 = {"name": b"NVIDIA H200\0", "uuid": bytes(range(16)), "memory": 150_754_820_096}
H200 |= {16: 132, 38: 62_914_560, 75: 9, 76: 0}
SLICE = H200 | {"name": b"NVIDIA H200 MIG 1g.18gb\0", "uuid": bytes(16), 16: 16}
CARD = cuda_driver.Card(
    name="NVIDIA H200",
    uuid="GPU-00010203-0405-0607-0809-0a0b0c0d0e0f",
    memory_total_bytes=150_754_820_096,
    compute_capability="9.0",
    multiprocessors=132,
    l2_bytes=62_914_560,
)


def fake_cuda(*cards, init=0, first_handle=40):
    """The functions of the driver for these cards, whose handles are not their numbers."""

    def write(pointer, value):
        if isinstance(value, bytes):
            ctypes.memmove(pointer._obj, value, len(value))
        else:
            pointer._obj.value = value
        return 0

    def of(device, fact):
        return cards[device - first_handle][fact]

    return SimpleNamespace(
        cuInit=lambda flags: init,
        cuDriverGetVersion=lambda pointer: write(pointer, 13000),
        cuDeviceGetCount=lambda pointer: write(pointer, len(cards)),
        cuDeviceGet=lambda pointer, ordinal: write(pointer, first_handle + ordinal),
        cuDeviceGetName=lambda pointer, size, device: write(pointer, of(device, "name")),
        cuDeviceGetUuid_v2=lambda pointer, device: write(pointer, of(device, "uuid")),
        cuDeviceTotalMem_v2=lambda pointer, device: write(pointer, of(device, "memory")),
        cuDeviceGetAttribute=lambda pointer, attribute, device: write(pointer, of(device, attribute)),
    )


def test_the_cards_and_the_newest_cuda_of_a_driver(monkeypatch):
    of_slice = CARD._replace(
        name="NVIDIA H200 MIG 1g.18gb", uuid="MIG-00000000-0000-0000-0000-000000000000", multiprocessors=16
    )
    assert cuda_driver.cards_of(fake_cuda(H200, SLICE)) == [CARD, of_slice]
    with pytest.raises(OSError):
        cuda_driver.cards_of(fake_cuda(init=100))  # CUDA_VISIBLE_DEVICES is empty
    monkeypatch.setattr(cuda_driver, "_library", fake_cuda)
    assert cuda_driver.driver_cuda_version() == 13000


@pytest.mark.parametrize(
    ("answer", "cards"),
    [
        (json.dumps([CARD._asdict()]).encode(), [CARD]),
        (OSError("cannot fork"), []),
        (subprocess.TimeoutExpired("python", 1), []),
        (subprocess.CalledProcessError(1, "python"), []),
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
