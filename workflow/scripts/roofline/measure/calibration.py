"""The calibration of a host: what work costs it, measured before any operator is timed.

A cost that cores divide is timed on one core and on all: `time = amount x (own / cores + shared)`. A launch is timed
with few arguments and with many: `time = start + count x each`.
"""

import time
from collections.abc import Callable, Iterable

from roofline.core import statistics
from roofline.core.cell_prediction import SHARED_COST_PREFIX
from roofline.core.terms import DEVICE_TRAITS
from roofline.devices import host
from roofline.devices.base import Device
from roofline.measure import lock
from roofline.measure.undisturbed import repeat_until_undisturbed
from roofline.records.calibration_record import CalibrationRecord, HostCost
from roofline.records.device_record import DeviceRecord

CORE_DIVIDED_COSTS = ("read_s_per_byte", "pass_s_per_byte")
SLOPE_BY_START = {"kernel_launch_s": "kernel_argument_s"}  # by the name of the start
BLOCK_S, LEAST_SAMPLES, MOST_SAMPLES = 0.015, 4, 60  # of a block's samples
# A core whose other thread a neighbour uses takes 1.5 times as long, for seconds: the usual round counts. Those of an
# accelerator's calls, which take a moment alone, are on cores of their own, apart from one another.
ROUNDS, CALL_ROUNDS, PAUSE_S = 3, 9, 0.25


def calibrate(device: Device, record: DeviceRecord, now: Callable[[], str]) -> CalibrationRecord:
    """Every cost of the host, sealed at the moment when the last was timed."""
    start = time.monotonic()
    with lock.hold_locks([lock.HOST_PATH_LOCK] if DEVICE_TRAITS[device.kind].accelerator else []):
        blocks, load = repeat_until_undisturbed(
            device, lambda: time_host_costs(device), _total_seconds, sensitive="caller"
        )
    return CalibrationRecord(
        device=record.device,
        device_kind=record.device_kind,
        sealed_at=now(),
        elapsed_s=round(time.monotonic() - start, 3),
        contention=load,
        host_costs=blocks,
        constants=derive_constants(blocks),
    )


def time_host_costs(device: Device) -> list[HostCost]:
    # What cannot be queued, as with CUDA_LAUNCH_BLOCKING, is left out.
    works = [one for one in device.host_cost_benchmarks() if not one.queued or device.time_steps_on_device(one.step, 1)]
    rounds = []
    if DEVICE_TRAITS[device.kind].synchronous:
        rounds = [[_time_host_cost(device, work) for work in works] for _ in range(ROUNDS)]
    else:
        cpus = sorted(host.usable_cpus())
        for place in range(CALL_ROUNDS):
            with host.pin_to_cpu(cpus[place * len(cpus) // CALL_ROUNDS]):
                time.sleep(PAUSE_S)
                rounds.append([_time_host_cost(device, work) for work in works])
    return [sorted(some, key=lambda one: one.median_s)[len(some) // 2] for some in zip(*rounds, strict=True)]


def _total_seconds(blocks: list[HostCost]) -> float:
    return sum(one.median_s for one in blocks)


def derive_constants(blocks: Iterable[HostCost]) -> dict[str, float]:
    """By name, in seconds per unit of each block's amount."""
    by_name: dict[str, dict[int, float]] = {}
    for block in blocks:
        by_name.setdefault(block.constant, {})[block.count] = block.median_s / block.amount
    found: dict[str, float] = {}
    for name, seconds in by_name.items():
        few, many = min(seconds), max(seconds)
        if name in SLOPE_BY_START:
            found[name], found[SLOPE_BY_START[name]] = _fit_start_and_slope(seconds[few], seconds[many], few, many)
        elif name in CORE_DIVIDED_COSTS:
            found[name], found[SHARED_COST_PREFIX + name] = _split_own_and_shared(seconds[few], seconds[many], many)
        else:
            found[name] = seconds[few]
    return found


def _fit_start_and_slope(few_s: float, many_s: float, few: int, many: int) -> tuple[float, float]:
    """Start and slope, neither below 0."""
    each = min(max(0.0, (many_s - few_s) / (many - few)), few_s / few)
    return few_s - each * few, each


def _split_own_and_shared(alone_s: float, all_s: float, cores: int) -> tuple[float, float]:
    """What a core takes alone is own + shared, and all of them take own / cores + shared; neither is below 0."""
    if cores == 1:
        return alone_s, 0.0
    own_s = min(max((alone_s - all_s) * cores / (cores - 1), 0.0), alone_s)
    return own_s, max(0.0, all_s - own_s / cores)


def _time_host_cost(device: Device, work) -> HostCost:
    device.time_steps(work.step, 1)
    queued = device.time_steps_on_device(work.step, MOST_SAMPLES) if work.queued else None
    samples, end = [round(one, 10) for one in queued or []], time.monotonic() + BLOCK_S
    while len(samples) < LEAST_SAMPLES or (len(samples) < MOST_SAMPLES and time.monotonic() < end):
        samples += [round(one, 10) for one in device.time_steps(work.step, 1, len(samples) + 1)]
    return HostCost(
        constant=work.name,
        count=work.count,
        amount=work.amount,
        samples_s=samples,
        median_s=statistics.median(samples),
    )
