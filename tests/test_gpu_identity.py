"""Which GPUs there are and whether they can be used, by NVML and CUDA's driver, before anything is opened."""

import re
import sys
from pathlib import Path

import pytest
from fake_gpu import nvml_card as card
from fake_gpu import use_nvml

from roofline.devices import Identity
from roofline.devices.gpu import cuda_driver, identity
from roofline.devices.gpu.device import Device

CHECKOUT = Path(__file__).parents[1]
CUPY_12 = {"cupy": "14.2.0", "cupy_package": "cupy-cuda12x"}
CUPY_13 = {"cupy": "14.2.0", "cupy_package": "cupy-cuda13x"}
NO_CUPY = {"cupy": None, "cupy_package": None}


A, B = card("GPU-aaaa-1", "0000:17:00.0"), card("GPU-bbbb-1", "0000:65:00.0")
SLICED = card("GPU-dddd-1", "0000:01:00.0", card("MIG-1111", None), card("MIG-2222", None))


def by_cuda(uuid, **facts):
    """A card as CUDA's driver tells of it."""
    known = {
        "name": "NVIDIA H200",
        "uuid": uuid,
        "memory_total_bytes": 150_100_000_000,
        "compute_capability": "9.0",
        "multiprocessors": 132,
        "l2_bytes": 60 << 20,
        "pci_bus_id": "0000:17:00.0",
    }
    return cuda_driver.Card(**known | facts)


@pytest.fixture
def machine(monkeypatch):
    """The identities of a machine with these cards by NVML (None: it does not answer), and by CUDA; CuPy is there."""

    def discover(*cards, cuda_cards=(), cuda=13000, versions=CUPY_12, **options):
        nvml = use_nvml(monkeypatch, *[one for one in cards if one], **options)
        if None in cards:
            nvml.REFUSED.add("Init")
        monkeypatch.setattr(cuda_driver, "cards", lambda: list(cuda_cards))
        monkeypatch.setattr(cuda_driver, "driver_cuda_version", lambda: cuda if cuda_cards else None)
        monkeypatch.setattr(identity, "_library_versions", lambda: dict(versions))
        return identity.discover()

    return discover


def test_the_identity_of_a_visible_card(machine):
    (found,) = machine(A, B, visible="1")
    assert (found.device, found.kind, found.name, found.uuid) == ("gpu0", "gpu", "NVIDIA H200", "GPU-bbbb-1")
    assert (found.driver, found.compute_capability, found.nvml, found.fault) == ("580.159.04", "9.0", True, None)
    assert (found.memory_total_bytes, found.memory_free_bytes) == (150_754_820_096, 150_000_000_000)


def test_without_a_driver_there_is_no_gpu(machine, monkeypatch):
    assert machine(None) == []
    monkeypatch.setitem(sys.modules, "pynvml", None)  # as where it is not installed
    assert identity.discover() == []


def test_multiprocessors_and_cache_are_of_the_same_card_by_cuda(machine):
    found = machine(
        A, B, cuda_cards=[by_cuda("GPU-bbbb-1"), by_cuda("GPU-aaaa-1", multiprocessors=114, l2_bytes=50 << 20)]
    )
    assert [(one.uuid, one.multiprocessors, one.last_level_cache_bytes) for one in found] == [
        ("GPU-aaaa-1", 114, 50 << 20),
        ("GPU-bbbb-1", 132, 60 << 20),
    ]
    assert [one.memory_total_bytes for one in found] == [150_754_820_096] * 2, "by NVML"


def test_where_cuda_does_not_tell_of_a_card_the_largest_cache_is_assumed(machine):
    """CUDA sees only the first slice of a cut card."""
    found = machine(SLICED, cuda_cards=[by_cuda("MIG-1111", multiprocessors=16, l2_bytes=7 << 20)])
    assert [(one.uuid, one.multiprocessors, one.last_level_cache_bytes) for one in found] == [
        ("MIG-1111", 16, 7 << 20),
        ("MIG-2222", None, 192 << 20),
    ]
    (found,) = machine(A, cuda_cards=[by_cuda("GPU-aaaa-1", multiprocessors=None, l2_bytes=0)])
    assert (found.multiprocessors, found.last_level_cache_bytes) == (None, 192 << 20)


@pytest.mark.parametrize("installed", [True, False])
def test_a_gpu_that_only_cuda_tells_of_is_measured_too(machine, monkeypatch, installed):
    """As in a container with the compute libraries alone. A slice's name says that it is one."""
    of_slice = by_cuda("MIG-1111", name="NVIDIA H200 MIG 1g.18gb", multiprocessors=16)
    found = machine(None, cuda_cards=[by_cuda("GPU-1"), of_slice])
    if not installed:
        monkeypatch.setitem(sys.modules, "pynvml", None)
        found = identity.discover()
    one, other = found
    assert [(each.device, each.name, each.uuid) for each in found] == [
        ("gpu0", "NVIDIA H200", "GPU-1"),
        ("gpu1", "NVIDIA H200 MIG 1g.18gb", "MIG-1111"),
    ]
    assert (one.nvml, one.driver, one.setting, one.fault, other.fault) == (False, None, "", None, None)
    assert (one.memory_total_bytes, one.memory_free_bytes) == (150_100_000_000, 150_100_000_000)
    assert (one.compute_capability, one.multiprocessors, one.last_level_cache_bytes) == ("9.0", 132, 60 << 20)
    assert other.multiprocessors == 16


