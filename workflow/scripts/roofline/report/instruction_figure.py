"""The instruction roofline as a picture: per GPU the roofs with walls and kernels, below them the walls as timed."""

from collections.abc import Iterable, Sequence
from math import log10

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from roofline.core.formatting import number, percent
from roofline.core.model import LANES
from roofline.report import figure_style as style
from roofline.report.palette import LEVEL_COLOURS, LEVEL_NAMES
from roofline.table.rows import InstructionRoofline, PlacedKernel, Roofline, Wall

TITLE = "Instruction roofline"
NOTHING = "No instruction roofline was measured in this run: it is measured on GPUs alone."
HEAD, HIGH, AXIS, WALLS, GAP, LANE = 50.0, 340.0, 40.0, 96.0, 48.0, 190.0
PANEL = HEAD + HIGH + AXIS + 12.0 + WALLS + GAP
ROOF, WALL = "#4a515b", "#9a6a00"
DOTS = (0, (1, 2))
LOADS = {"stride": ("|", "loads from L1, by stride"), "conflict": ("_", "shared loads, by conflict")}
PATTERNS = {
    "stride": ("global loads: words between lanes", "cycles per request"),
    "conflict": ("shared memory: ways of a bank conflict", "cycles per request"),
}
MARKS = (
    "A transaction is a sector of 32 bytes, of shared memory a wavefront. A kernel, as ncu counted it, has a dot per "
    "level, in its colour; a bar down from it is lanes that were off."
)


@style.styled()
def draw(roofline: Roofline) -> Figure:
    """A panel per GPU; without one, paper that says so."""
    roofline = style.drawable(roofline)
    if not roofline.instructions:
        return style.nothing(TITLE, NOTHING)
    marks = style.wrapped(MARKS)
    whole = 2 * style.MARGIN + PANEL * len(roofline.instructions) + style.LINE * len(marks)
    figure, top = style.paper(whole, TITLE), whole - style.MARGIN
    for one in roofline.instructions:
        style.printed_head(figure, top, f"{TITLE}: {roofline.devices[one.device].name}", [_subtitle(one)])
        place = style.margins(whole, top=whole - top + HEAD, bottom=top - HEAD - HIGH, right=LANE)
        _paint(figure.add_subplot(figure.add_gridspec(1, 1, **place)[0]), one)
        below = top - HEAD - HIGH - AXIS - 12.0
        place = style.margins(whole, top=whole - below, bottom=below - WALLS) | {"wspace": 0.3}
        for axes, pattern in zip(figure.add_gridspec(1, len(PATTERNS), **place).subplots(), PATTERNS, strict=True):
            _paint_walls(axes, pattern, [wall for wall in one.walls if wall.pattern == pattern])
        top -= PANEL
    style.printed(figure, top - style.LINE + 8, marks)
    return figure


def _subtitle(one: InstructionRoofline) -> str:
    rate = f"{number(one.warp_instructions_per_s / 1e9)} G warp instructions/s issued"
    if one.fraction_of_peak is None:
        return rate
    return f"{rate}, {percent(one.fraction_of_peak)} of one per scheduler and cycle at {one.sm_clock_mhz:.0f} MHz"


# ------------------------------------------------------------------------------------------------ the roofs


def _paint(axes: Axes, one: InstructionRoofline) -> None:
    peak = one.warp_instructions_per_s / 1e9
    dots = [(kernel, level, *_at(kernel, level)) for kernel in one.kernels for level in kernel.transactions]
    dots = [dot for dot in dots if dot[2] and dot[1] in LEVEL_COLOURS]
    xs, ys = [x for *_, x, _ in dots], [y for *_, y in dots]
    slopes = [rate / 1e9 for rate in one.transactions_per_s.values()]
    x0, x1 = min([0.02, *(x / 2 for x in xs)]), max([64.0, *(3 * x for x in xs), *(6 * peak / s for s in slopes)])
    y0 = min([peak / 300, *(y / 2 for y in ys), *(0.7 * _pace(wall) for wall in one.walls)])
    axes.set(xlim=(x0, x1), ylim=(y0, 1.6 * peak))
    axes.set(xlabel="warp instructions per transaction", ylabel="G warp instructions/s")
    for axis in (axes.xaxis, axes.yaxis):
        style.logarithmic(axis, "{:g}".format, numticks=30)
    start = max(x0, peak / max(slopes)) if slopes else x0
    axes.plot([start, x1], [peak] * 2, color=ROOF, lw=2.0, zorder=2.2)
    for level, slope in zip(one.transactions_per_s, slopes, strict=True):
        ends = max(x0, y0 / slope), min(x1, peak / slope)
        axes.plot(ends, [end * slope for end in ends], color=LEVEL_COLOURS[level], lw=1.2, zorder=2.1)
    _paint_loads(axes, one)
    markers = _markers_of(one)
    for kernel, level, x, y in dots:
        look = style.dot_look(LEVEL_COLOURS[level], markers[_what(kernel)]) | {"mew": 0.8}
        axes.plot(x, y, **look, zorder=4)
        if kernel.lanes_on is not None and kernel.lanes_on < 0.95 * LANES:
            axes.plot([x, x], [y * kernel.lanes_on / LANES, y], color=LEVEL_COLOURS[level], lw=1.0, zorder=3.9)
    axes.legend(handles=list(_entries(one)), loc="upper left", bbox_to_anchor=(1.02, 1))


