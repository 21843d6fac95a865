"""NVML of cards that the environment describes: FAKE_GPUS='uuid=name,uuid=name', FAKE_FREE_BYTES, FAKE_REASONS, the
bits of what limits their clocks, FAKE_LINK, generation and width of the host link, FAKE_NVLINKS, of each card to a
switch, FAKE_DOWN, one of them that is inactive, FAKE_OTHERS, other processes, which load the card, FAKE_REMAPPED, rows,
FAKE_XIDS, events, FAKE_LOST, the number of a card that no longer answers.

A test in the same process sets CARDS and REFUSED.
"""

import os
import sys
import time
from types import SimpleNamespace

from roofline.devices.gpu import gpu_identity

NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
NVML_TEMPERATURE_THRESHOLD_SLOWDOWN, NVML_MEMORY_ERROR_TYPE_CORRECTED = 1, 0
NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC, NVML_AGGREGATE_ECC = 1, 0, 1
NVML_NVLINK_DEVICE_TYPE_GPU, NVML_NVLINK_DEVICE_TYPE_SWITCH = 0, 2
NVML_P2P_CAPS_INDEX_NVLINK, NVML_P2P_STATUS_OK, NVML_P2P_STATUS_NOT_SUPPORTED = 2, 0, 5
NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS, NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR = 0, 1
nvmlEventTypeXidCriticalError, NVML_ERROR_GPU_IS_LOST = 8, 15
CARDS: list | None = None
REFUSED: set[str] = set()  # functions without their prefix, such as DeviceGetPowerUsage

if "pytest" not in sys.modules:  # the L2 of a card that CUDA does not list is that of the stand-in for CuPy
    gpu_identity.UNLISTED_GPU = gpu_identity.UNLISTED_GPU._replace(l2_bytes=1 << 20)


class NVMLError(Exception):
    def __init__(self, value="Not Supported"):
        super().__init__(value)
        self.value = value


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


def _handle(index):
    if str(index) == os.environ.get("FAKE_LOST"):
        raise NVMLError(NVML_ERROR_GPU_IS_LOST)
    return _cards()[index]


def _mig_slice(one, index):
    if index >= len(one.slices):
        raise NVMLError("Not Found")
    return one.slices[index]


def _memory(one):
    free = int(os.environ.get("FAKE_FREE_BYTES", 150e9))
    return SimpleNamespace(total=150_754_820_096, free=free, used=600_000_000)


def _clock(one, kind):
    return {NVML_CLOCK_SM: 1980, NVML_CLOCK_MEM: 3201}[kind]


def _reasons(one):
    return int(os.environ.get("FAKE_REASONS", "0"), 0)


def _numbers(name, otherwise):
    return [int(part) for part in os.environ.get(name, otherwise).split(",") if part]


def _processes():
    return [SimpleNamespace(pid=pid) for pid in (*_numbers("FAKE_OTHERS", ""), os.getpid())]


def _register(one, kind, events):
    events += [SimpleNamespace(device=one, eventData=code) for code in _numbers("FAKE_XIDS", "")]


def _event(events, milliseconds):
    if not events:
        raise NVMLError("Timeout")
    return events.pop()


def _instant_power():
    return SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=300_500))


def _nvlinks():
    return int(os.environ.get("FAKE_NVLINKS", "0"))


def _link_state(one, link):
    """Of the links that the cards have, one that FAKE_DOWN names is inactive; beyond them NVML refuses."""
    if link >= _nvlinks():
        raise NVMLError
    return int(str(link) != os.environ.get("FAKE_DOWN"))


def _p2p_status(one, other, index):
    return NVML_P2P_STATUS_OK if _nvlinks() else NVML_P2P_STATUS_NOT_SUPPORTED


