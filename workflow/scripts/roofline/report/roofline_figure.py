"""The roofline of a device as a picture."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle
from math import atan, degrees, log10

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from roofline.report import figure_style as style
from roofline.report.palette import INK, MUTED, dtype_colour, markers_of
from roofline.report.placement import Point, nearest_point, place_labels, sample_lines
from roofline.report.roofline_content import Dot, Line, RooflineContent, build_content, choose_dots
from roofline.table.rows import Roofline

SLOPE, HIGH, HIGH_OF_ONE, HEAD, AXIS, RIGHT = "#4a515b", 400.0, 340.0, 52.0, 46.0, 168.0
SUSTAINED, FMA = (0, (3, 2)), (0, (6, 2, 1, 2))
DASHES = ("-", (0, (6, 2)), (0, (3, 1.5)), (0, (6, 2, 1.5, 2)))
TOGETHER, PREDICTED = 18.0, 3.0  # slopes nearer than this share labels; size of a hollow dot
ROOFS = "{}: burst{} (of {})"
SHARES = (
    "Colours: dtypes, as of the roofs. Percentages: of the roof{}. Small hollow dots: predicted. *: do not rely on it."
)


@style.styled()
def draw_roofline(roofline: Roofline, device: str) -> Figure:
    return draw_panels([build_content(roofline, device, choose_dots(roofline, device))])


@style.styled()
def draw_operator(roofline: Roofline, operator: str) -> Figure:
    """A roofline per device with all cells of an operator, by implementation, labelled with their FLOP rates."""
    contents = []
    for device in roofline.devices:
        cells = [one for one in roofline.operators if (one.device, one.operator) == (device, operator) and one.record]
        contents += [build_content(roofline, device, cells, by_rate=True)] if cells else []
    return draw_panels(contents, roofline.title(operator))


@style.styled()
def draw_dots(roofline: Roofline, device: str, dots: Sequence[tuple[float, float, str, str]]) -> Figure:
    """The ceilings of a device with dots of others: FLOP/byte, TFLOPS, label and dtype of each."""
    placed = [Dot(x, y, label, dtype, "") for x, y, label, dtype in dots]
    return draw_panels([replace(build_content(roofline, device, []), dots=placed)])


def draw_panels(contents: Sequence[RooflineContent], of: str = "") -> Figure:
    """One panel per device, one below the other."""
    marks = markers_of(dot.kind for one in contents for dot in one.dots)
    legends = [_entries(one, marks) for one in contents]
    high = HIGH_OF_ONE if of else HIGH
    heights = [HEAD + high + AXIS + style.LEGEND_LINE * -(-len(entries) // 3) + 10 for entries in legends]
    whole = sum(heights) + 2 * style.MARGIN + style.LINE
    title = f"Measured roofline: {', '.join(one.title for one in contents)}"
    figure, top = style.new_figure(whole, title), whole - style.MARGIN
    for one, entries, height in zip(contents, legends, heights, strict=True):
        style.print_head(figure, top, one.title, [f"{of or 'Measured roofline'} on {one.device}"])
        place_of = style.subplot_margins(whole, top=whole - top + HEAD, bottom=top - HEAD - high, right=RIGHT)
        axes = figure.add_subplot(figure.add_gridspec(1, 1, **place_of)[0])
        _paint(axes, one, marks)
        style.add_legend(figure, top - HEAD - high - AXIS, entries, columns=3)
        top -= height
    peak = any("(" in dot.label for one in contents for dot in one.dots)
    brackets = "; in brackets: of the compute peak" if peak else ""
    style.print_lines(figure, style.MARGIN, [] if of else [SHARES.format(brackets)])
    return figure


def _entries(one: RooflineContent, marks: dict) -> list:
    entries = [style.legend_dot(kind, marker=marks[kind]) for kind in dict.fromkeys(d.kind for d in one.dots)]
    if any(dot.hollow for dot in one.dots):
        entries.append(style.legend_dot("hollow: not measured, at its roof", hollow=True))
    if any(dot.crossed for dot in one.dots):
        entries.append(style.crossed_entry())
    return entries


def _paint(axes: Axes, one: RooflineContent, marks: dict) -> None:
    x0, x1, y0, y1 = axis_limits(one)
    axes.set(xlim=(x0, x1), ylim=(y0, y1), xlabel="intensity, FLOP/byte", ylabel=f"attained, {one.unit}")
    style.set_log_axis(axes.xaxis, "{:g}".format, numticks=30)
    style.set_log_axis(axes.yaxis, lambda tflops: f"{one.scale * tflops:g}", numticks=30)
    lines = sample_lines(_paint_lines(axes, one))
    _name_roofs(axes, one)
    for dot in one.dots:
        _paint_dot(axes, dot, marks[dot.kind])
    promises = [_points(axes, dot.intensity, dot.predicted) for dot in one.dots if dot.predicted]
    lines = np.concatenate([lines, np.array(promises).reshape(-1, 2)])
    _name_dots(axes, one.dots, lines, sample_lines(_name_slopes(axes, one)))


def axis_limits(one: RooflineContent) -> tuple[float, float, float, float]:
    """Intensities and TFLOPS, with room for labels."""
    xs, ys = [dot.intensity for dot in one.dots], [dot.tflops for dot in one.dots]
    ridges, peaks = one.ridges(), [roof.value for roof in one.roofs]
    left = min([x / 24 for x in xs] + [ridge / 30 for ridge in ridges], default=0.1)
    right = max([3 * x for x in xs] + [3 * ridge for ridge in ridges], default=100 * left)
    slopes = [slope.value / 1e3 for slope in one.slopes]
    high = max([*ys, *(peaks or [right * slope for slope in slopes])], default=1.0)
    low = min([*ys, *(20 * left * slope for slope in slopes), *(peak / 30 for peak in peaks)], default=high / 1e3)
    return left, right, low / 8, 4 * high


# ---------------------------------------------------------------- lines


def _points(axes: Axes, x: float, y: float) -> Point:
    return tuple(axes.transData.transform((x, y)))


def _paint_lines(axes: Axes, one: RooflineContent) -> Iterator[tuple[Point, Point]]:
    """Yields the ends of what was drawn, in points."""
    dashes = cycle(DASHES)
    for line, kind, xs, ys in one.segments(*axes.get_xlim(), axes.get_ylim()[0]):
        if kind == "slope":
            look = {"lw": 2.0 if line.main else 0.9, "ls": "-" if line.main else next(dashes), "color": SLOPE}
        else:
            look = {"lw": 1.6 if kind == "burst" else 1.0, "color": dtype_colour(line.dtype)}
            look["ls"] = SUSTAINED if kind == "sustained" else FMA if line.fma else "-"
        if xs[0] < xs[1]:
            axes.plot(xs, ys, zorder=2.1, **look)
            yield tuple(axes.transData.transform(list(zip(xs, ys, strict=True))))


def _name_roofs(axes: Axes, one: RooflineContent) -> None:
    """To the right of the axes, one below the other, each led to the end of its line."""
    x1, y1 = axes.get_xlim()[1], axes.get_ylim()[1]
    right, lowest = _points(axes, x1, y1)
    look = {"size": style.SMALL_SIZE, "va": "center", "transform": style.in_points(axes.figure)}
    held = " / sustained" if any(" / " in roof.label for roof in one.roofs) else ""
    words = ROOFS.format(one.unit, held, one.promised)
    axes.text(style.WIDTH - style.MARGIN, lowest + 6, words, color=MUTED, ha="right", **look)
    lowest -= 2
    for roof, below in zip(one.roofs, range(len(one.roofs), 0, -1), strict=True):
        y = _points(axes, x1, roof.value)[1]
        room = axes.bbox.y0 + style.LINE * below
        at = min(max(y + 2, room), lowest - style.LINE)
        axes.plot(
            [right, right + 6, right + 16], [y, y, at], color=dtype_colour(roof.dtype), lw=0.8, clip_on=False,
            transform=style.in_points(axes.figure),
        )  # fmt: skip
        axes.text(right + 18, at, roof.label, color=INK, **look)
        lowest = at


def _name_slopes(axes: Axes, one: RooflineContent) -> Iterator[tuple[Point, Point]]:
    """Along the lower ends: of near slopes the last is named below them, the others above. Yields what is covered."""
    (x0, x1), (y0, y1), groups = axes.get_xlim(), axes.get_ylim(), []
    for slope in one.slopes:
        room = TOGETHER * min(2, len(groups[-1])) if groups else 0.0  # a name below a group, and one above the next
        if not groups or _height(axes, groups[-1][-1]) - _height(axes, slope) >= room:
            groups.append([])
        groups[-1].append(slope)
    angle = atan(axes.bbox.height / log10(y1 / y0) / (axes.bbox.width / log10(x1 / x0)))
    along, across = np.array([np.cos(angle), np.sin(angle)]), np.array([-np.sin(angle), np.cos(angle)])
    look = {"rotation": degrees(angle), "rotation_mode": "anchor", "va": "center", "size": style.SMALL_SIZE}
    for group in groups:
        sides = [(group[0], group[:-1] or group, 7.0)] + [(group[-1], group[-1:], -7.0)] * (len(group) > 1)
        for line, named, aside in sides:
            words, start = ", ".join(one.label for one in named), max(x0, 1e3 * y0 / line.value)
            at = np.array(_points(axes, start, start * line.value / 1e3)) + 8.0 * along + aside * across
            colour = INK if line.main else MUTED
            axes.text(*at, words, color=colour, transform=style.in_points(axes.figure), **look)
            end = at + style.measure_text(words, style.SMALL_SIZE) * along
            for offset in (-4.0 * across, 0.0 * across, 4.0 * across):
                yield at + offset, end + offset


def _height(axes: Axes, slope: Line) -> float:
    return _points(axes, 1.0, slope.value)[1]


# ---------------------------------------------------------------- dots


def _paint_dot(axes: Axes, dot: Dot, marker: str) -> None:
    colour = dtype_colour(dot.dtype)
    axes.plot(dot.intensity, dot.tflops, **style.dot_style(colour, marker, dot.hollow), clip_on=False, zorder=4)
    if dot.predicted:
        small = style.dot_style(style.mix_colours(colour, style.PAPER, 0.4), marker, hollow=True, size=PREDICTED)
        axes.plot(dot.intensity, dot.predicted, **small, zorder=3)
    if dot.crossed:
        axes.plot(dot.intensity, dot.tflops, **style.CROSSED, clip_on=False)


def _name_dots(axes: Axes, dots: Sequence[Dot], lines: np.ndarray, texts: np.ndarray) -> None:
    """Each label at the nearest free place, led to its dot if that is not next to it; without room, none."""
    places = [_points(axes, dot.intensity, dot.tflops) for dot in dots]
    named = [(dot, at) for dot, at in zip(dots, places, strict=True) if dot.label]
    words = [style.shorten_middle(dot.label, 260, style.SMALL_SIZE) for dot, _ in named]
    sizes = [(style.measure_text(one, style.SMALL_SIZE), 1.1 * style.SMALL_SIZE) for one in words]
    lines = np.concatenate([lines, np.array(places).reshape(-1, 2)])
    boxes = place_labels([at for _, at in named], sizes, lines, texts, tuple(axes.bbox.padded(-3).extents))
    look = {"size": style.SMALL_SIZE, "va": "center", "zorder": 5, "transform": style.in_points(axes.figure)}
    for (dot, at), text, box in zip(named, words, boxes, strict=True):
        if box:
            end, colour = nearest_point(box, at), dtype_colour(dot.dtype)
            if np.hypot(end[0] - at[0], end[1] - at[1]) > 9:
                axes.plot(*zip(at, end, strict=True), color=colour, lw=0.6, zorder=2.5, transform=look["transform"])
            axes.text(box[0], (box[1] + box[3]) / 2, text, color=style.mix_colours(colour, style.INK, 0.3), **look)
