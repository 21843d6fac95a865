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
LINE = re.compile(
    r"^\d+,\d+,(?P<us>\d+),[^;]*;NVRM: Xid \((?:PCI:)?(?P<bus>[\da-fA-F:.]+)\): (?P<code>\d+)(?:, )?(?P<text>.*)"
)


class Xid(NamedTuple):
    code: int
    when: str  # before or during the watch
    age_s: float | None = None  # of an error in the kernel log
    text: str = ""


def ask(name: str, *arguments, otherwise=None):
    """The answer of one NVML function, or else if NVML is missing or refuses, or an argument is not known."""
    if None in arguments:
        return otherwise
    try:
        import pynvml

        answer = getattr(pynvml, f"nvml{name}")(*arguments)
        return answer.decode() if isinstance(answer, bytes) else answer
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

    def unused(self) -> dict[str, dict]:
        """Who uses each card, None if NVML does not report it. Call while no measurement runs on the cards."""
        time.sleep(PERIOD_S)
        found = {}
        for device, handle in self.handles.items():
            running, memory = ask("DeviceGetComputeRunningProcesses", handle), ask("DeviceGetMemoryInfo", handle)
            rates = ask("DeviceGetUtilizationRates", handle)
            processes = None if running is None else len({one.pid for one in running} - {os.getpid()})
            shares = {"busy_share": rates and rates.gpu / 100, "memory_share": memory and memory.used / memory.total}
            found[device] = {"processes": processes, **shares}
        return found

    def errors(self) -> dict[str, list[Xid] | None]:
        """Xid errors of each card since the watch began, and those of the last two hours in the kernel log; None if
        neither can be read."""
        heard, log, found = [], logged(self.began), {}
        while event := ask("EventSetWait_v2", self.events, 0):
            heard.append((ask("DeviceGetUUID", event.device), int(event.eventData)))
        for device, handle in self.handles.items():
            bus = getattr(ask("DeviceGetPciInfo", handle), "busId", None)
            known = [Xid(code, "during") for uuid, code in heard if uuid == self.uuids[device]]
            codes = {one.code for one in known}
            known += [xid for at, xid in log or [] if bus and at == address(os.fsdecode(bus)) and xid.code not in codes]
            found[device] = None if handle is None or self.events is log is None else known
        return found


def logged(began: float) -> list[tuple[list[int], Xid]] | None:
    """(PCI address, Xid) of each recent line of the kernel log; None if it may not be read."""
    content = b""
    try:
        with open(os.open(KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as log:
            while True:
                with contextlib.suppress(BrokenPipeError):  # the next line was overwritten meanwhile
                    if not (piece := log.read(1 << 13)):  # None at the end of /dev/kmsg
                        break
                    content += piece
    except OSError:
        return None
    now, found = time.monotonic(), []
    for line in filter(None, map(LINE.match, content.decode(errors="replace").splitlines())):
        at = int(line["us"]) / 1e6
        if now - at <= LOOKED_BACK_S:
            seen = "before" if at < began else "during", max(0.0, now - at), line["text"]
            found.append((address(line["bus"]), Xid(int(line["code"]), *seen)))
    return found


def address(bus: str) -> list[int]:
    """0000:17:00 of the kernel log is 00000000:17:00.0 of NVML."""
    return [int(part, 16) for part in bus.partition(".")[0].split(":")]
