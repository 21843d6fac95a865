"""Placed kernels on the hierarchical roofline: each at its L1, L2 and memory intensity."""

from collections.abc import Iterable, Sequence
from math import inf
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from place_page import LEVELS, describe_kernel
from placing import PACKED_PIPE, Ceilings, Placed, Profile

from roofline.api import LEVEL_COLOURS, Ceiling, ComputeCeiling, MemoryCeiling, flops_unit, level_label, number
from roofline.api import figure_style as style

COLOURS = {"l1": LEVEL_COLOURS["l1"], "l2": LEVEL_COLOURS["l2"], "memory": LEVEL_COLOURS["hbm"]}
DRAWN_KERNELS, NUMBERED_KERNELS = 60, 12
NOTHING_DRAWN = "No kernel has FLOPs, time and traffic together."
EXPLANATION = (
    "A dot for each level that is known, at its FLOPs per byte, in the colour of its slope, the larger the more time. "
    "A dot on its slope, or on the line of its dtype, is at that ceiling. What has no FLOPs is in the table alone."
)
SCALED_EXPLANATION = " Dashed: ceilings at the lower clock of kernel 1; that of memory never moves."
HEAD, CHART_HEIGHT, AXIS_LABELS, LEGEND = 30.0, 340.0, 44.0, 124.0  # points
SCALED_DASHES = (0, (3, 2))
Slope = tuple[str, MemoryCeiling]  # with its level


@style.styled()
def draw_kernels(profile: Profile, ceilings: Ceilings) -> Figure:
    """Draw the kernels of a profile, or the operators of a trace, under the ceilings of their device."""
    kernels = drawable_kernels(profile)
    title = f"{Path(profile.report).name} on {profile.card}"
    if not kernels:
        return style.new_empty_figure(title, NOTHING_DRAWN)
    scales = {roof.ceiling: roof.clock_scale for roof in kernels[0].roofs if roof.clock_scale}
    explanation = style.wrap_text(EXPLANATION + (SCALED_EXPLANATION if scales else ""))
    numbered = kernels[:NUMBERED_KERNELS]
    text_height = style.LINE * (len(numbered) + len(explanation) + 1)
    above, below = style.MARGIN + HEAD, style.MARGIN + text_height
    height = above + CHART_HEIGHT + AXIS_LABELS + below
    figure = style.new_titled_figure(height, title, [])
    margins = style.subplot_margins(height, top=above, bottom=AXIS_LABELS + below, right=LEGEND)
    axes = figure.add_subplot(figure.add_gridspec(1, 1, **margins)[0])
    _draw_chart(axes, kernels, [ceiling for ceiling in ceilings if ceiling.device == profile.device], scales)
    labels = [f"{rank}  {describe_kernel(kernel)}" for rank, kernel in enumerate(numbered, 1)]
    lines = [style.shorten_middle(label, style.WIDTH - 2 * style.MARGIN, style.SMALL_SIZE) for label in labels]
    style.print_lines(figure, below, lines, style.INK)
    style.print_lines(figure, below - style.LINE * (len(lines) + 0.5), explanation)
    return figure


def _draw_chart(axes: Axes, kernels: Sequence[Placed], ceilings: Ceilings, scales: dict[str, float]) -> None:
    """Draw ceilings, kernels and legend. `scales` has the clock scale of ceilings that are drawn dashed too."""
    peaks, slopes = select_ceilings(kernels, ceilings)
    axes.axis(axis_limits(kernels, peaks, slopes))
    axes.set(xlabel="FLOPs per byte of the level", ylabel="attained, TFLOPS")
    for axis in (axes.xaxis, axes.yaxis):
        style.set_log_axis(axis, "{:g}".format, numticks=30)
    _draw_slopes(axes, slopes, scales, max((peak.tflops for peak in peaks), default=inf))
    _draw_peaks(axes, peaks, scales, slopes)
    _draw_dots(axes, kernels)
    handles = [style.legend_line(format_ceiling(slope), COLOURS[level]) for level, slope in slopes]
    handles += [style.legend_dot(f"at its {LEVELS[level]} intensity", COLOURS[level]) for level in dict(slopes)]
    axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(1.01, 0), fontsize=style.SMALL_SIZE)


def _draw_slopes(axes: Axes, slopes: Sequence[Slope], scales: dict[str, float], top_tflops: float) -> None:
    """Draw the memory ceilings, up to the highest compute ceiling."""
    (x_low, x_high), (y_low, _) = axes.get_xlim(), axes.get_ylim()
    for level, slope in slopes:
        for rate, dashes in _rates(slope.gb_per_s / 1e3, scales.get(slope.name)):
            ends = max(x_low, y_low / rate), min(x_high, top_tflops / rate)
            axes.plot(ends, [end * rate for end in ends], color=COLOURS[level], lw=1.3, ls=dashes, zorder=2)


