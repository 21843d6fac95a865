"""Sustained load: what a card still gives once clock and power have settled."""

from collections.abc import Sequence

from roofline.core import statistics
from roofline.core.throttling import is_throttled, limiting_reasons
from roofline.devices.base import Device
from roofline.measure.contention import undisturbed
from roofline.measure.state import LAG_S, StateLog
from roofline.records.compute import LoadPoint, Sustained

CHUNK_S = 0.05  # between two looks: NVML's readings come tens of milliseconds apart
SINGLY, MOST_SINGLY = 2, 1000  # so many chunks at the beginning are timed product by product, if of no more products
WINDOW = 10  # chunks of a running median: power control swings within half a second
STEADY = 0.06


def sustain(device: Device, workload, seconds: float, step_s: float) -> Sustained | None:
    """Run a workload without a pause for so many seconds; the median rate once clock and power have settled.

    `step_s` is what one step takes, about. Moments of thermal or power-brake throttling are set apart; where there is
    nothing else, they count and the record says so. None where the device ran no chunk.
    """
    found, contention = undisturbed(
        device, lambda: _sustain(device, workload, seconds, step_s), lambda load: -load.tflops, "device", others=False
    )
    return found and found.model_copy(update={"contention": contention})


def _sustain(device: Device, workload, seconds: float, step_s: float) -> Sustained | None:
    count = max(1, round(CHUNK_S / step_s))
    singly = SINGLY if count <= MOST_SINGLY else 0
    curve: list[LoadPoint] = []
    first_products_s: list[float] = []
    log = StateLog(device)
    log.read("before")
    for at_s, each_s, clock_mhz in device.load_times(workload.step, count, seconds, singly):
        state = log.read("during")
        told = {key: getattr(state, key) for key in ("power_w", "temperature_c", "throttle_reasons")}
        tflops = workload.flops * len(each_s) / sum(each_s) / 1e12
        if len(curve) < singly:
            first_products_s += [round(seconds, 10) for seconds in each_s]
        curve.append(LoadPoint(at_s=round(at_s, 4), tflops=tflops, sm_clock_mhz=clock_mhz, **told))
    if not curve:
        return None
    found = summarise(curve, workload.product, seconds, first_products_s)
    return found.model_copy(update={"power_reading": log.states[-1].power_reading})


def summarise(curve: list[LoadPoint], product, seconds: float, first_products_s: Sequence[float] = ()) -> Sustained:
    """The figures of a curve. Throttle reasons count from LAG_S on: what NVML tells before is of before the load."""
    first = settled_from(curve)
    settled = curve[2 * len(curve) // 3 if first is None else first :]
    free = [point for point in settled if not is_throttled(point.throttle_reasons)]
    counted = free or settled
    rates = [point.tflops for point in counted]
    return Sustained(
        product=product,
        seconds=seconds,
        settled_after_s=None if first is None else (curve[first - 1].at_s if first else 0.0),
        tflops=statistics.median(rates),
        ci95=statistics.median_interval(rates),
        sm_clock_mhz=_median_of(point.sm_clock_mhz for point in counted),
        power_w=_median_of(point.power_w for point in counted),
        limited_by=limiting_reasons(point.throttle_reasons for point in settled if point.at_s >= LAG_S),
        throttled_points=len(settled) - len(free),
        all_throttled=not free,
        first_products_s=list(first_products_s),
        curve=curve,
    )


def settled_from(curve: list[LoadPoint]) -> int | None:
    """The first moment from which clock, power and rate stay near their median over the last third; None if none.

    Near: every running median of WINDOW moments is within STEADY. Moments without a reading are passed over.
    """
    starts = [_steady_from([getattr(point, key) for point in curve]) for key in ("sm_clock_mhz", "power_w", "tflops")]
    return None if None in starts else max(starts)


def _steady_from(values: list[float | None]) -> int | None:
    told = [(place, value) for place, value in enumerate(values) if value is not None]
    rates = [value for _, value in told]
    if not rates:
        return 0
    if len(rates) < WINDOW:
        return None
    level = statistics.median(rates[2 * len(rates) // 3 :])
    away = [
        place
        for place in range(len(rates) - WINDOW + 1)
        if abs(statistics.median(rates[place : place + WINDOW]) - level) > STEADY * level
    ]
    if away and away[-1] == len(rates) - WINDOW:
        return None
    first = away[-1] + WINDOW // 2 + 1 if away else 0
    return told[first][0] if first <= 2 * len(rates) // 3 else None


def _median_of(values) -> float | None:
    told = [value for value in values if value]
    return statistics.median(told) if told else None
