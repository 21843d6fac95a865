"""The energy counter of a device, read by a thread while something runs. NVML's ticks every 100 ms."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import NamedTuple

READING_PERIOD_S = 0.002  # between two looks


class EnergyReading(NamedTuple):
    at: float  # time.monotonic()
    joules: float  # since the driver was loaded
    power_w: float | None  # after a tick


@contextmanager
def watch_energy(device) -> Iterator[list[EnergyReading]]:
    """Read while the block runs; none without a counter."""
    looks: list[EnergyReading] = []
    ended = Event()

    def look() -> None:
        while not ended.wait(READING_PERIOD_S) and (joules := device.read_energy_j()) is not None:
            at, ticked = time.monotonic(), not looks or joules != looks[-1].joules
            looks.append(EnergyReading(at, joules, device.read_power_w() if ticked else None))

    thread = Thread(target=look, daemon=True)
    thread.start()
    try:
        yield looks
    finally:
        ended.set()
        thread.join()


def find_ticks(looks: Sequence[EnergyReading], start: float, end: float) -> list[EnergyReading]:
    """The ticks between two moments, on a line through all: those found late are off."""
    import numpy

    at, joules = numpy.reshape([(one.at, one.joules) for one in looks if start < one.at <= end], (-1, 2)).T
    later = numpy.flatnonzero(numpy.diff(joules)) + 1
    if len(later) < 2:
        return []
    steps, spans = joules[later] - joules[later - 1], at[later] - at[later - 1]
    places = numpy.cumsum(numpy.maximum(1, numpy.rint(steps / numpy.median(steps))))  # one may be two ticks
    each_s, first = numpy.polyfit(places, at[later] - spans / 2, 1, w=1 / spans)
    return [EnergyReading(first + each_s * place, joules[one], None) for place, one in zip(places, later, strict=True)]