ANSWERS = {
    "Init": _init,
    "DeviceGetCount": lambda: len(_cards()),
    "DeviceGetHandleByIndex": _handle,
    "DeviceGetHandleByUUID": lambda uuid: {one.uuid: one for one in _cards()}[uuid],
    "DeviceGetPciInfo": lambda one: SimpleNamespace(busId=one.bus),
    "DeviceGetUUID": lambda one: one.uuid,
    "DeviceGetName": lambda one: one.name.encode(),  # as older bindings answer
    "DeviceGetMemoryInfo": _memory,
    "DeviceGetCudaComputeCapability": lambda one: (9, 0),
    "DeviceGetMigMode": lambda one: (int(bool(one.slices)), 0),
    "DeviceGetMaxMigDeviceCount": lambda one: 7,
    "DeviceGetMigDeviceHandleByIndex": _mig_slice,
    "DeviceIsMigDeviceHandle": lambda one: int(one.uuid.startswith("MIG-")),
    "SystemGetDriverVersion": lambda: "580.159.04",
    "SystemGetCudaDriverVersion_v2": lambda: 13000,
    "DeviceGetEccMode": lambda one: (1, 1),
    "DeviceGetEnforcedPowerLimit": lambda one: 700_000,
    "DeviceGetPersistenceMode": lambda one: 1,
    "DeviceGetVbiosVersion": lambda one: b"96.00.A5.00.01",  # as older bindings answer
    "DeviceGetTemperatureThreshold": lambda one, kind: 89,
    "DeviceGetMaxClockInfo": _clock,
    "DeviceGetClockInfo": lambda one, kind: _clock(one, kind) - 1,
    "DeviceGetMemoryBusWidth": lambda one: 6144,
    "DeviceGetCurrPcieLinkGeneration": lambda one: _numbers("FAKE_LINK", "4,8")[0],
    "DeviceGetMaxPcieLinkGeneration": lambda one: 5,
    "DeviceGetCurrPcieLinkWidth": lambda one: _numbers("FAKE_LINK", "4,8")[1],
    "DeviceGetMaxPcieLinkWidth": lambda one: 16,
    "DeviceGetTotalEccErrors": lambda one, kind, counter: {NVML_VOLATILE_ECC: 0, NVML_AGGREGATE_ECC: 2}[counter],
    "DeviceGetRemappedRows": lambda one: _numbers("FAKE_REMAPPED", "1,2,0,0"),
    "DeviceGetRetiredPages": lambda one, cause: [],
    "DeviceGetUtilizationRates": lambda one: SimpleNamespace(gpu=90 * bool(_numbers("FAKE_OTHERS", ""))),
    "EventSetCreate": list,
    "DeviceRegisterEvents": _register,
    "EventSetWait_v2": _event,
    "DeviceGetRetiredPagesPendingStatus": lambda one: 0,
    "DeviceGetFieldValues": lambda one, fields: [_instant_power()],
    "DeviceGetPowerUsage": lambda one: 290_000,
    "DeviceGetTotalEnergyConsumption": lambda one: int(10 * time.monotonic()) * 30_050,
    "DeviceGetTemperature": lambda one, sensor: 40,
    "DeviceGetCurrentClocksEventReasons": _reasons,
    "DeviceGetCurrentClocksThrottleReasons": _reasons,
    "DeviceGetNvLinkState": _link_state,
    "DeviceGetNvLinkVersion": lambda one, link: 6,  # NVML_NVLINK_VERSION_4_0
    "DeviceGetNvLinkRemoteDeviceType": lambda one, link: NVML_NVLINK_DEVICE_TYPE_SWITCH,
    "DeviceGetNvLinkRemotePciInfo": lambda one, link: SimpleNamespace(busId="0000:ff:00.0"),
    "DeviceGetP2PStatus": _p2p_status,
    "DeviceGetTopologyCommonAncestor": lambda one, other: 40,  # NVML_TOPOLOGY_NODE
    "DeviceGetComputeRunningProcesses": lambda one: _processes(),
}


def _refusable(name, answer):
    def ask(*arguments):
        if name in REFUSED:
            raise NVMLError("Not Supported")
        return answer(*arguments)

    return ask


globals().update({f"nvml{name}": _refusable(name, answer) for name, answer in ANSWERS.items()})
