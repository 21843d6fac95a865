"""The instruction roofline of each GPU (Ding and Williams): issue rate, transactions per level, walls, kernels."""

from collections.abc import Iterable

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from roofline.core.formatting import number, percent
from roofline.core.roofline_model import LANES_PER_WARP
from roofline.report import figure_style as style
from roofline.report.palette import LEVEL_COLOURS, markers_of
from roofline.report.words import LEVELS
from roofline.table.rows import InstructionRoofline, PlacedKernel, Roofline

HEAD, HIGH, AXIS, LANE = 50.0, 340.0, 52.0, 190.0
PANEL = HEAD + HIGH + AXIS + 10.0
ROOF, WALL = "#4a515b", "#9a6a00"
MARKER = {"stride": "|", "conflict": "_"}
MARKS = (
    "A transaction is a sector of 32 bytes; of shared memory, a wavefront. Each counted kernel has a dot per level, in "
    "the colour of the level; a bar below it shows lanes that were off. Loads by stride and by bank conflict are walls."
)


@style.styled()
def draw_instructions(roofline: Roofline) -> Figure:
    marks = style.wrap_text(MARKS)
    whole = 2 * style.MARGIN + PANEL * len(roofline.instructions) + style.LINE * len(marks)
    figure, top = style.new_figure(whole, "Instruction roofline"), whole - style.MARGIN
    for one in roofline.instructions:
        title = f"Instruction roofline: {roofline.devices[one.device].name}"
        style.print_head(figure, top, title, [_subtitle(one)])
        place = style.subplot_margins(whole, top=whole - top + HEAD, bottom=top - HEAD - HIGH, right=LANE)
        _paint(figure.add_subplot(figure.add_gridspec(1, 1, **place)[0]), one)
        top -= PANEL
    style.print_lines(figure, top - style.LINE + 8, marks)
    return figure


def _subtitle(one: InstructionRoofline) -> str:
    share = f", {percent(one.fraction_of_issue_peak)} of the peak" if one.fraction_of_issue_peak else ""
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
        style.set_log_axis(axis, "{:g}".format, numticks=30)
    start = max(x0, peak / max(slopes.values())) if slopes else x0
    axes.plot([start, x1], [peak] * 2, color=ROOF, lw=2.0, zorder=2.2)
    for level, slope in slopes.items():
        ends = max(x0, y0 / slope), min(x1, peak / slope)
        axes.plot(ends, [end * slope for end in ends], color=LEVEL_COLOURS[level], lw=1.2, zorder=2.1)
    for wall in one.walls:
        axes.plot(1 / wall.transactions_per_request, wall.requests_per_s / 1e9, **_wall_look(wall.pattern), zorder=3.5)
    markers = markers_of(map(_what, one.kernels))
    for kernel, level, x, y in dots:
        axes.plot(x, y, **style.dot_style(LEVEL_COLOURS[level], markers[_what(kernel)]) | {"mew": 0.8}, zorder=4)
        if kernel.active_lanes is not None and kernel.active_lanes < 0.95 * LANES_PER_WARP:
            axes.plot(
                [x, x], [y * kernel.active_lanes / LANES_PER_WARP, y], color=LEVEL_COLOURS[level], lw=1.0, zorder=3.9
            )
    axes.legend(handles=list(_entries(one, markers)), loc="upper left", bbox_to_anchor=(1.02, 1))


def _wall_look(pattern: str) -> dict:
    return {"marker": MARKER[pattern], "color": WALL, "ls": "none", "ms": 8, "mew": 1.4}


def _what(kernel: PlacedKernel) -> str:
    return ", ".join(filter(None, [kernel.operator.replace("_", " "), kernel.implementation]))


def _entries(one: InstructionRoofline, markers: dict) -> Iterable[Line2D]:
    """Of the legend: roofs with their values, kernels by marker, access patterns."""
    yield style.legend_line(f"issue {number(one.warp_instructions_per_s / 1e9)} G instructions/s", ROOF, 2.0)
    for level, rate in one.transactions_per_s.items():
        yield style.legend_line(f"{LEVELS[level]} {number(rate / 1e9)} G transactions/s", LEVEL_COLOURS[level])
    for words, marker in markers.items():
        yield style.legend_dot(style.shorten_middle(words, LANE - 46, style.TEXT_SIZE), marker=marker, hollow=True)
    for pattern in dict.fromkeys(wall.pattern for wall in one.walls):
        yield Line2D([], [], **_wall_look(pattern), label=f"loads by {pattern}")
