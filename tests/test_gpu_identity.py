"""Which GPUs are present and usable, and their state, by NVML and the CUDA driver, before any is opened."""

import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
from fake_gpu import nvml_card, use_nvml

from roofline.devices.gpu import cuda_driver, gpu_identity, nvml

card = nvml_card
A, B, C = card("GPU-aaaa-1", "0000:17:00.0"), card("GPU-bbbb-1", "0000:65:00.0"), card("GPU-bbcc-1", "0000:CA:00.0")
MIG_1, MIG_2 = card("MIG-1111", None), card("MIG-2222", None)
SLICED = card("GPU-dddd-1", "0000:01:00.0", MIG_1, MIG_2)


def test_visible_gpus_in_pci_order(monkeypatch):
    whole, sliced = (C, A, B), (A, SLICED)
    for visible, cards, expected in (
        (None, whole, [A, B, C]),
        ("1,0", whole, [A, B]),
        (" 0 , 2 ", whole, [A, C]),
        *((entry, whole, []) for entry in ("", "-1", "GPU-aaaa-1-and-more", "aaaa")),
        ("0,9,1", whole, [A]),  # an entry that names nothing ends the list, as in CUDA
        ("GPU-bbcc", whole, [C]),
        (None, sliced, [MIG_1, MIG_2, A]),
        ("1", sliced, [A]),
        ("MIG-2222,GPU-aaaa", sliced, [MIG_2, A]),
    ):
        use_nvml(monkeypatch, *cards, visible=visible)
        assert nvml.visible_gpus() == expected
        assert [nvml.read_facts(gpu)["mig_slice"] for gpu in expected] == [gpu in (MIG_1, MIG_2) for gpu in expected]


STATE = {"sm_clock_mhz": 1979, "memory_clock_mhz": 3200, "temperature_c": 40, "throttle_reasons": []}
STATE |= {"power_w": 300.5, "power_reading": "instant", "other_processes": 0}
FACTS = {"sm_clock_max_mhz": 1980, "sm_clock_now_mhz": 1979, "memory_clock_max_mhz": 3201, "memory_clock_now_mhz": 3200}
FACTS |= {"memory_bus_width_bits": 6144, "vbios": "96.00.A5.00.01", "power_limit_w": 700, "slowdown_temperature_c": 89}
FACTS |= {"ecc_enabled": True, "mig_enabled": False, "mig_slice": False, "persistence_mode": True, "nvlinks_active": 0}
FACTS |= {"pcie_generation_now": 4, "pcie_generation_max": 5, "pcie_width_now": 8, "pcie_width_max": 16}
FACTS |= {"ecc_uncorrected_errors": 0, "ecc_uncorrected_errors_ever": 2, "ecc_corrected_errors": 0}
FACTS |= {"row_remap_pending": False, "row_remap_failed": False, "remapped_rows": 3}
FACTS |= {"page_retirement_pending": False, "retired_pages": 0}
NO_CLOCK = {"sm_clock_mhz", "memory_clock_mhz", "sm_clock_now_mhz", "memory_clock_now_mhz"}


def test_readings_in_their_units_and_a_refused_one_is_null(monkeypatch):
    use_nvml(monkeypatch, A)
    assert (nvml.read_state(A), nvml.read_facts(A)) == (STATE, FACTS)
    assert nvml.read_host_link(A) == {"pcie_generation": 4, "pcie_width": 8}
    for refused, instead in (
        (["ClockInfo"], dict.fromkeys(NO_CLOCK)),
        (["ComputeRunningProcesses"], {"other_processes": None}),
        (["EnforcedPowerLimit"], {"power_limit_w": None}),
        (["RemappedRows"], dict.fromkeys(("row_remap_pending", "row_remap_failed", "remapped_rows"))),
        (["FieldValues"], {"power_w": 290.0, "power_reading": "average"}),  # as an older driver
        (["FieldValues", "PowerUsage"], dict.fromkeys(("power_w", "power_reading"))),
    ):
        use_nvml(monkeypatch, A, refused=[f"DeviceGet{query}" for query in refused])
        assert nvml.read_state(A) | nvml.read_facts(A) == STATE | FACTS | instead, refused


def test_other_processes_are_counted_unless_they_are_of_another_namespace(monkeypatch):
    module, pids = use_nvml(monkeypatch, A), [os.getpid(), 1, 2]
    module.nvmlDeviceGetComputeRunningProcesses = lambda card: [SimpleNamespace(pid=pid) for pid in pids]
    assert nvml.read_state(A)["other_processes"] == 2
    pids.remove(os.getpid())
    assert nvml.read_state(A)["other_processes"] is None
    pids.clear()
    assert nvml.read_state(A)["other_processes"] == 0


PACKAGES = ("cupy-cuda12x", "cupy-cuda13x", None)
CUPY_12, CUPY_13, NO_CUPY = ({"cupy": package and "14.2.0", "cupy_package": package} for package in PACKAGES)
CARD = cuda_driver.VisibleGpu("NVIDIA H200", "GPU-1", 150_100_000_000, "9.0", 132, 60 << 20)


