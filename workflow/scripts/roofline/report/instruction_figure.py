"""The instruction roofline as a picture: per GPU the roofs with walls and kernels, below them the walls as timed."""

from collections.abc import Iterable, Sequence
from math import log10

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from roofline.analysis.table import InstructionRoofline, InstructionWall, PlacedKernel, Roofline, TransactionRoof
from roofline.core.formatting import number, percent
from roofline.core.instructions import LANES
from roofline.report import figure_style as style
from roofline.report.label_placement import Label, marker_place, write
from roofline.report.palette import LEVEL_COLOURS, LEVEL_NAMES

TITLE = "Instruction roofline"
NOTHING = "No instruction roofline was measured in this run: it is measured on GPUs alone."
HEAD, HIGH, AXIS, WALLS, GAP, LANE = 50.0, 340.0, 40.0, 96.0, 48.0, 156.0
PANEL = HEAD + HIGH + AXIS + 34.0 + WALLS + GAP
ROOF, WALL = "#4a515b", "#9a6a00"
DOT = 5.2
MOST_LABELLED = 10
PATTERNS = {
    "stride": ("global loads: words between lanes", "cycles per request"),
    "conflict": ("shared memory: ways of a bank conflict", "cycles per request"),
    "predication": ("active lanes of 32", "G lane instr./s ÷ 32"),
}
MARKS = (
    "A transaction is a sector of 32 bytes, of shared memory a wavefront. Filled: counted by ncu. Hollow: instructions "
    "from the disassembly, transactions from the declared bytes. A kernel has a dot per level; a bar "
    "down from it is lanes that were off. Dotted: transactions that a request takes by stride or conflict. "
    "Dots that would hide others are shifted right."
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
        lost = _paint(figure.add_subplot(figure.add_gridspec(1, 1, **place)[0]), one)
        below = top - HEAD - HIGH - AXIS - 34.0
        place = style.margins(whole, top=whole - below, bottom=below - WALLS) | {"wspace": 0.3}
        for axes, pattern in zip(figure.add_gridspec(1, len(PATTERNS), **place).subplots(), PATTERNS, strict=True):
            _paint_walls(axes, pattern, [wall for wall in one.walls if wall.pattern == pattern])
        style.printed(figure, top - HEAD - HIGH - AXIS, lost)
        top -= PANEL
    style.printed(figure, top - style.LINE + 8, marks)
    return figure


def _subtitle(one: InstructionRoofline) -> str:
    rate = f"{number(one.warp_instructions_per_s / 1e9)} G warp instructions/s issued"
    if one.fraction_of_peak is None:
        return rate
    return f"{rate}, {percent(one.fraction_of_peak)} of one per scheduler and cycle at {one.sm_clock_mhz:.0f} MHz"


# ------------------------------------------------------------------------------------------------ the roofs


def _paint(axes: Axes, one: InstructionRoofline) -> list[str]:
    peak = one.warp_instructions_per_s / 1e9
    dots = [(kernel, level, *_at(kernel, level)) for kernel in one.kernels for level in kernel.transactions]
    dots = [dot for dot in dots if dot[2] and dot[1] in LEVEL_COLOURS]
    xs, ys = [x for *_, x, _ in dots], [y for *_, y in dots]
    slopes = [level.transactions_per_s / 1e9 for level in one.levels]
    x0, x1 = min([0.02, *(x / 2 for x in xs)]), max([64.0, *(3 * x for x in xs), *(6 * peak / s for s in slopes)])
    y0 = min([peak / 300, *(y / 2 for y in ys), *(0.7 * _pace(wall) for wall in one.walls)])
    axes.set(xlim=(x0, x1), ylim=(y0, 2.6 * peak))
    axes.set(xlabel="warp instructions per transaction", ylabel="G warp instructions/s")
    for axis in (axes.xaxis, axes.yaxis):
        style.logarithmic(axis, "{:g}".format, numticks=30)
    start = max(x0, peak / max(slopes)) if slopes else x0
    axes.plot([start, x1], [peak] * 2, color=ROOF, lw=2.0, zorder=2.2)
    labels = [Label(f"issue {number(peak)} GIPS", _along((start, peak), (x1, peak)), ROOF, "bold")]
    for level in one.levels:
        labels += _paint_level(axes, level, peak)
    labels += _paint_stride_walls(axes, one)
    taken, markers = {}, markers_of(one)
    for kernel, level, x, y in dots:
        place = marker_place(axes, (x, y), taken)
        _paint_dot(axes, LEVEL_COLOURS[level], kernel, place, markers[_what(kernel)])
    _paint_legend(axes, one)
    labels += _kernel_labels(one.kernels)
    lost = [label.text.replace("\n", " ") for label in write(axes, labels)]
    return style.wrapped(f"Not labelled: {'; '.join(lost)}.")[:2] if lost else []


def _paint_level(axes: Axes, level: TransactionRoof, peak: float) -> list[Label]:
    slope, colour = level.transactions_per_s / 1e9, LEVEL_COLOURS[level.level]
    (x0, x1), (y0, _) = axes.get_xlim(), axes.get_ylim()
    start, end = max(x0, y0 / slope), min(x1, peak / slope)
    if start >= end:
        return []
    axes.plot([start, end], [start * slope, end * slope], color=colour, lw=1.2, zorder=2.1)
    text = f"{LEVEL_NAMES[level.level]} {number(slope)} GTXN/s"
    return [Label(text, _along((start, start * slope), (end, end * slope)), colour)]


def _along(start: tuple[float, float], end: tuple[float, float]) -> tuple:
    (x0, y0), (x1, y1) = start, end
    return tuple((x0 * (x1 / x0) ** share, y0 * (y1 / y0) ** share) for share in (0.5, 0.35, 0.65, 0.2, 0.8))


def _paint_stride_walls(axes: Axes, one: InstructionRoofline) -> list[Label]:
    """A vertical line for each number of transactions that a request takes, and what was timed there."""
    loads = [wall for wall in one.walls if wall.transactions_per_request]
    (x0, x1), (y0, y1) = axes.get_xlim(), axes.get_ylim()
    for t in sorted({wall.transactions_per_request for wall in loads if x0 < 1 / wall.transactions_per_request < x1}):
        axes.plot([1 / t] * 2, [y0, y0 * (y1 / y0) ** 0.9], color=style.faded(WALL, 0.45), lw=0.8, ls=(0, (1, 2)))
    for wall in loads:
        marker = {"stride": "|", "conflict": "_"}[wall.pattern]
        x = 1 / (wall.counted or wall.transactions_per_request)
        axes.plot([x], [wall.requests_per_s / 1e9], marker=marker, ms=8, mew=1.4, color=WALL, ls="none", zorder=3.5)
    named = {wall.transactions_per_request: words for wall in loads for words in [_wall_words(wall)] if words}
    heights = [y0 * (y1 / y0) ** up for up in (0.06, 0.2, 0.4)]
    return [Label(words, tuple((1 / t, y) for y in heights), WALL) for t, words in named.items()]


def _wall_words(wall: InstructionWall) -> str | None:
    return {
        ("stride", 0): "one word\nfor all lanes",
        ("stride", 1): "unit\nstride",
        ("stride", 8): "stride of\n8 or more",
    }.get((wall.pattern, wall.of))


def _pace(wall: InstructionWall) -> float:
    return wall.requests_per_s / 1e9


# ---------------------------------------------------------------------------------------------------- kernels


def _at(kernel: PlacedKernel, level: str) -> tuple[float | None, float]:
    count = kernel.transactions[level]
    return (kernel.warp_instructions / count if count else None), kernel.warp_instructions_per_s / 1e9


def _what(kernel: PlacedKernel) -> tuple[str, str | None]:
    return kernel.operator, kernel.implementation


def markers_of(one: InstructionRoofline) -> dict:
    return style.markers_of(map(_what, one.kernels))


def _paint_dot(axes: Axes, colour: str, kernel: PlacedKernel, place: tuple[float, float], marker: str) -> None:
    face = colour if kernel.known_from == "counters" else style.PAPER
    axes.plot(*place, marker=marker, ms=DOT, mfc=face, mec=colour, mew=1.0, ls="none", zorder=4)
    if kernel.lanes_on is not None and kernel.lanes_on < 0.95 * LANES:
        x, y = place
        axes.plot([x, x], [y * kernel.lanes_on / LANES, y], color=colour, lw=1.0, zorder=3.9)


def _kernel_labels(kernels: Iterable[PlacedKernel]) -> list[Label]:
    """Of each implementation of an operator the kernel that issues most, at its place over the slowest level."""
    most: dict[tuple, PlacedKernel] = {}
    for kernel in sorted(kernels, key=lambda one: one.warp_instructions_per_s):
        most[_what(kernel)] = kernel
    chosen = sorted(most.values(), key=lambda one: -one.warp_instructions_per_s)[:MOST_LABELLED]
    found = []
    for kernel in chosen:
        level = next((level for level in ("hbm", "l2", "l1", "shared") if kernel.transactions.get(level)), None)
        if level:
            words = f"{kernel.implementation or kernel.operator}: {_limit_words(kernel)}"
            found.append(Label(words, (_at(kernel, level),), LEVEL_COLOURS[level]))
    return found


def _limit_words(kernel: PlacedKernel) -> str:
    shares = {"issue": kernel.fraction_of_issue} | kernel.fraction_of_level
    name = max(shares, key=shares.get)
    return f"{LEVEL_NAMES.get(name, name)} {percent(shares[name])}"


def _paint_legend(axes: Axes, one: InstructionRoofline) -> None:
    levels = [level for level in LEVEL_COLOURS if any(level in kernel.transactions for kernel in one.kernels)]
    square = {"marker": "s", "ls": "none", "ms": DOT}
    handles = [Line2D([], [], color=LEVEL_COLOURS[n], label=f"over {LEVEL_NAMES[n]}", **square) for n in levels]
    look = {"ls": "none", "ms": DOT, "mfc": style.PAPER, "mec": style.INK}
    for (operator, how), marker in markers_of(one).items():
        words = style.shortened(f"{operator.replace('_', ' ')}, {how}", LANE - 34, style.TEXT_SIZE)
        handles.append(Line2D([], [], marker=marker, label=words, **look))
    for marker, words in (("|", "loads from L1, by stride"), ("_", "shared loads, by conflict")):
        handles.append(Line2D([], [], marker=marker, color=WALL, ls="none", ms=8, mew=1.4, label=words))
    axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(1.02, 0))


# ------------------------------------------------------------------------------------------------------ walls


def _paint_walls(axes: Axes, pattern: str, walls: Sequence[InstructionWall]) -> None:
    words, unit = PATTERNS[pattern]
    axes.set(xlabel=words, ylabel=unit)
    walls = [wall for wall in walls if wall.of]
    if pattern == "predication":
        values, ideal = [_pace(wall) * wall.of / LANES for wall in walls], []
    else:
        walls = [wall for wall in walls if wall.cycles_per_request]
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
    if ideal:
        axes.plot(places, ideal, color=style.MUTED, lw=0.8, ls=(0, (1, 1.6)), zorder=2.5)
