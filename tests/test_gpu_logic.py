"""What is decided about a GPU before anything runs on it: which are visible, what they tell, what they can do.

What a compute capability has is in test_capabilities.py, what CUDA's driver tells in test_cuda_driver.py.
"""

import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from numpy_card import open_card

from roofline.devices import Identity
from roofline.devices.gpu import cuda_driver, cupti, nvml
from roofline.devices.gpu import device as gpu
from roofline.devices.gpu import identity as gpu_identity
from roofline.run import settings

CHECKOUT = Path(__file__).parents[1]


class NVMLError(Exception):
    pass


def card(uuid, bus, *slices, name="NVIDIA H200"):
    return SimpleNamespace(uuid=uuid, bus=bus, name=name, slices=slices)


A, B, C = card("GPU-aaaa-1", "0000:17:00.0"), card("GPU-bbbb-1", "0000:65:00.0"), card("GPU-bbcc-1", "0000:CA:00.0")
MIG_1, MIG_2 = card("MIG-1111", None, name="NVIDIA H200 MIG 1g.18gb"), card("MIG-2222", None)
SLICED = card("GPU-dddd-1", "0000:01:00.0", MIG_1, MIG_2)


def fake_pynvml(*cards, refused=(), missing=(), driver="580.159.04", cuda=13000):
    """A module of NVML's functions for such cards. Those named in `refused` answer with an error; those in `missing`
    are not there, as in bindings of another age."""

    own = os.getpid()

    def mig_handle(one, index):
        if index >= len(one.slices):
            raise NVMLError("Not Found")
        return one.slices[index]

    answers = {
        "Init": lambda: None,
        "DeviceGetCount": lambda: len(cards),
        "DeviceGetHandleByIndex": lambda index: cards[index],
        "DeviceGetPciInfo": lambda one: SimpleNamespace(busId=one.bus),
        "DeviceGetUUID": lambda one: one.uuid,
        "DeviceGetName": lambda one: one.name.encode(),  # as older bindings answer
        "DeviceGetMemoryInfo": lambda one: SimpleNamespace(total=150_000_000_000, free=149_000_000_000),
        "DeviceGetCudaComputeCapability": lambda one: (9, 0),
        "DeviceGetMigMode": lambda one: (int(bool(one.slices)), 0),
        "DeviceGetMaxMigDeviceCount": lambda one: 7,
        "DeviceGetMigDeviceHandleByIndex": mig_handle,
        "DeviceIsMigDeviceHandle": lambda one: int(one.uuid.startswith("MIG-")),
        "SystemGetDriverVersion": lambda: driver,
        "SystemGetCudaDriverVersion_v2": lambda: cuda,
        "DeviceGetEccMode": lambda one: (1, 1),
        "DeviceGetEnforcedPowerLimit": lambda one: 700_000,
        "DeviceGetMaxClockInfo": lambda one, kind: {0: 1980, 1: 3201}[kind],
        "DeviceGetClockInfo": lambda one, kind: {0: 345, 1: 3200}[kind],
        "DeviceGetMemoryBusWidth": lambda one: 6144,
        "DeviceGetCurrPcieLinkGeneration": lambda one: 4,
        "DeviceGetMaxPcieLinkGeneration": lambda one: 5,
        "DeviceGetCurrPcieLinkWidth": lambda one: 8,
        "DeviceGetMaxPcieLinkWidth": lambda one: 16,
        "DeviceGetPowerUsage": lambda one: 75_500,
        "DeviceGetTemperature": lambda one, sensor: 31,
        "DeviceGetCurrentClocksEventReasons": lambda one: 0x1,
        "DeviceGetCurrentClocksThrottleReasons": lambda one: 0x1,
        "DeviceGetComputeRunningProcesses": lambda one: [SimpleNamespace(pid=pid) for pid in (own, 1, 2)],
    }

    def refuse(*arguments):
        raise NVMLError("Not Supported")

    module = ModuleType("pynvml")
    module.NVMLError, module.NVML_CLOCK_SM, module.NVML_CLOCK_MEM, module.NVML_TEMPERATURE_GPU = NVMLError, 0, 1, 0
    for name, answer in answers.items():
        if name not in missing:
            setattr(module, f"nvml{name}", refuse if name in refused else answer)
    return module


@pytest.fixture
def driver(monkeypatch):
    """Put a made-up NVML in the place of the real one, what CUDA's driver tells, and CUDA_VISIBLE_DEVICES as wanted."""

    def install(*cards, visible=None, by_cuda=(), **options):
        monkeypatch.setitem(sys.modules, "pynvml", fake_pynvml(*cards, **options))
        monkeypatch.setattr(cuda_driver, "cards", lambda: list(by_cuda))
        monkeypatch.setattr(cuda_driver, "driver_cuda_version", lambda: options.get("cuda", 13000) if by_cuda else None)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    return install


