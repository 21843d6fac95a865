"""The roofline of a device as a picture."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from math import atan, degrees, log10

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from roofline.core.grouping import group_by
from roofline.report import figure_style as style
from roofline.report.palette import INK, MUTED, PAPER, SHADE, dtype_colour, markers_of_kinds
from roofline.report.placement import Point, nearest_point, place_labels, sample_lines
from roofline.report.roofline_content import Dot, Roof, RooflineContent, Slope, build_content, choose_dots
from roofline.table.rows import ComputeCeiling, Roofline

SLOPE_COLOUR = "#4a515b"
LAB_CEILINGS = ("fp32_fma", "fp16", "bf16")  # whose lines stand out, as does the slope of the copy on the device
# Points: the plot of a device or of one operator, the title above, the axis below, the names of roofs to the right.
DEVICE_PLOT, OPERATOR_PLOT, TITLE_SPACE, AXIS_SPACE, ROOF_NAMES_WIDTH = 400.0, 340.0, 52.0, 46.0, 168.0
SUSTAINED_DASHES, REGISTER_DASHES = (0, (3, 2)), (0, (6, 2, 1, 2))
SLOPE_DASHES = ("-", (0, (6, 2)), (0, (3, 1.5)), (0, (6, 2, 1.5, 2)))
SEALED_DOT = 3.0  # the size of a small hollow dot
NEAR_SLOPES = 11.0  # points from line to line, at right angles: slopes nearer than this share labels
ROOFLINE_CAPTION = "Colours: dtypes. Short dashes: sustained. Dots: % of the roof{}. Small hollow dots: predicted. "
ROOFLINE_CAPTION += style.DOUBT_NOTE


def draw_roofline(roofline: Roofline, device: str) -> Figure:
    """Return the roofline of a device, with the best cells of each operator."""
    return draw_panels([build_content(roofline, device, choose_dots(roofline, device))])


def draw_operator(roofline: Roofline, operator: str) -> Figure:
    """Return a roofline per device with all cells of an operator, by implementation, labelled with FLOP rates."""
    operator_cells = [cell for cell in roofline.measured_cells if cell.operator == operator]
    cells = group_by(operator_cells, lambda cell: cell.device)
    contents = [build_content(roofline, name, cells[name], by_rate=True) for name in roofline.devices if name in cells]
    return draw_panels(contents, roofline.title(operator))


def draw_panels(contents: Sequence[RooflineContent], operator_title: str = "") -> Figure:
    """Return a picture with a panel per device, one below the other."""
    markers = markers_of_kinds(dot.kind for content in contents for dot in content.dots)
    legends = [_entries(content, markers) for content in contents]
    plot = OPERATOR_PLOT if operator_title else DEVICE_PLOT
    panels = [TITLE_SPACE + plot + AXIS_SPACE + style.LEGEND_LINE * -(-len(legend) // 3) + 10 for legend in legends]
    height = sum(panels) + 2 * style.MARGIN + style.LINE
    figure = style.new_figure(height, f"Measured roofline: {', '.join(content.row.name for content in contents)}")
    top = height - style.MARGIN
    for content, legend, panel in zip(contents, legends, panels, strict=True):
        subtitle = f"{operator_title or 'Measured roofline'} on {content.device}"
        style.print_head(figure, top, content.row.name, [" · ".join(filter(None, [subtitle, content.libraries]))])
        plot_top = top - TITLE_SPACE
        margins = style.subplot_margins(height, height - plot_top, bottom=plot_top - plot, right=ROOF_NAMES_WIDTH)
        _paint(figure.subplots(gridspec_kw=margins), content, markers)
        style.add_legend(figure, plot_top - plot - AXIS_SPACE, legend, columns=3)
        top -= panel
    if not operator_title:
        has_peak_shares = any(dot.has_peak_share for content in contents for dot in content.dots)
        peak = "; in brackets: of the compute peak" if has_peak_shares else ""
        style.print_lines(figure, style.MARGIN, [ROOFLINE_CAPTION.format(peak)])
    return figure


def _entries(content: RooflineContent, markers: Mapping[str, str]) -> list[Line2D]:
    """The entries of a legend."""
    kinds = dict.fromkeys(dot.kind for dot in content.dots)
    colours = {dot.kind: dot.colour or INK for dot in content.dots}
    entries = [style.legend_dot(kind, marker=markers[kind], colour=colours[kind]) for kind in kinds]
    if any(dot.hollow for dot in content.dots):
        entries.append(style.legend_dot("hollow: not measured, at its roof", hollow=True))
    if any(dot.cell.doubt for dot in content.dots):
        entries.append(style.crossed_entry())
    return entries


def _paint(axes: Axes, content: RooflineContent, markers: Mapping[str, str]) -> None:
    x0, x1, y0, y1 = axis_limits(content)
    axes.set(xlim=(x0, x1), ylim=(y0, y1), xlabel="intensity, FLOP/byte", ylabel=f"attained, {content.unit}")
    style.set_log_axis(axes.xaxis, "{:g}".format, numticks=30)
    style.set_log_axis(axes.yaxis, lambda tflops: f"{content.scale * tflops:g}", numticks=30)
    lines = sample_lines(_paint_lines(axes, content))
    if any(dot.colour for dot in content.dots):
        _shade_regions(axes, content)
    _name_roofs(axes, content)
    for dot in content.dots:
        _paint_dot(axes, dot, markers[dot.kind])
    _name_dots(axes, content.dots, lines, sample_lines(_name_slopes(axes, content)))


def _shade_regions(axes: Axes, content: RooflineContent) -> None:
    """Shade where memory and where compute limits, by the highest roof and the slope that most cells stand under."""
    slopes = [slope for slope in content.slopes if slope.emphasised] or content.slopes[-1:]
    if not (slopes and content.roofs):
        return
    x0, x1 = axes.get_xlim()
    ridge = min(max(1e3 * content.roofs[0].ceiling.tflops / slopes[0].gb_per_s, x0), x1)
    for start, end, words, shade in (x0, ridge, "memory-bound", SHADE), (ridge, x1, "compute-bound", PAPER):
        axes.axvspan(start, end, facecolor=shade, lw=0, zorder=0)
        place = (start * end) ** 0.5, 0.015
        axes.text(*place, words, transform=axes.get_xaxis_transform(), ha="center", color=MUTED, size=style.SMALL_SIZE)


def axis_limits(content: RooflineContent) -> tuple[float, float, float, float]:
    """Return the lowest and highest intensity and TFLOPS of the axes, with room for labels."""
    intensities, rates = [dot.intensity_flops_per_byte for dot in content.dots], [dot.tflops for dot in content.dots]
    crossings, peaks = content.crossings(), [roof.ceiling.tflops for roof in content.roofs]
    x_min = min([x / 24 for x in intensities] + [crossing / 30 for crossing in crossings], default=0.1)
    x_max = max([3 * x for x in intensities] + [3 * crossing for crossing in crossings], default=100 * x_min)
    slopes = [slope.gb_per_s / 1e3 for slope in content.slopes]
    highest = max([*rates, *(peaks or [x_max * slope for slope in slopes])], default=1.0)
    floors = [20 * x_min * slope for slope in slopes] + [peak / 30 for peak in peaks]
    lowest = min([*rates, *floors], default=highest / 1e3)
    return x_min, x_max, lowest / 8, 4 * highest


# ---------------------------------------------------------------- lines


def _to_points(axes: Axes, intensity: float, tflops: float) -> Point:
    return tuple(axes.transData.transform((intensity, tflops)))


def _paint_lines(axes: Axes, content: RooflineContent) -> Iterator[np.ndarray]:
    """Paint slopes and roofs; yield the ends of each in points."""
    dashes = cycle(SLOPE_DASHES)
    for line, kind, intensities, tflops in content.segments(*axes.get_xlim(), axes.get_ylim()[0]):
        if isinstance(line, Roof):
            look = _roof_look(line.ceiling, kind)
        elif line.emphasised:
            look = {"lw": 2.0, "ls": "-", "color": SLOPE_COLOUR}
        else:
            look = {"lw": 0.9, "ls": next(dashes), "color": SLOPE_COLOUR}
        if intensities[0] < intensities[1]:
            axes.plot(intensities, tflops, zorder=2.1, **look)
            yield axes.transData.transform(list(zip(intensities, tflops, strict=True)))


def _roof_look(ceiling: ComputeCeiling, kind: str) -> style.Look:
    if kind == "sustained":
        return {"lw": 1.0, "ls": SUSTAINED_DASHES, "color": dtype_colour(ceiling.dtype)}
    dashes = REGISTER_DASHES if ceiling.workload == "fma" else "-"
    width = 2.2 if ceiling.name in LAB_CEILINGS else 0.9
    return {"lw": width, "ls": dashes, "color": dtype_colour(ceiling.dtype)}


def _name_roofs(axes: Axes, content: RooflineContent) -> None:
    """Name roofs to the right of the axes, one below the other, each led to the end of its line."""
    x1, y1 = axes.get_xlim()[1], axes.get_ylim()[1]
    right, lowest = _to_points(axes, x1, y1)
    in_points = style.in_points(axes.figure)
    look: style.Look = {"size": style.SMALL_SIZE, "va": "center", "transform": in_points}
    sustained = "sustained / " if any(roof.ceiling.sustained_tflops for roof in content.roofs) else ""
    words = f"{content.unit}: {sustained}burst (of {content.row.peaks_by})"
    axes.text(style.WIDTH - style.MARGIN, lowest + 6, words, color=MUTED, ha="right", **look)
    lowest -= 2
    for place, roof in enumerate(content.roofs):
        end = _to_points(axes, x1, roof.ceiling.tflops)[1]
        below = len(content.roofs) - place  # names that need room, this one among them
        height = min(max(end + 2, axes.bbox.y0 + style.LINE * below), lowest - style.LINE)
        leader = [right, right + 6, right + 16], [end, end, height]
        axes.plot(*leader, color=dtype_colour(roof.ceiling.dtype), lw=0.8, clip_on=False, transform=in_points)
        axes.text(right + 18, height, roof.label, color=INK, **look)
        lowest = height


def _name_slopes(axes: Axes, content: RooflineContent) -> Iterator[np.ndarray]:
    """Name slopes along their lower ends; yield lines through the names.

    Of slopes that are near one another the last is named below them, the others above.
    """
    (x0, x1), (y0, y1) = axes.get_xlim(), axes.get_ylim()
    angle = atan(axes.bbox.height / log10(y1 / y0) / (axes.bbox.width / log10(x1 / x0)))
    along, across = np.array([np.cos(angle), np.sin(angle)]), np.array([-np.sin(angle), np.cos(angle)])
    look: style.Look = {"rotation": degrees(angle), "rotation_mode": "anchor", "va": "center", "size": style.SMALL_SIZE}
    for group in _near_slopes(axes, content.slopes, NEAR_SLOPES / np.cos(angle)):
        names = [(group[0], group[:-1] or group, 7.0)]  # the line to stand at, the slopes to name, points to the side
        if len(group) > 1:
            names.append((group[-1], group[-1:], -7.0))
        for line, slopes, aside in names:
            words, start = ", ".join(slope.label for slope in slopes), max(x0, 1e3 * y0 / line.gb_per_s)
            begin = np.array(_to_points(axes, start, start * line.gb_per_s / 1e3)) + 8.0 * along + aside * across
            colour = INK if line.emphasised else MUTED
            axes.text(begin[0], begin[1], words, color=colour, transform=style.in_points(axes.figure), **look)
            end = begin + style.measure_text(words, style.SMALL_SIZE) * along
            for offset in (-4.0 * across, 0.0 * across, 4.0 * across):
                yield np.array([begin + offset, end + offset])


def _near_slopes(axes: Axes, slopes: Sequence[Slope], least_height: float) -> list[list[Slope]]:
    """The slopes, the highest first, in groups that share labels: those nearer than so many points of height."""
    groups: list[list[Slope]] = []
    for slope in slopes:
        room = least_height * min(2, len(groups[-1])) if groups else 0.0  # a name below a group, and one above the next
        if not groups or _slope_height(axes, groups[-1][-1]) - _slope_height(axes, slope) >= room:
            groups.append([])
        groups[-1].append(slope)
    return groups


def _slope_height(axes: Axes, slope: Slope) -> float:
    """A height in points by which slopes compare; parallel lines differ alike everywhere."""
    return _to_points(axes, 1.0, slope.gb_per_s)[1]


# ---------------------------------------------------------------- dots


def _paint_dot(axes: Axes, dot: Dot, marker: str) -> None:
    colour, intensity = dot.colour or dtype_colour(dot.cell.dtype), dot.intensity_flops_per_byte
    order = 4.1 if dot.label else 4  # a label has the colour of the dot on top
    axes.plot(intensity, dot.tflops, **style.dot_style(colour, marker, dot.hollow), clip_on=False, zorder=order)
    if dot.sealed_tflops:
        pale = style.mix_colours(colour, style.PAPER, 0.4)
        axes.plot(intensity, dot.sealed_tflops, **style.dot_style(pale, marker, hollow=True, size=SEALED_DOT), zorder=3)
    if dot.cell.doubt:
        axes.plot(intensity, dot.tflops, **style.CROSSED, clip_on=False)


def _name_dots(axes: Axes, dots: Sequence[Dot], lines: np.ndarray, texts: np.ndarray) -> None:
    """Put each label at the nearest free place, with a leader unless it is next to its dot; without room, omit it."""
    points = [_to_points(axes, dot.intensity_flops_per_byte, dot.tflops) for dot in dots]
    sealed = [_to_points(axes, dot.intensity_flops_per_byte, dot.sealed_tflops) for dot in dots if dot.sealed_tflops]
    labelled = [(dot, point) for dot, point in zip(dots, points, strict=True) if dot.label]
    labels = [style.shorten_middle(dot.label, 260, style.SMALL_SIZE) for dot, _ in labelled]
    sizes = [(style.measure_text(label, style.SMALL_SIZE), 1.1 * style.SMALL_SIZE) for label in labels]
    lines = np.concatenate([lines, np.array([*sealed, *points]).reshape(-1, 2)])
    boxes = place_labels([point for _, point in labelled], sizes, lines, texts, axes.bbox.padded(-3).extents)
    look: style.Look = {"size": style.SMALL_SIZE, "va": "center", "transform": style.in_points(axes.figure)}
    for (dot, point), label, box in zip(labelled, labels, boxes, strict=True):
        if box:
            end, colour = nearest_point(box, point), dot.colour or dtype_colour(dot.cell.dtype)
            if np.hypot(end[0] - point[0], end[1] - point[1]) > 8:
                axes.plot(*zip(point, end, strict=True), color=colour, lw=0.6, zorder=2.5, transform=look["transform"])
            text_colour = style.mix_colours(colour, style.INK, 0.3)
            axes.text(box[0], (box[1] + box[3]) / 2, label, color=text_colour, zorder=5, **look)
