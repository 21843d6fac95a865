"""The line that a measuring job leaves on the screen, from the rows of its record alone."""

from collections.abc import Callable, Iterable

from roofline.core.formatting import (
    duration,
    flops_rate_text,
    flops_unit,
    mark_doubtful,
    number,
    percent,
    plateau_label,
    traffic_text,
)
from roofline.core.statistics import is_too_few
from roofline.operators.about import About, load_abouts
from roofline.report.words import format_bandwidth
from roofline.table import ceiling_rows


def format_job_line(record, name: str, device=None) -> str:
    """`name` is of the job, `device` its device record. A list holds the profiler's record and all counters."""
    if isinstance(record, list):
        return f"{name}: {_counters(*record)}"
    parts = [f"{record.elapsed_s:.1f} s"] if record.kind != "device_query" else []
    return f"{name}: {'; '.join(filter(None, [*parts, LINES[record.kind](record, device)]))}"


def _device(record, _device) -> str:
    return f"{record.name}, {number(record.memory_total_bytes / 1e9)} GB ({record.datasheet.peaks_by})"


def _peak(record, device) -> str:
    for c in ceiling_rows.compute_ceiling_rows([("", record)], device, [], None):
        unit = flops_unit(c.name)
        rates = [rate for rate in (c.burst_tflops, c.sustained_tflops) if rate]
        burst, *sustained = [f"{number(one)} {unit}" if unit == "TOPS" else flops_rate_text(one) for one in rates]
        shares = [percent(one / c.datasheet_tflops) for one in rates] if c.datasheet_tflops and not c.doubt else []
        share = (
            f" ({' and '.join(shares)} of the {'formula' if c.compute_unit == 'cpu' else 'datasheet'})"
            if shares
            else ""
        )
        return ", ".join([mark_doubtful(burst, c.doubt), *(f"{one} sustained" for one in sustained)]) + share
    return f"skipped, {record.skipped_reason}"


def _bandwidths(record, device) -> str:
    rows = list(ceiling_rows.memory_ceiling_rows("", record, device, []))
    parts = [f"{one.name} {format_bandwidth(one)}" for one in rows]
    parts += [f"{one.name} of 8 bytes {duration(one.timing.median_s)}" for one in record.latencies]
    parts += [f"{sweep.series} {_levels(sweep.plateaus)}" for sweep in record.sweeps]
    parts += [f"skipped, {record.skipped_reason}"] if record.skipped_reason else []
    return f"{'GB/s: ' if rows else ''}{', '.join(parts)}"


def _levels(levels: Iterable) -> str:
    found = [f"{plateau_label(one.name, one.knee_bytes)} {number(one.gb_per_s)} GB/s" for one in levels]
    return " > ".join(found) or "no level"


def _instructions(record, _device) -> str:
    rate = record.issue.warp_instructions_per_s / 1e9
    return f"{rate:.0f} G warp instructions/s, {len(record.walls)} limits of loads by their access pattern"


def _operator(record, _device) -> str:
    """The fastest implementation of each case; why there is none."""
    if not record.measurements:
        return "; ".join(record.notes)
    first = record.measurements[0]
    about, best = load_abouts().get(first.operator) or About(), {}
    for one in record.measurements:
        if one.scope == first.scope:
            key = about.series(one) or about.label(one)
            best[key] = min(best.get(key, one), one, key=lambda one: one.cpu_time.median_s)
    return ", ".join(f"{key} {_time(one)}" for key, one in best.items())


def _time(one) -> str:
    time = mark_doubtful(duration(one.cpu_time.median_s), is_too_few(len(one.cpu_time.samples_s)))
    predicted = f", predicted {duration(one.sealed.cpu_time_s)}" if one.sealed.cpu_time_s else ""
    return f"{time} ({one.implementation}{predicted})"


def _counters(profiler, *records) -> str:
    cells = [cell for one in records for cell in one.cells]
    if profiler.refused_reason or not cells:
        return profiler.refused_reason or "no implementation can be counted"
    return f"{', '.join(map(_read, cells))}, {records[0].elapsed_s:.1f} s"


def _read(cell) -> str:
    what = f"{cell.implementation} {(load_abouts().get(cell.operator) or About()).label(cell)}"
    if cell.dram_read_bytes is None:
        return what
    return f"{what} read {traffic_text(cell.dram_read_bytes)} of {traffic_text(cell.declared_read_bytes)}"


LINES: dict[str, Callable[..., str]] = {
    "device_query": _device,
    "peak_flops": _peak,
    "bandwidth": _bandwidths,
    "instructions": _instructions,
    "operator": _operator,
}
