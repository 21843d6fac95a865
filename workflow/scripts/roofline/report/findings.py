"""What a run contradicts, and why, from the figures alone."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from roofline.analysis.quantities import WIDE
from roofline.analysis.table import Operator, Roofline
from roofline.core.formatting import (
    capacity,
    counted,
    duration,
    flops_unit,
    level_name,
    listed,
    number,
    percent,
)
from roofline.core.statistics import few
from roofline.core.throttling import limiting_words
from roofline.records.compute import PeakFlopsRecord
from roofline.records.device import DeviceRecord
from roofline.report.predictions import miss, worst
from roofline.report.tables import above_roof, promised


@dataclass(frozen=True)
class Finding:
    title: str
    words: str
    again: bool = False  # of what stands above it too


def findings(
    roofline: Roofline,
    devices: Mapping[str, DeviceRecord],
    peaks: Sequence[PeakFlopsRecord],
) -> list[Finding]:
    """What the run contradicts, and why, from the figures alone."""
    found = [
        _vendor(roofline, devices),
        _implementations(roofline),
        _waiting(roofline),
        _level(roofline),
        _prediction(roofline),
        _above(roofline),
        _doubts(peaks),
        _failed(roofline),
    ]
    return [finding for finding in found if finding]


def _vendor(roofline: Roofline, devices: Mapping[str, DeviceRecord]) -> Finding | None:
    known = [c for c in roofline.ceilings if c.kind == "compute" and c.sustained_tflops and c.vendor_tflops]
    if not known:
        return None
    c = min(known, key=lambda c: c.sustained_tflops / c.vendor_tflops)
    limits = limiting_words(c.sustained_limited_by or c.limited_by)
    why, promise = f", limited by: {limits}" if limits else "", promised(devices[c.device])
    burst = percent((c.burst_tflops or c.tflops) / c.vendor_tflops)
    words = (
        f"{c.name} sustains {number(c.sustained_tflops)} {flops_unit(c.name)}, "
        f"{percent(c.sustained_tflops / c.vendor_tflops)} of the {promise}'s {number(c.vendor_tflops)}{why}. "
        f"Its burst reaches {burst}."
    )
    return Finding(f"The {'datasheet' if promise == 'vendor' else promise} is not what a long job gets", words)


def _implementations(roofline: Roofline) -> Finding | None:
    """The same case on the same device: how many times as long the slowest implementation takes, by the device's own
    time where that is known, graphs among graphs."""
    groups: dict[tuple, list[Operator]] = {}
    for cell in roofline.operators:
        if cell.latency_s and not few(cell.samples):
            case = cell.operator, cell.scope, cell.dtype, cell.preset, *sorted(cell.shape.items())
            key = cell.device, cell.in_graph, cell.device_latency_s is not None, *case
            groups.setdefault(key, []).append(cell)
    pairs = [(min(mine, key=_own_time), max(mine, key=_own_time)) for mine in groups.values() if len(mine) > 1]
    if not pairs:
        return None
    fast, slow = max(pairs, key=lambda pair: _own_time(pair[1]) / _own_time(pair[0]))
    what = " ".join(filter(None, [fast.title or fast.operator, fast.scope, fast.dtype, fast.label]))
    of_device = " of GPU time" if fast.device_latency_s else ""
    words = (
        f"{what} on {fast.device} takes {duration(_own_time(fast))} by {fast.implementation} and "
        f"{duration(_own_time(slow))} by {slow.implementation}{of_device}, of the same FLOPs and declared bytes."
    )
    return Finding(f"The same work takes up to {number(_own_time(slow) / _own_time(fast))} times as long", words)


def _own_time(cell: Operator) -> float:
    """The device's; the caller's where the device is its own caller."""
    return cell.device_latency_s or cell.latency_s


def _waiting(roofline: Roofline) -> Finding | None:
    """Where the caller waits longest for what the device does in little time."""
    known = [c for c in roofline.operators if c.device_latency_s and c.latency_s]
    waiting = [c for c in known if c.device_latency_s < c.latency_s / 2]
    if not waiting:
        return None
    steady = [c for c in waiting if (c.latency_deciles or 1) <= WIDE]  # in the others the host slowed down meanwhile
    c = max(steady or waiting, key=lambda c: c.latency_s / c.device_latency_s)
    words = (
        f"In {len(waiting)} of {counted(len(known), 'cell')} on GPUs the device works for less than half of the time "
        f"that its caller waits. {c.full_name} on {c.device} takes its caller "
        f"{duration(c.latency_s)}, of which the device works {duration(c.device_latency_s)}: faster memory would not "
        f"help{f'; {listed(c.remedies)} would' if c.remedies else ''}."
    )
    return Finding("Small work waits for its launches", words)


def _level(roofline: Roofline) -> Finding | None:
    """A cache that ends before the capacity that the device reports."""
    known = [one for one in roofline.levels if one.knee_bytes and one.reported_bytes and one.name]
    short = [one for one in known if one.knee_bytes < 0.95 * one.reported_bytes]
    if not short:
        return None
    one = min(short, key=lambda level: level.knee_bytes / level.reported_bytes)
    words = (
        f"{level_name(one.name, one.knee_bytes)} of {one.device} is reported as {capacity(one.reported_bytes)}; its "
        f"bandwidth falls from {capacity(one.knee_bytes)} on, {percent(one.knee_bytes / one.reported_bytes)} of that."
    )
    return Finding("A cache ends before its capacity", words)


def _prediction(roofline: Roofline) -> Finding | None:
    found = worst(roofline.entries)[:1]
    if not found or found[0].cause == "close":
        return None
    one = miss(found[0], roofline.titles)
    words = f"{one.cell}: predicted {one.predicted}, measured {one.measured} ({one.error}), since {one.why}."
    return Finding("Where the model was most wrong", words, again=True)


def _above(roofline: Roofline) -> Finding | None:
    words = " ".join(above_roof(one) for one in roofline.above_roof)
    return Finding("Above its roof", words) if words else None


def _doubts(peaks: Iterable[PeakFlopsRecord]) -> Finding | None:
    told = [f"{r.device} {r.dtype}: {doubt.rstrip('.')}." for r in peaks if r.peak for doubt in r.peak.doubts]
    return Finding("What does not fit", " ".join(told)) if told else None


def _failed(roofline: Roofline) -> Finding | None:
    told = [f"{one.device}: {one.reason}. Check: {one.check}." for one in roofline.checks if one.result == "fail"]
    return Finding("What the run itself fails", " ".join(told), again=True) if told else None
