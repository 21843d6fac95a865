"""Operator efficiency: how close each operator comes to its roof on a device, and what was predicted right."""

from collections.abc import Iterable

from roofline.analysis.score import score
from roofline.analysis.table import USERS, ComputeCeiling, MemoryCeiling, Operator, Roofline
from roofline.core import model
from roofline.core.formatting import duration, flops_unit, number, percent, regime_words
from roofline.core.statistics import few
from roofline.operators.about import About
from roofline.records.compute import PeakFlopsRecord
from roofline.records.operator import JobRecord, OperatorRecord
from roofline.report.answers import NOTHING_CONCLUDED, Answer, answer
from roofline.report.markdown import Table, filled
from roofline.report.tables import span, spans_percent, without_roof

LAG = 0.10  # by which queued steps take longer than end to end: then the GPU time is from a slower block
TOLD = 2  # sentences of a kind that may be many; the rest is counted
NAMED = 3  # implementations in a sentence
BEST = 4  # operators in a sentence


def cells_of(roofline: Roofline, device: str, operator: str) -> list[Operator]:
    return [o for o in roofline.operators if (o.device, o.operator) == (device, operator)]


def _placed(device: str, roofline: Roofline) -> list[tuple[About, list[Operator]]]:
    """Each operator that has a roof on a device, with its cells under it."""
    mine = [(info, cells_of(roofline, device, info.name)) for info in roofline.operator_info.values()]
    mine = [(info, [c for c in cells if c.fraction_of_roof or no_ratio_of(c, roofline)]) for info, cells in mine]
    return [(info, cells) for info, cells in mine if cells]


def efficiency(device: str, roofline: Roofline, records: list[JobRecord]) -> Answer | None:
    """How close the operators of a device come to their roofs; None where none has one."""
    found = _placed(device, roofline)
    if not found:
        return None
    all_cells = [cell for _, cells in found for cell in cells]
    judged = [(info, mine) for info, cells in found if (mine := _judged(cells, roofline))]
    every = [cell for _, cells in judged for cell in cells]
    disturbed = sum(_is_disturbed(cell, roofline) for cell in all_cells)
    no_ratio = sum(
        not few(cell.samples) and not _is_disturbed(cell, roofline) and not cell.fraction_of_roof for cell in all_cells
    )
    best = sorted(((max(map(_fraction, cells)), info.title) for info, cells in judged), reverse=True)
    regimes = dict.fromkeys(cell.regime for cell in every)
    slow = [cell for cell in every if cell.regime == model.IMPLEMENTATION_BOUND]
    lags = {info.title: lag for info, cells in judged if (lag := max(map(_lag, cells))) > LAG}
    notes = list(dict.fromkeys(note for info, _ in found for note in _notes(info, device, records)))
    facts = {
        "device": device,
        "failed": roofline.all_doubtful(device),
        "best": [f"{title} {'' if i else 'reaches '}{percent(share)}" for i, (share, title) in enumerate(best[:BEST])],
        "more": f"{len(best[BEST:])} more" if best[BEST:] else "",
        "regimes": [
            f"{sum(cell.regime == one for cell in every)} {regime_words(one) if one else 'of no known regime'}"
            for one in regimes
        ],
        "without_ceiling": sum(not (cell.compute_ceiling and cell.memory_ceiling) for cell in all_cells),
        "without_roof": without_roof(roofline, device),
        "count": len(all_cells),
        "judged": len(every),
        "disturbed": disturbed,
        "without_ratio": no_ratio,
        "few": len(all_cells) - len(every) - disturbed - no_ratio,
        "lags": lags,
        "laggards": _some(lags),
        "slow": len(slow),
        "slow_ways": _some(dict.fromkeys(cell.implementation for cell in slow)),
        "score": score(every),
        "notes": notes[:TOLD],
        "more_notes": len(notes[TOLD:]),
    }
    caution = f"{device}: {NOTHING_CONCLUDED}" if best else ""
    return answer("efficiency", facts, [_overview(found, roofline)], caution)


def _judged(cells: list[Operator], roofline: Roofline) -> list[Operator]:
    """Those whose times and roofs rest on enough samples, and were not disturbed; of roofs that may be divided by."""
    divided = [cell for cell in cells if cell.fraction_of_roof]
    sure = [cell for cell in divided if not few(cell.samples) and not few(roof_of(cell, roofline).samples)]
    return [cell for cell in sure if not _is_disturbed(cell, roofline)]


def _is_disturbed(cell: Operator, roofline: Roofline) -> bool:
    return not roofline.disturbed.isdisjoint({cell.record, roof_of(cell, roofline).record})


def no_ratio_of(cell: Operator, roofline: Roofline) -> str | None:
    """Why the time of a product, or a time under its ceiling, is no figure to compare."""
    return roof_of(cell, roofline).no_ratio if cell.roof_tflops and not cell.fraction_of_roof else None


def roof_of(cell: Operator, roofline: Roofline) -> ComputeCeiling | MemoryCeiling:
    """The lower of its ceilings."""
    name = cell.memory_ceiling if cell.lower_ceiling == "memory" else cell.compute_ceiling
    return next(c for c in roofline.ceilings if (c.device, c.name) == (cell.device, name))


def _some(names: Iterable[str]) -> list[str]:
    """A few names and how many more there are."""
    names = list(names)
    return [*names[:NAMED], *([f"{len(names) - NAMED} more"] if len(names) > NAMED else [])]


