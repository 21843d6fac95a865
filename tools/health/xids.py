"""What a GPU reports to a process that does not use it: other users, and the driver's Xid errors.

NVML reports Xid errors that occur while one listens; the kernel log holds earlier ones, if it may be read.
"""

import contextlib
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

KERNEL_LOG = Path("/dev/kmsg")
LOOKED_BACK_S = 2 * 3600  # as azurehpc-health-checks does: an older error may be that of another user's program
PERIOD_S = 1.0  # over which NVML averages the utilisation, at most
XID_EVENTS = 8  # nvmlEventTypeXidCriticalError
# Lines of the kernel log: microseconds; PCI address, Xid and text.
LINE = re.compile(r"^\d+,\d+,(\d+),[^;]*;NVRM: Xid \((?:PCI:)?([\da-fA-F:.]+)\): (\d+)(?:, )?(.*)")


class Xid(NamedTuple):
    code: int
    minutes: float | None  # ago; None during the watch
    text: str = ""  # of the kernel log

    def __str__(self) -> str:
        when = "during the measurements" if self.minutes is None else f"{self.minutes:.0f} minutes ago"
        return f"Xid {self.code} {when} {self.text}".rstrip()


def ask(name: str, *arguments, otherwise=None):
    """The answer of one NVML function, or else if NVML is missing or refuses, or an argument is not known."""
    if None in arguments:
        return otherwise
    try:
        import pynvml

        return getattr(pynvml, f"nvml{name}")(*arguments)
    except Exception:  # ImportError, NVMLError
        return otherwise


class Watch:
    """Over GPUs, by device name and UUID, from when it is made."""

    def __init__(self, uuids: Mapping[str, str]):
        self.began = time.monotonic()
        ask("Init")
        self.uuids, self.handles = uuids, {device: ask("DeviceGetHandleByUUID", uuid) for device, uuid in uuids.items()}
        self.reads_log = logged(self.began) is not None
        known = [handle for handle in self.handles.values() if handle is not None]
        events = ask("EventSetCreate")
        answers = [ask("DeviceRegisterEvents", handle, XID_EVENTS, events, otherwise=False) for handle in known]
        self.events = None if False in answers or not answers else events

    def users(self) -> dict[str, tuple]:
        """Other processes, utilisation and share of memory in use of each card; None if NVML does not report it."""
        time.sleep(PERIOD_S)
        found = {}
        for device, handle in self.handles.items():
            running, memory = ask("DeviceGetComputeRunningProcesses", handle), ask("DeviceGetMemoryInfo", handle)
            rates = ask("DeviceGetUtilizationRates", handle)
            processes = None if running is None else len({one.pid for one in running} - {os.getpid()})
            found[device] = processes, rates and rates.gpu / 100, memory and memory.used / memory.total
        return found

    def errors(self) -> dict[str, list[Xid] | None]:
        """Of each card, since the watch began and in the kernel log before; None if neither can be read."""
        heard, log, found = [], logged(self.began), {}
        while event := ask("EventSetWait_v2", self.events, 0):
            heard.append((ask("DeviceGetUUID", event.device), int(event.eventData)))
        for device, handle in self.handles.items():
            bus = getattr(ask("DeviceGetPciInfo", handle), "busId", None)
            known = [Xid(code, None) for uuid, code in heard if uuid == self.uuids[device]]
            for at, xid in log or []:
                if bus and at == address(os.fsdecode(bus)) and (xid.minutes is not None or self.events is None):
                    known.append(xid)
            found[device] = None if handle is None or self.events is log is None else known
        return found


def logged(began: float) -> list[tuple[list[int], Xid]] | None:
    """(PCI address, Xid) of each recent line of the kernel log; None if it may not be read."""
    content = b""
    with contextlib.suppress(OSError), open(os.open(KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as log:
        while True:
            with contextlib.suppress(BrokenPipeError):  # the next line was overwritten meanwhile
                if not (piece := log.read(1 << 13)):  # None at the end of /dev/kmsg
                    break
                content += piece
    if not content:  # a container may have /dev/null there
        return None
    now, found = time.monotonic(), []
    for line in filter(None, map(LINE.match, content.decode(errors="replace").splitlines())):
        microseconds, bus, code, text = line.groups()
        age_s = now - int(microseconds) / 1e6
        if age_s <= LOOKED_BACK_S:
            found.append((address(bus), Xid(int(code), age_s / 60 if age_s > now - began else None, text)))
    return found


def address(bus: str) -> list[int]:
    """0000:17:00 of the kernel log is 00000000:17:00.0 of NVML."""
    return [int(part, 16) for part in bus.partition(".")[0].split(":")]
