"""Placed kernels on the hierarchical roofline: each at its L1, L2 and memory intensity."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from place_page import LEVELS, words_of
from placing import FP16_PIPE, Ceiling, Placed, Profile

from roofline.api import LEVEL_COLOURS, flops_unit, level_label, number
from roofline.api import figure_style as style

COLOURS = {"l1": LEVEL_COLOURS["l1"], "l2": LEVEL_COLOURS["l2"], "memory": LEVEL_COLOURS["hbm"]}
DRAWN = 60  # kernels
NOTHING = "No kernel of the report has FLOPs, time and traffic together."
MARKS = (
    "A dot for each level that is known, at its FLOPs per byte, in the colour of its slope, the larger the more time. "
    "A dot on its slope, or on the line of its dtype, is at that ceiling. What has no FLOPs is in the table alone."
)
SCALED_MARK = " Dashed: ceilings at the lower clock of kernel 1; that of memory never moves."
HEAD, HIGH, AXIS = 30.0, 340.0, 44.0
LEGEND, NUMBERED = 124.0, 12
SCALED = (0, (3, 2))


@style.styled()
def draw(profile: Profile, ceilings: Sequence[Ceiling]) -> Figure:
    kernels = drawn(profile)
    title = f"{Path(profile.report).name} on {profile.card}"
    if not kernels:
        return style.new_empty_figure(title, NOTHING)
    scales = {roof.ceiling: roof.clock_scale for roof in kernels[0].roofs if roof.clock_scale}
    marks, numbered = style.wrap_text(MARKS + (SCALED_MARK if scales else "")), kernels[:NUMBERED]
    whole = 2 * style.MARGIN + HEAD + HIGH + AXIS + style.LINE * (len(numbered) + len(marks) + 1)
    figure, top = style.new_titled_figure(whole, title, []), whole - style.MARGIN - HEAD
    place = style.subplot_margins(whole, top=whole - top, bottom=top - HIGH, right=LEGEND)
    axes = figure.add_subplot(figure.add_gridspec(1, 1, **place)[0])
    _paint(axes, kernels, [one for one in ceilings if one.device == profile.device], scales)
    lines = [
        style.shorten_middle(f"{place}  {words_of(one)}", style.WIDTH - 2 * style.MARGIN, style.SMALL_SIZE)
        for place, one in enumerate(numbered, 1)
    ]
    below = top - HIGH - AXIS
    style.print_lines(figure, below, lines, style.INK)
    style.print_lines(figure, below - style.LINE * (len(lines) + 0.5), marks)
    return figure


def _paint(axes: Axes, kernels: Sequence[Placed], ceilings: Sequence[Ceiling], scales: dict) -> None:
    flat, slopes = ceilings_of(kernels, ceilings)
    x0, x1, y0, y1 = limits(kernels, flat, slopes)
    axes.set(xlim=(x0, x1), ylim=(y0, y1), xlabel="FLOPs per byte of the level", ylabel="attained, TFLOPS")
    for axis in (axes.xaxis, axes.yaxis):
        style.set_log_axis(axis, "{:g}".format, numticks=30)
    top, fastest = max((one.tflops for one in flat), default=y1), max((s.gb_per_s for _, s in slopes), default=None)
    for level, slope in slopes:
        for rate, dashes in _rates(slope.gb_per_s / 1e3, scales.get(slope.name)):
            ends = max(x0, y0 / rate), min(x1, top / rate)
            axes.plot(ends, [end * rate for end in ends], color=COLOURS[level], lw=1.3, ls=dashes, zorder=2)
    words_y = None
    for peak in sorted(flat, key=lambda one: -one.tflops):
        start = max(x0, peak.tflops * 1e3 / fastest) if fastest else x0
        for rate, dashes in _rates(peak.tflops, scales.get(peak.name)):
            axes.plot([start, x1], [rate] * 2, color=style.INK, lw=1.1, ls=dashes, zorder=2)
        look = {"size": style.SMALL_SIZE, "color": style.INK, "ha": "left", "va": "center"}
        y = _in_points(axes, x1, peak.tflops)[1]
        words_y = y if words_y is None else min(y, words_y - style.LINE)
        axes.annotate(ceiling_words(peak), (x1, peak.tflops), (4, words_y - y), textcoords="offset points", **look)
    _paint_kernels(axes, kernels)
    handles = [style.legend_line(ceiling_words(one), COLOURS[level]) for level, one in slopes]
    handles += [style.legend_dot(f"at its {LEVELS[level]} intensity", COLOURS[level]) for level in dict(slopes)]
    axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(1.01, 0), fontsize=style.SMALL_SIZE)


def _rates(rate: float, scale: float | None) -> list[tuple]:
    """As it was measured, and at the kernel's clock where that is another."""
    return [(rate, "-"), *([(scale * rate, SCALED)] if scale else [])]


