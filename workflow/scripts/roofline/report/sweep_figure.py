"""Read bandwidth over the size of the working set: a panel per sweep, with the levels found."""

from collections.abc import Sequence
from itertools import cycle
from math import log10

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from roofline.core.formatting import capacity
from roofline.core.terms import KNEE_SHARE
from roofline.report import figure_style as style
from roofline.report.palette import MUTED, SERIES_COLOURS
from roofline.report.pyramid import describe_plateau
from roofline.table.rows import Plateau, Roofline, SweepRow

SWEEP_PANELS = style.PanelRows(head=90.0, panel=172.0, row=262.0, foot=58.0)
SWEEPS_PER_ROW = 2
SWEEP_CAPTION = "Dots: measured. Horizontal lines: levels, medians of dots. "
SWEEP_CAPTION += "Ticks: the knee; dotted, the capacity reported."


def draw_sweeps(roofline: Roofline) -> Figure:
    """Return the picture of read bandwidth over the working set, a panel for each sweep."""
    title = "Read bandwidth over the size of the working set"
    figure, grid = SWEEP_PANELS.lay_out(title, SWEEP_CAPTION, len(roofline.sweeps), SWEEPS_PER_ROW)
    for place, sweep in enumerate(roofline.sweeps):
        _paint(figure.add_subplot(grid[place]), sweep)
    return figure


def _paint(axes: Axes, sweep: SweepRow) -> None:
    rule = style.wrap_text(sweep.counting_rule, axes.bbox.width + 42)
    title = f"{sweep.device}: {sweep.series.replace('_', ' ')}"
    axes.set_title(title, x=-42 / axes.bbox.width, pad=6 + 10 * len(rule))
    place = -42, axes.bbox.height + 3
    axes.annotate("\n".join(rule), place, xycoords="axes points", size=style.SMALL_SIZE, color=MUTED, va="bottom")
    sizes, rates = [point.size_bytes for point in sweep.points], [point.gb_per_s for point in sweep.points]
    coloured = list(zip(sweep.plateaus, cycle(SERIES_COLOURS[1:]), strict=False))
    entries = [style.legend_line(_describe(plateau), colour, 1.6) for plateau, colour in coloured]
    bottom, top = _rate_limits(rates, legend_share=(style.LEGEND_LINE * len(entries) + 8) / axes.bbox.height)
    axes.set(xlabel=f"working set of {sweep.reader}", xlim=(min(sizes) / 1.5, max(sizes) * 1.5))
    axes.set(ylabel="GB/s", ylim=(bottom, top))
    style.set_log_axis(axes.xaxis, capacity, base=2, numticks=7)
    style.set_log_axis(axes.yaxis, "{:g}".format, subs=(1, 2, 5))
    axes.plot(sizes, rates, color=SERIES_COLOURS[0], lw=0.9, marker="o", ms=3, zorder=3)
    for plateau, colour in coloured:
        axes.plot([plateau.first_bytes, plateau.last_bytes], [plateau.gb_per_s] * 2, color=colour, lw=1.6, zorder=4)
        for size, dashes in ((plateau.knee_bytes, "-"), (plateau.knee_bytes and plateau.reported_bytes, (0, (1, 1)))):
            if size:
                tick = [KNEE_SHARE * plateau.gb_per_s / 1.2, KNEE_SHARE * plateau.gb_per_s * 1.2]
                axes.plot([size] * 2, tick, color=colour, lw=1.6, ls=dashes, solid_capstyle="butt", zorder=5)
    if entries:
        axes.legend(handles=entries, loc="lower left", bbox_to_anchor=(0.02, 0.03))


def _rate_limits(rates: Sequence[float], legend_share: float) -> tuple[float, float]:
    """Limits of a logarithmic axis: a decade at least, so that a flat curve looks flat, and the legend below it."""
    margin = max(1.6, (10 * min(rates) / max(rates)) ** 0.5)
    lowest, highest = min(rates) / margin, max(rates) * margin
    legend_decades = log10(highest / lowest) * legend_share / (1 - legend_share)
    return lowest / 10**legend_decades, highest


def _describe(plateau: Plateau) -> str:
    """The plateau, its knee, and the capacity that the device reports."""
    words = describe_plateau(plateau)
    if plateau.knee_bytes:
        words += f", knee {capacity(plateau.knee_bytes)}"
        words += f" (reported {capacity(plateau.reported_bytes)})" if plateau.reported_bytes else ""
    return words
