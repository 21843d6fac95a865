"""Operator efficiency: how close each operator comes to its roof on a device, and what was predicted right."""

from collections import Counter
from collections.abc import Iterable

from roofline.core import model
from roofline.core.formatting import duration, flops_unit, number, percent, regime_words
from roofline.operators.about import About
from roofline.report.answers import NOTHING_CONCLUDED, Answer, answer
from roofline.report.markdown import Table, filled
from roofline.report.tables import span, spans_percent, without_roof
from roofline.table.rows import USERS, Cell, Roofline
from roofline.table.scores import score

LAG = 0.10  # by which queued steps take longer than end to end: then the GPU time is from a slower block
TOLD = 2  # sentences of a kind that may be many; the rest is counted
NAMED = 3  # implementations in a sentence
BEST = 4  # operators in a sentence


def cells_of(roofline: Roofline, device: str, operator: str) -> list[Cell]:
    return [o for o in roofline.operators if (o.device, o.operator) == (device, operator)]


def _placed(device: str, roofline: Roofline) -> list[tuple[About, list[Cell]]]:
    """Each operator that has a roof on a device, with its cells under it."""
    mine = [(info, cells_of(roofline, device, info.name)) for info in roofline.operator_info.values()]
    mine = [(info, [c for c in cells if c.fraction_of_roof]) for info, cells in mine]
    return [(info, cells) for info, cells in mine if cells]


def efficiency(device: str, roofline: Roofline) -> Answer | None:
    """How close the operators of a device come to their roofs; None where none has one."""
    found = _placed(device, roofline)
    if not found:
        return None
    all_cells = [cell for _, cells in found for cell in cells]
    judged = [(info, mine) for info, cells in found if (mine := [c for c in cells if c.share])]
    every = [cell for _, cells in judged for cell in cells]
    doubts = Counter(cell.doubt or cell.roof_doubt for cell in all_cells if not cell.share)
    best = sorted(((max(map(_fraction, cells)), info.title) for info, cells in judged), reverse=True)
    regimes = dict.fromkeys(cell.regime for cell in every)
    slow = [cell for cell in every if cell.regime == model.IMPLEMENTATION_BOUND]
    lags = {info.title: lag for info, cells in judged if (lag := max(map(_lag, cells))) > LAG}
    notes = list(dict.fromkeys(note for info, cells in found for note in _notes(info, cells, roofline)))
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
        "left_out": len(all_cells) - len(every),
        "doubts": [f"{count} {doubt}" for doubt, count in doubts.items()],
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


def _some(names: Iterable[str]) -> list[str]:
    """A few names and how many more there are."""
    names = list(names)
    return [*names[:NAMED], *([f"{len(names) - NAMED} more"] if len(names) > NAMED else [])]


def _fraction(cell: Cell) -> float:
    return cell.fraction_of_roof


def _name(cell: Cell, info: About, *more: str | None) -> str:
    return " ".join(filter(None, [cell.implementation, cell.scope, *more, info.label(cell)]))


def _preset(cell: Cell, cells: list[Cell]) -> str | None:
    """Where there are several."""
    return cell.preset if len({one.preset for one in cells}) > 1 else None


def _lag(cell: Cell) -> float:
    """By how much the device's time of queued steps is longer than the caller's, which the device's part cannot be."""
    return cell.gpu_time_s / cell.cpu_time_s - 1 if cell.gpu_time_s else 0.0


def _ridge_point(cell: Cell, roofline: Roofline) -> float | None:
    """Compute ceiling over memory ceiling, in FLOP/byte, of the pair that a cell stands under."""
    compute, memory = (roofline.ceiling(cell.device, name) for name in (cell.compute_ceiling, cell.memory_ceiling))
    return model.ridge_point(compute.tflops * 1e12, memory.gb_per_s * 1e9) if compute and memory else None


def _usual(info: About, cells: list[Cell]) -> str:
    """Memory-bound cells' share of the fp16 peak, beside what is usual."""
    bound = [cell for cell in cells if cell.dtype == cell.compute_ceiling == "fp16" and cell.regime == "memory"]
    if not info.usual_share_of_peak or not bound:
        return "-"
    low, high = info.usual_share_of_peak
    return (
        f"{spans_percent(cell.fraction_of_compute_peak for cell in bound)} (usual: {100 * low:g} to {100 * high:g} %)"
    )


def _notes(info: About, cells: list[Cell], roofline: Roofline) -> list[str]:
    """What implementations report of themselves; and products whose ceiling has other operands than theirs."""
    records = {cell.record for cell in cells}
    other = [
        f"{c.name} {info.title} has other operands than its ceiling: on its operands, the ceiling's product gives "
        f"{number(c.on_reference_inputs_tflops)} {flops_unit(c.name)}, of which it attains "
        f"{percent(c.reference_tflops / c.on_reference_inputs_tflops)}"
        for c in roofline.ceilings
        if c.kind == "compute" and c.record in records and c.on_reference_inputs_tflops
    ]
    return [*other, *dict.fromkeys(note for cell in cells for note in cell.notes)]


def _overview(found: list[tuple[About, list[Cell]]], roofline: Roofline) -> Table:
    """Each operator and dtype: between which shares of which roof its cells lie, and of how many the seal was right."""
    columns = ("operator", "dtype", "cells", "n", "FLOP/byte", "ridge point", "lower ceiling", "of roof")
    columns += ("closest to its roof", "furthest from it", "sealed: right", "memory-bound: of the fp16 peak")
    rows = []
    for info, dtype, mine in ((i, d, [c for c in cells if c.dtype == d]) for i, cells in found for d in _dtypes(cells)):
        sure = [cell for cell in mine if cell.share]
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
                spans_percent(map(_fraction, sure)) if sure else "-",
                *(
                    _name(end(sure, key=_fraction), info, _preset(sure[0], mine)) if len(sure) > 1 else "-"
                    for end in (max, min)
                ),
                f"{right.both_right} of {right.cells}" if right.cells else "-",
                _usual(info, mine),
            ]
        )
    return filled(columns, rows, left=2)


def _counts(cells: list[Cell]) -> str:
    """How many samples their times rest on."""
    return span(sorted(cell.samples for cell in cells if cell.samples)) or "-"


def _dtypes(cells: list[Cell]) -> Iterable[str]:
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
            duration(o.cpu_time_s) if o.cpu_time_s else "-",
            percent(o.share) if o.share else "-",
            o.regime or "-",
        ]
        for o in roofline.operators
        if o.operator == USERS
    ]
    return filled(columns, rows, left=3)
