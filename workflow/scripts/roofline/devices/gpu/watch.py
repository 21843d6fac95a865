"""What GPUs do and report, as seen by a process that uses none of them: who else is there, and the driver's Xid errors.

An Xid is the number by which NVIDIA's driver reports an error of a GPU. NVML tells of those that come while one
listens; the kernel's log holds earlier ones, where it may be read.
"""

import contextlib
import os
import re
import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

from roofline.devices.base import Identity
from roofline.devices.gpu import nvml
from roofline.records.health import Unused, Xid

KERNEL_LOG = Path("/dev/kmsg")
LOOKED_BACK_S = 2 * 3600  # as azurehpc-health-checks does: an older error may be that of an earlier tenant's program
# NVML's utilisation is of a period of up to a second, of which an earlier user may have had a part.
PERIOD_S, LOOKS, BETWEEN_LOOKS_S = 1.0, 5, 0.1
LINE = re.compile(
    r"^\d+,\d+,(?P<us>\d+),[^;]*;NVRM: Xid \((?:PCI:)?(?P<bus>[\da-fA-F:.]+)\): (?P<code>\d+)(?:, )?(?P<text>.*)"
)


class Watch:
    """Over GPUs, from when it is made. A card that NVML does not know, or NVML that is not there: nothing is told."""

    def __init__(self, cards: Iterable[Identity]):
        self._began = time.monotonic()
        handles = nvml.visible_gpus() if nvml.start() else []
        known = {uuid: handle for handle in handles if (uuid := nvml.uuid(handle))}
        self._handles = {card.device: known.get(card.uuid) for card in cards}
        self.reads_log = _logged(self._began) is not None
        self._events = _listen([handle for handle in self._handles.values() if handle is not None])

    def unused(self) -> dict[str, Unused]:
        """Who uses each card while this project does not: call while no measurement of ours runs."""
        time.sleep(PERIOD_S)
        looks: dict[str, list] = {device: [] for device in self._handles}
        for _ in range(LOOKS):
            for device, handle in self._handles.items():
                looks[device].append(nvml.utilisation(handle))
            time.sleep(BETWEEN_LOOKS_S)
        return {device: self._unused(device, shares) for device, shares in looks.items()}

    def _unused(self, device: str, shares: list[float | None]) -> Unused:
        handle, told = self._handles[device], [share for share in shares if share is not None]
        return Unused(
            processes=nvml.processes(handle),
            utilisation=statistics.median(told) if told else None,
            memory_used_share=nvml.memory_used_share(handle),
        )

    def errors(self) -> dict[str, list[Xid] | None]:
        """Xid errors of each card: those since this watch began, and those that the kernel's log holds of the last two
        hours. None where neither can be read."""
        heard, logged = self._heard(), _logged(self._began)
        found = {}
        for device, handle in self._handles.items():
            bus = nvml.bus_id(handle)
            known = [Xid(code=code, when="during") for card, code in heard or [] if card == nvml.uuid(handle)]
            codes = {one.code for one in known}
            known += [one.xid for one in logged or [] if bus and _same(one.bus, bus) and one.xid.code not in codes]
            found[device] = None if handle is None or heard is logged is None else known
        return found

    def _heard(self) -> list[tuple[str | None, int]] | None:
        """(UUID, Xid) of every event since the last call."""
        if self._events is None:
            return None
        import pynvml

        found = []
        while event := nvml.ask(pynvml.nvmlEventSetWait_v2, self._events, 0):
            found.append((nvml.uuid(event.device), int(event.eventData)))
        return found


def _listen(handles: list):
    """A set of NVML's events to which these cards report; None where one of them does not."""
    if not handles:
        return None
    import pynvml

    try:
        events = pynvml.nvmlEventSetCreate()
        for handle in handles:
            pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
    except pynvml.NVMLError:
        return None
    return events


def _logged(began: float) -> list | None:
    """The Xid lines of the kernel's log that are recent, before or since then; None where it may not be read."""
    try:
        file = os.open(KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    text = b""
    try:
        while True:
            with contextlib.suppress(BrokenPipeError):  # what was next has been overwritten meanwhile
                piece = os.read(file, 1 << 13)
                if not piece:
                    break
                text += piece
    except BlockingIOError:
        pass
    except OSError:
        return None
    finally:
        os.close(file)
    now, lines = time.monotonic(), (LINE.match(line) for line in text.decode(errors="replace").splitlines())
    return [
        SimpleNamespace(
            bus=line["bus"],
            xid=Xid(
                code=int(line["code"]),
                when="before" if at < began else "during",
                age_s=max(0.0, now - at),
                text=line["text"],
            ),
        )
        for at, line in ((int(line["us"]) / 1e6, line) for line in lines if line)
        if now - at <= LOOKED_BACK_S
    ]


def _same(one: str, other: str) -> bool:
    """0000:17:00 of the kernel's log is 00000000:17:00.0 of NVML."""
    return _address(one) == _address(other)


def _address(bus: str) -> list[int]:
    return [int(part, 16) for part in bus.partition(".")[0].split(":")]
