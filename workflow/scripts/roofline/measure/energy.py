"""Joules of a load: the card's energy counter from tick to tick, over the work that was done between the two ticks.

NVML's counter ticks every 100 ms. A thread looks at it every few milliseconds, so that both ends are ticks. Its power
readings over the same time are a second method: if the two differ by more than AGREE, there is no figure.
"""

import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from statistics import fmean
from threading import Event, Thread
from typing import NamedTuple

from roofline.devices.base import Device
from roofline.records.energy import Energy, Idle

PERIOD_S = 0.002  # between two looks
FEWEST_TICKS = 16  # between the first tick and the last
AGREE = 0.03
IDLE_S, SETTLING_S, FEWEST_IDLE_TICKS = 2.0, 0.9, 8


class Look(NamedTuple):
    at: float  # time.monotonic()
    joules: float  # since the driver was loaded
    power_w: float | None


class Ticks(NamedTuple):
    first: Look
    last: Look
    count: int
    readings_w: float | None  # mean of the power readings between the two

    @property
    def power_w(self) -> float:
        return (self.last.joules - self.first.joules) / (self.last.at - self.first.at)


@contextmanager
def watched(device: Device) -> Iterator[list[Look]]:
    """What a thread sees of the counter while the block runs; nothing of a device without one."""
    looks: list[Look] = []
    ended = Event()

    def look() -> None:
        while not ended.wait(PERIOD_S) and (seen := device.energy()):
            looks.append(Look(time.monotonic(), *seen))

    thread = Thread(target=look, daemon=True)
    thread.start()
    try:
        yield looks
    finally:
        ended.set()
        thread.join()


def ticks(looks: Sequence[Look], start: float, end: float = float("inf")) -> Ticks | None:
    """The first and the last tick of the counter between two moments; None if there are fewer than two."""
    within = [look for look in looks if start < look.at <= end]
    changed = [later for earlier, later in pairwise(within) if later.joules != earlier.joules]
    if len(changed) < 2:
        return None
    first, last = changed[0], changed[-1]
    readings = [look.power_w for look in looks if look.power_w and first.at < look.at <= last.at]
    return Ticks(first, last, len(changed) - 1, fmean(readings) if readings else None)


def of_load(looks: Sequence[Look], start: float, settled_s: float, points: Sequence[tuple[float, float]]) -> Energy:
    """Joules per unit of the work of a load that began at `start` (of time.monotonic()).

    `points` are (seconds since then, work done until then), at least one; what counts begins at `settled_s`.
    """
    if not looks:
        return Energy(why="NVML reports no energy counter: before Volta, on a MIG slice, or where it is refused")
    found = ticks(looks, start + settled_s, start + points[-1][0])
    if not found or found.count < FEWEST_TICKS:
        count = found.count if found else 0
        return Energy(why=f"the energy counter ticked {count} times under the settled load; {FEWEST_TICKS} are needed")
    work = _done(points, found.last.at - start) - _done(points, found.first.at - start)
    energy = Energy(
        joules=found.last.joules - found.first.joules,
        seconds=found.last.at - found.first.at,
        ticks=found.count,
        work=work,
        power_w=found.power_w,
        readings_w=found.readings_w,
    )
    apart = abs(found.readings_w / found.power_w - 1) if found.readings_w else 0.0
    why = f"power by the counter and by readings differ by {100 * apart:.2g} %" if apart > AGREE else None
    return energy.model_copy(update={"why": why})


def _done(points: Sequence[tuple[float, float]], at_s: float) -> float:
    """The work that is done by a moment, between points in proportion to time."""
    place = bisect_right(points, at_s, key=lambda point: point[0])
    before, after = (points[place - 1] if place else (0.0, 0.0)), points[min(place, len(points) - 1)]
    share = (at_s - before[0]) / (after[0] - before[0]) if after[0] > before[0] else 0.0
    return before[1] + share * (after[1] - before[1])


def idle(device: Device) -> Idle | None:
    """Power of the device with its context open and nothing to do; None without a counter."""
    device.synchronize()
    with watched(device) as looks:
        time.sleep(IDLE_S)
    found = ticks(looks, looks[0].at + SETTLING_S) if looks else None
    if not found or found.count < FEWEST_IDLE_TICKS:
        return None
    state = device.state()
    return Idle(
        power_w=found.power_w,
        readings_w=found.readings_w,
        seconds=found.last.at - found.first.at,
        sm_clock_mhz=state.get("sm_clock_mhz"),
        temperature_c=state.get("temperature_c"),
    )