def _paint_loads(axes: Axes, one: InstructionRoofline) -> None:
    """The walls of loads by stride or conflict, and upright the transactions that a request takes."""
    loads = one.walls
    x0, x1 = axes.get_xlim()
    for t in sorted({wall.transactions_per_request for wall in loads if x0 < 1 / wall.transactions_per_request < x1}):
        axes.axvline(1 / t, color=style.faded(WALL, 0.45), lw=0.8, ls=DOTS, zorder=1.5)
    for wall in loads:
        axes.plot(1 / wall.transactions_per_request, _pace(wall), **_wall_look(wall.pattern), zorder=3.5)


def _wall_look(pattern: str) -> dict:
    return {"marker": LOADS[pattern][0], "color": WALL, "ls": "none", "ms": 8, "mew": 1.4}


def _pace(wall: Wall) -> float:
    return wall.requests_per_s / 1e9


def _at(kernel: PlacedKernel, level: str) -> tuple[float | None, float]:
    count = kernel.transactions[level]
    return (kernel.warp_instructions / count if count else None), kernel.warp_instructions_per_s / 1e9


def _what(kernel: PlacedKernel) -> tuple[str, str | None]:
    return kernel.operator, kernel.implementation


def _markers_of(one: InstructionRoofline) -> dict:
    return style.markers_of(map(_what, one.kernels))


def _entries(one: InstructionRoofline) -> Iterable[Line2D]:
    """Of the legend: roofs with their values, kernels by marker, walls."""
    yield style.line(f"issue {number(one.warp_instructions_per_s / 1e9)} GIPS", ROOF, 2.0)
    for level, rate in one.transactions_per_s.items():
        yield style.line(f"{LEVEL_NAMES[level]} {number(rate / 1e9)} GTXN/s", LEVEL_COLOURS[level])
    for (operator, how), marker in _markers_of(one).items():
        words = ", ".join(filter(None, [operator.replace("_", " "), how]))
        yield style.dot(style.shortened(words, LANE - 46, style.TEXT_SIZE), marker=marker, hollow=True)
    for pattern in dict.fromkeys(wall.pattern for wall in one.walls):
        yield Line2D([], [], **_wall_look(pattern), label=LOADS[pattern][1])
    if one.walls:
        yield style.line("transactions of a request", WALL, 0.8, DOTS)


# ------------------------------------------------------------------------------------------------------ walls


def _paint_walls(axes: Axes, pattern: str, walls: Sequence[Wall]) -> None:
    words, unit = PATTERNS[pattern]
    axes.set(xlabel=words, ylabel=unit)
    walls = [wall for wall in walls if wall.of and wall.cycles_per_request]
    values = [wall.cycles_per_request for wall in walls]
    each = 4 if pattern == "stride" else 1  # sectors that L1 serves per cycle; wavefronts
    ideal = [max(1.0, wall.transactions_per_request / each) for wall in walls]
    if not values:
        axes.set(xticks=[], yticks=[])
        return
    places = [wall.of for wall in walls]
    axes.set(xlim=(min(places) / 1.4, max(places) * 1.4), ylim=(min([*values, *ideal]) / 1.5, max(values) * 1.6))
    style.logarithmic(axes.xaxis, "{:g}".format, base=2, numticks=8)
    style.logarithmic(axes.yaxis, "{:g}".format, base=2, numticks=6 if log10(max(values) / min(values)) > 0.5 else 9)
    axes.plot(places, values, color=WALL, lw=0.9, marker="o", ms=3, zorder=3)
    axes.plot(places, ideal, color=style.MUTED, lw=0.8, ls=(0, (1, 1.6)), zorder=2.5)
