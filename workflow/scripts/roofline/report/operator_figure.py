"""How near an operator comes to its roof: a panel per device, dtype and series over its axis, or a row per case."""

from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.axis import XAxis, YAxis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from roofline.core.formatting import axis_value_text, percent
from roofline.core.grouping import group_by
from roofline.core.terms import Axis
from roofline.report import figure_style as style
from roofline.report.palette import INK, SERIES_COLOURS, assign_in_turn
from roofline.report.roofline_content import group_series
from roofline.table.rows import CellRow, Roofline

# Points: a panel, its title above it and its axis below it.
PANEL_HEIGHT, PANEL_TITLE_HEIGHT, PANEL_AXIS_HEIGHT = 150.0, 24.0, 40.0
PANELS_PER_ROW, MOST_TICKS = 4, 6
LARGEST_LINEAR_RATIO = 20.0  # shares that differ by more are on a logarithmic axis
CASE_NAMES_WIDTH, CASE_HEIGHT = 220.0, 14.0  # of a picture with a row per case
Looks = Mapping[str, style.Look]


def draw_operator_shares(roofline: Roofline, name: str) -> Figure:
    """Return the picture of an operator's shares of the roof: panels over its axis, or a row per case."""
    cells = [cell for cell in roofline.operators if cell.operator == name and cell.fraction_of_roof]
    axis, title = roofline.operator_info[name].axis, roofline.title(name)
    looks = _looks(cells)
    several_scopes = len({cell.scope for cell in cells}) > 1
    names = {_variant(cell): _variant(cell) if several_scopes else cell.implementation for cell in cells}
    handles = [Line2D([], [], **look, label=names[variant]) for variant, look in looks.items()]
    handles += [style.crossed_entry()] if any(cell.reliable_fraction_of_roof is None for cell in cells) else []
    panels = _group_by_panel(cells, roofline)
    rows = -(-len(panels) // PANELS_PER_ROW)
    if axis:
        body = rows * (PANEL_HEIGHT + PANEL_AXIS_HEIGHT + PANEL_TITLE_HEIGHT) - PANEL_TITLE_HEIGHT
    else:
        body = CASE_HEIGHT * len(panels) + PANEL_AXIS_HEIGHT
    head = style.MARGIN + 26 + style.LEGEND_LINE * -(-len(handles) // PANELS_PER_ROW) + PANEL_TITLE_HEIGHT
    height = head + body + style.MARGIN
    figure = style.new_titled_figure(height, f"{title[:1].upper()}{title[1:]}: share of the roof", [])
    style.add_legend(figure, height - style.MARGIN - 26, handles, columns=PANELS_PER_ROW)
    margins = style.subplot_margins(height, top=head, bottom=style.MARGIN + PANEL_AXIS_HEIGHT)
    if not axis:
        margins["left"] = CASE_NAMES_WIDTH / style.WIDTH
        _paint_cases(figure.subplots(gridspec_kw=margins), panels, looks)
        return figure
    space = (PANEL_TITLE_HEIGHT + PANEL_AXIS_HEIGHT) / PANEL_HEIGHT
    grid = figure.add_gridspec(rows, PANELS_PER_ROW, **margins, hspace=space, wspace=0.1)
    for place, (panel_title, panel_cells) in enumerate(panels.items()):
        axes = figure.add_subplot(grid[divmod(place, PANELS_PER_ROW)])
        axes.set_title(style.shorten_middle(panel_title, 0.85 * axes.bbox.width, style.TEXT_SIZE + 1), pad=5)
        _paint(axes, roofline, axis, panel_cells, looks)
        _set_share_axis(axes.yaxis, axes.set_ylim, cells)
        axes.yaxis.set_tick_params(labelleft=place % PANELS_PER_ROW == 0)
        axes.axhline(1, color=INK, lw=1.0, zorder=2)
    return figure


def _looks(cells: Sequence[CellRow]) -> Looks:
    """The style of the dots of each variant."""
    variants = list(map(_variant, cells))
    markers, colours = assign_in_turn(variants), assign_in_turn(variants, SERIES_COLOURS)
    return {variant: style.dot_style(colours[variant], marker) for variant, marker in markers.items()}


def _variant(cell: CellRow) -> str:
    """Implementation and scope."""
    return " ".join(filter(None, [cell.implementation, cell.scope]))


def _share(cell: CellRow) -> float:
    """The share of the roof, which every cell of this picture has."""
    return cell.fraction_of_roof or 0.0


def _group_by_panel(cells: Sequence[CellRow], roofline: Roofline) -> dict[str, list[CellRow]]:
    """Cells by device, dtype and series, and by preset if there are several."""
    several_presets = len({cell.preset for cell in cells}) > 1

    def panel_title(cell: CellRow) -> str:
        words = [f"{cell.device} {cell.dtype}", roofline.series(cell), cell.preset if several_presets else ""]
        return ", ".join(filter(None, words))

    return group_by(cells, panel_title)


def _set_share_axis(axis: XAxis | YAxis, set_limits: Callable, cells: Sequence[CellRow]) -> None:
    """Give all panels one axis of shares: from zero, or logarithmic."""
    shares = list(map(_share, cells))
    low, high = min(shares), max(1.0, *shares)
    if high > LARGEST_LINEAR_RATIO * low:
        style.set_log_axis(axis, percent, numticks=9)
        set_limits(low / 1.6, 1.6 * high)
    else:
        axis.set_major_formatter(lambda share, _: f"{100 * share:.0f} %")
        set_limits(0, 1.08 * high)


def _paint(axes: Axes, roofline: Roofline, axis: Axis, cells: Sequence[CellRow], looks: Looks) -> None:
    cells = [cell for cell in cells if cell.axis_value(axis)]
    for series in group_series(cells, roofline):
        sizes, shares = [cell.axis_value(axis) for cell in series], list(map(_share, series))
        axes.plot(sizes, shares, **looks[_variant(series[0])] | {"ls": "-", "lw": 0.9}, zorder=4)
    for cell in cells:
        if cell.reliable_fraction_of_roof is None:
            axes.plot(cell.axis_value(axis), _share(cell), **style.CROSSED)
    values = sorted({cell.axis_value(axis) for cell in cells})
    style.set_log_axis(axes.xaxis, lambda value: axis_value_text(axis, round(value)), numticks=MOST_TICKS)
    axes.set(xlim=(values[0] / 1.3, values[-1] * 1.3), xlabel=axis.symbol)
    if len(values) <= MOST_TICKS:
        axes.set_xticks(values, [axis_value_text(axis, value) for value in values])


def _paint_cases(axes: Axes, cases: Mapping[str, Sequence[CellRow]], looks: Looks) -> None:
    for row, cells in enumerate(cases.values()):
        for cell in cells:
            axes.plot(_share(cell), row, **looks[_variant(cell)], zorder=4)
            if cell.reliable_fraction_of_roof is None:
                axes.plot(_share(cell), row, **style.CROSSED)
    names = [style.shorten_middle(name, CASE_NAMES_WIDTH - 20, style.SMALL_SIZE) for name in cases]
    axes.set_yticks(range(len(cases)), names)
    axes.set_ylim(len(cases) - 0.5, -0.5)
    _set_share_axis(axes.xaxis, axes.set_xlim, [cell for cells in cases.values() for cell in cells])
    axes.axvline(1, color=INK, lw=1.0, zorder=2)
