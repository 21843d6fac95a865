"""The memory ceilings of one level, or the sweep that finds the levels by itself."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf
from statistics import median

from roofline.core.levels import CACHE_OR_MEMORY, HOST_LINK, MAIN_MEMORY, MEMORY_PLATEAU
from roofline.core.plateaus import SweepLevel, find_levels, match_capacity, spans
from roofline.devices.base import BandwidthBenchmark, Device, GpuPair, Step, SweepBenchmark, is_gpu
from roofline.measure import search
from roofline.measure.protocol import TimingBudget, scale_to_application, time_caller, time_device, time_until_precise
from roofline.measure.undisturbed import StateLog, repeat_until_undisturbed, throttle_reasons_after, was_throttled
from roofline.records.bandwidth_record import Bandwidth, GridTrial, Latency, Plateau, SweepPoint, SweepRecord
from roofline.records.base import copy_fields
from roofline.records.device_record import DeviceRecord
from roofline.records.timing_record import Timing

SWEEP_RUNS = 3  # of each working set, after one to warm up
BLOCKS_BUDGET_FACTOR = 2  # times the budget for a benchmark that is timed in several blocks
MOST_GRIDS_TIMED, SLOWER_THAN_NEXT = 3, 1.03  # whose blocks take longer than the next grid's trial
LEAST_BLOCK_SAMPLES = 4  # for which each of several blocks has time
LINK_LOOK_S = 0.1  # of copies around a reading of the host link, whose generation an idle card lowers


def measure_bandwidth(
    device: Device, record: DeviceRecord, benchmark: BandwidthBenchmark, budget: TimingBudget
) -> Bandwidth:
    """Return the bandwidth of a benchmark's fastest grid.

    It is timed until precise in several blocks, of which the fastest counts, and then checked. A grid that was fast in
    its trial alone gives way to the next one. Raises ArithmeticError for a wrong result.
    """
    candidates = list(benchmark.steps_by_grid.items())
    if device.kind == "cpu":
        # All threads once more: a neighbour of a virtual machine may slow them to the speed of one for a moment.
        candidates += candidates[:1]
    trials, search_record = search.try_candidates(
        device, candidates, step_of=lambda grid_and_step: grid_and_step[1], budget_s=budget.time_budget_s
    )
    fastest_of_grid = {trial.candidate[0]: trial for trial in sorted(trials, key=lambda trial: -trial.seconds)}
    ranked = sorted(fastest_of_grid.values(), key=lambda trial: trial.seconds)
    timed_grids = []
    for trial, next_trial in zip(ranked[:MOST_GRIDS_TIMED], [*ranked[1:], None], strict=False):
        blocks = list(_time_blocks(device, benchmark, trial.candidate[1], trial.seconds, budget))
        timed_grids.append((min(block_timing.median_s for block_timing, _ in blocks), trial, blocks))
        if next_trial is None or timed_grids[-1][0] <= SLOWER_THAN_NEXT * next_trial.seconds:
            break
    _, ((grid, step), step_s, _), blocks = min(timed_grids, key=lambda timed: timed[0])
    timing, log = min(blocks, key=lambda block: block[0].median_s)
    if benchmark.level == HOST_LINK and is_gpu(device):
        device.look_while_busy(step, step_s, LINK_LOOK_S, lambda: log.read("during", **device.read_host_link()))
    clock_mhz = benchmark.clock_mhz()  # before the check runs other kernels

    def gb_per_s(seconds: float) -> float:
        return benchmark.counted_bytes / seconds / 1e9

    return Bandwidth(
        **copy_fields(benchmark, "name", "level", "mix", "cores", "host_memory", "both_ways", "counting_rule"),
        bytes=benchmark.counted_bytes,
        gb_per_s=gb_per_s(timing.median_s),
        ci95_gb_per_s=[gb_per_s(seconds) for seconds in reversed(timing.ci95_s)] if timing.ci95_s else None,
        datasheet_gb_per_s=_datasheet_gb_per_s(record, benchmark),
        threads=benchmark.threads_of_grid(grid),
        grid=grid,
        search=search_record,
        trials=[GridTrial(grid=trial.candidate[0], gb_per_s=gb_per_s(trial.seconds)) for trial in trials],
        repeats_gb_per_s=[gb_per_s(block_timing.median_s) for block_timing, _ in blocks],
        sm_clock_mhz=clock_mhz,
        throttle_reasons=throttle_reasons_after(log.states),
        all_throttled=was_throttled(timing, log.states),
        timing=timing,
        states=log.states,
        checked_against=benchmark.verify(grid),
    )


def measure_load_latency(device: Device, chain: tuple[Step, int, Callable[[], str]], budget: TimingBudget) -> Latency:
    """Return the seconds of a load that waits for the load before it.

    `chain` is a pointer chase of the device: a step, the loads of a step, and a check. Raises ArithmeticError if the
    loads did not lead where the chain leads.
    """
    step, loads, verify = chain
    timing = time_until_precise(device, step, StateLog(device), budget)
    return Latency(
        name="load",
        description="an 8-byte load of a kernel, each from the address that the one before brought",
        bytes=8,
        timing=scale_to_application(timing, loads),
        checked_against=verify(),
    )


def measure_peer_latencies(device: Device, pair: GpuPair, budget: TimingBudget) -> list[Latency]:
    """Return the latencies of 8 bytes between two GPUs: of a kernel's load, in a chain of loads, and of a copy.

    Raises ArithmeticError for a wrong result.
    """
    load = measure_load_latency(device, pair.pointer_chase(), budget)
    step, verify = pair.small_copy_step()
    caller = time_caller(device, step, budget)
    copy = Latency(
        name="copy",
        description="8 bytes to the peer by the driver's copy, on the device alone",
        bytes=8,
        timing=time_device(device, step, caller, time_budget_s=budget.time_budget_s) or caller,
        checked_against=verify(),
    )
    return [load, copy]


def _time_blocks(
    device: Device, benchmark: BandwidthBenchmark, step: Step, step_s: float, budget: TimingBudget
) -> Iterator[tuple[Timing, StateLog]]:
    """Yield the timing and the readings of each block, as many of the benchmark's as there is time for."""
    time_budget_s = budget.time_budget_s * (BLOCKS_BUDGET_FACTOR if benchmark.most_timed_blocks > 1 else 1)
    least_samples = max(LEAST_BLOCK_SAMPLES, benchmark.least_samples)
    count = max(1, min(benchmark.most_timed_blocks, int(time_budget_s / (least_samples * step_s))))
    block_budget = replace(budget, time_budget_s=time_budget_s / count, least_samples=benchmark.least_samples)
    for _ in range(count):
        log = StateLog(device)
        yield time_until_precise(device, step, log, block_budget), log
        block_budget = replace(block_budget, warmup=1)


