"""The roofline as a picture: results/roofline.json in, a figure for roofline.png and roofline.svg out."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from math import log10

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from roofline.core.formatting import percent, place_words
from roofline.core.terms import Axis
from roofline.operators.about import About
from roofline.report import figure_style as style
from roofline.report.cells import USERS, height_of, predicted, series_of
from roofline.report.palette import dtype_colour
from roofline.report.roofline_ceilings import Level
from roofline.report.roofline_content import Panel, counting, key_of, panels
from roofline.table.rows import Cell, Roofline

SLOPE = "#4a515b"
HEADER, AXIS, GAP, STRIP, HIGH = 42.0, 40.0, 30.0, 11.0, 400.0
COLUMNS = (style.MARGIN, 304.0, 500.0)  # of the legend, from the left: compute, memory, dots
HANDLE, PREDICTED, MOST_LABELS = 28.0, 3.0, 14
SUSTAINED_DASHES, FMA_DASHES, LINK_DASHES = (0, (3, 2)), (0, (6, 2, 1, 2)), (0, (1, 1.6))
SLOPE_DASHES = ("-", (0, (8, 2)), (0, (4, 1.5)), (0, (8, 2, 2, 2)), (0, (8, 2, 2, 2, 2, 2)), (0, (2, 1)))


@style.styled()
def draw(roofline: Roofline) -> Figure:
    """One panel per device, one below the other."""
    roofline = style.drawable(roofline)
    found = panels(roofline)
    if not found:
        return style.nothing("Measured roofline", "Nothing to draw: no device was measured.")
    footer = style.wrapped(counting(roofline))
    parts = [_texts(panel) for panel in found]
    whole = 2 * style.MARGIN + sum(map(_height, parts)) + style.LINE * len(footer)
    names = ", ".join(device.name for device in roofline.devices.values())
    figure, top = style.paper(whole, f"Measured roofline: {names}"), whole - style.MARGIN
    for panel, (faults, legends, notes) in zip(found, parts, strict=True):
        style.printed_head(figure, top, panel.title, [panel.subtitle], faults)
        bottom = top - HEADER - style.LINE * len(faults) - HIGH
        place = style.margins(whole, top=whole - bottom - HIGH, bottom=bottom)
        _paint(figure.add_subplot(figure.add_gridspec(1, 1, **place)[0]), panel, roofline)
        below = bottom - AXIS
        for left, entries in zip(COLUMNS, legends, strict=True):
            if entries:
                style.legend(figure, left, below, entries)
        below -= style.LEGEND_LINE * max(map(len, legends)) + 14.0
        style.printed(figure, below, notes)
        top = below - style.LINE * len(notes) - GAP
    style.printed(figure, top, footer)
    return figure


def _texts(panel: Panel) -> tuple[list[str], list[list[Line2D]], list[str]]:
    """Above the axes, and the columns of the legend and the notes below them."""
    faults, notes = ([line for text in texts for line in style.wrapped(text)] for texts in (panel.faults, panel.notes))
    legends = [list(_compute_entries(panel)), list(_memory_entries(panel)), list(_dot_entries(panel))]
    for left, right, entries in zip(COLUMNS, (*COLUMNS[1:], style.WIDTH), legends, strict=True):
        for entry in entries:
            entry.set_label(style.shortened(entry.get_label(), right - left - HANDLE - 8, style.TEXT_SIZE))
    return faults, legends, notes


def _height(texts: tuple[list[str], list[list[Line2D]], list[str]]) -> float:
    faults, legends, notes = texts
    lines = style.LINE * (len(faults) + len(notes)) + style.LEGEND_LINE * max(map(len, legends))
    return HEADER + HIGH + AXIS + 14.0 + GAP + lines


def _paint(axes: Axes, panel: Panel, roofline: Roofline) -> None:
    x0, x1, y0, y1 = _limits(panel)
    axes.set(xlim=(x0, x1), ylim=(y0, y1))
    axes.set(xlabel="intensity, FLOP/byte", ylabel="attained, TFLOPS")
    for axis in (axes.xaxis, axes.yaxis):
        style.logarithmic(axis, "{:g}".format, numticks=30)
    _paint_regimes(axes, panel)
    _paint_ceilings(axes, panel)
    _paint_dots(axes, panel)
    _write_labels(axes, panel, roofline)


def _limits(panel: Panel) -> tuple[float, float, float, float]:
    """Intensities and TFLOPS, with room on all sides."""
    cells, peaks = panel.cells, [level.value for level in panel.compute]
    xs = [cell.intensity_flops_per_byte for cell in cells if cell.intensity_flops_per_byte]
    slopes = [level.value / 1e3 for level in panel.memory if level.look != "faint"]
    ridges = [peak / slope for peak in peaks for slope in slopes]
    left = min([*(x / 16 for x in xs), *(ridge / 30 for ridge in ridges)], default=0.1)
    right = max([3 * x for x in xs] + [ridge * 5 for ridge in ridges] + [100 * left])
    heights = [height_of(cell) for cell in cells] + [p for cell in cells if (p := predicted(cell))]
    low = min([*heights, *(20 * left * slope for slope in slopes), *(peak / 30 for peak in peaks)], default=1e-3)
    high = max([*heights, *(peaks or [right * slope for slope in slopes])], default=1.0)
    return left, right, low / 2.5, 2.5 * max(high, 10 * low)


def _paint_regimes(axes: Axes, panel: Panel) -> None:
    """Whose roof is the lower at each intensity: left of every ridge point the memory's, right of all the compute's."""
    usual = [level.value for level in panel.memory if level.look != "faint"]
    slopes = [level.value for level in panel.memory if level.look == "bold"] or usual
    ridges = [level.value * 1e3 / slope for level in panel.compute for slope in slopes]
    if not ridges:
        return
    low, high = axes.get_xlim()
    first, last = (min(max(ridge, low), high) for ridge in (min(ridges), max(ridges)))
    spans = [(low, first, "memory roof"), (first, last, "depends on dtype"), (last, high, "compute roof")]
    strip = 1 - STRIP / axes.bbox.height
    for start, end, words in spans:
        colour = style.SHADE if start == first and end == last else "#f6f7f8"
        axes.axvspan(start, end, strip, 1, facecolor=colour, lw=0, zorder=1)
        wide = axes.bbox.width * log10(end / start) / log10(high / low)
        if wide > 4.6 * len(words):
            look = {"size": style.SMALL_SIZE, "color": style.MUTED, "ha": "center", "va": "center", "zorder": 2}
            axes.text((start * end) ** 0.5, (1 + strip) / 2, words, transform=axes.get_xaxis_transform(), **look)


# ------------------------------------------------------------------------------------------------ ceilings


def _paint_ceilings(axes: Axes, panel: Panel) -> None:
    """Compute ceilings from the first ridge point on; slopes up to the highest of them."""
    (x0, x1), (y0, y1) = axes.get_xlim(), axes.get_ylim()
    fastest = max((level.value for level in panel.memory), default=None)
    for level in panel.compute:
        start = max(x0, level.value * 1e3 / fastest) if fastest else x0
        axes.plot([start, x1], [level.value] * 2, **_compute_look(level), zorder=2.2)
        if level.sustained:
            look = _compute_look(level) | {"ls": SUSTAINED_DASHES}
            axes.plot([start, x1], [level.sustained] * 2, **look, zorder=2.1)
    peaks = [level.value for level in panel.compute] or [y1]
    for level, look in _slopes(panel):
        slope, faint = level.value / 1e3, level.look == "faint"
        start, end = max(x0, y0 / slope), min(x1, (min(peaks) if faint else max(peaks)) / slope)
        if start < end:
            axes.plot([start, end], [start * slope, end * slope], **look, zorder=2.1)


def _compute_look(level: Level) -> dict:
    dashes, width = {"normal": ("-", 1.6), "faint": ("-", 0.8), "fma": (FMA_DASHES, 1.0)}[level.look]
    return {"color": dtype_colour(level.dtype), "lw": width, "ls": dashes}


def _slopes(panel: Panel) -> Iterable[tuple[Level, dict]]:
    """Memory levels and the looks of their lines: told apart by their dashes, the main one solid and thick."""
    dashes = iter(SLOPE_DASHES[1:] * len(panel.memory))
    for level in panel.memory:
        if level.look == "bold":
            yield level, {"color": SLOPE, "lw": 2.0, "ls": "-"}
        elif level.look == "faint":
            yield level, {"color": style.faded(SLOPE, 0.3), "lw": 0.9, "ls": LINK_DASHES}
        else:
            yield level, {"color": style.faded(SLOPE, 0.2), "lw": 0.9, "ls": next(dashes)}


# ---------------------------------------------------------------------------------------------------- dots


def _place(axes: Axes, cell: Cell) -> tuple[float, float]:
    """What has no traffic is of infinite intensity: near the right edge."""
    left, right = axes.get_xlim()
    return cell.intensity_flops_per_byte or right * (left / right) ** 0.04, height_of(cell)


def _paint_dots(axes: Axes, panel: Panel) -> None:
    """The user's operations, which may be very many, below the others."""
    dots = [
        (cell.operator != USERS, cell.dtype, panel.markers[key_of(cell)], cell.attained_tflops is None)
        for cell in panel.cells
    ]
    order = sorted(zip(dots, panel.cells, strict=True), key=lambda item: item[0])
    for (_, dtype, marker, hollow), group in groupby(order, key=lambda item: item[0]):
        cells, colour = [cell for _, cell in group], dtype_colour(dtype)
        look = style.dot_look(colour, marker, hollow)
        axes.plot(*zip(*(_place(axes, cell) for cell in cells), strict=True), **look, clip_on=False, zorder=4)
        promised = [(cell.intensity_flops_per_byte, at) for cell in cells if (at := predicted(cell))]
        if promised:
            look = style.dot_look(style.faded(colour, 0.5), marker, True, PREDICTED)
            axes.plot(*zip(*promised, strict=True), **look, clip_on=False, zorder=3)
        for cell in cells:
            if cell.no_traffic:
                arrow = {"arrowstyle": "->", "color": colour, "lw": 1.0, "shrinkA": 4, "shrinkB": 0}
                axes.annotate("", (axes.get_xlim()[1], height_of(cell)), _place(axes, cell), arrowprops=arrow)
    crossed = [_place(axes, cell) for cell in panel.cells if cell.doubt]
    if crossed:
        axes.plot(*zip(*crossed, strict=True), **style.CROSSED, clip_on=False)


