"""Sustained load: what a card still gives once clock and power have settled."""

import time
from collections.abc import Sequence
from math import sqrt
from operator import mul
from statistics import fmean, stdev

from roofline.core import statistics
from roofline.core.disturbance import collect_throttle_reasons, is_throttled
from roofline.devices.base import Device
from roofline.devices.energy_counter import watch_energy
from roofline.measure.energy import compute_load_energy
from roofline.measure.undisturbed import THROTTLE_REPORT_LAG_S, StateLog, repeat_until_undisturbed
from roofline.records.compute import LoadPoint, Sustained

CHUNK_S = 0.05  # between two looks: NVML's readings come tens of milliseconds apart
CHUNKS_TIMED_SINGLY, MOST_STEPS_TIMED_SINGLY = (
    2,
    1000,
)  # the first chunks are timed product by product, if of no more products
LOAD_SETTLING_S = 1.0  # the opening burst and the first dip of power control
SHORTEST_CYCLE_S = 0.3  # of a cycle: an H200's dips come every 0.9 s
LEAST_SWING, LEAST_AUTOCORRELATION = (
    0.002,
    0.3,
)  # of the mean: what swings less has no cycles; autocorrelation of what has
FEWEST_POINTS, INTERVAL_PARTS = 8, 4
STARVED_SHARE = 0.03  # less work a cycle than usual; at most 0.7 % on an H200 that is kept busy


def measure_sustained(device: Device, workload, seconds: float, step_s: float) -> Sustained | None:
    """Run a workload for so many seconds; the mean rate over whole cycles of its power control. `step_s` is about what
    one step takes. Moments of throttling and of an empty queue are set apart. None if the device ran no chunk."""
    found, contention = repeat_until_undisturbed(
        device,
        lambda: measure_sustained_once(device, workload, seconds, step_s),
        lambda load: -load.tflops,
        "device",
        others=False,
    )
    return found and found.model_copy(update={"contention": contention})


def measure_sustained_once(device: Device, workload, seconds: float, step_s: float) -> Sustained | None:
    """The same without repeats."""
    count = max(1, round(CHUNK_S / step_s))
    singly = CHUNKS_TIMED_SINGLY if count <= MOST_STEPS_TIMED_SINGLY else 0
    curve: list[LoadPoint] = []
    first_products_s: list[float] = []
    done = [(0.0, 0.0)]  # (seconds of the device, FLOPs)
    log = StateLog(device)
    log.read("before")
    with watch_energy(device) as looks:
        start = time.monotonic()
        for at_s, each_s, clock_mhz in device.time_load_chunks(workload.step, count, seconds, singly):
            state = log.read("during")
            state_fields = {key: getattr(state, key) for key in ("power_w", "temperature_c", "throttle_reasons")}
            tflops = workload.flops * len(each_s) / sum(each_s) / 1e12
            if len(curve) < singly:
                first_products_s += [round(seconds, 10) for seconds in each_s]
            curve.append(LoadPoint(at_s=round(at_s, 4), tflops=tflops, sm_clock_mhz=clock_mhz, **state_fields))
            done.append((done[-1][0] + count * fmean(each_s), done[-1][1] + count * workload.flops))
    if not curve:
        return None
    found = summarise_load(curve, workload.product, seconds, first_products_s)
    energy = compute_load_energy(looks, start, LOAD_SETTLING_S, done)
    return found.model_copy(update={"power_reading": log.states[-1].power_reading, "energy": energy})


def summarise_load(
    curve: list[LoadPoint],
    product,
    seconds: float,
    first_products_s: Sequence[float] = (),
) -> Sustained:
    """The figures of a curve. Throttle reasons count from LAG_S on, since NVML reports the load before until then."""
    cycle = find_cycle_points(curve)
    first = first_counted_point(curve, cycle)
    settled = curve[first:]
    free = [point for point in settled if not is_throttled(point.throttle_reasons)]
    held = free or settled
    counted = select_fed(held)
    tflops, parts = mean_rate(counted), _part_rates(counted, cycle)
    return Sustained(
        product=product,
        duration_s=seconds,
        settled_after_s=curve[first - 1].at_s if first else 0.0,
        cycle_s=_seconds_of_points(curve, cycle) if cycle else None,
        tflops=tflops,
        ci95_tflops=_mean_interval(tflops, parts),
        drift=parts[-1] / parts[0] - 1 if parts else None,
        sm_clock_mhz=_median_of(point.sm_clock_mhz for point in counted),
        power_w=_median_of(point.power_w for point in counted),
        temperature_c=max((point.temperature_c for point in counted if point.temperature_c is not None), default=None),
        throttle_reasons=collect_throttle_reasons(
            point.throttle_reasons for point in settled if point.at_s >= THROTTLE_REPORT_LAG_S
        ),
        throttled_points=len(settled) - len(free),
        starved_points=len(held) - len(counted),
        all_throttled=not free,
        first_products_s=list(first_products_s),
        curve=curve,
    )