@pytest.mark.parametrize("unknown", ["uuid", "memory_total_bytes", "compute_capability"])
def test_a_card_of_which_cuda_alone_tells_too_little_is_at_fault(machine, unknown):
    found, other = machine(None, cuda_cards=[by_cuda("GPU-1")._replace(**{unknown: None}), by_cuda("GPU-2")])
    assert "neither NVML nor CUDA tells" in found.fault and other.fault is None


@pytest.mark.parametrize("refused", ["DeviceGetCudaComputeCapability", "DeviceGetMemoryInfo"])
def test_what_nvml_refuses_is_cudas_word_and_else_the_card_is_at_fault(machine, refused):
    """As of a GB10, whose memory NVML does not report."""
    one, other = machine(A, B, cuda_cards=[by_cuda("GPU-bbbb-1")], refused=[refused])
    assert "neither NVML nor CUDA tells" in one.fault and other.fault is None
    assert other.compute_capability == "9.0"
    assert other.memory_total_bytes == (150_100_000_000 if "Memory" in refused else 150_754_820_096)


@pytest.mark.parametrize(("name", "answer"), [("EnforcedPowerLimit", 500_000), ("EccMode", (0, 0))])
def test_what_an_administrator_sets_is_part_of_the_identity(machine, name, answer):
    """Another power limit or ECC mode makes another roofline, so what was measured before is stale."""
    (before,) = machine(A)
    assert before.setting == "power limit 700.0 W, ECC True"
    setattr(sys.modules["pynvml"], f"nvmlDeviceGet{name}", lambda one: answer)
    (after,) = identity.discover()
    assert after.fingerprint() != before.fingerprint()


def test_the_installed_libraries_are_part_of_the_identity(monkeypatch):
    installed = {"cupy-cuda12x": "14.2.0", "nvidia-cublas-cu12": "12.9.1.4", "nvidia-cublas": "13.1.0"}
    installed |= {"nvidia-cuda-nvrtc-cu12": "12.9.86", "nvidia-cuda-nvrtc": "13.0", "ml_dtypes": "0.5.4"}
    monkeypatch.setattr(identity, "_version", (installed | {"nvmath-python": "1.0.0", "numpy": "2.3.5"}).get)
    use_nvml(monkeypatch, A)
    (found,) = identity.discover()
    assert found.software == {
        "cupy": "14.2.0",
        "cupy_package": "cupy-cuda12x",
        "cublas": "12.9.1.4",
        "numpy": "2.3.5",
        "nvmath": "1.0.0",
        "nvrtc_package": "12.9.86",
        "ml_dtypes": "0.5.4",
    }


# ---------------------------------------------------------------------------------------------- CuPy and the driver


@pytest.mark.parametrize(
    ("versions", "cuda"),
    [
        (CUPY_12, 12000),
        (CUPY_12, 13000),
        (CUPY_13, 13000),
        (CUPY_12 | {"cupy_package": "cupy"}, 12040),
        (CUPY_13, None),
    ],
)
def test_a_cupy_that_the_driver_runs(versions, cuda):
    assert identity.cupy_fault(versions, cuda, "580.1") is None


@pytest.mark.parametrize(
    ("versions", "cuda", "words"),
    [
        (NO_CUPY, 13000, ["CuPy is not installed: pip install -r envs/cuda12.txt", "devices: [cpu]"]),
        (CUPY_13, 12080, ["needs CUDA 13 (driver 580 or newer)", "driver 550.1 runs CUDA 12", "envs/cuda12.txt"]),
        (CUPY_12, 11080, ["the NVIDIA driver 550.1 runs CUDA 11 at most", "install driver 525 or newer"]),
        (NO_CUPY, 11080, ["the NVIDIA driver 550.1 runs CUDA 11 at most", "install driver 525 or newer"]),
    ],
)
def test_a_cupy_that_it_does_not_run_and_the_remedy(versions, cuda, words):
    fault = identity.cupy_fault(versions, cuda, "550.1")
    assert all(word in fault for word in words) and "\n" not in fault
    assert all((CHECKOUT / path).exists() for path in re.findall(r"envs/[\w.]+", fault))
    assert "None" not in identity.cupy_fault(versions, cuda, None)


def test_the_fault_of_cupy_is_the_cards_also_without_nvml(machine):
    for cards in ([A], [None]):
        (found,) = machine(*cards, cuda_cards=[by_cuda("GPU-aaaa-1")], versions=NO_CUPY)
        assert found.fault.startswith("CuPy is not installed")


def test_a_faulty_gpu_is_not_opened():
    faulty = Identity("gpu0", "gpu", "A card", "GPU-1", None, 0, 0, compute_capability="9.0", fault="CuPy is missing")
    with pytest.raises(RuntimeError, match=r"^CuPy is missing$"):
        Device(faulty)