def _fraction(cell: Operator) -> float:
    return cell.fraction_of_roof


def _name(cell: Operator, *more: str | None) -> str:
    return " ".join(filter(None, [cell.implementation, cell.scope, *more, cell.label]))


def _preset(cell: Operator, cells: list[Operator]) -> str | None:
    """Where there are several."""
    return cell.preset if len({one.preset for one in cells}) > 1 else None


def _lag(cell: Operator) -> float:
    """By how much the device's time of queued steps is longer than the caller's, which the device's part cannot be."""
    return cell.device_latency_s / cell.latency_s - 1 if cell.device_latency_s else 0.0


def _ridge_point(cell: Operator, roofline: Roofline) -> float | None:
    """Compute ceiling over memory ceiling, in FLOP/byte, of the pair that a cell stands under."""
    mine = {c.name: c for c in roofline.ceilings if c.device == cell.device}
    compute, memory = mine.get(cell.compute_ceiling), mine.get(cell.memory_ceiling)
    return model.ridge_point(compute.tflops * 1e12, memory.gb_per_s * 1e9) if compute and memory else None


def _usual(info: About, cells: list[Operator]) -> str:
    """Memory-bound cells' share of the fp16 peak, beside what is usual."""
    bound = [cell for cell in cells if cell.dtype == cell.compute_ceiling == "fp16" and cell.regime == "memory"]
    if not info.usual_share_of_peak or not bound:
        return "-"
    low, high = info.usual_share_of_peak
    return (
        f"{spans_percent(cell.fraction_of_compute_peak for cell in bound)} (usual: {100 * low:g} to {100 * high:g} %)"
    )


def _notes(info: About, device: str, records: list[JobRecord]) -> list[str]:

    def measured(record: JobRecord) -> bool:
        return any(one.operator == info.name for one in record.measurements)

    mine = [r for r in records if isinstance(r, OperatorRecord) and r.device == device and measured(r)]
    notes = dict.fromkeys(note for record in mine for note in record.notes)
    generated = any(file.generated for record in mine for file in record.data)
    other = [
        f"{r.dtype} {info.title} has other operands than its ceiling: on its operands, the ceiling's product gives "
        f"{number(r.peak.on_reference_inputs.tflops)} {flops_unit(r.dtype)}, of which it attains "
        f"{percent(r.peak.reference_tflops / r.peak.on_reference_inputs.tflops)}"
        for r in records
        if isinstance(r, PeakFlopsRecord) and r.device == device and measured(r) and r.peak
        if r.peak.on_reference_inputs != r.peak.burst
    ]
    return [*other, *notes, *(["weights were generated, not trained"] if generated else [])]


def _overview(found: list[tuple[About, list[Operator]]], roofline: Roofline) -> Table:
    """Each operator and dtype: between which shares of which roof its cells lie, and of how many the seal was right."""
    columns = ("operator", "dtype", "cells", "n", "FLOP/byte", "ridge point", "lower ceiling", "of roof")
    columns += ("closest to its roof", "furthest from it", "sealed: right", "memory-bound: of the fp16 peak")
    rows = []
    for info, dtype, mine in ((i, d, [c for c in cells if c.dtype == d]) for i, cells in found for d in _dtypes(cells)):
        sure = _judged(mine, roofline)
        divided = [cell for cell in mine if cell.fraction_of_roof]
        right = score(sure)
        roofs = dict.fromkeys(c.memory_ceiling if c.lower_ceiling == "memory" else c.compute_ceiling for c in mine)
        ridges = {ridge for c in mine if (ridge := _ridge_point(c, roofline))}
        rows.append(
            [
                info.title,
                dtype,
                str(len(mine)),
                _counts(mine),
                span(sorted(c.intensity_flops_per_byte for c in mine if c.intensity_flops_per_byte)) or "-",
                span(sorted(ridges)) or "-",
                ", ".join(filter(None, roofs)),
                spans_percent(map(_fraction, divided)) if divided else "-",
                *(
                    _name(end(sure, key=_fraction), _preset(sure[0], mine)) if len(sure) > 1 else "-"
                    for end in (max, min)
                ),
                f"{right.both_right} of {right.cells}" if right.cells else "-",
                _usual(info, mine),
            ]
        )
    return filled(columns, rows, left=2)


def _counts(cells: list[Operator]) -> str:
    """How many samples their times rest on."""
    return span(sorted(cell.samples for cell in cells if cell.samples)) or "-"


def _dtypes(cells: list[Operator]) -> Iterable[str]:
    return dict.fromkeys(cell.dtype for cell in cells)


def operations(roofline: Roofline) -> Table:
    """Those of the config, which have no implementations to compare."""
    columns = ("device", "operation", "dtype", "FLOP/byte", "roofline's time", "your time", "of roof", "bound by")
    rows = [
        [
            o.device,
            " ".join(o.name.split()),
            o.dtype,
            "no traffic" if o.no_traffic else number(o.intensity_flops_per_byte),
            duration(o.roofline_time_s) if o.roofline_time_s else "-",
            duration(o.latency_s) if o.latency_s else "-",
            percent(o.fraction_of_roof) if o.fraction_of_roof else "-",
            o.regime or "-",
        ]
        for o in roofline.operators
        if o.operator == USERS
    ]
    return filled(columns, rows, left=3)
