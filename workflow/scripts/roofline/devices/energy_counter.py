"""The energy counter of a device, which a thread reads while something runs. NVML's ticks every 100 ms."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from threading import Event, Thread
from typing import NamedTuple

PERIOD_S = 0.002  # between two looks


class Look(NamedTuple):
    at: float  # time.monotonic()
    joules: float  # since the driver was loaded
    power_w: float | None  # after a tick


@contextmanager
def watched(device) -> Iterator[list[Look]]:
    """Read while the block runs; none without a counter."""
    looks: list[Look] = []
    ended = Event()

    def look() -> None:
        while not ended.wait(PERIOD_S) and (joules := device.joules()) is not None:
            at, ticked = time.monotonic(), not looks or joules != looks[-1].joules
            looks.append(Look(at, joules, device.power_w() if ticked else None))

    thread = Thread(target=look, daemon=True)
    thread.start()
    try:
        yield looks
    finally:
        ended.set()
        thread.join()


def ticks(looks: Sequence[Look], start: float, end: float) -> list[Look]:
    """The ticks between two moments, equally far apart: on a line through all, as those found late are placed badly."""
    import numpy

    within = [look for look in looks if start < look.at <= end]
    changes = [(earlier, later) for earlier, later in pairwise(within) if later.joules != earlier.joules]
    if len(changes) < 2:
        return []
    middles, spans = numpy.array([((one.at + other.at) / 2, other.at - one.at) for one, other in changes]).T
    each_s, first = numpy.polyfit(range(len(changes)), middles, 1, w=1 / spans)
    return [later._replace(at=first + each_s * place) for place, (_, later) in enumerate(changes)]
