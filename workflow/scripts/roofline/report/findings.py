"""What a run contradicts, and why, from the figures alone."""

from dataclasses import dataclass
from operator import attrgetter

from roofline.core.disturbance import limiting_words
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
from roofline.report.predictions import miss, worst
from roofline.report.tables import above_roof, promised
from roofline.table.quantities import WIDE
from roofline.table.rows import Cell, Roofline


@dataclass(frozen=True)
class Finding:
    title: str
    words: str
    again: bool = False  # of what stands above it too


def findings(roofline: Roofline) -> list[Finding]:
    """What the run contradicts, and why, from the figures alone."""
    found = [
        _datasheet(roofline),
        _implementations(roofline),
        _waiting(roofline),
        _level(roofline),
        _prediction(roofline),
        _above(roofline),
        _remarks(roofline),
        _failed(roofline),
    ]
    return [finding for finding in found if finding]


def _datasheet(roofline: Roofline) -> Finding | None:
    known = [c for c in roofline.ceilings if c.kind == "compute" and c.sustained_tflops and c.datasheet_tflops]
    known = [c for c in known if not c.doubt]
    if not known:
        return None
    c = min(known, key=lambda c: c.sustained_tflops / c.datasheet_tflops)
    limits = limiting_words(c.sustained_limited_by or c.limited_by)
    why, promise = f", limited by: {limits}" if limits else "", promised(roofline.devices[c.device])
    burst = percent((c.burst_tflops) / c.datasheet_tflops)
    words = (
        f"{c.name} sustains {number(c.sustained_tflops)} {flops_unit(c.name)}, "
        f"{percent(c.sustained_tflops / c.datasheet_tflops)} of the {promise}'s {number(c.datasheet_tflops)}{why}. "
        f"Its burst reaches {burst}."
    )
    return Finding(f"The {'datasheet' if promise == 'vendor' else promise} is not what a long job gets", words)


def _implementations(roofline: Roofline) -> Finding | None:
    """The same case on the same device: how many times as long the slowest implementation takes, by the device's own
    time where that is known, graphs among graphs."""
    groups: dict[tuple, list[Cell]] = {}
    for cell in roofline.operators:
        if cell.cpu_time_s and not cell.doubt:
            case = cell.operator, cell.scope, cell.dtype, cell.preset, *sorted(cell.shape.items())
            key = cell.device, cell.graph, cell.gpu_time_s is not None, *case
            groups.setdefault(key, []).append(cell)
    own = attrgetter("own_time_s")
    pairs = [(min(mine, key=own), max(mine, key=own)) for mine in groups.values() if len(mine) > 1]
    if not pairs:
        return None
    fast, slow = max(pairs, key=lambda pair: pair[1].own_time_s / pair[0].own_time_s)
    what = " ".join(filter(None, [roofline.title(fast.operator), fast.scope, fast.dtype, roofline.label(fast)]))
    of_device = " of GPU time" if fast.gpu_time_s else ""
    words = (
        f"{what} on {fast.device} takes {duration(fast.own_time_s)} by {fast.implementation} and "
        f"{duration(slow.own_time_s)} by {slow.implementation}{of_device}, of the same FLOPs and declared bytes."
    )
    return Finding(f"The same work takes up to {number(slow.own_time_s / fast.own_time_s)} times as long", words)


def _waiting(roofline: Roofline) -> Finding | None:
    """Where the caller waits longest for what the device does in little time."""
    known = [c for c in roofline.operators if c.gpu_time_s and not c.doubt]
    waiting = [c for c in known if c.gpu_time_s < c.cpu_time_s / 2]
    if not waiting:
        return None
    steady = [c for c in waiting if (c.cpu_time_deciles or 1) <= WIDE]  # in the others the host slowed down meanwhile
    c = max(steady or waiting, key=lambda c: c.cpu_time_s / c.gpu_time_s)
    remedies = roofline.remedies(c)
    words = (
        f"In {len(waiting)} of {counted(len(known), 'cell')} on GPUs the device works for less than half of the time "
        f"that its caller waits. {roofline.full_name(c)} on {c.device} takes its caller "
        f"{duration(c.cpu_time_s)}, of which the device works {duration(c.gpu_time_s)}: faster memory would not "
        f"help{f'; {listed(remedies)} would' if remedies else ''}."
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
    if not found or found[0].cause is None:
        return None
    one = miss(found[0], roofline)
    words = f"{one.cell}: predicted {one.predicted}, measured {one.measured} ({one.error}): {one.why}."
    return Finding("Where the model was most wrong", words, again=True)


def _above(roofline: Roofline) -> Finding | None:
    words = " ".join(above_roof(one, roofline) for one in roofline.operators if one.above_roof)
    return Finding("Above its roof", words) if words else None


def _remarks(roofline: Roofline) -> Finding | None:
    compute = [c for c in roofline.ceilings if c.kind == "compute"]
    told = [f"{c.device} {c.name}: {remark.rstrip('.')}." for c in compute for remark in c.remarks]
    return Finding("What does not fit", " ".join(told)) if told else None


def _failed(roofline: Roofline) -> Finding | None:
    told = [f"{one.device}: {one.reason}. Check: {one.check}." for one in roofline.checks if one.result == "fail"]
    return Finding("What the run itself fails", " ".join(told), again=True) if told else None
