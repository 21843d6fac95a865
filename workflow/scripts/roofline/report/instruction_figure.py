"""The instruction roofline of each GPU: issue rate, transactions per level, access patterns and kernels."""

from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from roofline.core.formatting import number, percent
from roofline.core.model import LANES
from roofline.report import figure_style as style
from roofline.report.palette import LEVEL_COLOURS, MUTED, markers_of
from roofline.report.words import LEVELS
from roofline.table.rows import InstructionRoofline, PlacedKernel, Roofline, Wall

HEAD, HIGH, AXIS, WALLS, LANE = 50.0, 340.0, 52.0, 96.0, 190.0
PANEL = HEAD + HIGH + AXIS + WALLS + 48.0
ROOF, WALL = "#4a515b", "#9a6a00"
MARKER = {"stride": "|", "conflict": "_"}
PATTERNS = {
    "stride": ("global loads: words between lanes", 4),  # sectors that L1 serves per cycle
    "conflict": ("shared memory: ways of a bank conflict", 1),  # wavefronts
}
MARKS = (
    "A transaction is a sector of 32 bytes; of shared memory, a wavefront. Each counted kernel has a dot per level, in "
    "the colour of the level; a bar below it shows lanes that were off. Dotted below: transactions per cycle at best."
)


@style.styled()
def draw(roofline: Roofline) -> Figure:
    marks = style.wrapped(MARKS)
    whole = 2 * style.MARGIN + PANEL * len(roofline.instructions) + style.LINE * len(marks)
    figure, top = style.paper(whole, "Instruction roofline"), whole - style.MARGIN
    for one in roofline.instructions:
        title = f"Instruction roofline: {roofline.devices[one.device].name}"
        style.printed_head(figure, top, title, [_subtitle(one)])
        place = style.margins(whole, top=whole - top + HEAD, bottom=top - HEAD - HIGH, right=LANE)
        _paint(figure.add_subplot(figure.add_gridspec(1, 1, **place)[0]), one)
        below = top - HEAD - HIGH - AXIS
        place = style.margins(whole, top=whole - below, bottom=below - WALLS) | {"wspace": 0.3}
        for axes, pattern in zip(figure.add_gridspec(1, len(PATTERNS), **place).subplots(), PATTERNS, strict=True):
            _paint_walls(axes, pattern, [wall for wall in one.walls if wall.pattern == pattern])
        top -= PANEL
    style.printed(figure, top - style.LINE + 8, marks)
    return figure


def _subtitle(one: InstructionRoofline) -> str:
    share = f", {percent(one.fraction_of_peak)} of the peak" if one.fraction_of_peak else ""
    return f"{number(one.warp_instructions_per_s / 1e9)} G warp instructions/s issued{share}"


def _paint(axes: Axes, one: InstructionRoofline) -> None:
    peak, slopes = one.warp_instructions_per_s / 1e9, {k: v / 1e9 for k, v in one.transactions_per_s.items()}
    dots = [
        (kernel, level, kernel.warp_instructions / kernel.transactions[level], kernel.warp_instructions_per_s / 1e9)
        for kernel, level in one.placed()
    ]
    xs, ys = [x for *_, x, _ in dots], [y for *_, y in dots] + [wall.requests_per_s / 1e9 for wall in one.walls]
    x0 = min([0.02, *(x / 2 for x in xs)])
    x1 = max([64.0, *(3 * x for x in xs), *(6 * peak / slope for slope in slopes.values())])
    y0 = min([peak / 300, *(y / 2 for y in ys)])
    axes.set(xlim=(x0, x1), ylim=(y0, 1.6 * peak), xlabel="warp instructions per transaction")
    axes.set_ylabel("G warp instructions/s")
    for axis in (axes.xaxis, axes.yaxis):
        style.logarithmic(axis, "{:g}".format, numticks=30)
    start = max(x0, peak / max(slopes.values())) if slopes else x0
    axes.plot([start, x1], [peak] * 2, color=ROOF, lw=2.0, zorder=2.2)
    for level, slope in slopes.items():
        ends = max(x0, y0 / slope), min(x1, peak / slope)
        axes.plot(ends, [end * slope for end in ends], color=LEVEL_COLOURS[level], lw=1.2, zorder=2.1)
    for wall in one.walls:
        axes.plot(1 / wall.transactions_per_request, wall.requests_per_s / 1e9, **_wall_look(wall.pattern), zorder=3.5)
    markers = markers_of(map(_what, one.kernels))
    for kernel, level, x, y in dots:
        axes.plot(x, y, **style.dot_look(LEVEL_COLOURS[level], markers[_what(kernel)]) | {"mew": 0.8}, zorder=4)
        if kernel.lanes_on is not None and kernel.lanes_on < 0.95 * LANES:
            axes.plot([x, x], [y * kernel.lanes_on / LANES, y], color=LEVEL_COLOURS[level], lw=1.0, zorder=3.9)
    axes.legend(handles=list(_entries(one, markers)), loc="upper left", bbox_to_anchor=(1.02, 1))


def _wall_look(pattern: str) -> dict:
    return {"marker": MARKER[pattern], "color": WALL, "ls": "none", "ms": 8, "mew": 1.4}


def _what(kernel: PlacedKernel) -> str:
    return ", ".join(filter(None, [kernel.operator.replace("_", " "), kernel.implementation]))


def _entries(one: InstructionRoofline, markers: dict) -> Iterable[Line2D]:
    """Of the legend: roofs with their values, kernels by marker, access patterns."""
    yield style.line(f"issue {number(one.warp_instructions_per_s / 1e9)} G instructions/s", ROOF, 2.0)
    for level, rate in one.transactions_per_s.items():
        yield style.line(f"{LEVELS[level]} {number(rate / 1e9)} G transactions/s", LEVEL_COLOURS[level])
    for words, marker in markers.items():
        yield style.dot(style.shortened(words, LANE - 46, style.TEXT_SIZE), marker=marker, hollow=True)
    for pattern in dict.fromkeys(wall.pattern for wall in one.walls):
        yield Line2D([], [], **_wall_look(pattern), label=f"loads by {pattern}")


def _paint_walls(axes: Axes, pattern: str, walls: Sequence[Wall]) -> None:
    words, each = PATTERNS[pattern]
    walls = [wall for wall in walls if wall.of and wall.cycles_per_request]
    places, values = [wall.of for wall in walls], [wall.cycles_per_request for wall in walls]
    for axis in (axes.xaxis, axes.yaxis):
        style.logarithmic(axis, "{:g}".format, base=2, numticks=8)
    axes.set(xlabel=words, ylabel="cycles per request")
    axes.plot(places, values, color=WALL, lw=0.9, marker="o", ms=3, zorder=3)
    best = [max(1.0, wall.transactions_per_request / each) for wall in walls]
    axes.plot(places, best, color=MUTED, lw=0.8, ls=(0, (1, 1.6)), zorder=2.5)
