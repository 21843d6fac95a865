"""The roofline as a picture: results/roofline.json in, a figure for roofline.png and roofline.svg out."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from math import atan2, cos, degrees, log10, sin

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from roofline.analysis.table import Operator, Roofline
from roofline.core.statistics import FEWEST_SAMPLES, few
from roofline.report import figure_style as style
from roofline.report.cells import USERS, height_of, predicted
from roofline.report.label_placement import MARKER, Label, discs, marker_place, write
from roofline.report.roofline_ceilings import Level
from roofline.report.roofline_content import Panel, counting, key_of, panels

SLOPE = "#4a515b"
LANE, HEADER, AXIS, GAP, STRIP = 264.0, 42.0, 34.0, 34.0, 11.0
POINTS_PER_DECADE, LOWEST, HIGHEST, LEGEND_LINE, LABEL_LINE = 72.0, 270.0, 520.0, 13.0, 11.6
DOT, PREDICTED, BAR, FURTHEST = MARKER, 3.0, 4.5, 24  # a bar is pushed aside by so many points at most
MOST_NAMED = 3  # of what has no label
FAR = 230.0  # points to a label that found no place nearby
Places = Mapping[int, tuple[float, float]]  # by the id of a cell
SUSTAINED_DASHES, FMA_DASHES, LINK_DASHES = (0, (3, 2)), (0, (6, 2, 1, 2)), (0, (1, 1.6))


@style.styled()
def draw(roofline: Roofline) -> Figure:
    """One panel per device, one below the other."""
    roofline = style.drawable(roofline)
    found = panels(roofline)
    if not found:
        return style.nothing("Measured roofline", "Nothing to draw: no device was measured.")
    notes = [[line for note in panel.notes for line in style.wrapped(note)] for panel in found]
    faults = [[line for fault in panel.faults for line in style.wrapped(fault)] for panel in found]
    headers = [HEADER + style.LINE * len(lines) for lines in faults]
    footer = style.wrapped(counting(roofline))
    heights = [_height(panel) for panel in found]
    below = [AXIS + style.LINE * len(lines) + GAP for lines in notes]
    whole = 2 * style.MARGIN + sum(heights) + sum(below) + sum(headers) + style.LINE * len(footer)
    names = ", ".join(device.name for device in roofline.devices.values())
    figure, top = style.paper(whole, f"Measured roofline: {names}"), whole - style.MARGIN
    for panel, height, foot, lines, failed, header in zip(found, heights, below, notes, faults, headers, strict=True):
        style.printed_head(figure, top, panel.title, [panel.subtitle], failed)
        bottom = top - header - height
        place = style.margins(whole, top=whole - bottom - height, bottom=bottom, right=LANE)
        lost = _paint(figure.add_subplot(figure.add_gridspec(1, 1, **place)[0]), panel)
        style.printed(figure, bottom - AXIS - style.LINE, [*lines, *lost])
        top = bottom - foot
    style.printed(figure, top - style.LINE, footer)
    return figure


def _height(panel: Panel) -> float:
    _, _, low, high = _limits(panel)
    lists = LABEL_LINE * len(panel.compute) + _listed(panel) + 20.0
    return max(LOWEST, min(HIGHEST, POINTS_PER_DECADE * log10(high / low)), lists)


def _listed(panel: Panel) -> float:
    return LEGEND_LINE * sum(1 + entry.get_label().count("\n") for entry in _entries(panel))


def _paint(axes: Axes, panel: Panel) -> Iterable[str]:
    """Returns what is without a label, in lines that the gap below a panel has room for."""
    x0, x1, y0, y1 = _limits(panel)
    axes.set(xlim=(x0, x1), ylim=(y0, y1))
    axes.set(xlabel="intensity, FLOP/byte", ylabel="attained, TFLOPS")
    for axis in (axes.xaxis, axes.yaxis):
        style.logarithmic(axis, "{:g}".format, numticks=30)
    _paint_regimes(axes, panel)
    lines = _paint_ceilings(axes, panel)
    places = _places(axes, panel)
    _paint_dots(axes, panel, places)
    _paint_ranges(axes, panel, places)
    _paint_lane(axes, panel)
    lost = write(axes, [_beside(line) for line in lines if not _write_along(axes, *line)], above=STRIP)
    labels = {
        Label(series.text, tuple(places[id(cell)] for cell in series.cells), series.colour): series
        for series in panel.labelled
    }
    missing = [series for series in panel.shown if series not in panel.labelled]
    crowded = write(axes, list(labels), above=STRIP)
    missing += [labels[label] for label in write(axes, crowded, above=STRIP, reach=FAR)]
    told = [series.text.replace("\n", " ") for series in missing]
    if len(told) > MOST_NAMED:
        told = [f"{sum(len(series.cells) for series in missing)} dots (see roofline.json)"]
    told = [label.text for label in lost] + told
    return style.wrapped(f"Not labelled: {'; '.join(told)}.") if told else []


# ------------------------------------------------------------------------------------------------ the axes


def _limits(panel: Panel) -> tuple[float, float, float, float]:
    """Intensities and TFLOPS, with room for labels on all sides."""
    cells, peaks = panel.cells, [level.value for level in panel.compute]
    xs = [cell.intensity_flops_per_byte for cell in cells if cell.intensity_flops_per_byte]
    slopes = [level.value / 1e3 for level in panel.memory if level.look != "faint"]
    ridges = [peak / slope for peak in peaks for slope in slopes]
    left = min([x / 110 for x in xs] + [ridge / 30 for ridge in ridges], default=0.1)
    right = max([3 * x for x in xs] + [ridge * 10 for ridge in ridges] + [100 * left])
    heights = [height_of(cell) for cell in cells] + [p for cell in cells if (p := predicted(cell))]
    low = min([*heights, *(20 * left * slope for slope in slopes), *(peak / 30 for peak in peaks)], default=1e-3)
    high = max([*heights, *(peaks or [right * slope for slope in slopes])], default=1.0)
    return left, right, low / 2.5, 2.5 * max(high, 10 * low)


def _at(axes: Axes, cell: Operator) -> tuple[float, float]:
    """Infinite intensity lies further right than any picture is wide: near the edge."""
    left, right = axes.get_xlim()
    return cell.intensity_flops_per_byte or right * (left / right) ** 0.04, height_of(cell)


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


def _paint_ceilings(axes: Axes, panel: Panel) -> list[tuple[Level, tuple, tuple]]:
    """Draws all lines; returns the memory ceilings with the ends of theirs."""
    x0, x1 = axes.get_xlim()
    y0, y1 = axes.get_ylim()
    fastest = max((level.value for level in panel.memory), default=None)
    for level in panel.compute:
        start = max(x0, level.value * 1e3 / fastest) if fastest else x0  # from the first ridge point
        dashes, width = {"normal": ("-", 1.6), "faint": ("-", 0.8), "fma": (FMA_DASHES, 1.0)}[level.look]
        axes.plot([start, x1], [level.value] * 2, color=level.colour, lw=width, ls=dashes, zorder=2.2)
        if level.sustained:
            look = {"color": level.colour, "lw": width, "ls": SUSTAINED_DASHES, "zorder": 2.1}
            axes.plot([start, x1], [level.sustained] * 2, **look)
    peaks = [level.value for level in panel.compute] or [y1]
    looks = {
        "bold": {"color": SLOPE, "lw": 2.0, "zorder": 2.15},
        "normal": {"color": style.faded(SLOPE, 0.35), "lw": 0.8},
        "faint": {"color": style.faded(SLOPE, 0.55), "lw": 0.9, "ls": LINK_DASHES},
    }
    found = []
    for level in panel.memory:
        slope, faint = level.value / 1e3, level.look == "faint"
        start, end = max(x0, y0 / slope), min(x1, (min(peaks) if faint else max(peaks)) / slope)
        start = max(start, (start * end) ** 0.5) if faint else start  # of the host's link the upper half is enough
        if start < end:
            ends = (start, start * slope), (end, end * slope)
            axes.plot(*zip(*ends, strict=True), **looks[level.look])
            found.append((level, *ends))
    return sorted(found, key=lambda line: -line[0].value)


def _write_along(axes: Axes, level: Level, start: tuple, end: tuple) -> bool:
    """The label along its line, at the first free place above or below; False where there is none."""
    bold = level.look == "bold"
    look = {"size": style.TEXT_SIZE, "weight": "bold" if bold else "normal", "color": SLOPE if bold else style.MUTED}
    text = axes.text(0, 0, level.text, rotation_mode="anchor", transform=style.in_points(axes.figure), **look)
    extent = text.get_window_extent(axes.figure.canvas.get_renderer())
    (ax, ay), (bx, by) = axes.transData.transform([start, end])
    angle, length = atan2(by - ay, bx - ax), float(np.hypot(bx - ax, by - ay))
    x, y, radius, _ = discs(axes).T
    along, off = (x - ax) * cos(angle) + (y - ay) * sin(angle), (y - ay) * cos(angle) - (x - ax) * sin(angle)
    for low in (2.0, -2.0 - style.TEXT_SIZE):
        near = np.sort(along[(off + radius > low) & (off - radius < low + style.TEXT_SIZE)])
        for left in np.arange(12.0, length - extent.width - 6.0, 4.0):
            first = np.searchsorted(near, left - 4)
            if first == len(near) or near[first] > left + extent.width + 4:
                base = low + 0.14 * style.TEXT_SIZE
                x, y = (ax + left * cos(angle) - base * sin(angle), ay + left * sin(angle) + base * cos(angle))
                text.set(position=(x, y), rotation=degrees(angle))
                return True
    text.remove()
    return False


def _beside(line: tuple[Level, tuple, tuple]) -> Label:
    level, (x0, y0), (x1, y1) = line
    points = tuple((x0 * (x1 / x0) ** share, y0 * (y1 / y0) ** share) for share in (0.25, 0.5, 0.75))
    return Label(level.text, points, SLOPE, "bold" if level.look == "bold" else "normal")


# ---------------------------------------------------------------------------------------------------- dots


def _places(axes: Axes, panel: Panel) -> Places:
    """Of the dots; the user's operations, which may be very many, make room for the others."""
    found, taken = {}, {}
    cells = [cell for series in panel.shown for cell in series.cells]
    for cell in sorted(cells, key=lambda cell: cell.operator == USERS):
        found[id(cell)] = marker_place(axes, _at(axes, cell), taken)
    return found