def _paint_kernels(axes: Axes, kernels: Sequence[Placed]) -> None:
    """The first above the others, as most of the time is its."""
    numbers: dict[tuple[float, float], list[int]] = {}  # by the place of their label
    for place, one in reversed(list(enumerate(kernels, 1))):
        y, spread = one.attained_tflops, sorted(one.intensities.values())
        axes.plot([spread[0], spread[-1]], [y, y], color=style.MUTED, lw=0.6, zorder=3)
        for level, x in one.intensities.items():
            axes.plot(x, y, **style.dot_style(COLOURS[level], "o", size=dot_size(one)), zorder=4)
        if place <= NUMBERED:
            here = _in_points(axes, spread[-1], y)
            near = (
                other for other in numbers if max(abs(a - b) for a, b in zip(here, other, strict=True)) < style.LINE
            )
            numbers.setdefault(next(near, here), []).append(place)
    look = {"size": style.SMALL_SIZE, "color": style.INK, "ha": "left", "va": "bottom", "zorder": 5}
    for here, places in numbers.items():
        where = axes.transData.inverted().transform([length * axes.figure.dpi / 72 for length in here])
        axes.annotate(", ".join(map(str, sorted(places))), where, (4, 2), textcoords="offset points", **look)


def _in_points(axes: Axes, x: float, y: float) -> tuple[float, float]:
    """The place of a point on the paper, once the limits of the axes are set."""
    return tuple(axes.transData.transform((x, y)) * 72 / axes.figure.dpi)


def drawn(profile: Profile) -> list[Placed]:
    """The kernels with most time that have FLOPs, time, and bytes of a level, and are longer than a launch."""
    fit = (one for one in profile.kernels if one.attained_tflops and one.intensities and one.regime != "overhead")
    return list(islice(fit, DRAWN))


def ceilings_of(kernels: Sequence[Placed], ceilings: Sequence[Ceiling]) -> tuple[list, list[tuple[str, Ceiling]]]:
    """The compute ceilings that kernels stand under, and the memory ceilings with their levels."""
    by_name = {one.name: one for one in ceilings}
    roofs = [one for kernel in kernels for one in kernel.roofs if one.ceiling in by_name]
    flat = dict.fromkeys(one.ceiling for one in roofs if one.unit and (one.unit, one.dtype) != FP16_PIPE)
    slopes = dict.fromkeys((one.level, one.ceiling) for level in COLOURS for one in roofs if one.level == level)
    return [by_name[name] for name in flat], [(level, by_name[name]) for level, name in slopes]


def limits(kernels: Sequence[Placed], flat, slopes) -> tuple[float, float, float, float]:
    """Of the axes: intensities and TFLOPS, with a margin on all sides."""
    ridges = [peak.tflops * 1e3 / slope.gb_per_s for peak in flat for _, slope in slopes]
    xs = [x for one in kernels for x in one.intensities.values()] + ridges
    ys = [one.attained_tflops for one in kernels]
    return min(xs) / 3, max(xs) * 3, min(ys) / 3, 2 * max([*ys, *(one.tflops for one in flat)])


def ceiling_words(ceiling: Ceiling) -> str:
    if ceiling.kind == "compute":
        return f"{ceiling.name} {number(ceiling.tflops)} {flops_unit(ceiling.name)}"
    return f"{level_label(ceiling.name)} {number(ceiling.gb_per_s)} GB/s"


def dot_size(kernel: Placed) -> float:
    """Points; its area grows with its share of the time."""
    return 4.0 + 6.0 * (kernel.share_of_time or 0.0) ** 0.5
