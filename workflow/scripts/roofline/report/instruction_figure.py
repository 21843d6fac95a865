"""The instruction roofline of each GPU (Ding and Williams): issue rate, transactions per level, walls, kernels."""

from collections.abc import Iterable, Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from roofline.core.formatting import issue_rate_text, number, percent
from roofline.core.levels import LEVEL_TITLES
from roofline.core.roofline_model import LANES_PER_WARP
from roofline.report import figure_style as style
from roofline.report.palette import LEVEL_COLOURS, assign_in_turn
from roofline.table.rows import InstructionRoofline, PlacedKernel, Roofline

# Points: from the title to the panel, the panel, its axis below, and the legend to the right.
TITLE_HEIGHT, PLOT_HEIGHT, X_AXIS_HEIGHT, LEGEND_WIDTH = 50.0, 340.0, 52.0, 190.0
INSTRUCTION_PANEL = TITLE_HEIGHT + PLOT_HEIGHT + X_AXIS_HEIGHT + 10.0
ISSUE_COLOUR, WALL_COLOUR = "#4a515b", "#9a6a00"
WALL_MARKERS = {"stride": "|", "conflict": "_"}
INSTRUCTION_CAPTION = "A transaction is a sector of 32 bytes; of shared memory, a wavefront. Each counted kernel has "
INSTRUCTION_CAPTION += "a dot per level, in the colour of the level; a bar below it shows lanes that were off. "
INSTRUCTION_CAPTION += "Loads by stride and by bank conflict are walls."


def draw_instructions(roofline: Roofline) -> Figure:
    """Return the picture of the instruction rooflines, a panel for each GPU, one below the other."""
    caption = style.wrap_text(INSTRUCTION_CAPTION)
    height = 2 * style.MARGIN + INSTRUCTION_PANEL * len(roofline.instructions) + style.LINE * len(caption)
    figure, top = style.new_figure(height, "Instruction roofline"), height - style.MARGIN
    for row in roofline.instructions:
        style.print_head(figure, top, f"Instruction roofline: {roofline.devices[row.device].name}", [_subtitle(row)])
        panel = top - TITLE_HEIGHT
        margins = style.subplot_margins(height, top=height - panel, bottom=panel - PLOT_HEIGHT, right=LEGEND_WIDTH)
        _paint(figure.subplots(gridspec_kw=margins), row, roofline)
        top -= INSTRUCTION_PANEL
    style.print_lines(figure, top - style.LINE + 8, caption)
    return figure


def _subtitle(row: InstructionRoofline) -> str:
    share = f", {percent(row.fraction_of_issue_peak)} of the peak" if row.fraction_of_issue_peak else ""
    return f"{issue_rate_text(row.warp_instructions_per_s)} issued{share}"


def _paint(axes: Axes, row: InstructionRoofline, roofline: Roofline) -> None:
    """Paint rates in G warp instructions per second over warp instructions per transaction."""
    peak, slopes = row.warp_instructions_per_s / 1e9, {k: v / 1e9 for k, v in row.transactions_per_s.items()}
    dots = [
        (kernel, level, kernel.warp_instructions / count, kernel.warp_instructions_per_s / 1e9)
        for kernel in row.kernels
        for level, count in kernel.transactions.items()
        if count
    ]
    xs = [x for _, _, x, _ in dots]
    ys = [y for _, _, _, y in dots] + [wall.requests_per_s / 1e9 for wall in row.walls]
    x0 = min([0.02, *(x / 2 for x in xs)])
    x1 = max([64.0, *(3 * x for x in xs), *(6 * peak / slope for slope in slopes.values())])
    y0 = min([peak / 300, *(y / 2 for y in ys)])
    axes.set(xlim=(x0, x1), ylim=(y0, 1.6 * peak), xlabel="warp instructions per transaction")
    axes.set_ylabel("G warp instructions/s")
    for axis in (axes.xaxis, axes.yaxis):
        style.set_log_axis(axis, "{:g}".format, numticks=30)
    start = max(x0, peak / max(slopes.values())) if slopes else x0
    axes.plot([start, x1], [peak] * 2, color=ISSUE_COLOUR, lw=2.0, zorder=2.2)
    for level, slope in slopes.items():
        ends = max(x0, y0 / slope), min(x1, peak / slope)
        axes.plot(ends, [end * slope for end in ends], color=LEVEL_COLOURS[level], lw=1.2, zorder=2.1)
    for wall in row.walls:
        rate = wall.requests_per_s / 1e9
        axes.plot(1 / wall.transactions_per_request, rate, **_wall_style(wall.pattern), zorder=3.5)
    markers = assign_in_turn(_kernel_name(kernel, roofline) for kernel in row.kernels)
    for kernel, level, x, y in dots:
        colour = LEVEL_COLOURS[level]
        axes.plot(x, y, **style.dot_style(colour, markers[_kernel_name(kernel, roofline)]) | {"mew": 0.8}, zorder=4)
        if kernel.active_lanes is not None and kernel.active_lanes < 0.95 * LANES_PER_WARP:
            active = kernel.active_lanes / LANES_PER_WARP
            axes.plot([x, x], [y * active, y], color=colour, lw=1.0, zorder=3.9)
    axes.legend(handles=list(_entries(row, markers)), loc="upper left", bbox_to_anchor=(1.02, 1))


def _wall_style(pattern: str) -> style.Look:
    return {"marker": WALL_MARKERS[pattern], "color": WALL_COLOUR, "ls": "none", "ms": 8, "mew": 1.4}


def _kernel_name(kernel: PlacedKernel, roofline: Roofline) -> str:
    return ", ".join(filter(None, [roofline.title(kernel.operator), kernel.implementation]))


def _entries(row: InstructionRoofline, markers: Mapping[str, str]) -> Iterable[Line2D]:
    """Yield the entries of the legend: roofs with their values, kernels by marker, access patterns."""
    yield style.legend_line(f"issue {number(row.warp_instructions_per_s / 1e9)} G instructions/s", ISSUE_COLOUR, 2.0)
    for level, rate in row.transactions_per_s.items():
        yield style.legend_line(f"{LEVEL_TITLES[level]} {number(rate / 1e9)} G transactions/s", LEVEL_COLOURS[level])
    for name, marker in markers.items():
        short = style.shorten_middle(name, LEGEND_WIDTH - 46, style.TEXT_SIZE)
        yield style.legend_dot(short, marker=marker, hollow=True)
    for pattern in dict.fromkeys(wall.pattern for wall in row.walls):
        yield Line2D([], [], **_wall_style(pattern), label=f"loads by {pattern}")