def _write_labels(axes: Axes, panel: Panel, roofline: Roofline) -> None:
    """Beside the dots: of an operator with an axis to the left of its lowest intensity and to the right of the others,
    else below the dot. One that would cover another, or leave the axes, is left out."""
    taken, frame = [], axes.bbox
    for name in dict.fromkeys(cell.operator for cell in panel.labelled):
        mine = [cell for cell in panel.labelled if cell.operator == name]
        info, least = roofline.operator_info[name], min(cell.intensity_flops_per_byte or np.inf for cell in mine)
        for group in series_of(mine, info):
            axis = info.axis if len(group) > 1 else None
            for words, cell in _labels(axes, group, axis, info):
                x, y = axes.transData.transform(_place(axes, cell))
                wide, high = style.text_width(words, style.SMALL_SIZE), 1.1 * style.SMALL_SIZE
                left = x - 7 - wide if (cell.intensity_flops_per_byte or np.inf) == least else x + 7
                low = y - high / 2
                if not axis:
                    left, low = x - wide / 2, y - 15
                box = np.array([left, low, left + wide, low + high])
                inside = frame.x0 < box[0] and box[2] < frame.x1 and frame.y0 < box[1] and box[3] < frame.y1 - STRIP
                if not inside or len(taken) == MOST_LABELS or any(_overlap(box, other) for other in taken):
                    continue
                taken.append(box)
                halo = [withStroke(linewidth=3, foreground=style.PAPER)]
                look = {"size": style.SMALL_SIZE, "va": "center", "path_effects": halo, "zorder": 5}
                axes.text(left, low + high / 2, words, transform=style.in_points(axes.figure), **look)


