"""The memory ceilings of one level, or the sweep that finds the levels by itself."""

from collections.abc import Sequence
from math import inf

from roofline.core.plateaus import SweepLevel, find_levels
from roofline.core.statistics import median
from roofline.devices.base import Device
from roofline.devices.levels import CACHE_OR_MEMORY, MEMORY_PLATEAU
from roofline.measure import search
from roofline.measure.protocol import scale_to_application, time_caller, time_device, time_until_precise
from roofline.measure.undisturbed import StateLog, repeat_until_undisturbed, throttle_reasons_after, was_throttled
from roofline.records.bandwidth_record import Bandwidth, GridTrial, Latency, Plateau, SweepPoint, SweepRecord
from roofline.records.device_record import DatasheetBandwidth, DeviceRecord

SWEEP_RUNS = 3
BLOCKS_BUDGET_FACTOR = 2  # for a stream that is timed in several blocks
LEAST_BLOCK_SAMPLES = 4  # samples for which a block has time
LINK_LOOK_S = 0.1  # of copies around a look at the host link, whose generation an idle card lowers
MATCH_FACTOR = 2.0  # a knee this many times away from a capacity is not that level's


def measure_bandwidth(device: Device, record: DeviceRecord, stream, warmup, iterations, time_budget_s) -> Bandwidth:
    """The fastest grid of a stream, in the fastest of several blocks that are timed until precise, and checked."""
    ways = list(stream.steps_by_grid.items())
    # With all threads twice: a neighbour of a virtual machine may slow them to the speed of one for a moment.
    ways += ways[:1] if device.kind == "cpu" else []
    tried, searched = search.try_candidates(device, ways, lambda way: way[1], time_budget_s)
    (grid, step), step_s, _ = min(tried, key=lambda one: one.seconds)
    blocks = list(_time_blocks(device, stream, step, step_s, warmup, iterations, time_budget_s))
    latency, log = min(blocks, key=lambda block: block[0].median_s)
    if stream.level == "pcie":
        device.look_while_busy(step, step_s, LINK_LOOK_S, lambda: log.read("during", **device.read_host_link()))
    clock_mhz = stream.clock_mhz()  # before the check runs other kernels
    gb_per_s = stream.counted_bytes / latency.median_s / 1e9
    return Bandwidth(
        name=stream.name,
        level=stream.level,
        mix=stream.mix,
        cores=stream.cores,
        host_memory=stream.host_memory,
        both_ways=stream.both_ways,
        counting_rule=stream.counting_rule,
        bytes=stream.counted_bytes,
        gb_per_s=gb_per_s,
        ci95_gb_per_s=_bandwidth_interval(stream.counted_bytes, latency.ci95_s),
        datasheet_gb_per_s=_datasheet_gb_per_s(record, stream),
        threads=stream.threads_of_grid(grid),
        grid=grid,
        search=searched,
        trials=[GridTrial(grid=one.way[0], gb_per_s=stream.counted_bytes / one.seconds / 1e9) for one in tried],
        repeats_gb_per_s=[stream.counted_bytes / block.median_s / 1e9 for block, _ in blocks],
        sm_clock_mhz=clock_mhz,
        throttle_reasons=throttle_reasons_after(log.states),
        all_throttled=was_throttled(latency, log.states),
        timing=latency,
        states=log.states,
        checked_against=stream.verify(grid),
    )


def measure_load_latency(device: Device, chain, warmup, iterations, time_budget_s) -> Latency:
    """What one load of a kernel takes that waits for the load before it."""
    step, loads, verify = chain
    options = {"warmup": warmup, "most": iterations, "time_budget_s": time_budget_s}
    return Latency(
        name="load",
        description="an 8-byte load of a kernel, each from the address that the one before brought",
        bytes=8,
        timing=scale_to_application(time_until_precise(device, step, StateLog(device), **options), loads),
        checked_against=verify(),
    )


def measure_peer_latencies(device: Device, pair, warmup, iterations, time_budget_s) -> list[Latency]:
    """What 8 bytes take between two GPUs: a load of a kernel, by loads that wait for one another, and a copy."""
    options = {"warmup": warmup, "iterations": iterations, "time_budget_s": time_budget_s}
    load, (step, verify) = measure_load_latency(device, pair.pointer_chase(), **options), pair.small_copy_step()
    caller = time_caller(device, step, **options)
    copy = Latency(
        name="copy",
        description="8 bytes to the peer by the driver's copy, on the device alone",
        bytes=8,
        timing=time_device(device, step, caller, time_budget_s=time_budget_s) or caller,
        checked_against=verify(),
    )
    return [load, copy]


