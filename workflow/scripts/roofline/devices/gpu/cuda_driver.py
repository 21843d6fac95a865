"""What CUDA's driver API reports of the cards before one is opened.

Run as a script it prints that as JSON, which is how `query_visible_gpus` asks: a process that has called cuInit sees
for ever the cards that CUDA_VISIBLE_DEVICES named at that moment, and cannot fork. The script runs without site
packages and without this library on its path (`-I -S`), so this module imports the standard library alone.
"""

import contextlib
import ctypes
import json
import os
import subprocess
from collections.abc import Callable
from typing import NamedTuple

DRIVER_LIBRARY = "libcuda.so.1"
TIMEOUT_S = 120  # without the persistence daemon, cards wake one after another

# Values of CUdevice_attribute (cuda.h).
MULTIPROCESSOR_COUNT, L2_CACHE_SIZE = 16, 38
CAPABILITY_MAJOR, CAPABILITY_MINOR = 75, 76
NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE: all are hidden


class VisibleGpu(NamedTuple):
    """One device that CUDA sees, a MIG slice too. Memory and L2 in bytes."""

    name: str
    uuid: str  # as NVML and CUDA_VISIBLE_DEVICES write it: GPU-... or, of a slice, MIG-...
    memory_total_bytes: int
    compute_capability: str | None
    multiprocessors: int | None
    l2_bytes: int


class DriverError(OSError):
    """A call of the driver failed with a status, a CUresult of cuda.h."""

    def __init__(self, status: int):
        super().__init__(f"CUDA's driver returned {status}")
        self.status = status


def query_visible_gpus() -> list[VisibleGpu]:
    """Return the visible cards in PCI order, or no cards if the driver is missing or does not answer.

    Raises DriverError if it answers that it cannot start.
    """
    if _load_driver() is None:
        return []
    # Not sys.executable, which Snakemake's caller may have quoted for the shell.
    command = [os.path.realpath("/proc/self/exe"), "-I", "-S", os.path.abspath(__file__)]
    # Else CUDA numbers the fastest card 0, also in CUDA_VISIBLE_DEVICES.
    environment = os.environ | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    try:
        answer = subprocess.run(command, env=environment, capture_output=True, timeout=TIMEOUT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    content = json.loads(answer)
    if isinstance(content, int):
        raise DriverError(content)
    return [VisibleGpu(**facts) for facts in content]


def driver_cuda_version() -> int | None:
    """Return the newest CUDA that the driver runs, as 1000 x major + 10 x minor; None without a driver."""
    cuda = _load_driver()
    if cuda is None:
        return None
    try:
        return _call_for_int(cuda.cuDriverGetVersion)
    except OSError:  # from the toolkit's stub, which links but does nothing
        return None


def list_gpus(cuda: ctypes.CDLL) -> list[VisibleGpu]:
    """Return the cards that the driver's library sees, in its order, without those that it cannot describe. Calls
    cuInit, but makes no context.

    Raises DriverError if the driver does not start.
    """
    _require_success(cuda.cuInit(0))
    count = _call_for_int(cuda.cuDeviceGetCount)
    gpus = []
    for ordinal in range(count):
        with contextlib.suppress(DriverError):  # it has fallen off the bus
            gpus.append(_describe_gpu(cuda, _call_for_int(cuda.cuDeviceGet, ordinal)))
    return gpus


def _describe_gpu(cuda: ctypes.CDLL, device: int) -> VisibleGpu:
    def attribute(number: int) -> int:
        return _call_for_int(cuda.cuDeviceGetAttribute, number, device)

    buffer, uuid, memory = ctypes.create_string_buffer(256), (ctypes.c_ubyte * 16)(), ctypes.c_size_t()
    _require_success(cuda.cuDeviceGetName(ctypes.byref(buffer), len(buffer), device))
    _require_success(cuda.cuDeviceGetUuid_v2(ctypes.byref(uuid), device))  # a MIG slice has its own UUID
    _require_success(cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device))
    name, digits = buffer.value.decode(errors="replace"), bytes(uuid).hex()
    kind = "MIG" if " MIG " in name else "GPU"
    return VisibleGpu(
        name=name,
        uuid="-".join([kind, digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]]),
        memory_total_bytes=memory.value,
        compute_capability=f"{attribute(CAPABILITY_MAJOR)}.{attribute(CAPABILITY_MINOR)}",
        multiprocessors=attribute(MULTIPROCESSOR_COUNT),
        l2_bytes=attribute(L2_CACHE_SIZE),
    )


def _call_for_int(function: Callable[..., int], *arguments: int) -> int:
    """Return the integer that a function of the driver writes to its first argument."""
    number = ctypes.c_int()
    _require_success(function(ctypes.byref(number), *arguments))
    return number.value


def _require_success(status: int) -> None:
    if status:
        raise DriverError(status)


def _load_driver() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(DRIVER_LIBRARY)
    except OSError:
        return None


if __name__ == "__main__":
    library = _load_driver()
    try:
        print(json.dumps([card._asdict() for card in list_gpus(library)] if library else []))
    except DriverError as refused:
        print([] if refused.status == NO_DEVICE else refused.status)