def _datasheet_gb_per_s(record: DeviceRecord, benchmark: BandwidthBenchmark) -> float | None:
    """Return the GB/s that the datasheet promises of a benchmark; None where it promises none."""
    bandwidth, nvlink = record.datasheet.bandwidth, record.datasheet.nvlink
    if benchmark.level == MAIN_MEMORY["gpu"]:
        return bandwidth.gb_per_s if bandwidth else None
    return nvlink.gb_per_s * benchmark.nvlink_share if nvlink and benchmark.nvlink_share else None


def measure_sweep(device: Device, record: DeviceRecord, benchmark: SweepBenchmark) -> SweepRecord:
    """Read every working set a few times, and find the memory levels in the fastest rates.

    The fastest run counts, since whatever disturbs only slows.
    """
    log = StateLog(device)
    log.read("before")
    points, contention = repeat_until_undisturbed(
        device, lambda: _time_sweep_points(device, benchmark), lambda points: -sum(point.gb_per_s for point in points)
    )
    log.read("after")
    levels = find_levels([(point.size_bytes, point.gb_per_s) for point in points])
    from_bytes, bandwidth = benchmark.memory_from_bytes, record.datasheet.bandwidth
    if levels and not levels[-1].knee_bytes and from_bytes:
        most_gb_per_s = bandwidth.gb_per_s if bandwidth else inf
        levels[-1] = _trim_to_memory(levels[-1], points, from_bytes, most_gb_per_s)
    return SweepRecord(
        **copy_fields(benchmark, "series", "reader", "counting_rule"),
        points=points,
        plateaus=name_levels(levels, benchmark.levels, benchmark.cached_bytes, benchmark.assumed),
        states=log.states,
        contention=contention,
    )


def _trim_to_memory(level: SweepLevel, points: list[SweepPoint], from_bytes: int, most_gb_per_s: float) -> SweepLevel:
    """Return the last plateau without points that still hit a cache.

    Their sets are smaller than `from_bytes`, or their rates are above `most_gb_per_s`, the datasheet's bandwidth.
    """
    first_bytes = max(from_bytes, level.first_bytes)
    beyond = [point for point in points if point.size_bytes >= first_bytes and point.gb_per_s <= most_gb_per_s]
    if not beyond:
        return level
    return level._replace(gb_per_s=median([point.gb_per_s for point in beyond]), first_bytes=beyond[0].size_bytes)


def _time_sweep_points(device: Device, benchmark: SweepBenchmark) -> list[SweepPoint]:
    points = []
    for size in benchmark.sizes:
        step, bytes_read = benchmark.step(size)
        fastest_s = min(device.time_steps(step, SWEEP_RUNS + 1)[1:])
        points.append(SweepPoint(size_bytes=size, gb_per_s=bytes_read / fastest_s / 1e9))
    return points


def name_levels(
    levels: list[SweepLevel], capacities: dict[str, int], cached_bytes: int | None = None, assumed: Sequence[str] = ()
) -> list[Plateau]:
    """Name levels by the capacities that the device reports: a knee belongs to the nearest, within MATCH_FACTOR.

    The last plateau, which has no knee, belongs to the first capacity that holds all of it. A plateau across a capacity
    gets no name. With `cached_bytes` the memory is a plateau wholly beyond that size. Capacities in `assumed` only name
    a level, and are not recorded.
    """
    plateaus, unmatched = [], dict(capacities)
    for level in levels:
        across_capacity = any(spans(level, size) for size in capacities.values())
        name = None if across_capacity else match_capacity(level, unmatched)
        if name is None and not level.knee_bytes and cached_bytes is not None:
            name = MEMORY_PLATEAU if level.first_bytes > cached_bytes else CACHE_OR_MEMORY
        capacity = unmatched.pop(name, None) if name else None
        reported_bytes = None if name in assumed else capacity
        figures = level._asdict() | {"knee_bytes": level.knee_bytes and round(level.knee_bytes)}
        plateaus.append(Plateau(name=name, reported_bytes=reported_bytes, **figures))
    return plateaus