def _paint_dots(axes: Axes, panel: Panel, places: Places) -> None:
    for series in panel.shown:
        if len(series.cells) > 1:
            joined = [_at(axes, cell) for cell in series.cells]
            axes.plot(*zip(*joined, strict=True), color=style.faded(series.colour, 0.55), lw=0.7, zorder=1.9)
    dots = [(s.colour, panel.markers[key_of(c)], c.attained_tflops is None, c) for s in panel.shown for c in s.cells]
    dots.sort(key=lambda dot: (dot[3].operator != USERS, *dot[:3]))  # the user's may be very many: below the others
    for (colour, marker, hollow), group in groupby(dots, key=lambda dot: dot[:3]):
        cells = [cell for *_, cell in group]
        look = _look(colour, marker, hollow)
        axes.plot(*zip(*(places[id(cell)] for cell in cells), strict=True), **look, clip_on=False, zorder=4)
        promised = [(cell.intensity_flops_per_byte, tflops) for cell in cells if (tflops := predicted(cell))]
        if promised:
            look = _look(style.faded(colour, 0.5), marker, True, PREDICTED)
            axes.plot(*zip(*promised, strict=True), **look, clip_on=False, zorder=3)
    few_samples = [places[id(cell)] for *_, cell in dots if few(cell.samples)]
    if few_samples:
        axes.plot(*zip(*few_samples, strict=True), **style.FEW, clip_on=False)
    edge = axes.get_xlim()[1]
    for colour, _, _, cell in dots:
        if cell.no_traffic:
            arrow = {"arrowstyle": "->", "color": colour, "lw": 1.0, "shrinkA": 4, "shrinkB": 0}
            axes.annotate("", (edge, height_of(cell)), places[id(cell)], arrowprops=arrow)


