"""Compute ceilings under sustained load: throughput, clock and power, a row for each."""

from itertools import accumulate

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from roofline.core.disturbance import throttle_reasons_text
from roofline.core.formatting import flops_unit, mark_doubtful, number, percent
from roofline.core.statistics import is_too_few
from roofline.report import figure_style as style
from roofline.report.palette import MUTED, SHADE, dtype_colour
from roofline.table.rows import ComputeCeiling, Roofline

ROW, HEAD, FOOT, HIGH, FIRST_MS = 90.0, 74.0, 44.0, 58.0, 100
MARKS = "Horizontal lines: burst, and dashed sustained. Shaded: what counts as sustained. *: do not rely on it."
COLUMNS = {"tflops": "", "sm_clock_mhz": "clock, MHz", "power_w": "power, W"}


@style.styled()
def draw_loads(roofline: Roofline) -> Figure:
    """On the left every GEMM of the first moments, at the time at which it ended."""
    rows = [one for one in roofline.ceilings if one.kind == "compute" and one.sustained]
    height = HEAD + FOOT + ROW * (len(rows) - 1) + HIGH
    figure = style.new_titled_figure(height, "Compute ceilings under sustained load", [MARKS])
    place = style.subplot_margins(height, top=HEAD, bottom=FOOT) | {"hspace": ROW / HIGH - 1, "wspace": 0.36}
    grid = figure.subplots(len(rows), 1 + len(COLUMNS), squeeze=False, sharex="col", gridspec_kw=place)
    for (first, *others), c in zip(grid, rows, strict=True):
        ends_ms = [1e3 * end_s for end_s in accumulate(c.sustained.first_products_s)]
        first_tflops = [c.sustained.product_flops / product_s / 1e12 for product_s in c.sustained.first_products_s]
        first.plot(ends_ms, first_tflops, ".", ms=1.6, color=dtype_colour(c.name), zorder=3)
        for axes, (key, words) in zip(others, COLUMNS.items(), strict=True):
            _paint(axes, c, key)
            axes.set_ylabel(words)
        first.set(ylim=others[0].get_ylim(), ylabel=flops_unit(c.name))
        first.set_title(f"{c.device} {c.name}: {_subtitle(c)}", x=-42 / first.bbox.width, pad=5, weight="normal")
    grid[-1][0].set(xlim=(0, FIRST_MS), xlabel="ms under load, GEMM by GEMM")
    for axes in grid[-1][1:]:
        axes.set(xlim=(0, max(one.sustained.curve[-1].at_s for one in rows)), xlabel="seconds under load")
    return figure


def _paint(axes: Axes, c: ComputeCeiling, key: str) -> None:
    curve = [(point.at_s, value) for point in c.sustained.curve if (value := getattr(point, key)) is not None]
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_locator(MaxNLocator(3))
    axes.plot([at for at, _ in curve], [value for _, value in curve], color=dtype_colour(c.name), lw=0.9, zorder=3)
    levels = [c.burst_tflops, c.sustained_tflops] if key == "tflops" else []
    for level, dashes in zip(levels, ("-", (0, (3, 2))), strict=False):
        axes.axhline(level, color=MUTED, lw=0.7, ls=dashes)
    axes.set_ylim(0, 1.1 * max([*(value for _, value in curve), *levels], default=1))
    end = c.sustained.curve[-1].at_s
    axes.axvspan(c.sustained.settled_after_s or 2 * end / 3, end, facecolor=SHADE, lw=0, zorder=0)
    if not curve:
        axes.annotate("not reported", (0.5, 0.5), xycoords="axes fraction", ha="center", size=style.SMALL_SIZE)


def _subtitle(c: ComputeCeiling) -> str:
    burst, sustained = number(c.burst_tflops), number(c.sustained_tflops)
    held = f"{mark_doubtful(sustained, is_too_few(c.sustained.point_count))} sustained ({percent(c.sustained_tflops / c.burst_tflops)})"
    reasons = (
        "not reported" if c.sustained_throttle_reasons is None else throttle_reasons_text(c.sustained_throttle_reasons)
    )
    return (
        f"{mark_doubtful(burst, c.doubt)} {flops_unit(c.name)} burst, {held} · limited by: {reasons or 'none reported'}"
    )
