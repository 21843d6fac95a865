"""Which GPUs are present and usable, by NVML and the CUDA driver, before any is opened."""

import sys

import pytest
from fake_gpu import nvml_card as card
from fake_gpu import use_nvml

from roofline.devices.gpu import cuda_driver, identity
from roofline.devices.gpu.device import Device

CUPY_12 = {"cupy": "14.2.0", "cupy_package": "cupy-cuda12x"}
CUPY_13 = {"cupy": "14.2.0", "cupy_package": "cupy-cuda13x"}
NO_CUPY = {"cupy": None, "cupy_package": None}


A, B = card("GPU-aaaa-1", "0000:17:00.0"), card("GPU-bbbb-1", "0000:65:00.0")
SLICED = card("GPU-dddd-1", "0000:01:00.0", card("MIG-1111", None), card("MIG-2222", None))


def by_cuda(uuid, **facts):
    """A card as the CUDA driver reports it."""
    known = {"name": "NVIDIA H200", "memory_total_bytes": 150_100_000_000, "compute_capability": "9.0"}
    known |= {"multiprocessors": 132, "l2_bytes": 60 << 20}
    return cuda_driver.Card(**known | {"uuid": uuid} | facts)


@pytest.fixture
def machine(monkeypatch):
    """The identities of a machine with these cards by NVML (None: it does not answer) and by CUDA, with CuPy."""

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


def test_multiprocessors_and_cache_are_reported_by_cuda(machine):

    def found(*cards, by):
        return [(one.uuid, one.multiprocessors, one.last_level_cache_bytes) for one in machine(*cards, cuda_cards=by)]

    smaller = by_cuda("GPU-aaaa-1", multiprocessors=114, l2_bytes=50 << 20)
    both = [("GPU-aaaa-1", 114, 50 << 20), ("GPU-bbbb-1", 132, 60 << 20)]
    assert found(A, B, by=[by_cuda("GPU-bbbb-1"), smaller]) == both
    slices = [("MIG-1111", 16, 7 << 20), ("MIG-2222", None, 192 << 20)]
    assert found(SLICED, by=[by_cuda("MIG-1111", multiprocessors=16, l2_bytes=7 << 20)]) == slices


def test_a_gpu_that_only_cuda_reports_is_used_too(machine):
    of_slice = by_cuda("MIG-1111", name="NVIDIA H200 MIG 1g.18gb", multiprocessors=16)
    one, other = machine(None, cuda_cards=[by_cuda("GPU-1"), of_slice])
    assert [(one.device, one.uuid), (other.device, other.uuid)] == [("gpu0", "GPU-1"), ("gpu1", "MIG-1111")]
    assert (one.nvml, one.driver, one.setting, one.fault, other.fault) == (False, None, "", None, None)
    assert (one.memory_free_bytes, one.compute_capability, other.multiprocessors) == (150_100_000_000, "9.0", 16)
    assert machine(None) == [], "without a driver there is none"


def test_what_an_administrator_sets_is_part_of_the_identity(machine):
    (before,) = machine(A)
    assert before.setting == "power limit 700.0 W, ECC True"
    sys.modules["pynvml"].nvmlDeviceGetEnforcedPowerLimit = lambda one: 500_000
    (after,) = identity.discover()
    assert after.fingerprint() != before.fingerprint()


@pytest.mark.parametrize(
    ("versions", "cuda", "remedy"),
    [
        (CUPY_12, 13000, None),
        (CUPY_13, 13000, None),
        (CUPY_12 | {"cupy_package": "cupy"}, 12040, None),
        (CUPY_13, None, None),
        (NO_CUPY, 13000, "envs/cuda12.txt"),
        (CUPY_13, 12080, "envs/cuda12.txt"),
        (NO_CUPY, 11080, "525"),
    ],
)
def test_whether_the_driver_runs_this_cupy_or_the_remedy(versions, cuda, remedy):
    for driver in ("550.1", None):
        fault = identity.cupy_fault(versions, cuda, driver)
        assert remedy in fault and "None" not in fault if remedy else fault is None


def test_a_gpu_without_cupy_is_at_fault_and_not_opened(machine):
    for cards in ([A], [None]):
        (found,) = machine(*cards, cuda_cards=[by_cuda("GPU-aaaa-1")], versions=NO_CUPY)
        assert found.fault == identity.cupy_fault(NO_CUPY, 13000, found.driver)
        with pytest.raises(RuntimeError) as raised:
            Device(found)
        assert str(raised.value) == found.fault