def _look(colour: str, marker: str, hollow: bool, size: float = DOT) -> dict:
    edge, width = (colour, 0.16 * size) if hollow else (style.PAPER, 0.6)
    face = style.PAPER if hollow else colour
    return {"marker": marker, "ms": size, "mfc": face, "mec": edge, "mew": width, "ls": "none"}


def _paint_ranges(axes: Axes, panel: Panel, places: Places) -> None:
    """An upright bar from the worst cell to the best, pushed aside where dots or another bar stand at its intensity."""
    shown = [cell for series in panel.shown for cell in series.cells if cell.operator != USERS]
    taken = [axes.transData.transform(places[id(cell)]) for cell in shown]
    for ends in panel.ranges:
        at = axes.transData.transform([_at(axes, cell) for cell in ends])
        at[:, 0] = at[:, 0].mean()  # aslant it would look like a roof
        low, high = sorted(at[:, 1])
        for _ in range(FURTHEST):
            if any(abs(at[:, 0] - x).min() < BAR and low - BAR < y < high + BAR for x, y in taken):
                at[:, 0] += 1.0
        taken += [(at[:, 0].mean(), y) for y in np.arange(low, high + BAR, BAR)]
        colour = style.faded(style.dtype_colour(ends[0].dtype), 0.25)
        marked = axes.transData.inverted().transform(at)
        for place, _ in ((p, c) for p, c in zip(marked, ends, strict=True) if few(c.samples)):
            axes.plot(*place, **style.FEW)
        axes.plot(*marked.T, color=colour, lw=0.9, marker="_", ms=BAR, zorder=3.5)


