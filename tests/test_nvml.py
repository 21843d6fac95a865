"""NVML: the cards that CUDA_VISIBLE_DEVICES selects, their state and facts, and refused readings."""

import os
from types import SimpleNamespace

import pytest
from fake_gpu import nvml_card as card
from fake_gpu import use_nvml

from roofline.core.disturbance import THERMAL_REASONS, is_throttled, limiting_reasons
from roofline.devices.gpu import nvml

A, B, C = card("GPU-aaaa-1", "0000:17:00.0"), card("GPU-bbbb-1", "0000:65:00.0"), card("GPU-bbcc-1", "0000:CA:00.0")
MIG_1, MIG_2 = card("MIG-1111", None), card("MIG-2222", None)
SLICED = card("GPU-dddd-1", "0000:01:00.0", MIG_1, MIG_2)

VISIBLE = {
    None: [A, B, C],
    "1": [B],
    "1,0": [A, B],
    " 0 , 2 ": [A, C],
    **{one: [] for one in ("", "-1", "GPU-aaaa-1-and-more", "aaaa")},
    "0,9,1": [A],  # an entry that names nothing ends the list, as in CUDA
    "GPU-bbcc": [C],
}
SLICES = {
    None: [MIG_1, MIG_2, A],
    "1": [A],
    "MIG-2222,GPU-aaaa": [MIG_2, A],
    "GPU-dddd": [MIG_1, MIG_2],
}


@pytest.mark.parametrize(
    ("visible", "cards", "expected"),
    [*((one, (C, A, B), VISIBLE[one]) for one in VISIBLE), *((one, (A, SLICED), SLICES[one]) for one in SLICES)],
)
def test_visible_gpus_in_pci_order(monkeypatch, visible, cards, expected):
    use_nvml(monkeypatch, *cards, visible=visible)
    assert nvml.visible_gpus() == expected
    assert [nvml.facts(one)["mig_slice"] for one in expected] == [one in (MIG_1, MIG_2) for one in expected]


STATE = {"sm_clock_mhz": 1979, "memory_clock_mhz": 3200, "temperature_c": 40, "throttle_reasons": []}
STATE |= {"power_w": 300.5, "power_reading": "instant", "other_processes": 0}
FACTS = {"sm_clock_max_mhz": 1980, "sm_clock_now_mhz": 1979, "memory_clock_max_mhz": 3201, "memory_clock_now_mhz": 3200}
FACTS |= {"memory_bus_width_bits": 6144, "vbios": "96.00.A5.00.01", "power_limit_w": 700, "slowdown_temperature_c": 89}
FACTS |= {"ecc_enabled": True, "mig_enabled": False, "mig_slice": False, "persistence_mode": True, "nvlinks_active": 0}
FACTS |= {"pcie_generation_now": 4, "pcie_generation_max": 5, "pcie_width_now": 8, "pcie_width_max": 16}
FACTS |= {"ecc_uncorrected_errors": 0, "ecc_uncorrected_errors_ever": 2, "ecc_corrected_errors": 0}
FACTS |= {"row_remap_pending": False, "row_remap_failed": False, "remapped_rows": 3}
FACTS |= {"page_retirement_pending": False, "retired_pages": 0}
LINK = {"pcie_generation": 4, "pcie_width": 8}


def test_readings_in_their_units(monkeypatch):
    use_nvml(monkeypatch, A)
    assert nvml.state(A) == STATE
    assert nvml.facts(A) == FACTS
    assert nvml.link(A) == LINK


UNKNOWN = {
    "ClockInfo": {"sm_clock_mhz", "memory_clock_mhz", "sm_clock_now_mhz", "memory_clock_now_mhz"},
    "ComputeRunningProcesses": {"other_processes"},
    "EccMode": {"ecc_enabled"},
    "EnforcedPowerLimit": {"power_limit_w"},
    "RemappedRows": {"row_remap_pending", "row_remap_failed", "remapped_rows"},
    "RetiredPages": {"retired_pages"},
}


def test_a_refused_reading_is_null_and_the_others_stay(monkeypatch):
    for refused, unknown in UNKNOWN.items():
        use_nvml(monkeypatch, A, refused=[f"DeviceGet{refused}"])
        assert nvml.state(A) | nvml.facts(A) == STATE | FACTS | dict.fromkeys(unknown), refused


def test_power_is_instantaneous_or_an_average_or_null(monkeypatch):
    use_nvml(monkeypatch, A, refused=["DeviceGetFieldValues"])  # as an older driver
    assert nvml.state(A) == STATE | {"power_w": 290.0, "power_reading": "average"}
    use_nvml(monkeypatch, A, refused=["DeviceGetFieldValues", "DeviceGetPowerUsage"])
    assert nvml.state(A) == STATE | {"power_w": None, "power_reading": None}


@pytest.mark.parametrize(
    ("bits", "names", "throttled"),
    [
        (None, None, None),
        (0, [], False),
        (0x1, ["gpu_idle"], False),
        (0x4 | 0x20 | 0x80, ["sw_power_cap", "sw_thermal_slowdown", "hw_power_brake_slowdown"], True),
        (0x8, ["hw_slowdown"], True),
        (0x4 | 0x8000, ["sw_power_cap", "unnamed_0x8000"], False),
    ],
)
def test_names_of_throttle_reasons_and_which_are_thermal(bits, names, throttled):
    assert nvml.throttle_reasons(bits) == names and is_throttled(names) is throttled
    assert limiting_reasons([["gpu_idle"], None, names, names]) == sorted(set(names or ()) - {"gpu_idle"})
    assert set(nvml.THROTTLE_REASONS.values()) >= THERMAL_REASONS


def test_other_processes_are_counted_unless_they_are_of_another_namespace(monkeypatch):
    module, pids = use_nvml(monkeypatch, A), [os.getpid(), 1, 2]
    module.nvmlDeviceGetComputeRunningProcesses = lambda one: [SimpleNamespace(pid=pid) for pid in pids]
    assert nvml.state(A)["other_processes"] == 2
    pids.remove(os.getpid())
    assert nvml.state(A)["other_processes"] is None
    pids.clear()
    assert nvml.state(A)["other_processes"] == 0