# ---------------------------------------------------------------------------------------------- which are visible


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [A, B, C]),
        ("1", [B]),
        ("1,0", [A, B]),
        (" 0 , 2 ", [A, C]),
        ("", []),
        ("-1", []),
        ("3", []),
        ("none", []),
        ("0,9,1", [A]),  # an entry that names nothing ends the list, as in CUDA
        ("1,-1,0", [B]),
        ("GPU-bbcc", [C]),
        ("GPU-bbbb-1,GPU-aaaa-1", [A, B]),
        ("GPU-aaaa-1-and-more", []),
        ("aaaa", []),
    ],
)
def test_what_cuda_visible_devices_leaves_in_pci_order(driver, visible, expected):
    """The numbers count in PCI order, whatever the order in which the driver lists the cards."""
    driver(C, A, B, visible=visible)
    assert nvml.visible_gpus() == expected


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [MIG_1, MIG_2, A]),
        ("0", [MIG_1, MIG_2]),
        ("1", [A]),
        ("MIG-2222", [MIG_2]),
        ("MIG-2222,GPU-aaaa", [MIG_2, A]),
        ("GPU-dddd", [MIG_1, MIG_2]),
    ],
)
def test_a_sliced_card_is_its_slices(driver, visible, expected):
    driver(A, SLICED, visible=visible)
    assert nvml.visible_gpus() == expected
    assert [nvml.facts(one)["mig_slice"] for one in expected] == [one in (MIG_1, MIG_2) for one in expected]


def test_identities_of_what_is_visible(driver):
    driver(A, B, visible="1")
    (found,) = gpu_identity.discover()
    assert (found.device, found.kind, found.name, found.uuid) == ("gpu0", "gpu", "NVIDIA H200", "GPU-bbbb-1")
    assert (found.driver, found.compute_capability) == ("580.159.04", "9.0")
    assert (found.memory_total_bytes, found.memory_free_bytes) == (150_000_000_000, 149_000_000_000)
    assert found.nvml is True


def test_without_a_driver_there_is_no_gpu(driver, monkeypatch):
    driver(A, refused=["Init"])
    assert gpu_identity.discover() == []
    monkeypatch.setitem(sys.modules, "pynvml", None)  # as where it is not installed
    assert gpu_identity.discover() == []


# ---------------------------------------------------------------------------------------------- CUDA's driver beside it


def by_cuda(uuid, **facts):
    told = {
        "name": "NVIDIA H200",
        "uuid": uuid,
        "memory_total_bytes": 150_100_000_000,
        "compute_capability": "9.0",
        "multiprocessors": 132,
        "l2_bytes": 60 << 20,
        "pci_bus_id": "0000:17:00.0",
    }
    return cuda_driver.Card(**told | facts)


def test_each_card_has_its_multiprocessors_and_cache_from_cuda(driver):
    driver(A, B, by_cuda=[by_cuda("GPU-bbbb-1"), by_cuda("GPU-aaaa-1", multiprocessors=114, l2_bytes=50 << 20)])
    found = gpu_identity.discover()
    assert [(one.uuid, one.multiprocessors, one.last_level_cache_bytes) for one in found] == [
        ("GPU-aaaa-1", 114, 50 << 20),
        ("GPU-bbbb-1", 132, 60 << 20),
    ]
    assert [one.memory_total_bytes for one in found] == [150_000_000_000] * 2, "NVML tells it"


def test_where_cuda_does_not_tell_of_a_card_the_largest_cache_is_assumed(driver):
    """CUDA sees the first slice of a cut card and no other."""
    driver(SLICED, by_cuda=[by_cuda("MIG-1111", multiprocessors=16, l2_bytes=7 << 20)])
    found = gpu_identity.discover()
    assert [(one.uuid, one.multiprocessors, one.last_level_cache_bytes) for one in found] == [
        ("MIG-1111", 16, 7 << 20),
        ("MIG-2222", None, 192 << 20),
    ]
    driver(A, by_cuda=[by_cuda("GPU-aaaa-1", multiprocessors=None, l2_bytes=0)])
    (found,) = gpu_identity.discover()
    assert (found.multiprocessors, found.last_level_cache_bytes) == (None, 192 << 20)


