"""Joules of a load between two ticks of the energy counter, over the work that was done between the two."""

import time
from collections.abc import Sequence
from math import inf
from statistics import fmean

from roofline.devices.base import Device
from roofline.devices.energy_counter import EnergyReading, find_ticks, watch_energy
from roofline.records.energy_record import Idle, LoadEnergy

FEWEST_TICKS = 16  # between the first tick and the last
MOST_POWER_DIFFERENCE = 0.03  # of the counter and of NVML's power readings
IDLE_S, IDLE_SETTLING_S = 2.0, 0.9
NO_COUNTER = "NVML reads no energy counter here (before Volta, MIG, or refused)"


def compute_load_energy(
    looks: Sequence[EnergyReading], start: float, settled_s: float, points: Sequence[tuple[float, float]]
) -> LoadEnergy:
    """The energy of a load that began at `start` (time.monotonic()).

    `points` are (seconds of the device since then, work done until then); what counts begins at `settled_s`.
    """
    if not looks:
        return LoadEnergy(reason=NO_COUNTER)
    found = find_ticks(looks, start + settled_s, start + points[-1][0])
    if len(found) <= FEWEST_TICKS:
        return LoadEnergy(reason=f"too few ticks of the energy counter under the settled load ({len(found)})")
    first, last = found[0], found[-1]
    joules, seconds = last.joules - first.joules, last.at - first.at
    readings = [look.power_w for look in looks if look.power_w and first.at < look.at <= last.at]
    readings_w = fmean(readings) if readings else None
    apart = abs(readings_w * seconds / joules - 1) if readings_w else 0.0
    return LoadEnergy(
        joules=joules,
        duration_s=seconds,
        ticks=len(found) - 1,
        work=_work_done(points, last.at - start) - _work_done(points, first.at - start),
        power_w=joules / seconds,
        nvml_power_w=readings_w,
        reason=f"power by the counter and by readings differ by {100 * apart:.2g} %"
        if apart > MOST_POWER_DIFFERENCE
        else None,
    )


def _work_done(points: Sequence[tuple[float, float]], at_s: float) -> float:
    """The work done by a moment: between points, in proportion to time."""
    import numpy

    return float(numpy.interp(at_s, *zip(*points, strict=True)))


def measure_idle_power(device: Device) -> Idle | None:
    """Power with a context and an empty queue; None without a counter."""
    device.synchronize()
    with watch_energy(device) as looks:
        time.sleep(IDLE_S)
    found, state = find_ticks(looks, looks[0].at + IDLE_SETTLING_S, inf) if looks else [], device.read_state()
    if len(found) < 2:
        return None
    joules, seconds = found[-1].joules - found[0].joules, found[-1].at - found[0].at
    clock_mhz, celsius = state.get("sm_clock_mhz"), state.get("temperature_c")
    return Idle(power_w=joules / seconds, duration_s=seconds, sm_clock_mhz=clock_mhz, temperature_c=celsius)