# ------------------------------------------------------------------------------------------- right of the plot


def _paint_lane(axes: Axes, panel: Panel) -> None:
    """The compute ceilings' labels at the ends of their lines, and below them the legend."""
    handles, points = list(_entries(panel)), style.in_points(axes.figure)
    frame, x1 = axes.bbox, axes.get_xlim()[1]
    axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(1.03, 0))
    levels = sorted(panel.compute, key=lambda level: level.value)
    heights = [axes.transData.transform((x1, level.value))[1] for level in levels]
    centres = spread(heights, LABEL_LINE, frame.y0 + _listed(panel) + 8.0, frame.y1)
    for level, y, centre in zip(levels, heights, centres, strict=True):
        x, colour = frame.x1, level.colour
        elbow = (x, x + 3, x + 11, x + 14), (y, y, centre, centre)
        axes.add_artist(Line2D(*elbow, color=colour, lw=0.8, transform=points, clip_on=False))
        look = {"size": style.TEXT_SIZE, "color": style.readable(colour), "va": "center_baseline", "transform": points}
        axes.text(x + 16, centre, level.text, **look)


def spread(targets: Sequence[float], apart: float, low: float, high: float) -> list[float]:
    """Rising heights as near to the rising targets as a distance between them allows, within low and high.

    Pooling adjacent violators: neighbours that would overlap become one block, which stands at its own mean.
    """
    blocks: list[tuple[float, int]] = []  # where a block's first label would stand, and how many it holds
    for place, target in enumerate(targets):
        blocks.append((target - apart * place, 1))
        while len(blocks) > 1 and blocks[-2][0] >= blocks[-1][0]:
            (one, n), (other, m) = blocks[-2:]
            blocks[-2:] = [((one * n + other * m) / (n + m), n + m)]
    last = max(low, high - apart * (len(targets) - 1))
    starts = [min(max(start, low), last) for start, count in blocks for _ in range(count)]
    return [start + apart * place for place, start in enumerate(starts)]


def _entries(panel: Panel) -> Iterable[Line2D]:
    """Of the legend."""

    def dot(words: str, colour: str, marker: str = "o", hollow: bool = False, size: float = DOT) -> Line2D:
        return Line2D([], [], **_look(colour, marker, hollow, size), label=words)

    for words, marker in panel.kinds.items():
        yield dot(words, style.INK, marker)
    cells, own = panel.cells, {level.text.split()[0] for level in panel.compute}
    for dtype in dict.fromkeys(cell.dtype for cell in cells if cell.dtype not in own):
        yield dot(f"{dtype} (no ceiling of its own)", style.dtype_colour(dtype), "s")
    if any(cell.attained_tflops is None for cell in cells):
        yield dot("hollow: not measured, at its roof", style.INK, hollow=True)
    if any(map(predicted, cells)):
        yield dot("small, hollow: as predicted", style.MUTED, hollow=True, size=PREDICTED)
    if any(few(cell.samples) for cell in cells):
        yield Line2D([], [], **style.FEW, label=f"crossed: fewer than {FEWEST_SAMPLES} samples")
    if panel.ranges:
        words = "bar: other implementations and scopes,\nshifted right for legibility"
        yield Line2D([], [], color=style.MUTED, lw=0.9, marker="|", ms=BAR, label=words)
    if any(level.sustained for level in panel.compute):
        yield Line2D([], [], color=style.MUTED, lw=1.0, ls="-", label="burst: the roof")
        yield Line2D([], [], color=style.MUTED, lw=1.0, ls=SUSTAINED_DASHES, label="sustained load")
    if any(level.look == "fma" for level in panel.compute):
        yield Line2D([], [], color=style.MUTED, lw=0.9, ls=FMA_DASHES, label="register-only multiply-adds")