def _draw_peaks(axes: Axes, peaks: Iterable[ComputeCeiling], scales: dict[str, float], slopes: Iterable[Slope]) -> None:
    """Draw the compute ceilings, from the steepest slope on, and write their names without overlaps."""
    x_low, x_high = axes.get_xlim()
    fastest_gb_per_s = max((slope.gb_per_s for _, slope in slopes), default=inf)
    look = {"size": style.SMALL_SIZE, "color": style.INK, "ha": "left", "va": "center"}
    name_y = inf
    for peak in sorted(peaks, key=lambda peak: -peak.tflops):
        start = max(x_low, peak.tflops * 1e3 / fastest_gb_per_s)
        for rate, dashes in _rates(peak.tflops, scales.get(peak.name)):
            axes.plot([start, x_high], [rate, rate], color=style.INK, lw=1.1, ls=dashes, zorder=2)
        _, line_y = _in_points(axes, x_high, peak.tflops)
        name_y = min(line_y, name_y - style.LINE)
        offset = (4, name_y - line_y)
        axes.annotate(format_ceiling(peak), (x_high, peak.tflops), offset, textcoords="offset points", **look)


def _rates(rate: float, scale: float | None) -> list[tuple[float, Any]]:
    """Return a ceiling as it was measured, and dashed at the kernel's clock where that is another."""
    return [(rate, "-"), (scale * rate, SCALED_DASHES)] if scale else [(rate, "-")]


def _draw_dots(axes: Axes, kernels: Sequence[Placed]) -> None:
    """Draw the kernels with their ranks; the first is above the others, as it takes most of the time."""
    ranks_by_place: dict[tuple[float, float], list[int]] = {}  # in points
    for rank, kernel in reversed(list(enumerate(kernels, 1))):
        y, intensities = kernel.attained_tflops, sorted(kernel.intensities.values())
        axes.plot([intensities[0], intensities[-1]], [y, y], color=style.MUTED, lw=0.6, zorder=3)
        size = 4.0 + 6.0 * (kernel.share_of_time or 0.0) ** 0.5  # the area grows with the share of the time
        for level, intensity in kernel.intensities.items():
            axes.plot(intensity, y, **style.dot_style(COLOURS[level], "o", size=size), zorder=4)
        if rank <= NUMBERED_KERNELS:
            place = _in_points(axes, intensities[-1], y)
            ranks_by_place.setdefault(_find_near(place, ranks_by_place) or place, []).append(rank)
    look = {"size": style.SMALL_SIZE, "color": style.INK, "ha": "left", "va": "bottom", "zorder": 5}
    for place, ranks in ranks_by_place.items():
        position = axes.transData.inverted().transform(place)
        axes.annotate(", ".join(map(str, sorted(ranks))), position, (4, 2), textcoords="offset points", **look)


def _find_near(place: tuple[float, float], places: Iterable[tuple[float, float]]) -> tuple[float, float] | None:
    """Return the first of these places that is less than a line away on both axes."""
    x, y = place
    return next((near for near in places if max(abs(x - near[0]), abs(y - near[1])) < style.LINE), None)


def _in_points(axes: Axes, x: float, y: float) -> tuple[float, float]:
    """Return the place of a point on the paper, once the limits of the axes are set."""
    return tuple(axes.transData.transform((x, y)))


def drawable_kernels(profile: Profile) -> list[Placed]:
    """Return the kernels with most time that have FLOPs, time, and bytes of a level, and are longer than a launch."""
    longer = [kernel for kernel in profile.kernels if kernel.regime != "overhead"]
    return [kernel for kernel in longer if kernel.attained_tflops and kernel.intensities][:DRAWN_KERNELS]


def select_ceilings(kernels: Sequence[Placed], ceilings: Ceilings) -> tuple[list[ComputeCeiling], list[Slope]]:
    """Return the compute ceilings that kernels stand under, and the memory ceilings with their levels."""
    by_name = {ceiling.name: ceiling for ceiling in ceilings}
    roofs = [roof for kernel in kernels for roof in kernel.roofs if roof.ceiling in by_name]
    peak_names = dict.fromkeys(roof.ceiling for roof in roofs if roof.unit and (roof.unit, roof.dtype) != PACKED_PIPE)
    slope_names = dict.fromkeys((level, roof.ceiling) for level in COLOURS for roof in roofs if roof.level == level)
    return [by_name[name] for name in peak_names], [(level, by_name[name]) for level, name in slope_names]


def axis_limits(kernels: Sequence[Placed], peaks: Sequence[ComputeCeiling], slopes: Sequence[Slope]) -> list[float]:
    """Return the lowest and highest intensity, then TFLOPS, of the axes, with a margin on all sides."""
    intensities = [intensity for kernel in kernels for intensity in kernel.intensities.values()]
    intensities += [peak.tflops * 1e3 / slope.gb_per_s for peak in peaks for _, slope in slopes]  # ridge points
    attained = [kernel.attained_tflops for kernel in kernels]
    highest = max([*attained, *(peak.tflops for peak in peaks)])
    return [min(intensities) / 3, max(intensities) * 3, min(attained) / 3, 2 * highest]


def format_ceiling(ceiling: Ceiling) -> str:
    """Return a ceiling's name and rate."""
    if ceiling.kind == "compute":
        return f"{ceiling.name} {number(ceiling.tflops)} {flops_unit(ceiling.name)}"
    return f"{level_label(ceiling.name)} {number(ceiling.gb_per_s)} GB/s"
