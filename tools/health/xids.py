"""What a GPU reports to a process that does not use it: other users, and the driver's Xid errors.

NVML reports Xid errors that occur while one listens; the kernel log holds earlier ones, if it may be read.
"""

import contextlib
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

KERNEL_LOG = Path("/dev/kmsg")
LOOKED_BACK_S = 2 * 3600  # as azurehpc-health-checks does: an older error may be that of another user's program
PERIOD_S = 1.0  # over which NVML averages the utilisation, at most
XID_EVENTS = 8  # nvmlEventTypeXidCriticalError
# Lines of the kernel log: microseconds; PCI address, Xid and text.
LINE = re.compile(r"^\d+,\d+,(\d+),[^;]*;NVRM: Xid \((?:PCI:)?([\da-fA-F:.]+)\): (\d+)(?:, )?(.*)")


class Xid(NamedTuple):
    """An error that the driver reported."""

    code: int
    minutes: float | None  # ago; None during the watch
    text: str = ""  # of the kernel log

    def __str__(self) -> str:
        when = "during the measurements" if self.minutes is None else f"{self.minutes:.0f} minutes ago"
        return f"Xid {self.code} {when} {self.text}".rstrip()


def ask_nvml(name: str, *arguments: Any, default: Any = None) -> Any:
    """Return the answer of an NVML function, or a default if NVML is missing or refuses, or an argument is None."""
    if None in arguments:
        return default
    try:
        import pynvml

        return getattr(pynvml, f"nvml{name}")(*arguments)
    except Exception:  # ImportError, NVMLError
        return default


class Watch:
    """A watch over GPUs, from when it is made; `uuids` has their UUIDs by device name."""

    def __init__(self, uuids: Mapping[str, str]):
        self.began = time.monotonic()
        ask_nvml("Init")
        self.uuids = uuids
        self.handles = {device: ask_nvml("DeviceGetHandleByUUID", uuid) for device, uuid in uuids.items()}
        self.reads_log = read_kernel_log(self.began) is not None
        handles = [handle for handle in self.handles.values() if handle is not None]
        events = ask_nvml("EventSetCreate")
        answers = [ask_nvml("DeviceRegisterEvents", handle, XID_EVENTS, events, default=False) for handle in handles]
        self.events = None if False in answers or not answers else events

    def read_users(self) -> dict[str, tuple]:
        """Return the number of other processes, the utilisation and the share of memory in use of each card.

        Each is None if NVML does not report it.
        """
        time.sleep(PERIOD_S)
        users = {}
        for device, handle in self.handles.items():
            running = ask_nvml("DeviceGetComputeRunningProcesses", handle)
            memory, rates = ask_nvml("DeviceGetMemoryInfo", handle), ask_nvml("DeviceGetUtilizationRates", handle)
            processes = None if running is None else len({process.pid for process in running} - {os.getpid()})
            users[device] = processes, rates and rates.gpu / 100, memory and memory.used / memory.total
        return users

    def read_errors(self) -> dict[str, list[Xid] | None]:
        """Return the Xid errors of each card since the watch began, and those in the kernel log before.

        A card has None if neither can be read.
        """
        log, events = read_kernel_log(self.began), []
        while event := ask_nvml("EventSetWait_v2", self.events, 0):
            events.append((ask_nvml("DeviceGetUUID", event.device), int(event.eventData)))
        nothing_readable = self.events is None and log is None
        errors: dict[str, list[Xid] | None] = {}
        for device, handle in self.handles.items():
            bus = getattr(ask_nvml("DeviceGetPciInfo", handle), "busId", None)
            xids = [Xid(code, None) for uuid, code in events if uuid == self.uuids[device]]
            for address, xid in log or []:
                is_new = xid.minutes is not None or self.events is None  # NVML reports those of the watch
                if bus and is_new and address == parse_pci_address(os.fsdecode(bus)):
                    xids.append(xid)
            errors[device] = None if handle is None or nothing_readable else xids
        return errors


def read_kernel_log(began: float) -> list[tuple[list[int], Xid]] | None:
    """Return PCI address and error of each recent line of the kernel log; None if it may not be read.

    Errors since `began`, the start of the watch, have no age.
    """
    content = b""
    with contextlib.suppress(OSError), open(os.open(KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as log:
        while True:
            with contextlib.suppress(BrokenPipeError):  # the next line was overwritten meanwhile
                if not (piece := log.read(1 << 13)):  # None at the end of /dev/kmsg
                    break
                content += piece
    if not content:  # a container may have /dev/null there
        return None
    now, entries = time.monotonic(), []
    for line in filter(None, map(LINE.match, content.decode(errors="replace").splitlines())):
        microseconds, bus, code, text = line.groups()
        age_s = now - int(microseconds) / 1e6
        if age_s <= LOOKED_BACK_S:
            minutes = age_s / 60 if age_s > now - began else None
            entries.append((parse_pci_address(bus), Xid(int(code), minutes, text)))
    return entries


def parse_pci_address(bus: str) -> list[int]:
    """Return domain, bus and device: 0000:17:00 of the kernel log is 00000000:17:00.0 of NVML."""
    return [int(part, 16) for part in bus.partition(".")[0].split(":")]