def without_nvml(driver, monkeypatch, *cards, how="refused", **options):
    monkeypatch.setattr(gpu_identity, "_library_versions", lambda: CUPY_12)
    driver(A, refused=["Init"], by_cuda=cards, **options)
    if how == "not installed":
        monkeypatch.setitem(sys.modules, "pynvml", None)
    return gpu_identity.discover()


@pytest.mark.parametrize("how", ["refused", "not installed"])
def test_a_gpu_that_only_cuda_tells_of_is_measured_too(driver, monkeypatch, how):
    """As in a container with the compute libraries alone."""
    one, other = without_nvml(driver, monkeypatch, by_cuda("GPU-1"), by_cuda("GPU-2", name="NVIDIA L4"), how=how)
    assert [(found.device, found.name, found.uuid) for found in (one, other)] == [
        ("gpu0", "NVIDIA H200", "GPU-1"),
        ("gpu1", "NVIDIA L4", "GPU-2"),
    ]
    assert (one.nvml, one.driver, one.setting, one.fault) == (False, None, "", None)
    assert (one.memory_total_bytes, one.memory_free_bytes) == (150_100_000_000, 150_100_000_000)
    assert (one.compute_capability, one.multiprocessors, one.last_level_cache_bytes) == ("9.0", 132, 60 << 20)


def test_a_slice_without_nvml_bears_the_name_that_cuda_gives_it(driver, monkeypatch):
    """Which says that it is one, so that it is not held against the whole card's figures."""
    name = "NVIDIA H200 MIG 1g.18gb"
    (found,) = without_nvml(driver, monkeypatch, by_cuda("MIG-1111", name=name, multiprocessors=16))
    assert (found.name, found.uuid, found.multiprocessors, found.fault) == (name, "MIG-1111", 16, None)


def test_without_nvml_too_the_driver_must_run_cupy(driver, monkeypatch):
    (found,) = without_nvml(driver, monkeypatch, by_cuda("GPU-1"), cuda=11040)
    assert found.fault.startswith("the NVIDIA driver runs CUDA 11 at most and CuPy needs 12: install driver 525")


@pytest.mark.parametrize("untold", ["uuid", "memory_total_bytes", "compute_capability"])
def test_a_card_of_which_cuda_alone_tells_too_little_is_at_fault(driver, monkeypatch, untold):
    found, other = without_nvml(driver, monkeypatch, by_cuda("GPU-1")._replace(**{untold: None}), by_cuda("GPU-2"))
    assert "neither NVML nor CUDA tells" in found.fault and other.fault is None


@pytest.mark.parametrize("refused", ["DeviceGetCudaComputeCapability", "DeviceGetMemoryInfo"])
def test_a_card_that_cannot_be_judged_is_at_fault_and_its_neighbour_is_not(driver, monkeypatch, refused):
    monkeypatch.setattr(gpu_identity, "cupy_fault", lambda *arguments: None)

    def refuse_for_a():
        answer = getattr(sys.modules["pynvml"], f"nvml{refused}")

        def of_one_card_alone(one):
            if one is A:
                raise NVMLError("Unknown Error")
            return answer(one)

        monkeypatch.setattr(sys.modules["pynvml"], f"nvml{refused}", of_one_card_alone)

    driver(A, B)
    refuse_for_a()
    one, other = gpu_identity.discover()
    assert "neither NVML nor CUDA tells" in one.fault and other.fault is None
    driver(A, B, by_cuda=[by_cuda("GPU-aaaa-1")])  # as a GB10, whose memory NVML does not tell
    refuse_for_a()
    one, other = gpu_identity.discover()
    assert (one.fault, one.compute_capability) == (None, "9.0")
    assert one.memory_total_bytes == (150_100_000_000 if "Memory" in refused else 150_000_000_000)


def test_the_versions_that_are_part_of_the_identity(monkeypatch):
    installed = {"cupy-cuda12x": "14.2.0", "nvidia-cublas-cu12": "12.9.1.4", "nvidia-cublas": "13.1.0"}
    monkeypatch.setattr(gpu_identity, "_version", (installed | {"nvmath-python": "1.0.0", "numpy": "2.3.5"}).get)
    assert gpu_identity._library_versions() == {
        "cupy": "14.2.0",
        "cupy_package": "cupy-cuda12x",
        "cublas": "12.9.1.4",
        "numpy": "2.3.5",
        "nvmath": "1.0.0",
    }


