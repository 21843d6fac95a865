"""The calibration of a host: what work costs it, measured before any operator is timed.

A cost that cores divide is timed on one core and on all: `time = amount x (own / cores + shared)`. A launch is timed
with few arguments and with many: `time = start + count x slope`.
"""

import time
from collections.abc import Callable, Iterable

from roofline.core import statistics
from roofline.core.cell_prediction import SHARED_COST_PREFIX
from roofline.core.grouping import group_by
from roofline.core.terms import DEVICE_TRAITS
from roofline.devices import host
from roofline.devices.base import Device, HostCostBenchmark
from roofline.measure import lock
from roofline.measure.undisturbed import repeat_until_undisturbed
from roofline.records.calibration_record import CalibrationRecord, HostCost
from roofline.records.device_record import DeviceRecord

CORE_DIVIDED_COSTS = ("read_s_per_byte", "pass_s_per_byte")
SLOPE_BY_START = {"kernel_launch_s": "kernel_argument_s"}  # by the name of the start
COST_BLOCK_S, LEAST_COST_SAMPLES, MOST_COST_SAMPLES = 0.015, 4, 60  # of the block that times a cost
# A core whose other thread a neighbour uses takes 1.5 times as long, for seconds: the middle round counts. Rounds of an
# accelerator's calls take only a moment, and are each on another core.
ROUNDS, CALL_ROUNDS = 3, 9
CPU_CHANGE_PAUSE_S = 0.25


def calibrate(device: Device, record: DeviceRecord, now: Callable[[], str]) -> CalibrationRecord:
    """Return every cost of the host, sealed at the moment when the last was timed."""
    start = time.monotonic()
    with lock.hold_locks([lock.HOST_PATH_LOCK] if DEVICE_TRAITS[device.kind].accelerator else []):
        costs, load = repeat_until_undisturbed(
            device, lambda: time_host_costs(device), lambda costs: sum(cost.median_s for cost in costs), "caller"
        )
    return CalibrationRecord(
        device=record.device,
        device_kind=record.device_kind,
        sealed_at=now(),
        elapsed_s=round(time.monotonic() - start, 3),
        contention=load,
        host_costs=costs,
        constants=derive_constants(costs),
    )


def time_host_costs(device: Device) -> list[HostCost]:
    """Time every host cost of the device, and return for each the round with the middle median.

    There are 3 rounds. On a device that is not synchronous there are 9, spread over the usable CPUs; each begins 0.25 s
    after it was pinned to its CPU. Work that cannot be queued, as with CUDA_LAUNCH_BLOCKING, is left out.
    """

    def can_be_timed(benchmark: HostCostBenchmark) -> bool:
        return not benchmark.queued or bool(device.time_steps_on_device(benchmark.step, 1))

    benchmarks = [benchmark for benchmark in device.host_cost_benchmarks() if can_be_timed(benchmark)]
    rounds = []
    if DEVICE_TRAITS[device.kind].synchronous:
        for _ in range(ROUNDS):
            rounds.append([_time_host_cost(device, benchmark) for benchmark in benchmarks])
    else:
        cpus = sorted(host.usable_cpus())
        for round_index in range(CALL_ROUNDS):
            with host.pin_to_cpu(cpus[round_index * len(cpus) // CALL_ROUNDS]):
                time.sleep(CPU_CHANGE_PAUSE_S)
                rounds.append([_time_host_cost(device, benchmark) for benchmark in benchmarks])
    return [sorted(costs, key=lambda cost: cost.median_s)[len(costs) // 2] for costs in zip(*rounds, strict=True)]


def derive_constants(costs: Iterable[HostCost]) -> dict[str, float]:
    """Return the constants by name, in seconds per unit of each cost's amount."""
    constants: dict[str, float] = {}
    for name, same_costs in group_by(costs, lambda cost: cost.constant).items():
        seconds = {cost.count: cost.median_s / cost.amount for cost in same_costs}
        fewest, largest = min(seconds), max(seconds)
        if name in SLOPE_BY_START:
            start_s, slope_s = _fit_start_and_slope(seconds[fewest], seconds[largest], fewest, largest)
            constants[name], constants[SLOPE_BY_START[name]] = start_s, slope_s
        elif name in CORE_DIVIDED_COSTS:
            own_s, shared_s = _split_own_and_shared(seconds[fewest], seconds[largest], largest)
            constants[name], constants[SHARED_COST_PREFIX + name] = own_s, shared_s
        else:
            constants[name] = seconds[fewest]
    return constants


def _fit_start_and_slope(fewest_s: float, largest_s: float, fewest: int, largest: int) -> tuple[float, float]:
    """Return the start and the slope of the line through the times of two counts, neither below 0."""
    slope_s = min(max(0.0, (largest_s - fewest_s) / (largest - fewest)), fewest_s / fewest)
    return fewest_s - slope_s * fewest, slope_s


def _split_own_and_shared(alone_s: float, all_s: float, cores: int) -> tuple[float, float]:
    """Return the parts of a time that cores divide, and that they share, neither below 0.

    A core alone takes own + shared, and all of them together take own / cores + shared.
    """
    if cores == 1:
        return alone_s, 0.0
    own_s = min(max((alone_s - all_s) * cores / (cores - 1), 0.0), alone_s)
    return own_s, max(0.0, all_s - own_s / cores)


def _time_host_cost(device: Device, benchmark: HostCostBenchmark) -> HostCost:
    device.time_steps(benchmark.step, 1)  # to warm up
    samples: list[float] = []
    if benchmark.queued:
        samples += device.time_steps_on_device(benchmark.step, MOST_COST_SAMPLES) or []
    end = time.monotonic() + COST_BLOCK_S
    while len(samples) < LEAST_COST_SAMPLES or (len(samples) < MOST_COST_SAMPLES and time.monotonic() < end):
        samples += device.time_steps(benchmark.step, 1, len(samples) + 1)
    samples = [round(sample, 10) for sample in samples]
    return HostCost(
        constant=benchmark.name,
        count=benchmark.count,
        amount=benchmark.amount,
        samples_s=samples,
        median_s=statistics.median(samples),
    )
