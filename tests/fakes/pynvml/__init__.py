"""NVML of cards that the environment describes: FAKE_GPUS='uuid=name,uuid=name', FAKE_DRIVER, FAKE_CUDA,
FAKE_FREE_BYTES, and FAKE_REASONS, the bits of what limits their clocks.

A test in the same process sets CARDS and REFUSED.
"""

import os
from types import SimpleNamespace

NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
NVML_SUCCESS, NVML_FI_DEV_POWER_INSTANT = 0, 186
NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC, NVML_AGGREGATE_ECC = 1, 0, 1
CARDS: list | None = None
REFUSED: set[str] = set()  # functions without their prefix, such as DeviceGetPowerUsage


class NVMLError(Exception):
    pass


def card(uuid, bus, *slices, name="NVIDIA H200"):
    return SimpleNamespace(uuid=uuid, bus=bus, name=name, slices=slices)


def _cards():
    if CARDS is not None:
        return CARDS
    pairs = [pair.split("=") for pair in os.environ["FAKE_GPUS"].split(",")]
    return [card(uuid, f"0000:{index:02x}:00.0", name=name) for index, (uuid, name) in enumerate(pairs)]


def _init():
    if CARDS is None and not os.environ.get("FAKE_GPUS"):
        raise NVMLError("no driver")


def _mig_slice(one, index):
    if index >= len(one.slices):
        raise NVMLError("Not Found")
    return one.slices[index]


def _memory(one):
    return SimpleNamespace(total=150_754_820_096, free=int(os.environ.get("FAKE_FREE_BYTES", 150_000_000_000)))


def _clock(one, kind):
    return {NVML_CLOCK_SM: 1980, NVML_CLOCK_MEM: 3201}[kind]


def _reasons(one):
    return int(os.environ.get("FAKE_REASONS", "0"), 0)


def _instant_power():
    return SimpleNamespace(nvmlReturn=NVML_SUCCESS, value=SimpleNamespace(uiVal=300_500))


ANSWERS = {
    "Init": _init,
    "DeviceGetCount": lambda: len(_cards()),
    "DeviceGetHandleByIndex": lambda index: _cards()[index],
    "DeviceGetPciInfo": lambda one: SimpleNamespace(busId=one.bus),
    "DeviceGetUUID": lambda one: one.uuid,
    "DeviceGetName": lambda one: one.name.encode(),  # as older bindings answer
    "DeviceGetMemoryInfo": _memory,
    "DeviceGetCudaComputeCapability": lambda one: (9, 0),
    "DeviceGetMigMode": lambda one: (int(bool(one.slices)), 0),
    "DeviceGetMaxMigDeviceCount": lambda one: 7,
    "DeviceGetMigDeviceHandleByIndex": _mig_slice,
    "DeviceIsMigDeviceHandle": lambda one: int(one.uuid.startswith("MIG-")),
    "SystemGetDriverVersion": lambda: os.environ.get("FAKE_DRIVER", "580.159.04"),
    "SystemGetCudaDriverVersion_v2": lambda: int(os.environ.get("FAKE_CUDA", "13000")),
    "DeviceGetEccMode": lambda one: (1, 1),
    "DeviceGetEnforcedPowerLimit": lambda one: 700_000,
    "DeviceGetMaxClockInfo": _clock,
    "DeviceGetClockInfo": lambda one, kind: _clock(one, kind) - 1,
    "DeviceGetMemoryBusWidth": lambda one: 6144,
    "DeviceGetCurrPcieLinkGeneration": lambda one: 4,
    "DeviceGetMaxPcieLinkGeneration": lambda one: 5,
    "DeviceGetCurrPcieLinkWidth": lambda one: 8,
    "DeviceGetMaxPcieLinkWidth": lambda one: 16,
    "DeviceGetTotalEccErrors": lambda one, kind, counter: {NVML_VOLATILE_ECC: 0, NVML_AGGREGATE_ECC: 2}[counter],
    "DeviceGetRemappedRows": lambda one: (1, 2, 0, 0),
    "DeviceGetRetiredPagesPendingStatus": lambda one: 0,
    "DeviceGetFieldValues": lambda one, fields: [_instant_power()],
    "DeviceGetPowerUsage": lambda one: 290_000,
    "DeviceGetTemperature": lambda one, sensor: 40,
    "DeviceGetCurrentClocksEventReasons": _reasons,
    "DeviceGetCurrentClocksThrottleReasons": _reasons,
    "DeviceGetComputeRunningProcesses": lambda one: [SimpleNamespace(pid=os.getpid())],
}


def _refusable(name, answer):
    def ask(*arguments):
        if name in REFUSED:
            raise NVMLError("Not Supported")
        return answer(*arguments)

    return ask


globals().update({f"nvml{name}": _refusable(name, answer) for name, answer in ANSWERS.items()})
