"""What the picture of the roofline shows, before anything has a place: one panel per device."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from roofline.core.terms import in_order
from roofline.report import roofline_ceilings as ceilings_shown
from roofline.report.cells import USERS, Infos, by_operator, chosen, has_place, title
from roofline.report.figure_style import SMALL_SIZE, markers_of, shortened
from roofline.report.roofline_ceilings import Level
from roofline.table.rows import Cell, Roofline, Skipped

LABELLED_OPERATORS, LABELLED_DTYPES = 2, ("fp32", "fp16")  # the run's first ones: the lab's
MOST_NAMED, LONGEST_NAME = 8, 130.0  # in a note; points


@dataclass(frozen=True)
class Panel:
    """One device."""

    title: str
    subtitle: str
    faults: list[str]
    compute: list[Level]
    memory: list[Level]
    cells: list[Cell]  # each has a dot
    labelled: list[Cell]
    markers: Mapping[tuple, str]
    kinds: Mapping[str, str]  # of dots: marker by words
    notes: list[str]


def panels(roofline: Roofline) -> list[Panel]:
    """GPUs first. A marker means the same in every panel."""
    devices = in_order(roofline.devices, lambda device: roofline.devices[device].kind)
    infos = roofline.operator_info
    dots = {
        device: chosen([o for o in roofline.operators if o.device == device and has_place(o)], infos)
        for device in devices
    }
    markers = markers_of(key_of(cell) for device in devices for cell in dots[device])
    return [_panel(roofline, device, dots[device], markers) for device in devices]


def key_of(cell: Cell) -> tuple:
    """What has a marker of its own: an implementation of an operator; all the user's operations share one."""
    return cell.operator, None if cell.operator == USERS else cell.implementation


def _panel(roofline: Roofline, device: str, dots: list[Cell], markers: Mapping) -> Panel:
    infos, entry = roofline.operator_info, roofline.devices[device]
    operators, ceilings, skipped, levels = (
        [item for item in items if item.device == device]
        for items in (roofline.operators, roofline.ceilings, roofline.skipped, roofline.levels)
    )
    rated = [cell for cell in dots if cell.share]
    drawn, with_label = ceilings_shown.drawn(ceilings, operators), list(infos)[:LABELLED_OPERATORS]
    notes = chain(
        [] if ceilings or operators else ["Nothing was measured on this device."],
        ceilings_shown.notes(ceilings, drawn),
        _not_shown(operators, dots, infos),
        _placeless_notes(operators),
        _skipped_notes(skipped),
    )
    return Panel(
        title=entry.name,
        subtitle=f"{device} · measured roofline",
        faults=[f"FAIL: {fault.reason}" for fault in roofline.faults if fault.device == device],
        compute=sorted(ceilings_shown.compute_levels(drawn, operators), key=lambda level: -level.value),
        memory=sorted(ceilings_shown.memory_levels(drawn, operators, levels), key=lambda level: -level.value),
        cells=dots,
        labelled=[c for c in rated if c.operator in with_label and c.dtype in LABELLED_DTYPES],
        markers=markers,
        kinds={words: markers[key] for key, words in _kinds(dots, infos)},
        notes=list(notes),
    )


def _kinds(dots: Sequence[Cell], infos: Infos) -> Iterable[tuple[tuple, str]]:
    """What each marker means: the operator, its scope and implementation, and what all of its cells have in common."""
    for name, mine in by_operator(dots).items():
        series = {infos[name].series(cell) for cell in mine if name in infos}
        for key in dict.fromkeys(map(key_of, mine)):
            what = " ".join(filter(None, [title(name, infos), mine[0].scope]))
            words = [what, key[1], *(series if len(series) == 1 else [])]
            yield key, "user's operations" if name == USERS else ", ".join(filter(None, words))


# ------------------------------------------------------------------------------------------- small print


def counting(roofline: Roofline) -> str:
    """How everything was counted, in the operators' own words."""
    counted = [f"{info.title} ({info.counted})" for info in roofline.operator_info.values()]
    return (
        "Every ceiling and every filled dot is measured. Per cent: attained of the dot's own roof, the lower of its "
        "dtype's ceiling and intensity × the bandwidth of its memory level. A multiply-add is two FLOPs. Bytes: "
        f"{', '.join([*counted, 'a copy (read plus written)'])}. Vendor: the dense peak, without sparsity. "
        "Formula: cores × clock × FLOPs per cycle."
    )


def _not_shown(operators: Sequence[Cell], dots: Sequence[Cell], infos: Infos) -> Iterable[str]:
    """Operators with cells that have no dot here, and the pictures that have them all."""
    shown = set(map(id, dots))
    names = dict.fromkeys(o.operator for o in operators if o.operator in infos and id(o) not in shown and has_place(o))
    if names:
        pictures = ", ".join(f"{infos[name].picture}.png" for name in names)
        yield f"Each operator in each dtype by its best implementation; all others in {pictures}."


def _placeless_notes(operators: Sequence[Cell]) -> Iterable[str]:
    without_traffic = [_operation_name(o) for o in operators if o.no_traffic and o.flops]
    if without_traffic:
        yield f"At the right edge, without traffic and so of infinite intensity: {_some(without_traffic)}."
    without_flops = [_operation_name(o) for o in operators if not o.flops]
    if without_flops:
        yield f"Without FLOPs, so without a place on these axes: {_some(without_flops)}."


def _skipped_notes(skipped: Sequence[Skipped]) -> Iterable[str]:
    """What was not measured, each reason once. One that several share is cut to its first clause."""
    groups: dict[str, list[Skipped]] = {}
    for item in skipped:
        asked = item.dtype if item.what != "operation" else ""  # whose reason names what it lacks
        reason = re.sub(rf"\b{re.escape(asked)}\b", "such", item.reason) if asked else item.reason
        groups.setdefault(reason, []).append(item)
    told = []
    for reason, items in groups.items():
        reason = items[0].reason if len(items) == 1 else re.split("; |, it ", reason)[0]
        names = (item.name or item.dtype for item in items)
        told.append(f"{_some(names)} ({reason})")
    if told:
        yield f"Skipped: {'; '.join(told)}."


def _operation_name(cell: Cell) -> str:
    return shortened(cell.name or cell.implementation or cell.operator, LONGEST_NAME, SMALL_SIZE)


def _some(names: Iterable[str]) -> str:
    names = list(names)
    more = [f"{len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
    return ", ".join([*names[:MOST_NAMED], *more])