def test_what_an_administrator_sets_is_part_of_the_identity(driver):
    """Another power limit or ECC mode makes another roofline, so what was measured before is stale."""
    driver(A)
    (before,) = gpu_identity.discover()
    assert before.setting == "power limit 700.0 W, ECC True"
    for name, answer in (("EnforcedPowerLimit", 500_000), ("EccMode", (0, 0))):
        driver(A)
        setattr(sys.modules["pynvml"], f"nvmlDeviceGet{name}", lambda one, answer=answer: answer)
        (after,) = gpu_identity.discover()
        assert after.fingerprint() != before.fingerprint()


# ---------------------------------------------------------------------------------------------- what they tell

STATE = {
    "sm_clock_mhz": 345,
    "memory_clock_mhz": 3200,
    "power_w": 75.5,
    "temperature_c": 31,
    "throttle_reasons": ["gpu_idle"],
    "other_processes": 2,
}
STATE_BY = {
    "DeviceGetClockInfo": ["sm_clock_mhz", "memory_clock_mhz"],
    "DeviceGetPowerUsage": ["power_w"],
    "DeviceGetTemperature": ["temperature_c"],
    "DeviceGetComputeRunningProcesses": ["other_processes"],
}
FACTS = {
    "sm_clock_max_mhz": 1980,
    "sm_clock_now_mhz": 345,
    "memory_clock_max_mhz": 3201,
    "memory_clock_now_mhz": 3200,
    "memory_bus_width_bits": 6144,
    "ecc_enabled": True,
    "mig_enabled": False,
    "mig_slice": False,
    "pcie_generation_now": 4,
    "pcie_generation_max": 5,
    "pcie_width_now": 8,
    "pcie_width_max": 16,
    "power_limit_w": 700,
}
FACTS_BY = {
    "DeviceGetMaxClockInfo": ["sm_clock_max_mhz", "memory_clock_max_mhz"],
    "DeviceGetClockInfo": ["sm_clock_now_mhz", "memory_clock_now_mhz"],
    "DeviceGetMemoryBusWidth": ["memory_bus_width_bits"],
    "DeviceGetEccMode": ["ecc_enabled"],
    "DeviceGetMigMode": ["mig_enabled"],
    "DeviceGetCurrPcieLinkGeneration": ["pcie_generation_now"],
    "DeviceGetMaxPcieLinkGeneration": ["pcie_generation_max"],
    "DeviceGetCurrPcieLinkWidth": ["pcie_width_now"],
    "DeviceGetMaxPcieLinkWidth": ["pcie_width_max"],
    "DeviceGetEnforcedPowerLimit": ["power_limit_w"],
}


def test_readings_in_their_units(driver):
    driver(A)
    assert nvml.state(A) == STATE
    assert nvml.facts(A) == FACTS


@pytest.mark.parametrize("refused", STATE_BY)
def test_a_refused_reading_of_the_state_is_null_and_the_others_stay(driver, refused):
    driver(A, refused=[refused])
    assert nvml.state(A) == STATE | dict.fromkeys(STATE_BY[refused])


@pytest.mark.parametrize("refused", FACTS_BY)
def test_a_refused_fact_is_null_and_the_others_stay(driver, refused):
    driver(A, refused=[refused])
    assert nvml.facts(A) == FACTS | dict.fromkeys(FACTS_BY[refused])


def test_a_driver_that_refuses_everything_still_has_its_cards(driver):
    every = [name.removeprefix("nvml") for name in vars(fake_pynvml()) if name.startswith("nvml")]
    driver(B, A, refused=set(every) - {"Init", "DeviceGetCount", "DeviceGetHandleByIndex"})
    assert [one.device for one in gpu_identity.discover()] == ["gpu0", "gpu1"]
    assert set(nvml.state(A).values()) == {None}
    driver(A, refused=["DeviceGetUUID"], visible="GPU-aaaa")
    assert nvml.visible_gpus() == []