def _time_blocks(device: Device, stream, step, step_s: float, warmup, iterations, time_budget_s):
    """(timing, readings) of each block, as many of the stream's as there is time for."""
    if stream.most_timed_blocks > 1:
        time_budget_s *= BLOCKS_BUDGET_FACTOR
    least = max(LEAST_BLOCK_SAMPLES, stream.least_samples)
    count = max(1, min(stream.most_timed_blocks, int(time_budget_s / (least * step_s))))
    for block in range(count):
        log = StateLog(device)
        options = {"warmup": 1 if block else warmup, "most": iterations, "time_budget_s": time_budget_s / count}
        yield time_until_precise(device, step, log, **options, least=stream.least_samples), log


def _datasheet_gb_per_s(record: DeviceRecord, stream) -> float | None:
    if stream.level == "hbm":
        return record.datasheet.bandwidth and record.datasheet.bandwidth.gb_per_s
    link = record.datasheet.nvlink
    return link.gb_per_s * stream.nvlink_share if link and stream.nvlink_share else None


def _bandwidth_interval(counted_bytes: int, ci95_s) -> tuple[float, float] | None:
    return None if ci95_s is None else (counted_bytes / ci95_s[1] / 1e9, counted_bytes / ci95_s[0] / 1e9)


def measure_sweep(device: Device, record: DeviceRecord, series) -> SweepRecord:
    """Read every working set a few times; the fastest counts, since what disturbs only slows. Then find the levels."""
    log = StateLog(device)
    log.read("before")
    points, contention = repeat_until_undisturbed(
        device, lambda: _time_sweep_points(device, series), lambda points: -sum(one.gb_per_s for one in points)
    )
    log.read("after")
    found = find_levels([(point.size_bytes, point.gb_per_s) for point in points])
    if found and not found[-1].knee_bytes and series.memory_from_bytes:
        found[-1] = _restrict_to_memory(found[-1], points, series.memory_from_bytes, record.datasheet.bandwidth)
    return SweepRecord(
        series=series.series,
        reader=series.reader,
        counting_rule=series.counting_rule,
        points=points,
        plateaus=name_levels(found, series.levels, series.cached_bytes, series.assumed),
        states=log.states,
        contention=contention,
    )


def _restrict_to_memory(
    level: SweepLevel, points: list[SweepPoint], from_bytes: int, vendor: DatasheetBandwidth | None
) -> SweepLevel:
    """The last plateau without what still hits a cache: sets that are too small, or rates above the datasheet."""
    most = vendor.gb_per_s if vendor else inf
    first = max(from_bytes, level.first_bytes)
    beyond = [point for point in points if point.size_bytes >= first and point.gb_per_s <= most]
    if not beyond:
        return level
    return level._replace(gb_per_s=median([one.gb_per_s for one in beyond]), first_bytes=beyond[0].size_bytes)


def _time_sweep_points(device: Device, series) -> list[SweepPoint]:
    points = []
    for size in series.sizes:
        step, bytes_read = series.step(size)
        fastest_s = min(device.time_steps(step, SWEEP_RUNS + 1)[1:])
        points.append(SweepPoint(size_bytes=size, gb_per_s=bytes_read / fastest_s / 1e9))
    return points


def name_levels(
    found: list, capacities: dict[str, int], cached_bytes: int | None = None, assumed: Sequence[str] = ()
) -> list[Plateau]:
    """Levels by the capacities that the device reports: a knee belongs to the nearest, within a factor of MATCHES.

    The last plateau, which has no knee, belongs to the first capacity that holds all of it. A plateau across a capacity
    gets no name. With `cached_bytes` the memory is a plateau wholly beyond that size.
    """
    named_levels, left = [], dict(capacities)
    for level in found:
        name = _match_level_name(level, left)
        if any(
            level.first_bytes * MATCH_FACTOR <= size <= level.last_bytes / MATCH_FACTOR for size in capacities.values()
        ):
            name = None
        if name is None and not level.knee_bytes and cached_bytes is not None:
            name = MEMORY_PLATEAU if level.first_bytes > cached_bytes else CACHE_OR_MEMORY
        capacity = left.pop(name, None) if name else None
        named_levels.append(
            Plateau(
                name=name,
                gb_per_s=level.gb_per_s,
                first_bytes=level.first_bytes,
                last_bytes=level.last_bytes,
                knee_bytes=level.knee_bytes and round(level.knee_bytes),
                reported_bytes=None if name in assumed else capacity,
            )
        )
    return named_levels


def _match_level_name(level, capacities: dict[str, int]) -> str | None:
    if not level.knee_bytes:
        return next((one for one, size in capacities.items() if size >= level.last_bytes), None)
    near = {one: max(size / level.knee_bytes, level.knee_bytes / size) for one, size in capacities.items()}
    name = min(near, key=near.get, default=None)
    return name if name and near[name] <= MATCH_FACTOR else None
