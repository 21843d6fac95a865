"""Cards as the environment describes them: FAKE_GPUS='uuid=name,uuid=name', FAKE_DRIVER, FAKE_CUDA, FAKE_FREE_BYTES,
and FAKE_REASONS, the bits that hold their clocks back.
"""

import os
from types import SimpleNamespace

NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0


class NVMLError(Exception):
    pass


def nvmlInit():
    if not os.environ.get("FAKE_GPUS"):
        raise NVMLError("no driver")


def _cards():
    return [pair.split("=") for pair in os.environ["FAKE_GPUS"].split(",")]


def nvmlDeviceGetCount():
    return len(_cards())


def nvmlDeviceGetHandleByIndex(index):
    uuid, name = _cards()[index]
    return SimpleNamespace(uuid=uuid, name=name, bus=f"0000:{index:02x}:00.0")


def nvmlDeviceGetPciInfo(card):
    return SimpleNamespace(busId=card.bus)


def nvmlDeviceGetUUID(card):
    return card.uuid


def nvmlDeviceGetName(card):
    return card.name


def nvmlDeviceGetMemoryInfo(card):
    return SimpleNamespace(total=150_754_820_096, free=int(os.environ.get("FAKE_FREE_BYTES", 150_000_000_000)))


def nvmlDeviceGetCudaComputeCapability(card):
    return (9, 0)


def nvmlDeviceGetMigMode(card):
    return (0, 0)


def nvmlDeviceIsMigDeviceHandle(card):
    return 0


def nvmlSystemGetDriverVersion():
    return os.environ.get("FAKE_DRIVER", "580.159.04")


def nvmlSystemGetCudaDriverVersion_v2():
    return int(os.environ.get("FAKE_CUDA", "13000"))


def nvmlDeviceGetMaxClockInfo(card, kind):
    return {NVML_CLOCK_SM: 1980, NVML_CLOCK_MEM: 3201}[kind]


nvmlDeviceGetClockInfo = nvmlDeviceGetMaxClockInfo


def nvmlDeviceGetMemoryBusWidth(card):
    return 6144


def nvmlDeviceGetEnforcedPowerLimit(card):
    return 700_000


def nvmlDeviceGetPowerUsage(card):
    return 300_000


def nvmlDeviceGetTemperature(card, sensor):
    return 40


def nvmlDeviceGetCurrentClocksEventReasons(card):
    return int(os.environ.get("FAKE_REASONS", "0"), 0)


def nvmlDeviceGetComputeRunningProcesses(card):
    return [SimpleNamespace(pid=os.getpid())]


def _refused(*arguments):
    raise NVMLError("Not Supported")


nvmlDeviceGetEccMode = nvmlDeviceGetCurrPcieLinkGeneration = nvmlDeviceGetMaxPcieLinkGeneration = _refused
nvmlDeviceGetCurrPcieLinkWidth = nvmlDeviceGetMaxPcieLinkWidth = _refused