def test_a_card_that_nvml_does_not_know_has_null_readings(driver, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvml.state(None) == dict.fromkeys(STATE)
    assert nvml.facts(None) == dict.fromkeys(FACTS)
    assert (nvml.capability(None), nvml.setting(None), nvml.is_mig_slice(None)) == (None, "", False)


OLD_NAME, NEW_NAME = "DeviceGetCurrentClocksThrottleReasons", "DeviceGetCurrentClocksEventReasons"


@pytest.mark.parametrize(
    ("refused", "missing", "told"),
    [
        ([], [OLD_NAME], ["gpu_idle"]),
        ([], [NEW_NAME], ["gpu_idle"]),
        ([OLD_NAME], [], ["gpu_idle"]),
        ([NEW_NAME], [], ["gpu_idle"]),  # newer bindings over an older driver
        ([NEW_NAME], [OLD_NAME], None),
        ([OLD_NAME], [NEW_NAME], None),
        ([OLD_NAME, NEW_NAME], [], None),
        ([], [OLD_NAME, NEW_NAME], None),
    ],
)
def test_throttle_reasons_under_the_name_that_bindings_and_driver_have(driver, refused, missing, told):
    driver(A, refused=refused, missing=missing)
    assert nvml.state(A) == STATE | {"throttle_reasons": told}


def test_readings_of_a_card_that_heats_up(driver):
    """Bits come and go from reading to reading, and a reading may be refused amid others."""
    driver(A)
    bits = iter([0x1, 0x4, 0x4 | 0x20, NVMLError("Unknown Error"), 0x8 | 0x40, 0x0])

    def reading(one):
        answer = next(bits)
        if isinstance(answer, NVMLError):
            raise answer
        return answer

    for name in (OLD_NAME, NEW_NAME):
        delattr(sys.modules["pynvml"], f"nvml{name}")
    sys.modules["pynvml"].nvmlDeviceGetCurrentClocksEventReasons = reading
    states = [nvml.state(A) for _ in range(6)]
    throttled = [nvml.is_throttled(state["throttle_reasons"]) for state in states]
    assert throttled == [False, False, True, None, True, False]
    reasons = ["hw_slowdown", "hw_thermal_slowdown", "sw_power_cap", "sw_thermal_slowdown"]
    assert nvml.held_back_by(states) == reasons
    assert nvml.held_back_by(states[:1]) == nvml.held_back_by(states[3:4]) == nvml.held_back_by([]) == []
    assert nvml.held_back_by([{}, {"throttle_reasons": None}, states[1]]) == ["sw_power_cap"]


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        (None, None),
        ([], False),
        (["gpu_idle"], False),
        (["sw_power_cap", "applications_clocks_setting", "sync_boost", "display_clock_setting"], False),
        (["unnamed_0x8000"], False),
        (["hw_slowdown"], True),
        (["sw_thermal_slowdown"], True),
        (["sw_power_cap", "hw_thermal_slowdown"], True),
        (["hw_power_brake_slowdown"], True),
    ],
)
def test_throttled_is_heat_or_the_power_brake_and_not_the_power_limit(reasons, expected):
    assert nvml.is_throttled(reasons) is expected


def test_reasons_that_are_told_apart_are_reasons_that_nvml_names():
    assert set(nvml.THROTTLE_REASONS.values()) >= nvml.THERMAL_REASONS | nvml.POWER_REASONS
    assert not nvml.THERMAL_REASONS & nvml.POWER_REASONS


def test_processes_of_another_namespace_are_not_counted(driver, monkeypatch):
    """In a container NVML tells the host's numbers, of which none is ours."""
    driver(A)
    monkeypatch.setattr(os, "getpid", lambda: 3)
    assert nvml.state(A)["other_processes"] is None
    sys.modules["pynvml"].nvmlDeviceGetComputeRunningProcesses = lambda one: []
    assert nvml.state(A)["other_processes"] == 0


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        (None, None),
        (0, []),
        (0x4, ["sw_power_cap"]),
        (0x4 | 0x20 | 0x80, ["sw_power_cap", "sw_thermal_slowdown", "hw_power_brake_slowdown"]),
        (0x4 | 0x8000, ["sw_power_cap", "unnamed_0x8000"]),
    ],
)
def test_throttle_reasons_by_name(bits, names):
    assert nvml.throttle_reasons(bits) == names


# ---------------------------------------------------------------------------------------------- CuPy and the driver

CUPY_12 = {"cupy": "14.2.0", "cupy_package": "cupy-cuda12x"}
CUPY_13 = {"cupy": "14.2.0", "cupy_package": "cupy-cuda13x"}
BUILT_HERE = {"cupy": "14.2.0", "cupy_package": "cupy"}
NO_CUPY = {"cupy": None, "cupy_package": None}


@pytest.mark.parametrize(
    ("versions", "cuda"),
    [(CUPY_12, 12000), (CUPY_12, 13000), (CUPY_13, 13000), (BUILT_HERE, 12040), (CUPY_12, None), (CUPY_13, None)],
)
def test_a_cupy_that_the_driver_runs(versions, cuda):
    assert gpu_identity.cupy_fault(versions, cuda, "580.1") is None


