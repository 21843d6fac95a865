"""How near an operator comes to its roof: a panel per device, dtype and series over its axis, or a row per case."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from roofline.core.formatting import percent, place_words
from roofline.report import figure_style as style
from roofline.report.palette import INK, SERIES_COLOURS, markers_of
from roofline.report.roofline_content import series_of
from roofline.table.rows import Cell, Roofline

HIGH, ABOVE, BELOW, COLUMNS, TICKS = 150.0, 24.0, 40.0, 4, 6
DECADES = 20.0  # shares that differ by more stand on a logarithmic axis
NAMES, ROW = 220.0, 14.0  # of a picture with a row per case


@style.styled()
def draw(roofline: Roofline, name: str) -> Figure:
    cells = [one for one in roofline.operators if one.operator == name and one.fraction_of_roof]
    looks = {
        way: (marker, SERIES_COLOURS[i % len(SERIES_COLOURS)])
        for i, (way, marker) in enumerate(markers_of(map(_way, cells)).items())
    }
    title = f"{roofline.title(name)[:1].upper()}{roofline.title(name)[1:]}: share of the roof"
    handles = [style.dot(way, colour, marker) for way, (marker, colour) in looks.items()]
    if any(cell.share is None for cell in cells):
        handles.append(style.crossed_entry())
    columns = min(len(handles), 4) or 1
    head = style.MARGIN + 26 + style.LEGEND_LINE * -(-len(handles) // columns) + ABOVE
    panels = _panels(roofline, cells)
    axis = roofline.operator_info[name].axis
    rows = -(-len(panels) // COLUMNS)
    inner = rows * (HIGH + BELOW + ABOVE) - ABOVE if axis else ROW * len(_cases(roofline, cells)) + BELOW
    whole = head + inner + style.MARGIN
    figure = style.headed(whole, title, [])
    style.legend(figure, style.MARGIN, whole - style.MARGIN - 26, handles, columns=columns)
    place = style.margins(whole, top=head, bottom=style.MARGIN + BELOW)
    if not axis:
        _paint_cases(figure.add_subplot(figure.add_gridspec(1, 1, **place | {"left": NAMES / style.WIDTH})[0]),
                     roofline, cells, looks)  # fmt: skip
        return figure
    grid = figure.add_gridspec(rows, COLUMNS, **place, hspace=(ABOVE + BELOW) / HIGH, wspace=0.1)
    for i, (words, mine) in enumerate(panels.items()):
        axes = figure.add_subplot(grid[divmod(i, COLUMNS)])
        axes.set_title(style.shortened(words, 0.85 * axes.bbox.width, style.TEXT_SIZE + 1), pad=5)
        _paint(axes, roofline, mine, looks)
        _share_axis(axes.yaxis, cells)
        axes.yaxis.set_tick_params(labelleft=i % COLUMNS == 0)
        axes.axhline(1, color=INK, lw=1.0, zorder=2)
    return figure


def _way(cell: Cell) -> str:
    return " ".join(filter(None, [cell.implementation, cell.scope]))


def _panels(roofline: Roofline, cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        series = roofline.operator_info[cell.operator].series(cell)
        words = ", ".join(filter(None, [f"{cell.device} {cell.dtype}", series, _preset(cell, cells)]))
        found.setdefault(words, []).append(cell)
    return found


def _preset(cell: Cell, cells: Sequence[Cell]) -> str | None:
    return cell.preset if len({one.preset for one in cells}) > 1 else None


def _cases(roofline: Roofline, cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        words = " ".join(filter(None, [cell.device, cell.dtype, roofline.label(cell), _preset(cell, cells)]))
        found.setdefault(words, []).append(cell)
    return found


def _share_axis(axis, cells: Sequence[Cell]) -> None:
    """One for all panels: from zero, or logarithmic."""
    shares = [cell.fraction_of_roof for cell in cells]
    low, high = min(shares), max(1.0, *shares)
    set_limits = axis.axes.set_xlim if axis.axis_name == "x" else axis.axes.set_ylim
    if high > DECADES * low:
        style.logarithmic(axis, lambda share: percent(share), numticks=9)
        set_limits(low / 1.6, 1.6 * high)
    else:
        axis.set_major_formatter(lambda share, _: f"{100 * share:.0f} %")
        set_limits(0, 1.08 * high)


def _paint(axes: Axes, roofline: Roofline, cells: Sequence[Cell], looks: Mapping) -> None:
    axis = roofline.operator_info[cells[0].operator].axis
    for group in series_of(cells, roofline):
        marker, colour = looks[_way(group[0])]
        at = [(cell.along(axis), cell.fraction_of_roof) for cell in group if cell.along(axis)]
        axes.plot(*zip(*at, strict=True), **style.dot_look(colour, marker) | {"ls": "-", "lw": 0.9}, zorder=4)
        crossed = [place for cell, place in zip(group, at, strict=False) if cell.share is None]
        if crossed:
            axes.plot(*zip(*crossed, strict=True), **style.CROSSED)
    values = sorted({value for cell in cells if (value := cell.along(axis))})
    style.logarithmic(axes.xaxis, lambda value: place_words(axis, round(value)), numticks=TICKS)
    axes.set(xlim=(values[0] / 1.3, values[-1] * 1.3), xlabel=axis.symbol)
    if len(values) <= TICKS:
        axes.set_xticks(values, [place_words(axis, value) for value in values])


def _paint_cases(axes: Axes, roofline: Roofline, cells: Sequence[Cell], looks: Mapping) -> None:
    cases = _cases(roofline, cells)
    for y, mine in enumerate(cases.values()):
        for cell in mine:
            marker, colour = looks[_way(cell)]
            axes.plot(cell.fraction_of_roof, y, **style.dot_look(colour, marker), zorder=4)
            if cell.share is None:
                axes.plot(cell.fraction_of_roof, y, **style.CROSSED)
    names = [style.shortened(name, NAMES - 20, style.SMALL_SIZE) for name in cases]
    axes.set_yticks(range(len(cases)), names)
    axes.set_ylim(len(cases) - 0.5, -0.5)
    _share_axis(axes.xaxis, cells)
    axes.axvline(1, color=INK, lw=1.0, zorder=2)
