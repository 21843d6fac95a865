"""What the compute ceilings do under sustained load: throughput, clock and power over seconds, a row for each peak."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Transform

from roofline.core.formatting import number, percent
from roofline.records.compute import LoadPoint, PeakFlops, PeakFlopsRecord
from roofline.report.figure_content import INK, MUTED, SETTLED, dtype_colour
from roofline.report.figure_layout import MARGIN, SMALL_SIZE, TEXT_SIZE, TITLE_SIZE, WIDTH
from roofline.report.figures import STYLE, blank, curve, in_points, readable, small_axes
from roofline.report.label_placement import Box, Point
from roofline.report.tables import NOT_REPORTED as UNTOLD
from roofline.report.tables import limited_by as held_back
from roofline.report.text_metrics import shortened, text_width

HIGH, HEAD, FOOT, LEFT, GAP, TOP, TICKS_BELOW = 46.0, 20.0, 12.0, 34.0, 16.0, 26.0, 22.0
TITLE = "Compute ceilings under sustained load"
MARKS = "Level lines: the burst, and dashed what was left under load. Shaded: until clock and power settled."
NOTHING = "No curve of sustained load: it is kept of a GPU alone, since a CPU tells neither clock nor power."
UNTOLD_HERE, SECONDS = "not told on this device", "seconds under load"
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
            _row(figure, record, peak, high - HEAD - HIGH, longest, others, points, last=i == len(rows) - 1)
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
    left = (
        f"{number(held.tflops)} sustained ({percent(share)})" if abs(share - 1) > 1 - SETTLED else "the same sustained"
    )
    settled = "never settled" if held.settled_after_s is None else f"settled after {number(held.settled_after_s)} s"
    told = any(point.throttle_reasons is not None for point in held.curve)
    words = held_back(held.limited_by, held.all_throttled) if told or held.limited_by else UNTOLD
    return f"{number(peak.burst_tflops)} {unit} in a burst, {left}, {settled} · held back by: {words}"


def _row(
    figure: Figure,
    record: PeakFlopsRecord,
    peak: PeakFlops,
    y: float,
    longest: float,
    others: Sequence[Sequence[LoadPoint]],
    points: Transform,
    last: bool,
) -> None:
    """Clock and power have one scale for all of a device's rows, `others` among them."""
    held, colour = peak.sustained, dtype_colour(record.dtype)
    wide = (WIDTH - 2 * MARGIN - 3 * LEFT - 2 * GAP) / 3
    unit = "TOPS" if record.dtype.startswith("int") else "TFLOPS"
    for column, (name, reading) in enumerate(((unit, lambda point: point.tflops), *READINGS)):
        x = MARGIN + LEFT + column * (wide + LEFT + GAP)
        frame = Box(x, y, x + wide, y + HIGH)
        told = [(point.at_s, value) for point in held.curve if (value := reading(point)) is not None]
        marks = (peak.burst_tflops, held.tflops) if column == 0 else ()
        shown = [held.curve] if column == 0 else others
        values = [v for each in shown for point in each if (v := reading(point)) is not None] + list(marks)
        scale = _scale(frame, longest, values if told else [0.0, 1.0])
        seconds = [(scale(second, 0.0).x, words if last else "") for second, words in _ticks(0.0, longest, 5)]
        if not told:
            small_axes(figure, frame, seconds, [], (SECONDS if last else "", name), points)
            middle = (x + wide / 2, y + HIGH / 2)
            figure.text(*middle, UNTOLD_HERE, size=SMALL_SIZE, color=MUTED, ha="center", transform=points)
            continue
        low, high = _limits(values)
        heights = [(scale(0.0, value).y, words) for value, words in _ticks(low, high, 4)]
        small_axes(figure, frame, seconds, heights, (SECONDS if last else "", name), points)
        line = [scale(*each) for each in told]
        curve(figure, line, points, color=colour, linewidth=0.9, marker="." if len(told) < 3 else None, zorder=3)
        for mark, style in zip(marks, ("-", (0, (3, 2))), strict=False):
            ends = [scale(0.0, mark), scale(longest, mark)]
            curve(figure, ends, points, color=MUTED, linewidth=0.7, linestyle=style, zorder=1)
        if held.settled_after_s:
            until = scale(min(held.settled_after_s, longest), low).x - x
            shade = Rectangle((x, y), until, HIGH, facecolor="#eef0f2", linewidth=0, zorder=0, transform=points)
            figure.add_artist(shade)


def _scale(frame: Box, longest: float, values: Sequence[float]) -> Callable[[float, float], Point]:
    """Where seconds and a value stand."""
    low, high = _limits(values)
    x0, y0, x1, y1 = frame
    return lambda second, value: Point(x0 + (x1 - x0) * second / longest, y0 + (y1 - y0) * (value - low) / (high - low))


def _ticks(low: float, high: float, most: int) -> list[tuple[float, str]]:
    """Round values between the two, written with as many decimals as they need."""
    values = [value for value in MaxNLocator(most).tick_values(low, high) if low <= value <= high]
    decimals = next((n for n in range(6) if all(abs(round(v, n) - v) < 1e-7 * high for v in values)), 6)
    return [(value, f"{value:.{decimals}f}") for value in values]


def _limits(values: Sequence[float]) -> tuple[float, float]:
    return min(values) - _air(values), max(values) + _air(values)


def _air(values: Sequence[float]) -> float:
    """Room above and below, so that the noise of a steady value does not fill the panel."""
    return max(0.1 * (max(values) - min(values)), 0.04 * max(values))