def select_fed(points: Sequence[LoadPoint]) -> list[LoadPoint]:
    """Those in which the device always had work; all if no clock is known. An empty queue lowers the work per cycle, a
    lower clock does not."""
    usual = _median_of(point.tflops / point.sm_clock_mhz for point in points if point.sm_clock_mhz)
    return [one for one in points if not usual or one.tflops >= (1 - STARVED_SHARE) * usual * (one.sm_clock_mhz or 0)]


def mean_rate(points: Sequence[LoadPoint]) -> float:
    """Work over time: points are of equal work, so that slow ones last longer."""
    return len(points) / sum(1 / point.tflops for point in points)


def first_counted_point(curve: Sequence[LoadPoint], cycle: int | None) -> int:
    """The first point that counts: SETTLING_S after the start, or as much later as leaves whole cycles; of a shorter
    load the last half."""
    first = next((place for place, point in enumerate(curve) if point.at_s > LOAD_SETTLING_S), len(curve))
    first = min(first, len(curve) // 2)
    left = len(curve) - first
    return first + (left % cycle if cycle and left >= cycle else 0)


def find_cycle_points(curve: Sequence[LoadPoint]) -> int | None:
    """The points from one dip of the clock to the next, or None: the lag, between SHORTEST_S and half of the load, at
    which the autocorrelation of the rate after SETTLING_S is highest."""
    rates = [point.tflops for point in curve if point.at_s > LOAD_SETTLING_S]
    if len(rates) < FEWEST_POINTS:
        return None
    away = _remove_trend(rates)
    power = sum(value * value for value in away)
    if power <= (LEAST_SWING * fmean(rates)) ** 2 * len(rates):
        return None
    shortest = max(2, round(SHORTEST_CYCLE_S / _seconds_of_points(curve, 1)))
    alike = [fmean(list(map(mul, away, away[lag:]))) * len(away) / power for lag in range(len(away) // 2 + 2)]
    peaks = [lag for lag in range(shortest, len(alike) - 1) if alike[lag - 1] < alike[lag] >= alike[lag + 1]]
    best = max(peaks, key=alike.__getitem__, default=None)
    return best if best and alike[best] >= LEAST_AUTOCORRELATION else None


def _remove_trend(rates: Sequence[float]) -> list[float]:
    """What a straight line leaves, by least squares: a slow fall resembles itself too, and is not a cycle."""
    middle, mean = (len(rates) - 1) / 2, fmean(rates)
    slope = sum((place - middle) * (rate - mean) for place, rate in enumerate(rates))
    slope /= sum((place - middle) ** 2 for place in range(len(rates)))
    return [rate - mean - slope * (place - middle) for place, rate in enumerate(rates)]


def _seconds_of_points(curve: Sequence[LoadPoint], points: int) -> float:
    return points * curve[-1].at_s / len(curve)


def _part_rates(points: Sequence[LoadPoint], cycle: int | None) -> list[float]:
    """The rate of each whole cycle, or of PARTS equal parts where there are none; none of too few points."""
    size = cycle or len(points) // INTERVAL_PARTS
    if not size or len(points) < FEWEST_POINTS:
        return []
    first = len(points) % size
    return [mean_rate(points[place : place + size]) for place in range(first, len(points), size)]


def _mean_interval(tflops: float, parts: Sequence[float]) -> tuple[float, float] | None:
    """95 % of the mean, by Student's t of its parts."""
    if len(parts) < 2:
        return None
    half = statistics.student_t_half_width(len(parts) - 1) * stdev(parts) / sqrt(len(parts))
    return max(tflops - half, tflops / 2), tflops + half


def _median_of(values) -> float | None:
    known = [value for value in values if value]
    return statistics.median(known) if known else None
