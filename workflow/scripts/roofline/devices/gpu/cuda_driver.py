"""What CUDA's driver API tells of the cards before one is opened: who they are and how large.

Run as a script it prints that as JSON, which is how `cards` asks: a process that has once called cuInit sees the cards
that CUDA_VISIBLE_DEVICES left visible at that moment, whatever the variable says later, and cannot fork any more.
"""

import ctypes
import json
import os
import subprocess
from typing import NamedTuple

LIBRARY = "libcuda.so.1"
TIMEOUT_S = 120  # without the persistence daemon, cards wake one after another

# Values of CUdevice_attribute (cuda.h).
MULTIPROCESSOR_COUNT, L2_CACHE_SIZE = 16, 38
PCI_DOMAIN_ID, PCI_BUS_ID, PCI_DEVICE_ID = 50, 33, 34
CAPABILITY_MAJOR, CAPABILITY_MINOR = 75, 76


class Card(NamedTuple):
    """One device that CUDA sees, a MIG slice too; None for what the driver does not tell. Memory and L2 in bytes."""

    name: str | None
    uuid: str | None  # as NVML and CUDA_VISIBLE_DEVICES write it: GPU-... or, of a slice, MIG-...
    memory_total_bytes: int | None
    compute_capability: str | None
    multiprocessors: int | None
    l2_bytes: int | None
    pci_bus_id: str | None


def cards() -> list[Card]:
    """The visible cards in PCI order; none where there is no driver or it does not answer."""
    if _library() is None:
        return []
    # Not sys.executable, which Snakemake's caller may have quoted for the shell.
    command = [os.path.realpath("/proc/self/exe"), "-I", "-S", os.path.abspath(__file__)]
    # Else CUDA numbers the fastest card 0, also in CUDA_VISIBLE_DEVICES.
    environment = os.environ | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    try:
        answer = subprocess.run(command, env=environment, capture_output=True, timeout=TIMEOUT_S, check=True).stdout
        return [Card(**facts) for facts in json.loads(answer)]
    except (OSError, subprocess.SubprocessError, ValueError, TypeError):
        return []


def driver_cuda_version() -> int | None:
    """The newest CUDA that the driver runs, as 1000 x major + 10 x minor; None without a driver."""
    cuda = _library()
    return (_number(cuda, "cuDriverGetVersion") if cuda else None) or None


def cards_of(cuda) -> list[Card]:
    """The cards that this library tells of, in PCI order. It makes no context, but calls cuInit."""
    count = _number(cuda, "cuDeviceGetCount") if _status(cuda, "cuInit", 0) == 0 else None
    devices = (_number(cuda, "cuDeviceGet", ordinal) for ordinal in range(count or 0))
    found = [(_pci_address(cuda, device), _card(cuda, device)) for device in devices if device is not None]
    return [card for _, card in sorted(found, key=lambda pair: (None in pair[0], [part or 0 for part in pair[0]]))]


def _card(cuda, device: int) -> Card:
    written = _asked(cuda, "cuDeviceGetName", ctypes.create_string_buffer(256), 256, device)
    name = None if written is None else written.value.decode(errors="replace")
    memory = _asked(cuda, "cuDeviceTotalMem_v2", ctypes.c_size_t(), device)
    major, minor = _attribute(cuda, CAPABILITY_MAJOR, device), _attribute(cuda, CAPABILITY_MINOR, device)
    address = _pci_address(cuda, device)
    return Card(
        name=name,
        uuid=_uuid(cuda, device, name),
        memory_total_bytes=None if memory is None else memory.value,
        compute_capability=None if None in (major, minor) else f"{major}.{minor}",
        multiprocessors=_attribute(cuda, MULTIPROCESSOR_COUNT, device),
        l2_bytes=_attribute(cuda, L2_CACHE_SIZE, device),
        pci_bus_id=None if None in address else "{:04x}:{:02x}:{:02x}.0".format(*address),
    )


def _uuid(cuda, device: int, name: str | None) -> str | None:
    """The second version gives a MIG slice its own UUID, the first one that of the card it is cut from."""
    own = _asked(cuda, "cuDeviceGetUuid_v2", (ctypes.c_ubyte * 16)(), device)
    found = own or _asked(cuda, "cuDeviceGetUuid", (ctypes.c_ubyte * 16)(), device)
    if found is None:
        return None
    digits = bytes(found).hex()
    kind = "MIG" if own and " MIG " in (name or "") else "GPU"
    return "-".join([kind, digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]])


def _pci_address(cuda, device: int) -> tuple[int | None, ...]:
    return tuple(_attribute(cuda, part, device) for part in (PCI_DOMAIN_ID, PCI_BUS_ID, PCI_DEVICE_ID))


def _attribute(cuda, attribute: int, device: int) -> int | None:
    return _number(cuda, "cuDeviceGetAttribute", attribute, device)


def _number(cuda, function: str, *arguments) -> int | None:
    number = _asked(cuda, function, ctypes.c_int(), *arguments)
    return None if number is None else number.value  # a c_int of 0 counts as false


def _asked(cuda, function: str, result, *arguments):
    """`result`, filled in by one of the driver's functions; None where it is refused or not there."""
    return result if _status(cuda, function, ctypes.byref(result), *arguments) == 0 else None


def _status(cuda, function: str, *arguments) -> int | None:
    try:
        return getattr(cuda, function)(*arguments)
    except AttributeError:
        return None


def _library():
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError:
        return None


if __name__ == "__main__":
    library = _library()
    print(json.dumps([card._asdict() for card in cards_of(library)] if library else []))
