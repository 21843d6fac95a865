"""The three lessons of ROOFLINE.md: where this run differs most from a datasheet, a launch, and a model."""

from collections.abc import Iterator

from roofline.core.formatting import duration, flops_unit, listed, number, percent
from roofline.report.model import Report
from roofline.report.words import CAUSES, limits, signed
from roofline.table.quantities import WIDE
from roofline.table.rows import Cell


def lessons(report: Report) -> list[tuple[str, str]]:
    """A title and sentences each; only what the figures of this run show."""
    return [one for found in (_sustained, _waiting, _fusion, _prediction, _memory) for one in found(report)][:3]


def _sustained(report: Report) -> Iterator[tuple[str, str]]:
    main = report.main
    known = [c for c in main.gemms if c.sustained_tflops and c.datasheet_tflops and not c.doubt]
    if known:
        c = min(known, key=lambda one: one.sustained_tflops / one.datasheet_tflops)
        why = f" The {limits(c)} holds it there." if limits(c) else ""
        yield (
            "A long job does not get the datasheet",
            f"{c.name} sustains {number(c.sustained_tflops)} {flops_unit(c.name)}, "
            f"{percent(c.sustained_tflops / c.datasheet_tflops)} of the datasheet's {number(c.datasheet_tflops)}; its "
            f"burst reaches {percent(c.burst_tflops / c.datasheet_tflops)}.{why} Plan with the sustained rate.",
        )


def _waiting(report: Report) -> Iterator[tuple[str, str]]:
    """The cell that waits longest for its launches, of those whose host kept its pace."""
    known = [c for c in report.table.operators if c.gpu_time_s and not c.doubt]
    waiting = [c for c in known if c.gpu_time_s < c.cpu_time_s / 2 and (c.cpu_time_deciles or 1) <= WIDE]
    if waiting:
        c = max(waiting, key=lambda one: one.cpu_time_s / one.gpu_time_s)
        remedies = report.table.remedies(c)
        helps = f" {listed(remedies[:2])} would help; faster memory would not." if remedies else ""
        yield (
            "Small work waits for its launches",
            f"In {len(waiting)} of {len(known)} cells the GPU works for less than half of the time that its caller "
            f"waits. Take {report.table.full_name(c)}: {duration(c.cpu_time_s)}, of which the GPU works "
            f"{duration(c.gpu_time_s)}.{helps[:2].upper()}{helps[2:]}",
        )


def _fusion(report: Report) -> Iterator[tuple[str, str]]:
    groups: dict[tuple, list[Cell]] = {}
    for c in report.table.operators:
        if c.cpu_time_s and not c.doubt:
            case = c.device, c.graph, c.operator, c.scope, c.dtype, c.preset, *sorted(c.shape.items())
            groups.setdefault(case, []).append(c)
    several = [sorted(mine, key=lambda c: c.own_time_s) for mine in groups.values() if len(mine) > 1]
    if several:
        fast, *_, slow = max(several, key=lambda mine: mine[-1].own_time_s / mine[0].own_time_s)
        yield (
            "The same work can take many times as long",
            f"For {report.table.full_name(slow)}: {duration(slow.own_time_s)}, {fast.implementation} "
            f"{duration(fast.own_time_s)} ({number(slow.own_time_s / fast.own_time_s)} times less), with the same "
            "FLOPs and declared bytes. What is read or launched several times costs more than any ceiling.",
        )


def _prediction(report: Report) -> Iterator[tuple[str, str]]:
    for c in report.worst[:1]:
        if c.cause:
            yield (
                "Where the model was most wrong",
                f"{report.table.full_name(c)}: predicted {duration(c.sealed.cpu_time_s)}, measured "
                f"{duration(c.cpu_time_s)} ({signed(c.sealed_error)}). Most of the error is {CAUSES[c.cause]}.",
            )


def _memory(report: Report) -> Iterator[tuple[str, str]]:
    reads, copies = (report.main.main(mix) for mix in ("read", "copy"))
    if reads and copies and not (reads.doubt or copies.doubt):
        yield (
            "Bandwidth depends on the mix of accesses",
            f"Reads run at {number(reads.gb_per_s)} GB/s, copies at {number(copies.gb_per_s)}. An operator is placed "
            "under the slope of its own mix.",
        )
