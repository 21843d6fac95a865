"""The line that a measuring job leaves on the screen: its figures, and what of it failed."""

from collections.abc import Callable

from roofline.core.formatting import (
    duration,
    flops_rate,
    flops_unit,
    level_name,
    number,
    percent,
    starred,
    traffic,
)
from roofline.core.repeatability import doubt_of, spread
from roofline.core.statistics import few
from roofline.operators.about import About, builtin
from roofline.records.blocks import host_load
from roofline.records.compute import PeakFlopsRecord
from roofline.records.counters import CountedCell, CountersRecord, ProfilerRecord
from roofline.records.device import DeviceRecord
from roofline.records.instructions import InstructionsRecord
from roofline.records.memory import Bandwidth, BandwidthRecord, Sweep
from roofline.records.operator import JobRecord, Measurement, OperatorRecord
from roofline.table.ceiling_rows import blocks_of
from roofline.table.checks.card import memory_errors
from roofline.table.checks.judge import Evidence


def line(record, name: str, device: DeviceRecord | None = None) -> str:
    """`name` is the job's; with the device record, what failed of the record comes first. A list is of all counters."""
    if isinstance(record, list):
        return f"{name}: {_counters(*record)}"
    parts = [_failed(record, device) if device else "", LINES[type(record)](record)]
    if isinstance(record, JobRecord) and not _skipped(record):
        parts.insert(0, f"{record.elapsed_s:.1f} s")
    return f"{name}: {'; '.join(filter(None, parts))}"


def _failed(record, device: DeviceRecord) -> str:
    """What need not wait for the table: a broken memory, or a disturbed measurement."""
    if isinstance(record, DeviceRecord):
        found = memory_errors(Evidence(device))
        return f"FAIL: {found.reason}" if found.result == "fail" else ""
    disturbed = host_load(record, device.device_kind)  # the summary has the reason
    return "disturbed" if disturbed else ""


def _skipped(record) -> bool:
    return bool(getattr(record, "skipped", None)) and not isinstance(record, BandwidthRecord)


def _device(record: DeviceRecord) -> str:
    return f"{record.name}, {number(record.memory_total_bytes / 1e9)} GB ({record.vendor.match})"


def _peak(record: PeakFlopsRecord) -> str:
    if record.skipped:
        return f"skipped, {record.skipped}"
    peak = record.peak
    kind, samples = "cpu" if peak.unit == "cpu" else "gpu", len(peak.burst.latency.samples_s)
    doubt = doubt_of(kind=kind, samples=samples, blocks_apart=spread(blocks_of(peak)))
    unit = flops_unit(record.dtype)

    def rate(tflops: float) -> str:
        return f"{number(tflops)} {unit}" if unit == "TOPS" else flops_rate(tflops)

    rates = [peak.burst_tflops, *([peak.sustained_tflops] if peak.sustained_tflops else [])]
    shares = [percent(one / peak.vendor_tflops) for one in rates] if peak.vendor_tflops and not doubt else []
    whose = "formula" if peak.unit == "cpu" else "datasheet"
    share = f" ({' and '.join(shares)} of the {whose})" if shares else ""
    sustained = f", {rate(peak.sustained_tflops)} sustained" if peak.sustained_tflops else ""
    return f"{starred(rate(peak.burst_tflops), doubt)}{sustained}{share}"


def _bandwidths(record: BandwidthRecord) -> str:
    parts = [f"{one.name} {_rate(one)}" for one in record.bandwidths]
    parts += [f"{one.name} of 8 bytes {duration(one.timing.median_s)}" for one in record.latencies]
    parts += [f"{one.series} {_levels(one)}" for one in record.sweeps]
    told = ", ".join([*parts, *([f"skipped, {record.skipped}"] if record.skipped else [])])
    return f"GB/s: {told}" if record.bandwidths else told


def _rate(one: Bandwidth) -> str:
    return starred(number(one.gb_per_s), few(len(one.latency.samples_s)))


def _levels(one: Sweep) -> str:
    found = [f"{level_name(level.name, level.knee_bytes)} {number(level.gb_per_s)} GB/s" for level in one.levels]
    return " > ".join(found) or "no level"


def _instructions(record: InstructionsRecord) -> str:
    rate = record.issue.warp_instructions_per_s / 1e9
    return f"{rate:.0f} G warp instructions/s, {len(record.walls)} limits of loads by their access pattern"


def _operator(record: OperatorRecord) -> str:
    """The fastest implementation of each case; why there is none."""
    if not record.measurements:
        return "; ".join(record.notes)
    about = builtin().get(record.measurements[0].operator) or About()
    best: dict[str, Measurement] = {}
    for one in record.measurements:
        if one.scope == record.measurements[0].scope:
            key = about.series(one) or about.label(one)
            fastest = best.setdefault(key, one)
            best[key] = one if one.latency.median_s < fastest.latency.median_s else fastest
    return ", ".join(f"{key} {_time(one)} ({one.implementation}{_predicted(one)})" for key, one in best.items())


def _time(one: Measurement) -> str:
    return starred(duration(one.latency.median_s), few(len(one.latency.samples_s)))


def _predicted(one: Measurement) -> str:
    return f", predicted {duration(one.predicted.latency_s)}" if one.predicted.latency_s else ""


def _counters(profiler: ProfilerRecord, *records: CountersRecord) -> str:
    if profiler.refused:
        return f"nothing is counted: {profiler.refused}"
    cells = [cell for one in records for cell in one.cells]
    if not cells:
        return f"ncu {profiler.ncu} reads the counters; no implementation can be counted"
    return f"{', '.join(map(_read, cells))}, {records[0].elapsed_s:.1f} s"


def _read(cell: CountedCell) -> str:
    what = f"{cell.implementation} {(builtin().get(cell.operator) or About()).label(cell)}"
    if cell.dram_read_bytes is None:
        return what
    return f"{what} read {traffic(cell.dram_read_bytes)} of {traffic(cell.declared_read_bytes)}"


LINES: dict[type, Callable[..., str]] = {
    DeviceRecord: _device,
    PeakFlopsRecord: _peak,
    BandwidthRecord: _bandwidths,
    InstructionsRecord: _instructions,
    OperatorRecord: _operator,
}
