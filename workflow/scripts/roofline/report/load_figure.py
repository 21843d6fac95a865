"""What the compute ceilings do under sustained load: throughput, clock and power over seconds, a row for each peak."""

from collections.abc import Sequence
from itertools import accumulate

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from roofline.core.disturbance import limiting_words
from roofline.core.formatting import flops_unit, number, percent, starred
from roofline.core.statistics import few
from roofline.report import figure_style as style
from roofline.table.rows import ComputeCeiling, Roofline

ROW, HEAD, FOOT, HIGH = 78.0, 74.0, 44.0, 46.0
TITLE = "Compute ceilings under sustained load"
MARKS = "Horizontal lines: burst, and dashed sustained. Shaded: what sustained is of, whole cycles of the clock."
NOTHING = (
    "No sustained load was measured in this run: only GPUs are held under load, since they report clock and power."
)
COLUMNS = {"tflops": "", "sm_clock_mhz": "clock, MHz", "power_w": "power, W"}
FIRST_MS = 100


NOT_REPORTED = "not reported"
DOUBTFUL = "* disturbed, throttled, too few samples, or contradicted: do not use"


@style.styled()
def draw(roofline: Roofline) -> Figure:
    """A row of panels for every peak that was held under load, its first moments product by product; without any peak,
    paper that says so."""
    rows = [c for c in roofline.ceilings if c.kind == "compute" and c.load]
    if not rows:
        return style.nothing(TITLE, NOTHING)
    height = HEAD + FOOT + ROW * (len(rows) - 1) + HIGH
    marked = any("*" in subtitle(ceiling) for ceiling in rows)
    figure = style.headed(height, TITLE, [f"{MARKS} {DOUBTFUL}." if marked else MARKS])
    place = style.margins(height, top=HEAD, bottom=FOOT) | {"hspace": ROW / HIGH - 1, "wspace": 0.36}
    grid = figure.subplots(len(rows), 1 + len(COLUMNS), squeeze=False, sharex="col", gridspec_kw=place)
    for axes, ceiling in zip(grid, rows, strict=True):
        first = next(row for row, other in zip(grid, rows, strict=True) if other.device == ceiling.device)
        for one, other in zip(axes[2:], first[2:], strict=True):  # one scale of clock and of power per device
            if one is not other:
                one.sharey(other)
        axes[1].sharey(axes[0])
        _paint(axes[1:], ceiling)
        _paint_first(axes[0], ceiling)
    grid[-1][0].set_xlim(0, FIRST_MS)
    grid[-1][0].set_xlabel("ms under load, product by product")
    for axes in grid[-1][1:]:
        axes.set_xlim(0, max(ceiling.load.curve[-1].at_s for ceiling in rows))
        axes.set_xlabel("seconds under load")
    return figure


def _paint_first(axes: Axes, ceiling: ComputeCeiling) -> None:
    """Every product of the first moments, at the time at which it ended; and what the row is of."""
    colour, rates = style.dtype_colour(ceiling.name), ceiling.load.first_tflops
    title = f"{ceiling.device}: {ceiling.name}"
    axes.set_title(title, x=-42 / axes.bbox.width, pad=5)
    after = 1.1 * style.text_width(title, style.TEXT_SIZE + 1) - 34
    axes.annotate(
        subtitle(ceiling), (after, HIGH + 5), xycoords="axes points", size=style.SMALL_SIZE, color=style.MUTED
    )
    axes.set_ylabel(flops_unit(ceiling.name))
    ends_s = accumulate(ceiling.load.product_flops / rate / 1e12 for rate in rates)
    axes.plot([1e3 * at_s for at_s in ends_s], rates, ".", ms=1.6, color=colour, zorder=3)


def _paint(row: Sequence[Axes], ceiling: ComputeCeiling) -> None:
    load, colour = ceiling.load, style.dtype_colour(ceiling.name)
    small = {"size": style.SMALL_SIZE, "color": style.MUTED}
    for axes, (key, words) in zip(row, COLUMNS.items(), strict=True):
        axes.set_ylabel(words)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_locator(MaxNLocator(3))
        curve = [(point.at_s, value) for point in load.curve if (value := getattr(point, key)) is not None]
        if not curve:
            axes.set_yticks([])
            axes.annotate(NOT_REPORTED, (0.5, 0.5), xycoords="axes fraction", ha="center", **small)
            continue
        axes.plot(*zip(*curve, strict=True), color=colour, lw=0.9, marker="." if len(curve) < 3 else None, zorder=3)
        levels = [ceiling.burst_tflops, ceiling.sustained_tflops] if key == "tflops" else []
        for level, dashes in zip(levels, ("-", (0, (3, 2))), strict=False):
            axes.axhline(level, color=style.MUTED, lw=0.7, ls=dashes)
        highest = max([value for _, value in curve] + levels)
        axes.update_datalim([(0, 0.92 * highest), (0, 1.03 * highest)])  # a steady value's noise is not to fill it
        axes.autoscale_view()
        end = load.curve[-1].at_s
        counted = 2 * end / 3 if load.settled_after_s is None else load.settled_after_s
        axes.axvspan(counted, end, facecolor=style.SHADE, lw=0, zorder=0)


def subtitle(c: ComputeCeiling) -> str:
    """What it gave at first, what it sustained, and what limited that."""
    sustained = starred(number(c.sustained_tflops), few(c.load.points))
    sustained += f" sustained ({percent(c.sustained_tflops / c.burst_tflops)})"
    limits = c.sustained_limited_by
    words = NOT_REPORTED if limits is None else limiting_words(limits) or "none reported"
    burst = f"{starred(number(c.burst_tflops), c.doubt)} {flops_unit(c.name)} burst"
    return f"{burst}, {sustained} · sustained load limited by: {words}"