@pytest.mark.parametrize(
    ("versions", "cuda", "told"),
    [
        (
            NO_CUPY,
            13000,
            "CuPy is not installed: pip install -r envs/cuda12.txt (or run make), or set 'devices: [cpu]' in "
            "config/config.yaml",
        ),
        (
            CUPY_13,
            12080,
            "cupy-cuda13x needs CUDA 13 (driver 580 or newer) and the driver 550.1 runs CUDA 12: pip uninstall "
            "cupy-cuda13x, then pip install -r envs/cuda12.txt (or make CUDA=12)",
        ),
        (
            CUPY_12,
            11080,
            "the NVIDIA driver 550.1 runs CUDA 11 at most and CuPy needs 12: install driver 525 or newer, or set "
            "'devices: [cpu]' in config/config.yaml",
        ),
        (
            NO_CUPY,
            11080,
            "the NVIDIA driver 550.1 runs CUDA 11 at most and CuPy needs 12: install driver 525 or newer, or set "
            "'devices: [cpu]' in config/config.yaml",
        ),
    ],
)
def test_a_cupy_that_it_does_not_run_and_the_remedy(versions, cuda, told):
    assert gpu_identity.cupy_fault(versions, cuda, "550.1") == told
    assert all((CHECKOUT / word).exists() for word in told.split() if word.startswith("envs/"))


def test_a_driver_of_unknown_version_is_not_named():
    told = gpu_identity.cupy_fault(CUPY_13, 12080, None)
    assert told.startswith("cupy-cuda13x needs CUDA 13 (driver 580 or newer) and the driver runs CUDA 12: pip")


def test_a_faulty_gpu_is_not_opened():
    identity = Identity("gpu0", "gpu", "A card", "GPU-1", None, 0, 0, compute_capability="9.0", fault="CuPy is missing")
    with pytest.raises(RuntimeError, match=r"^CuPy is missing$"):
        gpu.Device(identity)


# ---------------------------------------------------------------------------------------------- the choice of devices


def identity(name, **fields):
    kind = name.rstrip("0123456789")
    return Identity(name, kind, "A device", f"uuid-{name}", None, 1 << 40, 1 << 40, **fields)


def chosen(wanted, *present):
    schema = CHECKOUT / "workflow" / "schemas" / "config.schema.yaml"
    return settings.choose_devices(settings.complete({"devices": wanted}, schema), {one.device: one for one in present})


GPU_0, GPU_1, CPU = identity("gpu0"), identity("gpu1"), identity("cpu")
UNUSABLE = identity("gpu0", fault="CuPy is not installed: do this")


@pytest.mark.parametrize(
    ("wanted", "present", "expected"),
    [
        ("auto", [GPU_0, GPU_1, CPU], ["gpu0", "cpu"]),
        ("auto", [CPU], ["cpu"]),
        ("all", [GPU_0, GPU_1, CPU], ["gpu0", "gpu1", "cpu"]),
        ("all", [CPU], ["cpu"]),
        (["cpu"], [GPU_0, CPU], ["cpu"]),
        (["cpu"], [UNUSABLE, CPU], ["cpu"]),
        (["gpu1"], [GPU_0, GPU_1, CPU], ["gpu1"]),
        (["cpu", "gpu0"], [GPU_0, CPU], ["cpu", "gpu0"]),
    ],
)
def test_devices_chosen(wanted, present, expected):
    assert chosen(wanted, *present) == expected


@pytest.mark.parametrize(
    ("wanted", "present", "told"),
    [
        (["gpu0", "cpu"], [CPU], ["devices: gpu0 is not on this machine; here: cpu"]),
        (["gpu0", "gpu2"], [GPU_0, CPU], ["devices: gpu2 is not on this machine; here: gpu0, cpu"]),
        ("auto", [UNUSABLE, CPU], ["devices: CuPy is not installed: do this"]),
        ("all", [UNUSABLE, identity("gpu1", fault=UNUSABLE.fault), CPU], ["devices: CuPy is not installed: do this"]),
    ],
)
def test_devices_that_cannot_be_had_are_an_error(wanted, present, told):
    """Also under auto: a rented card is not passed over in silence."""
    with pytest.raises(settings.Faults) as raised:
        chosen(wanted, *present)
    assert raised.value.lines == told


# ---------------------------------------------------------------------------------------------- the kernel that ran


