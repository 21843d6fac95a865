"""What the compute ceilings do under sustained load: throughput, clock and power over seconds, a row for each peak."""

from collections.abc import Sequence
from itertools import accumulate

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from roofline.core.formatting import flops_unit, number, percent, starred
from roofline.records.compute import PeakFlops, PeakFlopsRecord
from roofline.report import figure_style as style
from roofline.report.tables import FEW_SAMPLES, NOT_REPORTED, limited_by

ROW, HEAD, FOOT, HIGH = 78.0, 74.0, 44.0, 46.0
TITLE = "Compute ceilings under sustained load"
MARKS = "Horizontal lines: burst, and dashed sustained. Shaded: what sustained is of, whole cycles of the clock."
NOTHING = (
    "No sustained load was measured in this run: only GPUs are held under load, since they report clock and power."
)
COLUMNS = {"tflops": "", "sm_clock_mhz": "clock, MHz", "power_w": "power, W"}
FIRST_MS = 100


@style.styled()
def draw(records: Sequence[PeakFlopsRecord]) -> Figure:
    """A row of panels for every peak that was held under load, its first moments product by product; without any peak,
    paper that says so."""
    rows = [record for record in records if record.peak and record.peak.sustained and record.peak.sustained.curve]
    if not rows:
        return style.nothing(TITLE, NOTHING)
    height = HEAD + FOOT + ROW * (len(rows) - 1) + HIGH
    marked = any("*" in subtitle(record, record.peak) for record in rows)
    figure = style.headed(height, TITLE, [f"{MARKS} {FEW_SAMPLES}." if marked else MARKS])
    place = style.margins(height, top=HEAD, bottom=FOOT) | {"hspace": ROW / HIGH - 1, "wspace": 0.36}
    grid = figure.subplots(len(rows), 1 + len(COLUMNS), squeeze=False, sharex="col", gridspec_kw=place)
    for axes, record in zip(grid, rows, strict=True):
        first = next(row for row, other in zip(grid, rows, strict=True) if other.device == record.device)
        for one, other in zip(axes[2:], first[2:], strict=True):  # one scale of clock and of power per device
            if one is not other:
                one.sharey(other)
        axes[1].sharey(axes[0])
        _paint(axes[1:], record, record.peak)
        _paint_first(axes[0], record, record.peak)
    grid[-1][0].set_xlim(0, FIRST_MS)
    grid[-1][0].set_xlabel("ms under load, product by product")
    for axes in grid[-1][1:]:
        axes.set_xlim(0, max(record.peak.sustained.curve[-1].at_s for record in rows))
        axes.set_xlabel("seconds under load")
    return figure


def _paint_first(axes: Axes, record: PeakFlopsRecord, peak: PeakFlops) -> None:
    """Every product of the first moments, at the time at which it ended; and what the row is of."""
    colour, each_s = style.dtype_colour(record.dtype), peak.sustained.first_products_s
    title = f"{record.device}: {record.dtype}"
    axes.set_title(title, x=-42 / axes.bbox.width, pad=5)
    after = 1.1 * style.text_width(title, style.TEXT_SIZE + 1) - 34
    axes.annotate(
        subtitle(record, peak), (after, HIGH + 5), xycoords="axes points", size=style.SMALL_SIZE, color=style.MUTED
    )
    axes.set_ylabel(flops_unit(record.dtype))
    rates = [peak.burst.flops / seconds / 1e12 for seconds in each_s]
    axes.plot([1e3 * at_s for at_s in accumulate(each_s)], rates, ".", ms=1.6, color=colour, zorder=3)


def _paint(row: Sequence[Axes], record: PeakFlopsRecord, peak: PeakFlops) -> None:
    load, colour = peak.sustained, style.dtype_colour(record.dtype)
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
        levels = [peak.burst_tflops, load.tflops] if key == "tflops" else []
        for level, dashes in zip(levels, ("-", (0, (3, 2))), strict=False):
            axes.axhline(level, color=style.MUTED, lw=0.7, ls=dashes)
        highest = max([value for _, value in curve] + levels)
        axes.update_datalim([(0, 0.92 * highest), (0, 1.03 * highest)])  # a steady value's noise is not to fill it
        axes.autoscale_view()
        end = load.curve[-1].at_s
        counted = 2 * end / 3 if load.settled_after_s is None else load.settled_after_s
        axes.axvspan(counted, end, facecolor=style.SHADE, lw=0, zorder=0)


def subtitle(record: PeakFlopsRecord, peak: PeakFlops) -> str:
    """What it gave at first, what it sustained, and what limited that."""
    load, share = peak.sustained, peak.sustained.tflops / peak.burst_tflops
    sustained = starred(number(load.tflops), len(load.curve)) + f" sustained ({percent(share)})"
    reported = load.limited_by or any(point.throttle_reasons is not None for point in load.curve)
    words = limited_by(load.limited_by, load.all_throttled) if reported else NOT_REPORTED
    burst = f"{starred(number(peak.burst_tflops), len(peak.burst.latency.samples_s))} {flops_unit(record.dtype)} burst"
    return f"{burst}, {sustained} · sustained load limited by: {words}"
