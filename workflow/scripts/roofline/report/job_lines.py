"""The line that a measuring job leaves for the screen, from the rows of its record alone."""

from collections.abc import Callable
from typing import Any

from roofline.core.formatting import (
    capacity,
    duration,
    flops_rate_text,
    flops_unit,
    mark_doubtful,
    number,
    percent,
    traffic_text,
)
from roofline.core.grouping import group_by
from roofline.core.statistics import is_too_few
from roofline.operators.about import About, load_abouts
from roofline.report.pyramid import describe_plateau
from roofline.report.words import format_bandwidth
from roofline.table import ceiling_rows
from roofline.table.standing import NO_RUNS

Record = Any  # of roofline.records, which the report knows by the table alone


def format_job_line(record: Record | list[Record], name: str, device: Record = None) -> str:
    """Return the line of a job. A list holds the profiler's record and all counters; `device` is the device record."""
    if isinstance(record, list):
        return f"{name}: {_counters(*record)}"
    parts = [f"{record.elapsed_s:.1f} s"] if record.kind != "device_query" else []
    return f"{name}: {'; '.join(filter(None, [*parts, LINES[record.kind](record, device)]))}"


def _device(record: Record, _device: Record) -> str:
    return f"{record.name}, {number(record.memory_total_bytes / 1e9)} GB ({record.datasheet.peaks_by})"


def _peak(record: Record, device: Record) -> str:
    for ceiling in ceiling_rows.compute_ceiling_rows([("", record)], device, NO_RUNS, None):
        unit = flops_unit(ceiling.name)
        rates = [rate for rate in (ceiling.burst_tflops, ceiling.sustained_tflops) if rate]
        burst, *sustained = [f"{number(rate)} {unit}" if unit == "TOPS" else flops_rate_text(rate) for rate in rates]
        words = ", ".join([mark_doubtful(burst, ceiling.doubt), *(f"{rate} sustained" for rate in sustained)])
        fractions = (ceiling.burst_fraction_of_datasheet, ceiling.sustained_fraction_of_datasheet)
        shares = [percent(fraction) for fraction in fractions if fraction]
        if shares and not ceiling.doubt:
            words += f" ({' and '.join(shares)} of the {device.datasheet.peaks_by})"
        return words
    return f"skipped, {record.skipped_reason}"


def _bandwidths(record: Record, device: Record) -> str:
    ceilings = list(ceiling_rows.memory_ceiling_rows("", record, device, NO_RUNS))
    parts = [f"{ceiling.name} {format_bandwidth(ceiling)}" for ceiling in ceilings]
    parts += [f"{latency.name} of 8 bytes {duration(latency.timing.median_s)}" for latency in record.latencies]
    for sweep in record.sweeps:
        parts.append(f"{sweep.series} {' > '.join(map(describe_plateau, sweep.plateaus)) or 'no level'}")
    parts += [f"skipped, {record.skipped_reason}"] if record.skipped_reason else []
    return f"{'GB/s: ' if ceilings else ''}{', '.join(parts)}"


def _all_reduces(record: Record, _device: Record) -> str:
    if record.skipped_reason:
        return f"skipped, {record.skipped_reason}"
    ours = [timed for timed in record.all_reduces if timed.implementation == "ours"]
    times = [f"{capacity(timed.size_bytes)} {duration(timed.timing.median_s)}" for timed in (ours[0], ours[-1])]
    return f"{len(ours)} sizes, {', '.join(times)}"


def _instructions(record: Record, _device: Record) -> str:
    rate = record.issue.warp_instructions_per_s / 1e9
    return f"{rate:.0f} G warp instructions/s, {len(record.walls)} limits of loads by their access pattern"


def _operator(record: Record, _device: Record) -> str:
    """The fastest implementation of each case; why nothing was measured."""
    if not record.measurements:
        return "; ".join(record.notes)
    first = record.measurements[0]
    about = load_abouts().get(first.operator) or About()
    compared = [measurement for measurement in record.measurements if measurement.scope == first.scope]
    cases = group_by(compared, lambda measurement: about.series(measurement) or about.label(measurement))
    fastest = {case: min(group, key=lambda measurement: measurement.cpu_time.median_s) for case, group in cases.items()}
    return ", ".join(f"{case} {_time(measurement)}" for case, measurement in fastest.items())


def _time(measurement: Record) -> str:
    too_few = is_too_few(len(measurement.cpu_time.samples_s))
    time = mark_doubtful(duration(measurement.cpu_time.median_s), too_few)
    sealed_s = measurement.sealed.cpu_time_s
    predicted = f", predicted {duration(sealed_s)}" if sealed_s else ""
    return f"{time} ({measurement.implementation}{predicted})"


def _counters(profiler: Record, *records: Record) -> str:
    cells = [cell for record in records for cell in record.cells]
    if profiler.refused_reason or not cells:
        return profiler.refused_reason or "no implementation can be counted"
    return f"{', '.join(map(_read, cells))}, {records[0].elapsed_s:.1f} s"


def _read(cell: Record) -> str:
    name = f"{cell.implementation} {(load_abouts().get(cell.operator) or About()).label(cell)}"
    if cell.dram_read_bytes is None:
        return name
    return f"{name} read {traffic_text(cell.dram_read_bytes)} of {traffic_text(cell.declared_read_bytes)}"


LINES: dict[str, Callable[..., str]] = {
    "device_query": _device,
    "peak_flops": _peak,
    "bandwidth": _bandwidths,
    "all_reduce": _all_reduces,
    "instructions": _instructions,
    "operator": _operator,
}
