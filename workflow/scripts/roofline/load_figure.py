"""What the compute ceilings do under sustained load: throughput, clock and power over seconds, a row for each peak."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Transform

from roofline.ceiling_table import UNTOLD, held_back
from roofline.figure_content import INK, MUTED, SETTLED, dtype_colour, number, percent
from roofline.figure_layout import MARGIN, SMALL_SIZE, TEXT_SIZE, TITLE_SIZE, WIDTH
from roofline.figures import GRID, SPINES, STYLE, blank, in_points, readable
from roofline.label_placement import Box, Point
from roofline.records import LoadPoint, PeakFlops, PeakFlopsRecord
from roofline.text_metrics import shortened, text_width

HIGH, HEAD, FOOT, LEFT, GAP, TOP, TICKS_BELOW = 46.0, 20.0, 12.0, 34.0, 16.0, 26.0, 22.0
TITLE = "Compute ceilings under sustained load"
MARKS = "Level lines: the burst, and dashed what was left under load. Shaded: until clock and power settled."
NOTHING = "No load was sustained in this run: there is nothing to draw."
UNTOLD_HERE = "not told on this device"
READINGS: tuple[tuple[str, Callable[[LoadPoint], float | None]], ...] = (
    ("clock, MHz", lambda point: point.sm_clock_mhz),
    ("power, W", lambda point: point.power_w),
)


def draw(peaks: Sequence[PeakFlopsRecord]) -> Figure:
    """A row of three panels for every peak that was held under load; without any, paper that says so."""
    rows = [(record, record.peak) for record in peaks if record.peak and record.peak.sustained]
    height = 2 * MARGIN + TITLE_SIZE + TOP + (len(rows) * (HEAD + HIGH + FOOT) + TICKS_BELOW if rows else 0.0)
    with matplotlib.rc_context(STYLE):
        figure = blank(WIDTH, height, TITLE)
        points = in_points(figure, Point(0, 0))
        top = height - MARGIN - TITLE_SIZE
        figure.text(MARGIN, top, TITLE, size=TITLE_SIZE, color=INK, weight="bold", transform=points)
        below = MARKS if rows else NOTHING
        figure.text(MARGIN, top - 13.0, below, size=TEXT_SIZE, color=MUTED, transform=points)
        longest = max((peak.sustained.curve[-1].at_s for _, peak in rows if peak.sustained.curve), default=1.0)
        for i, (record, peak) in enumerate(rows):
            high = top - TOP - i * (HEAD + HIGH + FOOT)
            _head(figure, record, peak, high - HEAD + 6.0, points)
            others = [peak.sustained.curve for other, peak in rows if other.device == record.device]
            _row(figure, record, peak, high - HEAD - HIGH, longest, others, last=i == len(rows) - 1)
    return figure


def _head(figure: Figure, record: PeakFlopsRecord, peak: PeakFlops, y: float, points: Transform) -> None:
    title, colour = f"{record.device}: {record.dtype}", readable(dtype_colour(record.dtype))
    figure.text(MARGIN, y, title, size=TEXT_SIZE + 1, color=colour, weight="bold", transform=points)
    left = MARGIN + text_width(title, TEXT_SIZE + 1, "bold") + 8.0
    words = shortened(subtitle(record, peak), WIDTH - MARGIN - left, SMALL_SIZE)
    figure.text(left, y, words, size=SMALL_SIZE, color=MUTED, transform=points)


def subtitle(record: PeakFlopsRecord, peak: PeakFlops) -> str:
    """What it gave at first and what was left, and who held it back."""
    held, unit = peak.sustained, "TOPS" if record.dtype.startswith("int") else "TFLOPS"
    share = held.tflops / peak.burst_tflops
    left = f"{number(held.tflops)} sustained ({percent(share)})" if share < SETTLED else "the same sustained"
    settled = "never settled" if held.settled_after_s is None else f"settled after {number(held.settled_after_s)} s"
    told = any(point.throttle_reasons is not None for point in held.curve)
    words = held_back(held.held_back_by, held.all_throttled) if told or held.held_back_by else UNTOLD
    return f"{number(peak.burst_tflops)} {unit} in a burst, {left}, {settled} · held back by: {words}"


def _row(
    figure: Figure,
    record: PeakFlopsRecord,
    peak: PeakFlops,
    y: float,
    longest: float,
    others: Sequence[Sequence[LoadPoint]],
    last: bool,
) -> None:
    """Clock and power have one scale for all of a device's rows, `others` among them."""
    curve, colour = peak.sustained.curve, dtype_colour(record.dtype)
    wide = (WIDTH - 2 * MARGIN - 3 * LEFT - 2 * GAP) / 3
    unit = "TOPS" if record.dtype.startswith("int") else "TFLOPS"
    for column, (name, reading) in enumerate(((unit, lambda point: point.tflops), *READINGS)):
        x = MARGIN + LEFT + column * (wide + LEFT + GAP)
        axes = _axes(figure, Box(x, y, x + wide, y + HIGH), name, longest, last)
        told = [(point.at_s, value) for point in curve if (value := reading(point)) is not None]
        if not told:
            axes.set_yticks([])
            axes.text(0.5, 0.5, UNTOLD_HERE, size=SMALL_SIZE, color=MUTED, ha="center", transform=axes.transAxes)
            continue
        axes.plot(*zip(*told, strict=True), color=colour, linewidth=0.9, marker="." if len(told) < 3 else None)
        marks = (peak.burst_tflops, peak.sustained.tflops) if column == 0 else ()
        for mark, style in zip(marks, ("-", (0, (3, 2))), strict=False):
            axes.axhline(mark, color=MUTED, linewidth=0.7, linestyle=style, zorder=1)
        shown = [curve] if column == 0 else others
        values = [v for each in shown for point in each if (v := reading(point)) is not None] + list(marks)
        axes.set_ylim(min(values) - _air(values), max(values) + _air(values))
        if peak.sustained.settled_after_s:
            axes.axvspan(0, peak.sustained.settled_after_s, color="#eef0f2", linewidth=0, zorder=0)


def _air(values: Sequence[float]) -> float:
    """Room above and below, so that the noise of a steady value does not fill the panel."""
    return max(0.1 * (max(values) - min(values)), 0.04 * max(values))


def _axes(figure: Figure, frame: Box, name: str, longest: float, last: bool):
    width, height = figure.get_size_inches() * 72
    x0, y0, x1, y1 = frame
    axes = figure.add_axes((x0 / width, y0 / height, (x1 - x0) / width, (y1 - y0) / height), facecolor="none")
    axes.set_xlim(0, longest)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.grid(color=GRID, linewidth=0.5)
    axes.tick_params(which="both", length=0, labelsize=SMALL_SIZE, labelcolor=MUTED, labelbottom=last)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(SPINES)
    axes.set_ylabel(name, size=SMALL_SIZE, color=MUTED)
    if last:
        axes.set_xlabel("seconds under load", size=SMALL_SIZE, color=MUTED)
    return axes
