"""How near an operator comes to its roof: a panel per device, dtype and series over its axis, or a row per case."""

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from roofline.core.formatting import axis_value_text, percent
from roofline.report import figure_style as style
from roofline.report.palette import INK, SERIES_COLOURS, markers_of
from roofline.report.roofline_content import group_series
from roofline.table.rows import CellRow, Roofline

HIGH, ABOVE, BELOW, COLUMNS, TICKS = 150.0, 24.0, 40.0, 4, 6
DECADES = 20.0  # shares that differ by more stand on a logarithmic axis
NAMES, ROW = 220.0, 14.0  # of a picture with a row per case
Looks = Mapping[str, dict]


@style.styled()
def draw_operator_shares(roofline: Roofline, name: str) -> Figure:
    cells = [one for one in roofline.operators if one.operator == name and one.fraction_of_roof]
    about, title = roofline.operator_info[name], roofline.title(name)
    ways = zip(cycle(SERIES_COLOURS), markers_of(map(_way, cells)).items(), strict=False)
    looks = {way: style.dot_style(colour, marker) for colour, (way, marker) in ways}
    handles = [Line2D([], [], **look, label=way) for way, look in looks.items()]
    handles += [style.crossed_entry()] if any(cell.reliable_fraction_of_roof is None for cell in cells) else []
    panels = _grouped(cells, about.series if about.axis else about.label)
    rows = -(-len(panels) // COLUMNS)
    inner = rows * (HIGH + BELOW + ABOVE) - ABOVE if about.axis else ROW * len(panels) + BELOW
    head = style.MARGIN + 26 + style.LEGEND_LINE * -(-len(handles) // COLUMNS) + ABOVE
    whole = head + inner + style.MARGIN
    figure = style.new_titled_figure(whole, f"{title[:1].upper()}{title[1:]}: share of the roof", [])
    style.add_legend(figure, whole - style.MARGIN - 26, handles, columns=COLUMNS)
    place = style.subplot_margins(whole, top=head, bottom=style.MARGIN + BELOW)
    if not about.axis:
        place["left"] = NAMES / style.WIDTH
        _paint_cases(figure.add_subplot(figure.add_gridspec(1, 1, **place)[0]), panels, looks)
        return figure
    grid = figure.add_gridspec(rows, COLUMNS, **place, hspace=(ABOVE + BELOW) / HIGH, wspace=0.1)
    for i, (words, mine) in enumerate(panels.items()):
        axes = figure.add_subplot(grid[divmod(i, COLUMNS)])
        axes.set_title(style.shorten_middle(words, 0.85 * axes.bbox.width, style.TEXT_SIZE + 1), pad=5)
        _paint(axes, roofline, mine, looks)
        _share_axis(axes.yaxis, axes.set_ylim, cells)
        axes.yaxis.set_tick_params(labelleft=i % COLUMNS == 0)
        axes.axhline(1, color=INK, lw=1.0, zorder=2)
    return figure


def _way(cell: CellRow) -> str:
    return " ".join(filter(None, [cell.implementation, cell.scope]))


def _grouped(cells: Sequence[CellRow], label: Callable[[CellRow], str]) -> dict[str, list[CellRow]]:
    """By device, dtype and label, and by preset if there are several."""
    found: dict[str, list[CellRow]] = {}
    presets = len({one.preset for one in cells}) > 1
    for cell in cells:
        words = [f"{cell.device} {cell.dtype}", label(cell), cell.preset if presets else ""]
        found.setdefault(", ".join(filter(None, words)), []).append(cell)
    return found


def _share_axis(axis: Axis, set_limits: Callable, cells: Sequence[CellRow]) -> None:
    """One for all panels: from zero, or logarithmic."""
    shares = [cell.fraction_of_roof for cell in cells]
    low, high = min(shares), max(1.0, *shares)
    if high > DECADES * low:
        style.set_log_axis(axis, percent, numticks=9)
        set_limits(low / 1.6, 1.6 * high)
    else:
        axis.set_major_formatter(lambda share, _: f"{100 * share:.0f} %")
        set_limits(0, 1.08 * high)


def _paint(axes: Axes, roofline: Roofline, cells: Sequence[CellRow], looks: Looks) -> None:
    axis = roofline.operator_info[cells[0].operator].axis
    cells = [cell for cell in cells if cell.axis_value(axis)]
    for group in group_series(cells, roofline):
        x, y = [cell.axis_value(axis) for cell in group], [cell.fraction_of_roof for cell in group]
        axes.plot(x, y, **looks[_way(group[0])] | {"ls": "-", "lw": 0.9}, zorder=4)
    doubtful = [cell for cell in cells if cell.reliable_fraction_of_roof is None]
    _cross(axes, [(cell.axis_value(axis), cell.fraction_of_roof) for cell in doubtful])
    values = sorted({cell.axis_value(axis) for cell in cells})
    style.set_log_axis(axes.xaxis, lambda value: axis_value_text(axis, round(value)), numticks=TICKS)
    axes.set(xlim=(values[0] / 1.3, values[-1] * 1.3), xlabel=axis.symbol)
    if len(values) <= TICKS:
        axes.set_xticks(values, [axis_value_text(axis, value) for value in values])


def _paint_cases(axes: Axes, cases: Mapping[str, Sequence[CellRow]], looks: Looks) -> None:
    cells = [(y, cell) for y, mine in enumerate(cases.values()) for cell in mine]
    for y, cell in cells:
        axes.plot(cell.fraction_of_roof, y, **looks[_way(cell)], zorder=4)
    _cross(axes, [(cell.fraction_of_roof, y) for y, cell in cells if cell.reliable_fraction_of_roof is None])
    axes.set_yticks(range(len(cases)), [style.shorten_middle(name, NAMES - 20, style.SMALL_SIZE) for name in cases])
    axes.set_ylim(len(cases) - 0.5, -0.5)
    _share_axis(axes.xaxis, axes.set_xlim, [cell for _, cell in cells])
    axes.axvline(1, color=INK, lw=1.0, zorder=2)


def _cross(axes: Axes, points: Sequence[tuple[float, float]]) -> None:
    axes.plot(*np.array(points).reshape(-1, 2).T, **style.CROSSED)