@pytest.mark.parametrize(
    ("name", "tensor_cores"),
    [
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNN", True),
        ("sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64_warpgroupsize2x1x1_execute_kernel__5x_cublas", True),
        ("ampere_fp16_s16816gemm_fp16_256x128_ldg8_f2f_stages_64x3_nn", True),
        ("volta_h884gemm_256x128_ldg8_nn", True),
        ("turing_h1688gemm_128x128_nn", True),
        ("cutlass_80_tensorop_d884gemm_128x64_16x3_nn_align1", True),
        ("sm80_xmma_gemm_f64f64_f64f64_f64_nn_n_tilesize64x64x16_stage4_warpsize2x2x1_tensor8x8x4_dmma", True),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x64x8_stage3_warpsize2x2x1_ffma_aligna4", False),
        ("cutlass_80_simt_sgemm_256x128_8x4_nn_align1", False),
        ("ampere_sgemm_128x64_nn", False),
        ("volta_dgemm_128x64_nn", False),
        ("void gemv2T_kernel_val<int, int, __half, __half, __half, float, 128, 16, 4, 4, false>", False),
        ("cupy_copy__float32_float16", None),
    ],
)
def test_the_unit_by_the_name_of_cublas_kernels(name, tensor_cores):
    assert cupti.uses_tensor_cores(name) is tensor_cores


@pytest.fixture
def fake_cupti(monkeypatch):
    """CUPTI that records a kernel of 300 ns and one of twice 200 when it is flushed; a list says whether it records."""
    recording, callbacks = [], []
    kind = SimpleNamespace(CONCURRENT_KERNEL="kernel", MEMCPY="copy")

    def flush(flag):
        times = [("nvjet", "kernel", 5000, 5200), ("ampere_sgemm", "kernel", 5200, 5500), ("a copy", "copy", 0, 9000)]
        times += [("nvjet", "kernel", 5500, 5700)]
        callbacks[0]([SimpleNamespace(name=n, kind=k, start=start, end=end) for n, k, start, end in times])

    module = SimpleNamespace(
        ActivityKind=kind,
        activity_register_callbacks=lambda request, complete: callbacks.append(complete),
        activity_enable=recording.append,
        activity_disable=recording.remove,
        activity_flush_all=flush,
    )
    monkeypatch.setitem(sys.modules, "cupti", SimpleNamespace(cupti=module))
    return recording


def test_the_longest_kernel_is_named(fake_cupti):
    ran = []
    found = cupti.kernel_of(lambda: ran.append(list(fake_cupti)))
    assert found == {"name": "nvjet", "tensor_cores": True, "how_known": "CUPTI activity record"}
    assert ran == [["kernel"]] and fake_cupti == []


def test_recording_ends_also_where_the_step_fails(fake_cupti):
    """Left on, it would slow the launches that are timed later."""

    def fail():
        raise MemoryError

    assert cupti.kernel_of(fail)["name"] is None
    assert fake_cupti == []


def test_without_cupti_the_kernel_is_unknown_and_the_reason_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupti", None)
    found = cupti.kernel_of(lambda: None)
    assert (found["name"], found["tensor_cores"]) == (None, None)
    assert found["how_known"].startswith("CUPTI does not load here")


# ---------------------------------------------------------------------------------------------- behind the block


def device_whose_block_times_out(above):
    """Queueing more than so many steps behind the block takes too long."""
    device, queued = object.__new__(gpu.Device), []

    def times_behind_block(step, first, count):
        if count > above:
            return None
        queued.extend(range(first, first + count))
        return [1e-6] * count

    device._times_behind_block = times_behind_block
    device._block_for = lambda timeout_ns: None
    return device, queued


@pytest.mark.parametrize("above", [100, 31, 8, 2])
def test_fewer_steps_wait_behind_a_block_that_timed_out(above):
    device, queued = device_whose_block_times_out(above)
    assert device.device_times(None, 70) == [1e-6] * 70
    # Numbers run on past a batch that timed out: what it rotated through is in the cache.
    assert len(queued) == 70 and queued == sorted(set(queued))
    assert (queued[0] == 0) == (above >= 32)


@pytest.mark.parametrize("above", [1, 0])
def test_where_not_even_two_steps_can_be_queued_there_is_no_such_time(above):
    """A step that takes the host half a second has no launch gaps to leave out."""
    device, _ = device_whose_block_times_out(above)
    assert device.device_times(None, 70) is None


# ---------------------------------------------------------------------------------------------- load and looks


def waited_for(monkeypatch, device, done):
    """Waiting for an event appends how many steps had been queued when it was recorded, to a list of what was done."""

    class Event(device.xp.cuda.Event):
        def record(self, stream=None):
            super().record(stream)
            self.after = sum(isinstance(one, int) for one in done)

        def synchronize(self):
            done.append(f"waited for {self.after}")

    monkeypatch.setattr(device.xp.cuda, "Event", Event)


