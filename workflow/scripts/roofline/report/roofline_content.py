"""What the picture of the roofline shows, before anything has a place: one panel per device."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest

from roofline.analysis.table import Operator, Roofline, Skipped
from roofline.report import roofline_ceilings as ceilings_shown
from roofline.report.cells import USERS, Infos, by_operator, chosen, has_place, ranges, series_of, title
from roofline.report.figure_style import markers_of
from roofline.report.roofline_ceilings import Level
from roofline.report.roofline_cells import Series, common_axis, labelled, most_telling, operation_name

MOST_LABELS = 32  # of dots, in one picture
MOST_NAMED = 8  # in a note


@dataclass(frozen=True)
class Panel:
    """One device."""

    title: str
    subtitle: str
    faults: list[str]
    compute: list[Level]
    memory: list[Level]
    shown: list[Series]  # every cell has a dot
    ranges: list[tuple[Operator, Operator]]  # worst and best cell of what has none, about each intensity
    labelled: list[Series]  # the most telling first
    markers: Mapping[tuple, str]
    kinds: Mapping[str, str]  # of dots: marker by words
    notes: list[str]

    @property
    def cells(self) -> list[Operator]:
        """All that must be seen."""
        return [*chain.from_iterable(series.cells for series in self.shown), *chain.from_iterable(self.ranges)]


def panels(roofline: Roofline) -> list[Panel]:
    """GPUs first. A marker means the same in every panel; all panels share the labels out among them."""
    devices = sorted(roofline.devices, key=lambda device: roofline.devices[device].kind != "gpu")
    cells = {device: [o for o in roofline.operators if o.device == device and has_place(o)] for device in devices}
    dots = {device: chosen(cells[device], roofline.operator_info) for device in devices}
    markers = markers_of(key_of(cell) for device in devices for cell in dots[device])
    made = [_panel(roofline, device, cells[device], dots[device], markers) for device in devices]
    turns = chain.from_iterable(zip_longest(*([i] * len(panel.labelled) for i, panel in enumerate(made))))
    kept = [i for i in turns if i is not None][:MOST_LABELS]
    return [replace(panel, labelled=panel.labelled[: kept.count(i)]) for i, panel in enumerate(made)]


def key_of(cell: Operator) -> tuple:
    """What has a marker of its own: an implementation of an operator; all the user's operations share one."""
    return cell.operator, None if cell.operator == USERS else cell.implementation


def _panel(roofline: Roofline, device: str, cells: list[Operator], dots: list[Operator], markers: Mapping) -> Panel:
    infos, entry = roofline.operator_info, roofline.devices[device]
    operators, ceilings, skipped, levels = (
        [item for item in items if item.device == device]
        for items in (roofline.operators, roofline.ceilings, roofline.skipped, roofline.levels)
    )
    drawn = ceilings_shown.drawn(ceilings, operators)
    series, with_dot = labelled(dots, infos), set(map(id, dots))
    rest = [cell for cell in cells if id(cell) not in with_dot and cell.intensity_flops_per_byte]
    notes = chain(
        [] if ceilings or operators else ["Nothing was measured on this device."],
        ceilings_shown.notes(ceilings, drawn),
        _range_notes(rest, infos),
        _placeless_notes(operators),
        _skipped_notes(skipped),
    )
    return Panel(
        title=entry.name,
        subtitle=f"{device} · measured roofline",
        faults=[f"FAIL: {fault.reason}" for fault in roofline.faults if fault.device == device],
        compute=ceilings_shown.compute_levels(drawn, operators),
        memory=ceilings_shown.memory_levels(drawn, operators, levels),
        shown=series,
        ranges=ranges(rest),
        labelled=most_telling(series),
        markers=markers,
        kinds={words: markers[key] for key, words in _kinds(dots, infos)},
        notes=list(notes),
    )


def _kinds(dots: Sequence[Operator], infos: Infos) -> Iterable[tuple[tuple, str]]:
    """What each marker means: the operator, the implementation, and what all of its cells have in common."""
    for name, mine in by_operator(dots).items():
        info, same = infos.get(name), {cell.series for cell in mine}
        for key in dict.fromkeys(map(key_of, mine)):
            if name == USERS:
                yield key, "user's operations"
                continue
            words = [" ".join(filter(None, [title(name, infos), mine[0].scope])), key[1]]
            words += list(same) if len(same) == 1 else []
            axis = common_axis(series_of([cell for cell in mine if key_of(cell) == key], info), info)
            joined = f"\njoined: {info.axis.symbol} = {', '.join(axis)}" if axis else ""
            yield key, ", ".join(filter(None, words)) + joined


# ------------------------------------------------------------------------------------------- small print


def counting(roofline: Roofline) -> str:
    """How everything was counted, in the operators' own words."""
    counted = [f"{info.title} ({info.counted})" for info in roofline.operator_info.values()]
    return (
        "Every ceiling and every filled dot is measured; dots that would hide others are shifted right. Per cent: "
        "attained of the dot's own roof, the lower of its dtype's ceiling and intensity × the bandwidth of its memory "
        "level. A multiply-add is two FLOPs. Bytes: "
        f"{', '.join([*counted, 'a copy (read plus written)'])}. Vendor: the dense peak, without sparsity. "
        "Formula: cores × clock × FLOPs per cycle."
    )


def _range_notes(cells: Sequence[Operator], infos: Infos) -> Iterable[str]:
    """Which operators have ranges, by which implementations and scopes, and where their cells are."""
    for name, mine in by_operator(cells).items():
        ways = _some(dict.fromkeys(" ".join(filter(None, [cell.implementation, cell.scope])) for cell in mine))
        words = [f"{scope}: {words}" for scope, words in infos[name].scopes.items()] if name in infos else []
        words += [f"all cells in {infos[name].picture}.png"] if name in infos else []
        yield f"Bars, worst to best cell: {'; '.join([f'{title(name, infos)} by {ways}', *words])}."


def _placeless_notes(operators: Sequence[Operator]) -> Iterable[str]:
    without_traffic = [operation_name(o) for o in operators if o.no_traffic and o.flops]
    if without_traffic:
        yield f"At the right edge, without traffic and so of infinite intensity: {_some(without_traffic)}."
    without_flops = [operation_name(o) for o in operators if not o.flops]
    if without_flops:
        yield f"Without FLOPs, so without a place on these axes: {_some(without_flops)}."


def _skipped_notes(skipped: Sequence[Skipped]) -> Iterable[str]:
    """What was not measured, each reason once. One that several share is cut to its first clause."""
    groups: dict[str, list[Skipped]] = {}
    for item in skipped:
        asked = item.dtype if item.what != "operation" else ""  # whose reason names what it lacks
        groups.setdefault(re.sub(rf"\b{re.escape(asked)}\b", "such", item.reason) if asked else item.reason, []).append(
            item
        )
    told = []
    for reason, items in groups.items():
        reason = items[0].reason if len(items) == 1 else re.split("; |, it ", reason)[0]
        told.append(f"{_some(item.name or item.dtype for item in items)} ({reason})")
    if told:
        yield f"Skipped: {'; '.join(told)}."


def _some(names: Iterable[str]) -> str:
    names = list(names)
    more = [f"{len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
    return ", ".join([*names[:MOST_NAMED], *more])