@pytest.fixture
def machine(monkeypatch):
    """The identities of a machine with these cards by NVML (None: it does not answer) and by CUDA, with CuPy."""

    def discover(*cards, cuda_cards=(), versions=CUPY_12, **options):
        nvml = use_nvml(monkeypatch, *[card for card in cards if card], **options)
        if None in cards:
            nvml.REFUSED.add("Init")
        monkeypatch.setattr(cuda_driver, "query_visible_gpus", lambda: list(cuda_cards))
        monkeypatch.setattr(cuda_driver, "driver_cuda_version", lambda: 13000 if cuda_cards else None)
        monkeypatch.setattr(gpu_identity, "_library_versions", lambda: dict(versions))
        return gpu_identity.discover()

    return discover


def test_the_identity_of_a_visible_card_and_of_another_power_limit(machine):
    (identity,) = machine(A, B, visible="1")
    assert (identity.device, identity.kind, identity.name) == ("gpu0", "gpu", "NVIDIA H200")
    assert (identity.uuid, identity.nvml, identity.fault) == ("GPU-bbbb-1", True, None)
    assert (identity.driver, identity.compute_capability) == ("580.159.04", "9.0")
    assert (identity.memory_total_bytes, identity.memory_free_bytes) == (150_754_820_096, 150_000_000_000)
    sys.modules["pynvml"].nvmlDeviceGetEnforcedPowerLimit = lambda card: 500_000
    (limited,) = gpu_identity.discover()
    assert limited.rerun_key() != identity.rerun_key()


def test_a_card_whose_name_is_in_no_encoding_and_which_is_too_old(machine):
    machine(A)
    sys.modules["pynvml"].nvmlDeviceGetName = lambda card: b"\xf8".decode()
    sys.modules["pynvml"].nvmlDeviceGetCudaComputeCapability = lambda card: (6, 1)
    (identity,) = gpu_identity.discover()
    assert identity.fault == "unknown GPU has compute capability 6.1, and 7.0 is needed; leave it out of 'devices'"


def test_cuda_reports_multiprocessors_and_cache_and_fills_in_what_nvml_refuses(machine, monkeypatch):
    smaller = CARD._replace(uuid="MIG-1111", multiprocessors=16, l2_bytes=7 << 20)
    identities = machine(A, SLICED, cuda_cards=[CARD._replace(uuid="GPU-aaaa-1"), smaller])
    sizes = {identity.uuid: (identity.multiprocessors, identity.last_level_cache_bytes) for identity in identities}
    assert sizes == {"GPU-aaaa-1": (132, 60 << 20), "MIG-1111": (16, 7 << 20), "MIG-2222": (None, 192 << 20)}
    unlisted, listed = machine(A, B, cuda_cards=[CARD._replace(uuid="GPU-bbbb-1")], refused=["DeviceGetMemoryInfo"])
    assert unlisted.fault and listed.fault is None and listed.memory_total_bytes == 150_100_000_000
    card, mig = machine(None, cuda_cards=[CARD, smaller])
    assert [(card.device, card.uuid), (mig.device, mig.uuid)] == [("gpu0", "GPU-1"), ("gpu1", "MIG-1111")]
    assert (card.nvml, card.driver, card.setting, card.fault, mig.fault) == (False, None, "", None, None)
    assert (card.memory_free_bytes, card.compute_capability, mig.multiprocessors) == (150_100_000_000, "9.0", 16)
    assert machine(None) == [], "without a driver there is none"
    monkeypatch.undo()
    monkeypatch.setattr(cuda_driver, "_load_driver", lambda: SimpleNamespace(cuDriverGetVersion=lambda number: 34))
    assert cuda_driver.driver_cuda_version() is None, "of the toolkit's stub"


# A driver with two cards: one of 8 GB, and a MIG slice of 1 GB.
DRIVER = r"""
#include <stdlib.h>
#include <string.h>
int cuInit(unsigned flags) { return getenv("STATUS") ? atoi(getenv("STATUS")) : 0; }
int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
int cuDeviceGetCount(int* count) { return *count = 2, 0; }
int cuDeviceGet(int* device, int ordinal) { return *device = ordinal, getenv("LOST") && ordinal ? 999 : 0; }
int cuDeviceGetName(char* name, int n, int device) { return strcpy(name, device ? "A MIG 1g.1gb" : "A\x1b[1mcard"), 0; }
int cuDeviceGetUuid_v2(unsigned char* uuid, int device) { return memset(uuid, 0xaa + device, 16), 0; }
int cuDeviceTotalMem_v2(unsigned long* bytes, int device) { return *bytes = device ? 1000000000 : 8000000000, 0; }
int cuDeviceGetAttribute(int* value, int key, int device) { return *value = key == 75 ? 9 : key == 76 ? 0 : key, 0; }
"""
UUID = "GPU-aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"


