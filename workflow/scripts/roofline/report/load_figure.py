"""Compute ceilings under sustained load: throughput, clock and power over seconds, a row for each."""

from itertools import accumulate

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from roofline.core.disturbance import limiting_words
from roofline.core.formatting import flops_unit, number, percent, starred
from roofline.core.statistics import few
from roofline.report import figure_style as style
from roofline.report.palette import MUTED, SHADE, dtype_colour
from roofline.table.rows import ComputeCeiling, Roofline

ROW, HEAD, FOOT, HIGH, FIRST_MS = 90.0, 74.0, 44.0, 58.0, 100
MARKS = "Horizontal lines: burst, and dashed sustained. Shaded: what counts as sustained. *: do not rely on it."
COLUMNS = {"tflops": "", "sm_clock_mhz": "clock, MHz", "power_w": "power, W"}


@style.styled()
def draw(roofline: Roofline) -> Figure:
    """Every axis begins at zero, and those of a device have one scale of clock and of power."""
    rows = [one for one in roofline.ceilings if one.kind == "compute" and one.load]
    height = HEAD + FOOT + ROW * (len(rows) - 1) + HIGH
    figure = style.headed(height, "Compute ceilings under sustained load", [MARKS])
    place = style.margins(height, top=HEAD, bottom=FOOT) | {"hspace": ROW / HIGH - 1, "wspace": 0.36}
    grid = figure.subplots(len(rows), 1 + len(COLUMNS), squeeze=False, sharex="col", gridspec_kw=place)
    for axes, ceiling in zip(grid, rows, strict=True):
        alike = [one for one in rows if one.device == ceiling.device]
        _paint_first(axes[0], ceiling)
        for one, (key, words) in zip(axes[1:], COLUMNS.items(), strict=True):
            of = [ceiling] if key == "tflops" else alike
            _paint(one, ceiling, key, max((v for c in of for p in c.load.curve if (v := getattr(p, key))), default=1))
            one.set_ylabel(words)
        axes[0].set_ylim(axes[1].get_ylim())
    grid[-1][0].set(xlim=(0, FIRST_MS), xlabel="ms under load, GEMM by GEMM")
    for axes in grid[-1][1:]:
        axes.set(xlim=(0, max(one.load.curve[-1].at_s for one in rows)), xlabel="seconds under load")
    return figure


def _paint_first(axes: Axes, ceiling: ComputeCeiling) -> None:
    """Every GEMM of the first moments, at the time at which it ended; and what the row is of."""
    name = f"{ceiling.device}: {ceiling.name}"
    axes.set_title(name, x=-42 / axes.bbox.width, pad=5)
    after = 1.1 * style.text_width(name, style.TEXT_SIZE + 1) - 34
    small = {"size": style.SMALL_SIZE, "color": MUTED}
    axes.annotate(subtitle(ceiling), (after, HIGH + 5), xycoords="axes points", **small)
    axes.set_ylabel(flops_unit(ceiling.name))
    rates = ceiling.load.first_tflops
    ends_s = accumulate(ceiling.load.product_flops / rate / 1e12 for rate in rates)
    axes.plot([1e3 * at for at in ends_s], rates, ".", ms=1.6, color=dtype_colour(ceiling.name), zorder=3)


def _paint(axes: Axes, ceiling: ComputeCeiling, key: str, highest: float) -> None:
    load = ceiling.load
    curve = [(point.at_s, value) for point in load.curve if (value := getattr(point, key)) is not None]
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_locator(MaxNLocator(3))
    axes.plot(
        [at for at, _ in curve], [value for _, value in curve], color=dtype_colour(ceiling.name), lw=0.9, zorder=3
    )
    levels = [ceiling.burst_tflops, ceiling.sustained_tflops] if key == "tflops" else []
    for level, dashes in zip(levels, ("-", (0, (3, 2))), strict=False):
        axes.axhline(level, color=MUTED, lw=0.7, ls=dashes)
    axes.set_ylim(0, 1.1 * max([highest, *levels]))
    end = load.curve[-1].at_s
    axes.axvspan(load.settled_after_s or 2 * end / 3, end, facecolor=SHADE, lw=0, zorder=0)
    if not curve:
        axes.annotate("not reported", (0.5, 0.5), xycoords="axes fraction", ha="center", size=style.SMALL_SIZE)


def subtitle(c: ComputeCeiling) -> str:
    """Burst, sustained, and what limited that."""
    sustained = f"{starred(number(c.sustained_tflops), few(c.load.points))} sustained"
    share = percent(c.sustained_tflops / c.burst_tflops)
    limits = c.sustained_limited_by
    words = "not reported" if limits is None else limiting_words(limits) or "none reported"
    burst = f"{starred(number(c.burst_tflops), c.doubt)} {flops_unit(c.name)} burst"
    return f"{burst}, {sustained} ({share}) · limited by: {words}"
