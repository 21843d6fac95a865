"""One record on the screen: predicted, measured, and what the reference of the same card has."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from roofline.analysis.table import ComputeCeiling, MemoryCeiling, Operator, Roofline
from roofline.core.formatting import duration, flops_unit, level_name, level_words, number, percent, starred
from roofline.core.statistics import half_width
from roofline.records.base import Interval
from roofline.report.markdown import table
from roofline.report.tables import FEW_SAMPLES, series_words

SECONDS = "s"


@dataclass(frozen=True)
class Figure:
    """One figure of a record: a time, or a rate in its unit. What is not known is None."""

    key: tuple  # the same in every run
    name: str
    unit: str  # s, TFLOPS, TOPS or GB/s
    measured: float
    predicted: float | None = None
    ci95: Interval | None = None
    samples: int | None = None
    share: float | None = None  # of a time's roof, of a rate's vendor figure
    regime: str | None = None


def figures(roofline: Roofline, record: str) -> list[Figure]:
    """What a record gave: of an operator its cells, of a ceiling its rates, of a sweep its levels."""
    ceilings = [one for one in roofline.ceilings if one.record == record]
    found = [figure for one in ceilings for figure in _of_ceiling(one)]
    vendor = {one.name: _divisor(one) for one in ceilings if one.kind == "compute"}
    cells = [one for one in roofline.operators if one.record == record and one.latency_s]
    found += [_rate(_of_cell(one), one, vendor[one.dtype]) if one.dtype in vendor else _of_cell(one) for one in cells]
    for one in roofline.levels:
        if one.record == record:
            name = f"{series_words(one.series)}: {level_name(one.name, one.knee_bytes)}"
            found.append(Figure(("level", name), name, "GB/s", one.gb_per_s))
    return found


def _of_ceiling(ceiling: ComputeCeiling | MemoryCeiling) -> Iterator[Figure]:
    if isinstance(ceiling, MemoryCeiling):
        rates, unit, vendor = {"": ceiling.gb_per_s}, "GB/s", ceiling.vendor_gb_per_s
        highest = ceiling.gb_per_s
    else:
        rates, unit = {" burst": ceiling.burst_tflops, " sustained": ceiling.sustained_tflops}, flops_unit(ceiling.name)
        vendor, highest = ceiling.vendor_tflops, ceiling.tflops
    for kind, rate in rates.items():
        if rate:
            own = {"ci95": ceiling.ci95, "samples": ceiling.samples} if rate == highest else {}  # of that rate alone
            share = rate / divisor if (divisor := _divisor(ceiling)) else None
            name = f"{level_words(ceiling.name)}{kind}"
            yield Figure(("ceiling", name), name, unit, rate, predicted=vendor, share=share, **own)


def _divisor(ceiling: ComputeCeiling | MemoryCeiling) -> float | None:
    """The vendor's figure, where a share of it may be told."""
    if ceiling.kind == "memory":
        return ceiling.vendor_gb_per_s
    return None if ceiling.no_ratio else ceiling.vendor_tflops


def _of_cell(cell: Operator) -> Figure:
    case = cell.operator, cell.implementation, cell.preset, cell.scope, cell.dtype, cell.cache
    parts = [cell.dtype, cell.label], [cell.implementation, cell.scope]
    return Figure(
        (*case, *sorted(cell.shape.items())),
        ", ".join(" ".join(filter(None, part)) for part in parts if any(part)),
        SECONDS,
        cell.latency_s,
        predicted=cell.sealed and cell.sealed.latency_s,
        ci95=cell.latency_ci95_s,
        samples=cell.samples,
        share=cell.fraction_of_roof,
        regime=cell.regime,
    )


def _rate(timed: Figure, cell: Operator, vendor: float | None) -> Figure:
    """The reference GEMM, which stands in the record of a ceiling, in the ceiling's unit."""

    def per_second(seconds: float) -> float:
        return cell.flops / seconds / 1e12

    return replace(
        timed,
        name=f"reference GEMM, {timed.name}",
        unit=flops_unit(cell.dtype),
        measured=per_second(timed.measured),
        predicted=timed.predicted and per_second(timed.predicted),
        ci95=timed.ci95 and tuple(map(per_second, reversed(timed.ci95))),
        share=vendor and per_second(timed.measured) / vendor,
        regime=None,
    )


def page(found: Sequence[Figure], there: Iterable[Figure], vendor: str = "vendor") -> str:
    """A row per figure, beside that of the reference where it has the same one; ratio: measured to reference."""
    of = "of roof" if any(one.unit == SECONDS for one in found) else f"of {vendor}"
    columns = ("", "predicted", "measured", "± 95 %", of, "bound by", "reference", of, "ratio")
    known = {one.key: one for one in there}
    shown = table(columns, [_row(one, known.get(one.key)) for one in found])
    return f"{shown}\n{FEW_SAMPLES}" if "*" in shown else shown


def _row(one: Figure, other: Figure | None) -> list[str]:
    return [
        one.name,
        _shown(one.predicted, one.unit),
        starred(_shown(one.measured, one.unit), one.samples),
        percent(half_width(one.measured, one.ci95)) if one.ci95 else "-",
        percent(one.share) if one.share else "-",
        one.regime or "-",
        starred(_shown(other.measured, one.unit), other.samples) if other else "-",
        percent(other.share) if other and other.share else "-",
        f"{one.measured / other.measured:.2f}" if other else "-",
    ]


def _shown(value: float | None, unit: str) -> str:
    if not value:
        return "-"
    return duration(value) if unit == SECONDS else f"{number(value)} {unit}"
