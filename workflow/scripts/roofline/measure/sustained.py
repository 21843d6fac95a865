"""Sustained load: what a card still gives once clock and power have settled."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, sqrt
from statistics import fmean, stdev

from roofline.core import statistics
from roofline.core.disturbance import collect_throttle_reasons, is_throttled
from roofline.core.periods import find_period
from roofline.devices.base import CudaDevice, LoadLimit, Step
from roofline.devices.energy_counter import watch_energy
from roofline.measure.energy import compute_load_energy
from roofline.measure.undisturbed import THROTTLE_REPORT_LAG_S, StateLog, repeat_until_undisturbed
from roofline.records.compute import LoadPoint, Sustained, WorkloadSpec

CHUNK_S = 0.05  # between two readings: NVML's come tens of milliseconds apart
CHUNKS_TIMED_SINGLY = 2  # the first chunks, whose steps are timed one by one
MOST_STEPS_TIMED_SINGLY = 1000  # of a chunk; with more no step is timed by itself
LOAD_SETTLING_S = 1.0  # the opening burst and the first dip of power control
SHORTEST_CYCLE_S = 0.3  # of power control: an H200's dips come every 0.9 s
FEWEST_CURVE_POINTS = 8  # from which cycles and an interval are computed
INTERVAL_PARTS = 4  # of a load without cycles
MOST_HALF_WIDTH = 0.01  # of the mean rate: a load with a wider 95 % interval goes on
FEWEST_CYCLES = 3  # two may agree by chance, and Student's t of two is 12.7
# By whole seconds, so that chance does not choose the moment: one more cycle of an H200, of which 3 s have two.
EXTENSION_S, MOST_EXTENSION_S = 1.0, 2.0
STARVED_SHARE = 0.03  # less work per clock cycle than usual; at most 0.7 % on an H200 that is kept busy


@dataclass(frozen=True)
class LoadedWork:
    """The work under sustained load: a step, the amount of one step (FLOPs, bytes or tokens) and its record."""

    step: Step
    amount: float
    spec: WorkloadSpec
    follows_clock: bool = True  # of the multiprocessors; memory does not


def measure_sustained(device: CudaDevice, work: LoadedWork, seconds: float, step_s: float) -> Sustained | None:
    """Run work without a pause for `seconds`, and return its mean rate over whole cycles of power control.

    `step_s` is about what one step takes. Moments of throttling are left out, and of work that follows the clock also
    those of an empty queue. The load is repeated when disturbed. None if the device ran no chunk.
    """
    run_once = partial(measure_sustained_once, device, work, seconds, step_s)
    load, contention = repeat_until_undisturbed(
        device, run_once, lambda load: -load.tflops if load else inf, "device", list_processes=False
    )
    return load and load.model_copy(update={"contention": contention})


def measure_sustained_once(
    device: CudaDevice, work: LoadedWork, seconds: float, step_s: float, most_extension_s: float = MOST_EXTENSION_S
) -> Sustained | None:
    """Run work without a pause for `seconds`, in chunks of about 50 ms, and return its summary.

    It goes on while its mean is uncertain, at most `most_extension_s` longer. It is not repeated when disturbed. None
    if the device ran no chunk.
    """
    count, limit, most_s = max(1, round(CHUNK_S / step_s)), LoadLimit(seconds), seconds + most_extension_s
    chunks_timed_singly = CHUNKS_TIMED_SINGLY if count <= MOST_STEPS_TIMED_SINGLY else 0
    curve: list[LoadPoint] = []
    first_steps_s: list[float] = []
    progress = [(0.0, 0.0)]  # (seconds of the device, amount of work done until then)
    log = StateLog(device)
    log.read("before")
    with watch_energy(device) as readings:
        start = time.monotonic()
        for at_s, chunk_steps_s, clock_mhz in device.time_load_chunks(work.step, count, limit, chunks_timed_singly):
            state = log.read("during")
            if len(curve) < chunks_timed_singly:
                first_steps_s += [round(sample_s, 10) for sample_s in chunk_steps_s]
            sensors = state.model_dump(include={"power_w", "temperature_c", "throttle_reasons"})
            tflops = work.amount * len(chunk_steps_s) / sum(chunk_steps_s) / 1e12
            curve.append(LoadPoint(at_s=round(at_s, 4), tflops=tflops, sm_clock_mhz=clock_mhz, **sensors))
            device_s, amount_done = progress[-1]
            progress.append((device_s + count * fmean(chunk_steps_s), amount_done + count * work.amount))
            if limit.seconds <= at_s and limit.seconds < most_s:
                if is_uncertain(summarise_load(curve, work, limit.seconds)):
                    limit.seconds += EXTENSION_S
                else:
                    most_s = limit.seconds  # decided: the queue runs dry from here on
    if not curve:
        return None
    load = summarise_load(curve, work, limit.seconds, first_steps_s)
    energy = compute_load_energy(readings, start, LOAD_SETTLING_S, progress)
    return load.model_copy(update={"power_reading": log.states[-1].power_reading, "energy": energy})


def summarise_load(
    curve: list[LoadPoint], work: LoadedWork, seconds: float, first_steps_s: Sequence[float] = ()
) -> Sustained:
    """Return the figures of a load of `seconds` from its curve.

    Throttle reasons count from THROTTLE_REPORT_LAG_S on, since NVML reports those of the time before until then.
    """
    cycle = find_cycle_points(curve)
    first = first_counted_point(curve, cycle)
    settled = curve[first:]
    unthrottled = [point for point in settled if not is_throttled(point.throttle_reasons)]
    usable = unthrottled or settled
    counted = select_fed(usable) if work.follows_clock else usable
    reported = [point.throttle_reasons for point in settled if point.at_s >= THROTTLE_REPORT_LAG_S]
    tflops, parts = mean_rate(counted), _part_rates(counted, cycle)
    return Sustained(
        product=work.spec,
        duration_s=seconds,
        settled_after_s=curve[first - 1].at_s if first else 0.0,
        cycle_s=_seconds_of_points(curve, cycle) if cycle else None,
        tflops=tflops,
        ci95_tflops=_mean_interval(tflops, parts),
        drift=parts[-1] / parts[0] - 1 if parts else None,
        sm_clock_mhz=_median_of(point.sm_clock_mhz for point in counted),
        power_w=_median_of(point.power_w for point in counted),
        temperature_c=max((point.temperature_c for point in counted if point.temperature_c is not None), default=None),
        throttle_reasons=collect_throttle_reasons(reported),
        throttled_points=len(settled) - len(unthrottled),
        starved_points=len(usable) - len(counted),
        all_throttled=not unthrottled,
        first_products_s=list(first_steps_s),
        curve=curve,
    )


def is_uncertain(load: Sustained) -> bool:
    """Return whether a load has cycles, and fewer than FEWEST_CYCLES, or the 95 % interval of its mean is wider than
    MOST_HALF_WIDTH or not known."""
    if load.cycle_s and round((load.curve[-1].at_s - (load.settled_after_s or 0)) / load.cycle_s) < FEWEST_CYCLES:
        return True
    return load.ci95_tflops is None or load.ci95_tflops[1] > (1 + MOST_HALF_WIDTH) * load.tflops


def select_fed(points: Sequence[LoadPoint]) -> list[LoadPoint]:
    """Return the points at which the device always had work; all points if no clock is known.

    An empty queue lowers the work per clock cycle, a lower clock does not.
    """
    usual = _median_of(point.tflops / point.sm_clock_mhz for point in points if point.sm_clock_mhz)
    least_per_clock = (1 - STARVED_SHARE) * (usual or 0.0)
    return [point for point in points if point.tflops >= least_per_clock * (point.sm_clock_mhz or 0)]


def mean_rate(points: Sequence[LoadPoint]) -> float:
    """Return work over time: the points are of equal work, so that slow ones last longer."""
    return len(points) / sum(1 / point.tflops for point in points)


def first_counted_point(curve: Sequence[LoadPoint], cycle: int | None) -> int:
    """Return the index of the first point that counts.

    It lies LOAD_SETTLING_S after the start, or as much later as leaves whole cycles of `cycle` points. The last half of
    a shorter load counts.
    """
    first = next((index for index, point in enumerate(curve) if point.at_s > LOAD_SETTLING_S), len(curve))
    first = min(first, len(curve) // 2)
    remaining = len(curve) - first
    return first + remaining % cycle if cycle and remaining >= cycle else first  # whole cycles remain


def find_cycle_points(curve: Sequence[LoadPoint]) -> int | None:
    """Return the number of points from one dip of the clock to the next; None where there are no cycles.

    A cycle takes from SHORTEST_CYCLE_S to half of the load. The rates after LOAD_SETTLING_S decide.
    """
    rates = [point.tflops for point in curve if point.at_s > LOAD_SETTLING_S]
    if len(rates) < FEWEST_CURVE_POINTS:
        return None
    return find_period(rates, shortest=max(2, round(SHORTEST_CYCLE_S / _seconds_of_points(curve, 1))))


def _seconds_of_points(curve: Sequence[LoadPoint], points: int) -> float:
    return points * curve[-1].at_s / len(curve)


def _part_rates(points: Sequence[LoadPoint], cycle: int | None) -> list[float]:
    """Return the rate of each whole cycle, or of INTERVAL_PARTS equal parts where there are no cycles.

    Too few points give none.
    """
    size = cycle or len(points) // INTERVAL_PARTS
    if not size or len(points) < FEWEST_CURVE_POINTS:
        return []
    first = len(points) % size
    return [mean_rate(points[start : start + size]) for start in range(first, len(points), size)]


def _mean_interval(tflops: float, parts: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean, by Student's t of the rates of its parts."""
    if len(parts) < 2:
        return None
    half_width = statistics.student_t_half_width(len(parts) - 1) * stdev(parts) / sqrt(len(parts))
    return max(tflops - half_width, tflops / 2), tflops + half_width


def _median_of(values: Iterable[float | None]) -> float | None:
    """Return the median of the values that are reported; None without any."""
    reported = [value for value in values if value]
    return statistics.median(reported) if reported else None
