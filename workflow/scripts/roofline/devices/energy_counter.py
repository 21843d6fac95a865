"""The energy counter of a device, read by a thread while something runs. NVML's ticks every 100 ms."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import NamedTuple

from roofline.devices.base import Device

READING_PERIOD_S = 0.002


class EnergyReading(NamedTuple):
    """One reading of the energy counter and, where it has ticked, of the power."""

    at: float  # time.monotonic()
    joules: float  # since the driver was loaded
    power_w: float | None  # None if the counter has not ticked since the last reading


@contextmanager
def watch_energy(device: Device) -> Iterator[list[EnergyReading]]:
    """Yield a list that a thread fills with a reading about every 2 ms until the block ends.

    It stays empty without a counter.
    """
    readings: list[EnergyReading] = []
    ended = Event()

    def read_until_ended() -> None:
        while not ended.wait(READING_PERIOD_S):
            joules = device.read_energy_j()
            if joules is None:
                return
            at, has_ticked = time.monotonic(), not readings or joules != readings[-1].joules
            readings.append(EnergyReading(at, joules, device.read_power_w() if has_ticked else None))

    thread = Thread(target=read_until_ended, daemon=True)
    thread.start()
    try:
        yield readings
    finally:
        ended.set()
        thread.join()


def find_ticks(readings: Sequence[EnergyReading], start: float, end: float) -> list[EnergyReading]:
    """Return the ticks of the counter between two moments; empty if there are fewer than two.

    Their times are those of a straight line through all ticks, since a tick that a reading found late is off. The line
    weights each tick by how short the time between the two readings around it was.
    """
    import numpy

    inside = [reading for reading in readings if start < reading.at <= end]
    at = numpy.array([reading.at for reading in inside])
    joules = numpy.array([reading.joules for reading in inside])
    tick_indices = numpy.flatnonzero(numpy.diff(joules)) + 1  # readings at which the counter had moved
    if len(tick_indices) < 2:
        return []
    steps = joules[tick_indices] - joules[tick_indices - 1]
    spans = at[tick_indices] - at[tick_indices - 1]
    ticks_per_step = numpy.maximum(1, numpy.rint(steps / numpy.median(steps)))  # two ticks if one was missed
    tick_numbers = numpy.cumsum(ticks_per_step)
    tick_period_s, line_start = numpy.polyfit(tick_numbers, at[tick_indices] - spans / 2, 1, w=1 / spans)
    tick_times = line_start + tick_period_s * tick_numbers
    return [EnergyReading(at, joules[index], None) for at, index in zip(tick_times, tick_indices, strict=True)]