@pytest.fixture
def driver(monkeypatch, tmp_path) -> None:
    if not shutil.which("cc"):
        pytest.skip("needs a C compiler")
    (tmp_path / "driver.c").write_text(DRIVER)
    library = str(tmp_path / "libcuda.so.1")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, str(tmp_path / "driver.c")], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))  # for the program
    monkeypatch.setattr(cuda_driver, "DRIVER_LIBRARY", library)  # for this process, which has read the variable


def test_cuda_is_asked_by_the_program_that_is_started_for_it(driver, monkeypatch):
    """NVML does not answer, as in some containers, or refuses the memory alone, as on a GB10 and in a MIG slice."""
    use_nvml(monkeypatch, refused=["Init"])
    card, mig = gpu_identity.discover()
    assert (card.device, card.name, card.uuid, card.compute_capability) == ("gpu0", "A [1mcard", UUID, "9.0")
    assert (card.memory_free_bytes, card.multiprocessors, card.last_level_cache_bytes) == (8_000_000_000, 16, 38)
    assert (mig.uuid[:8], mig.memory_free_bytes) == ("MIG-abab", 1_000_000_000)
    use_nvml(monkeypatch, nvml_card(UUID, "0000:17:00.0"), refused=["DeviceGetMemoryInfo"])
    (refused,) = gpu_identity.discover()
    assert (refused.name, refused.memory_free_bytes) == ("NVIDIA H200", 8_000_000_000)


@pytest.mark.parametrize(("status", "remedy"), [("802", "fabricmanager"), ("803", "restart"), ("999", "nvidia-uvm")])
def test_a_cuda_that_does_not_start_is_a_fault_of_every_card(driver, monkeypatch, tmp_path, status, remedy):
    monkeypatch.setenv("STATUS", status)
    monkeypatch.setattr(gpu_identity, "_library_versions", lambda: CUPY_12)
    use_nvml(monkeypatch, A, B)
    faults = [identity.fault for identity in gpu_identity.discover()]
    assert len(faults) == 2 and all(status in fault and remedy in fault for fault in faults)
    use_nvml(monkeypatch, refused=["Init"])
    assert gpu_identity.discover() == [] and remedy in gpu_identity.no_gpu_reason()
    monkeypatch.setenv("STATUS", str(cuda_driver.NO_DEVICE))
    assert cuda_driver.query_visible_gpus() == []
    monkeypatch.delenv("STATUS")
    monkeypatch.setenv("LOST", "1")
    assert [gpu.uuid for gpu in cuda_driver.query_visible_gpus()] == [UUID], "a card that is lost costs no other"


def test_a_card_that_no_longer_answers_is_named_and_left_out(monkeypatch):
    nvml_module = use_nvml(monkeypatch, A, B, C)
    answer = nvml_module.nvmlDeviceGetUUID

    def lose(patched, asked: str, lost, status):
        def ask(what):
            if what == lost:
                raise nvml_module.NVMLError(status)
            return answer(what) if asked == "UUID" else (A, B, C)[what]

        patched.setattr(nvml_module, f"nvmlDeviceGet{asked}", ask)

    for asked, lost in (("HandleByIndex", 1), ("UUID", B)):
        with monkeypatch.context() as patched:
            lose(patched, asked, lost, nvml_module.NVML_ERROR_GPU_IS_LOST)
            (line,) = gpu_identity.list_lost_gpus()
            assert "GPU 1 " in line and nvml.visible_gpus() == [A, C]
            lose(patched, asked, lost, 4)  # no permission, as in a container with some of the cards
            assert gpu_identity.list_lost_gpus() == []
    use_nvml(monkeypatch, A, B, C)
    assert gpu_identity.list_lost_gpus() == []


def test_without_a_driver_the_program_lists_no_card():
    command = [sys.executable, "-I", "-S", cuda_driver.__file__]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "ModuleNotFoundError" not in done.stderr and done.stdout in ("[]\n", "")


@pytest.mark.gpu
def test_cuda_and_nvml_list_the_same_cards():
    by_cuda = {gpu.uuid for gpu in cuda_driver.query_visible_gpus()}
    assert by_cuda == {identity.uuid for identity in gpu_identity.discover()}


@pytest.mark.parametrize(
    ("versions", "cuda", "remedy"),
    [
        (CUPY_12, 13000, None),
        (CUPY_12 | {"cupy_package": "cupy"}, 12040, None),
        (CUPY_13, None, None),
        (NO_CUPY, 13000, "envs/cuda12.txt"),
        (CUPY_13, 12080, "envs/cuda12.txt"),
        (NO_CUPY, 11080, "525"),
    ],
)
def test_whether_the_driver_runs_this_cupy_or_the_remedy(versions, cuda, remedy):
    fault = gpu_identity.cupy_fault(versions, cuda, "550.1")
    assert remedy in fault if remedy else fault is None
