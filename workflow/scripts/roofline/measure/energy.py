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
IDLE_S, IDLE_SETTLING_S = 2.0, 0.9  # of an empty queue in all, and before it counts
NO_COUNTER = "NVML reads no energy counter here (before Volta, MIG, or refused)"


def compute_load_energy(
    readings: Sequence[EnergyReading], start: float, settled_s: float, progress: Sequence[tuple[float, float]]
) -> LoadEnergy:
    """Return the energy of a load that began at `start` (time.monotonic()), or the reason why it is not known.

    `progress` has pairs: seconds of the device since then, and the work done until then. The first `settled_s` seconds
    do not count.
    """
    if not readings:
        return LoadEnergy(reason=NO_COUNTER)
    settled_ticks = find_ticks(readings, start + settled_s, start + progress[-1][0])
    if len(settled_ticks) <= FEWEST_TICKS:
        return LoadEnergy(reason=f"too few ticks of the energy counter under the settled load ({len(settled_ticks)})")
    first, last = settled_ticks[0], settled_ticks[-1]
    joules, seconds = last.joules - first.joules, last.at - first.at
    nvml_readings_w = [reading.power_w for reading in readings if reading.power_w and first.at < reading.at <= last.at]
    nvml_power_w = fmean(nvml_readings_w) if nvml_readings_w else None
    difference = abs(nvml_power_w * seconds / joules - 1) if nvml_power_w else 0.0
    reason = None
    if difference > MOST_POWER_DIFFERENCE:
        reason = f"power by the counter and by readings differ by {100 * difference:.2g} %"
    return LoadEnergy(
        joules=joules,
        duration_s=seconds,
        ticks=len(settled_ticks) - 1,
        work=_work_done(progress, last.at - start) - _work_done(progress, first.at - start),
        power_w=joules / seconds,
        nvml_power_w=nvml_power_w,
        reason=reason,
    )


def _work_done(progress: Sequence[tuple[float, float]], at_s: float) -> float:
    """Return the work done by a moment: between two points of `progress`, in proportion to time."""
    import numpy

    moments_s, amounts = zip(*progress, strict=True)
    return float(numpy.interp(at_s, moments_s, amounts))


def measure_idle_power(device: Device) -> Idle | None:
    """Return the power with a context and an empty queue; None without a counter."""
    device.synchronize()
    with watch_energy(device) as readings:
        time.sleep(IDLE_S)
    idle_ticks = find_ticks(readings, readings[0].at + IDLE_SETTLING_S, inf) if readings else []
    state = device.read_state()
    if len(idle_ticks) < 2:
        return None
    first, last = idle_ticks[0], idle_ticks[-1]
    seconds = last.at - first.at
    return Idle(
        power_w=(last.joules - first.joules) / seconds,
        duration_s=seconds,
        sm_clock_mhz=state.get("sm_clock_mhz"),
        temperature_c=state.get("temperature_c"),
    )
