"""Kernels of a user's own program on the hierarchical roofline: each at its L1, L2 and memory intensity."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from roofline.analysis.table import ComputeCeiling, MemoryCeiling, PlacedKernelGroup, PlacedProfile, Roofline
from roofline.core.formatting import number, percent
from roofline.report import figure_style as style
from roofline.report.palette import LEVEL_COLOURS, dtype_colour
from roofline.report.placing import LEVELS, title_of

TITLE = "Kernels under measured ceilings"
NOTHING = "No kernel of the report has FLOPs, time and traffic together."
MARKS = (
    "Each kernel stands at its FLOPs per byte of L1, L2 and memory, a dot for each level in the colour of its slope, the "
    "larger the more time. A dot on its own slope, or on the level line of its dtype, is at that ceiling. Dashed: "
    "ceilings at the lower clock of the first kernel. Numbers: the kernels by total time."
)
COLOURS = {"l1": LEVEL_COLOURS["l1"], "l2": LEVEL_COLOURS["l2"], "memory": LEVEL_COLOURS["hbm"]}
HEAD, HIGH, AXIS, LIST = 44.0, 340.0, 40.0, 12.0
DRAWN, NUMBERED = 60, 12
SCALED = (0, (3, 2))
Ceiling = ComputeCeiling | MemoryCeiling


def drawn(profile: PlacedProfile) -> list[PlacedKernelGroup]:
    """Those that have a place: with FLOPs, time, and bytes of a level."""
    return [one for one in profile.kernels if one.attained_tflops and one.intensities][:DRAWN]


@style.styled()
def draw_run(roofline: Roofline) -> Figure:
    """Of the first report of a run."""
    profile = roofline.profiles[0]
    return draw(profile, roofline.ceilings, roofline.devices[profile.device].name)


@style.styled()
def draw(profile: PlacedProfile, ceilings: Sequence[Ceiling], card: str) -> Figure:
    profile = style.drawable(profile)
    kernels = drawn(profile)
    title = f"{TITLE}: {profile.report} on {card}"
    if not kernels:
        return style.nothing(title, NOTHING)
    marks, numbered = style.wrapped(MARKS), kernels[:NUMBERED]
    whole = 2 * style.MARGIN + HEAD + HIGH + AXIS + LIST * (len(numbered) + 1) + style.LINE * len(marks)
    figure = style.headed(whole, title, [])
    top = whole - style.MARGIN - HEAD / 2
    place = style.margins(whole, top=whole - top, bottom=top - HIGH, right=120.0)
    _paint(figure.add_subplot(figure.add_gridspec(1, 1, **place)[0]), kernels, [*_slopes(kernels, ceilings)], ceilings)
    below = top - HIGH - AXIS
    lines = [
        style.shortened(
            f"{place}  {title_of(one)}, {percent(one.share_of_time)} of the time",
            style.WIDTH - 2 * style.MARGIN,
            style.SMALL_SIZE,
        )
        for place, one in enumerate(numbered, 1)
    ]
    style.printed(figure, below, lines, style.INK)
    style.printed(figure, below - LIST * (len(lines) + 1) + 4, marks)
    return figure


def _slopes(kernels: Sequence[PlacedKernelGroup], ceilings: Sequence[Ceiling]):
    """Each level with the memory ceilings that its kernels stand under."""
    by_name = {one.name: one for one in ceilings}
    for level in COLOURS:
        names = dict.fromkeys(roof.ceiling for one in kernels for roof in one.roofs if roof.level == level)
        yield from ((level, by_name[name]) for name in names if name in by_name)


def _paint(axes: Axes, kernels, slopes, ceilings: Sequence[Ceiling]) -> None:
    peaks = {roof.ceiling: roof for one in kernels for roof in one.roofs if roof.level == "compute" and roof.ceiling}
    flat = [one for one in ceilings if one.kind == "compute" and one.name in peaks]
    xs = [x for one in kernels for x in one.intensities.values()]
    ys = [one.attained_tflops for one in kernels]
    ridges = [peak.tflops * 1e3 / slope.gb_per_s for peak in flat for _, slope in slopes]
    x0, x1 = min([*xs, *ridges]) / 3, max([*xs, *ridges]) * 3
    y0, y1 = min(ys) / 3, 2 * max([*ys, *(one.tflops for one in flat)])
    axes.set(xlim=(x0, x1), ylim=(y0, y1), xlabel="FLOPs per byte of the level", ylabel="attained, TFLOPS")
    for axis in (axes.xaxis, axes.yaxis):
        style.logarithmic(axis, "{:g}".format, numticks=30)
    high = max((one.tflops for one in flat), default=y1)
    scales = {roof.ceiling: roof.clock_scale for roof in kernels[0].roofs if roof.clock_scale}
    for level, slope in slopes:
        for times, dashes in ((1.0, "-"), (scales.get(slope.name), SCALED)):
            if times:
                rate = times * slope.gb_per_s / 1e3
                ends = max(x0, y0 / rate), min(x1, high / rate)
                axes.plot(ends, [end * rate for end in ends], color=COLOURS[level], lw=1.3, ls=dashes, zorder=2)
    fastest = max((slope.gb_per_s for _, slope in slopes), default=None)
    for peak in flat:
        start = max(x0, peak.tflops * 1e3 / fastest) if fastest else x0
        for times, dashes in ((1.0, "-"), (scales.get(peak.name), SCALED)):
            if times:
                look = {"color": dtype_colour(peak.dtype), "lw": 1.3, "ls": dashes, "zorder": 2}
                axes.plot([start, x1], [times * peak.tflops] * 2, **look)
    _paint_kernels(axes, kernels)
    handles = [style.line(f"{one.name} {number(one.tflops)} TFLOPS", dtype_colour(one.dtype)) for one in flat]
    handles += [style.line(f"{one.name} {number(one.gb_per_s)} GB/s", COLOURS[level]) for level, one in slopes]
    handles += [style.dot(f"at its {LEVELS[level]} intensity", colour) for level, colour in COLOURS.items()]
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1), fontsize=style.SMALL_SIZE)


def _paint_kernels(axes: Axes, kernels: Sequence[PlacedKernelGroup]) -> None:
    """The first above the others, as most of the time is its."""
    for place, one in reversed(list(enumerate(kernels, 1))):
        y, size = one.attained_tflops, 4.0 + 6.0 * (one.share_of_time or 0.0) ** 0.5
        spread = sorted(one.intensities.values())
        axes.plot([spread[0], spread[-1]], [y, y], color=style.MUTED, lw=0.6, zorder=3)
        for level, x in one.intensities.items():
            axes.plot(x, y, **style.dot_look(COLOURS[level], "o", size=size), zorder=4)
        if place <= NUMBERED:
            look = {"size": style.SMALL_SIZE, "color": style.INK, "ha": "left", "va": "bottom", "zorder": 5}
            axes.annotate(str(place), (spread[-1], y), xytext=(4, 2), textcoords="offset points", **look)
