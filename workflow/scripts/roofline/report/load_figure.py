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
from roofline.table.rows import ComputeCeiling, Roofline, SustainedRow

LOAD_PANELS = style.PanelRows(head=74.0, panel=58.0, row=90.0, foot=44.0)
FIRST_MS = 100  # of the load, shown product by product
LOAD_CAPTION = f"Horizontal lines: burst, and dashed sustained. Shaded: what counts as sustained. {style.DOUBT_NOTE}"
CURVE_LABELS = {"tflops": "", "sm_clock_mhz": "clock, MHz", "power_w": "power, W"}


def draw_loads(roofline: Roofline) -> Figure:
    """Return the picture of sustained load, a row for each compute ceiling.

    The panel on the left has every GEMM of the first moments, at the time at which it ended.
    """
    loads = [(row, row.sustained) for row in roofline.ceilings if row.kind == "compute" and row.sustained]
    title, columns = "Compute ceilings under sustained load", 1 + len(CURVE_LABELS)
    figure, grid = LOAD_PANELS.lay_out(title, LOAD_CAPTION, len(loads) * columns, columns, gap=0.36)
    panels = grid.subplots(squeeze=False, sharex="col")
    for (first, *curves), (ceiling, load) in zip(panels, loads, strict=True):
        _paint_first_products(first, ceiling.name, load)
        for axes, (quantity, label) in zip(curves, CURVE_LABELS.items(), strict=True):
            _paint_curve(axes, ceiling, load, quantity)
            axes.set_ylabel(label)
        first.set(ylim=curves[0].get_ylim(), ylabel=flops_unit(ceiling.name))
        title = f"{ceiling.device} {ceiling.name}: {_subtitle(ceiling, load)}"
        first.set_title(title, x=-42 / first.bbox.width, pad=5, weight="normal")
    panels[-1][0].set(xlim=(0, FIRST_MS), xlabel="ms under load, GEMM by GEMM")
    longest_s = max(load.curve[-1].at_s for _, load in loads)
    for axes in panels[-1][1:]:
        axes.set(xlim=(0, longest_s), xlabel="seconds under load")
    return figure


def _paint_first_products(axes: Axes, name: str, load: SustainedRow) -> None:
    ends_ms = [1e3 * end_s for end_s in accumulate(load.first_products_s)]
    tflops = [load.product_flops / product_s / 1e12 for product_s in load.first_products_s]
    axes.plot(ends_ms, tflops, ".", ms=1.6, color=dtype_colour(name), zorder=3)


def _paint_curve(axes: Axes, ceiling: ComputeCeiling, load: SustainedRow, quantity: str) -> None:
    points = [point for point in load.curve if getattr(point, quantity) is not None]
    times_s, values = [point.at_s for point in points], [getattr(point, quantity) for point in points]
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_locator(MaxNLocator(3))
    axes.plot(times_s, values, color=dtype_colour(ceiling.name), lw=0.9, zorder=3)
    rates = [rate for rate in (ceiling.burst_tflops, ceiling.sustained_tflops) if rate and quantity == "tflops"]
    for rate, dashes in zip(rates, ("-", (0, (3, 2))), strict=False):
        axes.axhline(rate, color=MUTED, lw=0.7, ls=dashes)
    axes.set_ylim(0, 1.1 * max([*values, *rates], default=1))
    end = load.curve[-1].at_s
    axes.axvspan(load.settled_after_s or 2 * end / 3, end, facecolor=SHADE, lw=0, zorder=0)
    if not points:
        axes.annotate("not reported", (0.5, 0.5), xycoords="axes fraction", ha="center", size=style.SMALL_SIZE)


def _subtitle(ceiling: ComputeCeiling, load: SustainedRow) -> str:
    assert ceiling.sustained_tflops  # a load has its rate
    burst = mark_doubtful(number(ceiling.burst_tflops), ceiling.doubt)
    sustained = mark_doubtful(number(ceiling.sustained_tflops), is_too_few(load.point_count))
    share = percent(ceiling.sustained_tflops / ceiling.burst_tflops)
    reported = ceiling.sustained_throttle_reasons
    reasons = "not reported" if reported is None else throttle_reasons_text(reported) or "none reported"
    return f"{burst} {flops_unit(ceiling.name)} burst, {sustained} sustained ({share}) · limited by: {reasons}"