@pytest.mark.parametrize(("count", "behind"), [(8, 6), (3, 2), (1, 0), (100, 75)])
def test_a_look_is_taken_once_all_steps_are_queued_and_three_quarters_are_over(monkeypatch, count, behind):
    """What NVML tells is tens of milliseconds old: at the beginning of a batch it would be of before."""
    device, done = open_card(monkeypatch), []
    waited_for(monkeypatch, device, done)
    times = device.watched_times(done.append, count, 7, lambda: done.append("look"))
    assert done == [*range(7, 7 + count), f"waited for {behind}", "look"]
    assert len(times) == count and min(times) > 0


@pytest.mark.parametrize(
    ("count", "step_s", "steps", "behind"),
    [(10, 1e-3, 150, 113), (20, 10e-3, 20, 16), (1, 1.0, 1, 1), (4, 0.05, 4, 4)],
)
def test_the_clock_is_counted_beside_steps_that_last_until_nvml_has_seen_them(
    monkeypatch, count, step_s, steps, behind
):
    """At least 0.15 s of them, looked at near their end; the clock is of the block's own length."""
    device, done, stretches = open_card(monkeypatch), [], []
    waited_for(monkeypatch, device, done)
    kernel = device.kernel

    def told(*names):
        def launch(grid, block, arguments, **options):
            stretches.append(int(arguments[0]))
            kernel(*names)(grid, block, arguments, **options)

        return launch

    monkeypatch.setattr(device, "kernel", told)
    assert device.clock_under(done.append, count, step_s, lambda: done.append("look")) == pytest.approx(1980)
    assert done == [*range(steps), f"waited for {behind}", "look"]
    assert stretches == [pytest.approx(gpu.CLOCK_SHARE * count * step_s * 1e9)]


def test_load_is_queued_ahead_and_looked_at_chunk_by_chunk(monkeypatch):
    """A chunk lasts 10 ms, on a device whose events wait for what was queued before them."""
    device, done = open_card(monkeypatch), []
    now, queued_until = [100.0], [100.0]

    class Event:
        def record(self, stream):
            self.at = queued_until[0]

        def synchronize(self):
            now[0] = max(now[0], self.at)

    def step(index):
        done.append(index)
        queued_until[0] = max(queued_until[0], now[0]) + 2.5e-3

    monkeypatch.setattr(device.xp.cuda, "Event", Event)
    monkeypatch.setattr(device.xp.cuda, "get_elapsed_time", lambda start, end: (end.at - start.at) * 1e3)
    monkeypatch.setattr(gpu, "time", SimpleNamespace(monotonic=lambda: now[0]))
    ahead = []
    chunks = list(device.load_times(step, 4, 0.095, lambda: ahead.append(queued_until[0] - now[0])))
    assert [at_s for at_s, _ in chunks] == pytest.approx([0.01 * place for place in range(1, 12)])
    assert [each_s for _, each_s in chunks] == pytest.approx([2.5e-3] * 11)
    assert ahead[:-1] == pytest.approx([0.02] * 10), "the next chunk waits, so that the device does not"
    assert done == [0, 1, 2, 3] * 11


def test_no_load_is_no_chunk(monkeypatch):
    assert list(open_card(monkeypatch).load_times(None, 1, 0, None)) == []


def test_the_clock_of_a_kernel_is_cycles_over_nanoseconds(monkeypatch):
    device = open_card(monkeypatch)
    assert device.clock_of_kernel() is None, "none has run"
    device.kernel_clock[:] = 1_500_000, 1_000_000
    assert device.clock_of_kernel() == 1500


def test_only_the_card_itself_is_left_visible_to_cupy(monkeypatch):
    device = open_card(monkeypatch)
    assert (os.environ["CUDA_VISIBLE_DEVICES"], os.environ["CUDA_DEVICE_ORDER"]) == ("GPU-1", "PCI_BUS_ID")
    assert set(device.state().values()) == {None}, "NVML does not know this card"


def test_a_source_is_compiled_once_for_each_set_of_macros(monkeypatch):
    device, compiled = open_card(monkeypatch), []
    module = device.xp.RawModule

    def compile_source(code, options):
        assert '#include "' not in code, "the cache of compiled kernels would not see a header change"
        compiled.append(options)
        return module(code, options)

    monkeypatch.setattr(device.xp, "RawModule", compile_source)
    for _ in range(2):
        for numbers in (8, 16):
            device.kernel("fma.cu", "turn_fp32", (f"-DNUMBERS={numbers}",))
            device.kernel("fma.cu", "fold_fp32", (f"-DNUMBERS={numbers}",))
    assert [options[-1] for options in compiled] == ["-DNUMBERS=8", "-DNUMBERS=16"]
