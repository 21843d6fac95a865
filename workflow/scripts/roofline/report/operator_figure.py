"""How near an operator comes to its roof, over its axis: results/{picture}.png."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from roofline.core.formatting import traffic
from roofline.core.terms import BYTES, in_order
from roofline.operators.about import About
from roofline.report import figure_style as style
from roofline.report.cells import series_of, title
from roofline.report.palette import SERIES_COLOURS
from roofline.table.rows import Cell, Roofline

NOTHING = "Nothing to draw: it was not measured, or has no roof."
HOLLOWS = "Filled: by end-to-end time; hollow, where it differs by more than 5 %: by GPU time alone."
HIGH, ABOVE, BELOW, HEADING = 150.0, 20.0, 36.0, 24.0  # points: of a panel, of its title, axis, and of a device's name
MOST_COLUMNS, MOST_PANELS = 4, 12
MOST_NAMES, MOST_TICKS = 12, 6  # of cases on an axis without numbers; of values on one with
DIFFERS, ASIDE = 0.05, 0.06
Panels = list[tuple[str, list[Cell]]]  # titles and cells


@dataclass(frozen=True)
class Block:
    """One device, or one of its presets: a grid of panels."""

    title: str
    panels: Panels

    @property
    def columns(self) -> int:
        return min(MOST_COLUMNS, len(self.panels)) if len(self.panels) != 6 else 3

    @property
    def rows(self) -> int:
        return -(-len(self.panels) // self.columns)

    @property
    def above(self) -> float:
        return ABOVE if any(title for title, _ in self.panels) else 0.0

    @property
    def height(self) -> float:
        return HEADING + self.rows * (self.above + HIGH + BELOW)


@style.styled()
def draw(roofline: Roofline, name: str) -> Figure:
    """A grid per device, GPUs first, and per preset; without any, paper that says so."""
    roofline, name = style.drawable(roofline), style.drawable(name)
    info = roofline.operator_info.get(name)
    heading = title(name, roofline.operator_info)
    heading = f"{heading[0].upper()}{heading[1:]}: share of its roof"
    blocks = list(_blocks(roofline, name, info))
    if not blocks:
        return style.nothing(heading, NOTHING)
    cells = [cell for block in blocks for _, mine in block.panels for cell in mine]
    ways = style.markers_of(map(_way, cells))
    looks = {way: (marker, SERIES_COLOURS[i % len(SERIES_COLOURS)]) for i, (way, marker) in enumerate(ways.items())}
    about = style.wrapped(HOLLOWS) if any(map(_differs, cells)) else []
    handles = list(_handles(cells, looks))
    columns = _columns(handles)
    legend = style.LEGEND_LINE * -(-len(handles) // columns) + 12.0
    head = style.MARGIN + 26.0 + style.LINE * len(about)
    whole = head + legend + sum(block.height for block in blocks) + style.MARGIN
    figure = style.headed(whole, heading, about)
    style.legend(figure, style.MARGIN, whole - head, handles, columns=columns)
    top = head + legend
    for block in blocks:
        _paint_block(figure, whole, top, block, looks, info)
        top += block.height
    return figure


def _blocks(roofline: Roofline, name: str, info: About | None) -> Iterable[Block]:
    for device, entry in in_order(roofline.devices.items(), lambda item: item[1].kind):
        cells = [o for o in roofline.operators if (o.device, o.operator) == (device, name)]
        cells = [cell for cell in cells if cell.bytes and cell.fraction_of_roof]
        for preset in dict.fromkeys(cell.preset for cell in cells):
            words = f"{device}: {entry.name}" + (f", {preset}" if preset else "")
            yield Block(words, _panels([cell for cell in cells if cell.preset == preset], info))


def _panels(cells: Sequence[Cell], info: About | None) -> Panels:
    """Of an operator with an axis a panel per dtype and series; of one without, all cases in one where these are few;
    else a panel per dtype."""
    named = not (info and info.axis)
    if named and len({_case(cell, info) for cell in cells}) <= MOST_NAMES:
        return [("", list(cells))]
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(", ".join(filter(None, [cell.dtype, None if named else info.series(cell)])), []).append(cell)
    if len(found) <= MOST_PANELS:
        return list(found.items())
    return [(dtype, [c for c in cells if c.dtype == dtype]) for dtype in dict.fromkeys(c.dtype for c in cells)]


def _way(cell: Cell) -> str:
    words = " ".join(filter(None, [cell.implementation, cell.scope])) or cell.operator
    return style.shortened(words, 200, style.TEXT_SIZE)


def _case(cell: Cell, info: About | None) -> str:
    return "\n".join(filter(None, [cell.dtype, info and info.label(cell)]))


def _differs(cell: Cell) -> bool:
    alone = cell.gpu_fraction_of_roof
    return alone is not None and abs(alone / cell.fraction_of_roof - 1) > DIFFERS


def _columns(handles: Sequence[Line2D]) -> int:
    """Of the legend: as many as fit."""
    widest = max(style.text_width(handle.get_label(), style.TEXT_SIZE) for handle in handles)
    return max(1, min(len(handles), int((style.WIDTH - 2 * style.MARGIN) / (widest + 40))))


def _paint_block(figure: Figure, whole: float, top: float, block: Block, looks: Mapping, info: About | None) -> None:
    style.printed(figure, whole - top - 10, [block.title], style.INK)
    place = style.margins(whole, top=top + HEADING + block.above, bottom=whole - top - block.height + BELOW)
    grid = figure.add_gridspec(block.rows, block.columns, **place, hspace=(block.above + BELOW) / HIGH, wspace=0.1)
    most = max(share for _, cells in block.panels for cell in cells for share in _shares(cell))
    for i, (words, cells) in enumerate(block.panels):
        axes = figure.add_subplot(grid[divmod(i, block.columns)])
        axes.set_title(style.shortened(words, 0.85 * axes.bbox.width, style.TEXT_SIZE + 1), pad=5)
        axes.set_ylim(-0.05 * max(1.0, most), 1.08 * max(1.0, most))  # room for dots at the bottom
        axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.0f} %")
        axes.yaxis.set_tick_params(labelleft=i % block.columns == 0)
        axes.axhline(1, color=style.INK, lw=1.0, zorder=2)
        _paint(axes, cells, looks, info)


def _shares(cell: Cell) -> list[float]:
    return [share for share in (cell.fraction_of_roof, cell.gpu_fraction_of_roof) if share]


def _paint(axes: Axes, cells: Sequence[Cell], looks: Mapping, info: About | None) -> None:
    at = _horizontal(axes, cells, info)
    for group in series_of(cells, info):
        marker, colour = looks[_way(group[0])]
        places = [(at[id(cell)], cell.fraction_of_roof) for cell in group]
        filled = style.dot_look(colour, marker) | {"ls": "-", "lw": 0.9}
        axes.plot(*zip(*places, strict=True), **filled, clip_on=False, zorder=4)
        for cell in filter(_differs, group):
            ends = [cell.fraction_of_roof, cell.gpu_fraction_of_roof]
            hollow = style.dot_look(colour, marker, hollow=True, size=4.4) | {"ls": "-", "lw": 0.4, "mew": 0.7}
            axes.plot([at[id(cell)]] * 2, ends, markevery=[1], **hollow, clip_on=False, zorder=3)
        crossed = [place for cell, place in zip(group, places, strict=True) if cell.share is None]
        if crossed:
            axes.plot(*zip(*crossed, strict=True), **style.CROSSED, clip_on=False)


def _horizontal(axes: Axes, cells: Sequence[Cell], info: About | None) -> dict[int, float]:
    """Of each cell, by its id: by the operator's axis, else by the names of the cases, else by bytes."""
    axis = info and info.axis
    names = list(dict.fromkeys(_case(cell, info) for cell in cells))
    if not axis and len(names) <= MOST_NAMES:
        axes.set_xlim(-0.6, len(names) - 0.4)
        room = axes.bbox.width / len(names)
        axes.set_xticks(
            range(len(names)),
            ["\n".join(style.shortened(part, room, style.SMALL_SIZE) for part in name.split("\n")) for name in names],
        )
        ways = list(dict.fromkeys(map(_way, cells)))  # beside each other, as their shares may be equal
        return {id(c): names.index(_case(c, info)) + ASIDE * (ways.index(_way(c)) - (len(ways) - 1) / 2) for c in cells}
    along = {id(cell): (axis and cell.along(axis)) or cell.bytes for cell in cells}
    values = sorted(set(along.values()))
    bytes_moved = not axis or axis.key == BYTES
    axes.set_xlabel("bytes moved per step" if bytes_moved else axis.symbol)
    words = traffic if bytes_moved else str
    style.logarithmic(axes.xaxis, words, subs=(1, 2, 5) if values[-1] < 300 * values[0] else (1,), numticks=MOST_TICKS)
    axes.set_xlim(values[0] / 1.3, values[-1] * 1.3)
    if len(values) <= MOST_TICKS and not bytes_moved:
        axes.set_xticks(values, map(words, values))
    return along


def _handles(cells: Sequence[Cell], looks: Mapping) -> Iterable[Line2D]:
    for way, (marker, colour) in looks.items():
        yield style.dot(way, colour, marker)
    if any(map(_differs, cells)):
        yield style.dot("hollow: by GPU time", style.MUTED, hollow=True, size=4.4)
    if any(cell.share is None for cell in cells):
        yield style.crossed_entry()