def _labels(axes: Axes, cells: Sequence[Cell], axis: Axis | None, info: About) -> Iterable[tuple[str, Cell]]:
    """The words and the cell where they stand; neighbours that are too near for a label each share one."""
    if not axis:
        yield from ((f"{info.title} {c.dtype} {percent(c.fraction_of_roof)}", c) for c in cells)
        return
    groups: list[list[Cell]] = []
    for cell in sorted(cells, key=height_of):
        height = axes.transData.transform((1, height_of(cell)))[1]
        if groups and height - axes.transData.transform((1, height_of(groups[-1][0])))[1] < 1.2 * style.SMALL_SIZE:
            groups[-1].append(cell)
        else:
            groups.append([cell])
    of = info.series(cells[0])
    for place, group in enumerate(groups):
        sizes = [cell.along(axis) for cell in group]
        shares = [cell.fraction_of_roof for cell in group]
        sizes = _span(place_words(axis, min(sizes)), place_words(axis, max(sizes)))
        shares = _span(percent(min(shares)), percent(max(shares))).replace(" %–", "–")
        series = f"{of}, " if of and not place else ""
        yield f"{series}{axis.symbol} {sizes}: {shares}", group[len(group) // 2]


def _span(first: str, last: str) -> str:
    return first if first == last else f"{first}–{last}"


def _overlap(one: np.ndarray, other: np.ndarray) -> bool:
    return bool((one[:2] < other[2:]).all() and (other[:2] < one[2:]).all())


# -------------------------------------------------------------------------------------------------- legend


def _compute_entries(panel: Panel) -> Iterable[Line2D]:
    for level in panel.compute:
        yield Line2D([], [], **_compute_look(level), label=level.text)
    if any(level.sustained for level in panel.compute):
        yield style.line("dashed: sustained load, where it gives less", dashes=SUSTAINED_DASHES)
    if any(level.look == "fma" for level in panel.compute):
        yield style.line("register-only FMA", dashes=FMA_DASHES)


def _memory_entries(panel: Panel) -> Iterable[Line2D]:
    for level, look in _slopes(panel):
        yield Line2D([], [], **look, label=level.text)


def _dot_entries(panel: Panel) -> Iterable[Line2D]:
    for words, marker in panel.kinds.items():
        yield style.dot(words, marker=marker)
    own = {level.dtype for level in panel.compute}
    for dtype in dict.fromkeys(cell.dtype for cell in panel.cells if cell.dtype not in own):
        yield style.dot(f"{dtype} (no ceiling of its own)", dtype_colour(dtype), "s")
    if any(cell.attained_tflops is None for cell in panel.cells):
        yield style.dot("hollow: not measured, at its roof", hollow=True)
    if any(map(predicted, panel.cells)):
        yield style.dot("small, hollow: as predicted", style.MUTED, hollow=True, size=PREDICTED)
    if any(cell.doubt for cell in panel.cells):
        yield style.crossed_entry()
