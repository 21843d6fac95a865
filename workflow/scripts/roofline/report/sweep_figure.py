"""The read bandwidth over sizes of the working set as a picture: one small panel a sweep, with the levels found."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, floor, log2, log10

import matplotlib
from matplotlib.figure import Figure
from matplotlib.transforms import Transform

from roofline.core.formatting import capacity as size
from roofline.core.formatting import number
from roofline.records.memory import BandwidthRecord, FoundLevel, Sweep
from roofline.report.figure_content import INK, MUTED
from roofline.report.figure_layout import DOT_RADIUS, MARGIN, SMALL_SIZE, TEXT_SIZE, TITLE_SIZE, WIDTH, Scale
from roofline.report.figures import STYLE, Ticks, blank, curve, in_points, small_axes
from roofline.report.label_placement import Box, Label, Placed, Point, Segment, Surroundings, place
from roofline.report.tables import level_name, series_words
from roofline.report.text_metrics import shortened, text_width, wrapped

COLUMNS, HIGH, HEAD, FOOT, LEFT, GAP = 2, 170.0, 54.0, 40.0, 44.0, 18.0
LABEL_LINE, AIR, DOT, TICKS, COUNTED_LINES = 9.5, 2.0, 1.6, 7, 2
CURVE, LEVEL, KNEE = "#0072B2", "#4a515b", "#D55E00"
TITLE = "Read bandwidth over sizes of the working set"
NOTHING = "No sweep over sizes of the working set was measured in this run."


def draw(records: Sequence[BandwidthRecord]) -> Figure:
    """Every sweep of every record, two abreast; without any, paper that says so."""
    sweeps = [(record.device, sweep) for record in records for sweep in record.sweeps if sweep.points]
    rows = max(1, -(-len(sweeps) // COLUMNS))
    height = 2 * MARGIN + TITLE_SIZE + 8.0 + (rows * (HEAD + HIGH + FOOT) if sweeps else 20.0)
    with matplotlib.rc_context(STYLE):
        figure = blank(WIDTH, height, TITLE)
        points = in_points(figure, Point(0, 0))
        top = height - MARGIN - TITLE_SIZE
        figure.text(MARGIN, top, TITLE, size=TITLE_SIZE, color=INK, weight="bold", transform=points)
        if not sweeps:
            figure.text(MARGIN, MARGIN, NOTHING, size=TEXT_SIZE, color=MUTED, transform=points)
        wide = (WIDTH - 2 * MARGIN - COLUMNS * LEFT - (COLUMNS - 1) * GAP) / COLUMNS
        for i, (device, sweep) in enumerate(sweeps):
            row, column = divmod(i, COLUMNS)
            left = MARGIN + LEFT + column * (wide + LEFT + GAP)
            bottom = top - 8.0 - row * (HEAD + HIGH + FOOT) - HEAD - HIGH
            _paint(figure, device, sweep, Box(left, bottom, left + wide, bottom + HIGH), points)
    return figure


def _paint(figure: Figure, device: str, sweep: Sweep, frame: Box, points: Transform) -> None:
    scale = _scale(sweep, frame)
    names = f"working set of {sweep.reader}", "GB/s"
    small_axes(figure, frame, _sizes(scale), _rates(scale), names, points)
    at, wide = frame.x0 - LEFT, frame.x1 - frame.x0 + LEFT
    title = shortened(f"{device}: {series_words(sweep.series)}", wide, TEXT_SIZE + 1)
    counted = wrapped(sweep.counted, wide, SMALL_SIZE)[:COUNTED_LINES]
    head, top = {"transform": points, "va": "baseline"}, frame.y1 + LABEL_LINE * len(counted)
    figure.text(at, top + 13, title, size=TEXT_SIZE + 1, color=INK, weight="bold", **head)
    for i, line in enumerate(counted):
        figure.text(at, top - LABEL_LINE * i, line, size=SMALL_SIZE, color=MUTED, **head)
    rates = [scale.at(point.size_bytes, point.gb_per_s) for point in sweep.points]
    curve(figure, rates, points, color=CURVE, linewidth=0.9, marker="o", markersize=2 * DOT, zorder=3)
    for level in sweep.levels:
        ends = [scale.at(end, level.gb_per_s) for end in (level.first_bytes, level.last_bytes)]
        curve(figure, ends, points, color=LEVEL, linewidth=0.9, zorder=4)
    for knee, _, height in _knees(sweep):
        ends = [scale.at(knee, height / 1.12), scale.at(knee, height * 1.12)]
        curve(figure, ends, points, color=KNEE, linewidth=1.4, zorder=5)
    for text, colour, placed in _labels(sweep, scale):
        _write(figure, text, colour, placed, points)


def _scale(sweep: Sweep, frame: Box) -> Scale:
    sizes, rates = [p.size_bytes for p in sweep.points], [p.gb_per_s for p in sweep.points]
    low, high = min(rates) / 1.5, max(rates) * 1.5
    while high / low < 10:  # a flat curve is to look flat
        low, high = low / 1.1, high * 1.1
    side = (max(sizes) / min(sizes)) ** 0.04 if len(set(sizes)) > 1 else 2.0
    return Scale(min(sizes) / side, max(sizes) * side, low, high, frame)


def _sizes(scale: Scale) -> Ticks:
    """Powers of two, as many as have room."""
    step = ceil(log2(scale.x1 / scale.x0) / TICKS)
    powers = range(ceil(log2(scale.x0) / step), floor(log2(scale.x1) / step) + 1)
    return [(scale.at(2.0 ** (step * i), scale.y0).x, size(2.0 ** (step * i))) for i in powers]


def _rates(scale: Scale) -> Ticks:
    powers = range(floor(log10(scale.y0)), ceil(log10(scale.y1)))
    values = [times * 10.0**power for power in powers for times in (1, 2, 5)]
    return [(scale.at(scale.x0, value).y, f"{value:g}") for value in values if scale.y0 <= value <= scale.y1]


def _knees(sweep: Sweep) -> list[tuple[float, FoundLevel, float]]:
    """Where a level ends: bytes, the level, and the height at which the curve crosses there, in GB/s."""
    return [
        (level.knee_bytes, level, (level.gb_per_s * following.gb_per_s) ** 0.5)
        for level, following in pairwise(sweep.levels)
        if level.knee_bytes
    ]


def knee_words(level: FoundLevel) -> tuple[str, ...]:
    """The knee against the capacity that the device reports, where it reports one."""
    reported = (f"device reports {size(level.reported_bytes)}",) if level.reported_bytes else ()
    return f"knee {size(level.knee_bytes)}" + ("," if reported else ""), *reported


def _labels(sweep: Sweep, scale: Scale) -> list[tuple[tuple[str, ...], str, Placed]]:
    """Words, colour and place of every label that has one."""
    measured = [scale.at(point.size_bytes, point.gb_per_s) for point in sweep.points]
    wanted = []
    for level in sweep.levels:
        middle = (level.first_bytes * level.last_bytes) ** 0.5
        name = f"{level_name(level.name, level.knee_bytes)} {number(level.gb_per_s)} GB/s"
        wanted.append(((name,), LEVEL, scale.at(middle, level.gb_per_s)))
    wanted += [(knee_words(level), KNEE, scale.at(knee, height)) for knee, level, height in _knees(sweep)]
    frame = scale.frame
    around = Surroundings(
        bounds=Box(frame.x0 + 2, frame.y0 + 2, frame.x1, frame.y1 + 4),
        dots=tuple(_square(at) for at in measured),
        lines=tuple(Segment(*pair) for pair in pairwise(measured)),
    )
    found = place([_label(words, at) for words, _, at in wanted], around)
    return [(words, colour, at) for (words, colour, _), at in zip(wanted, found, strict=True) if at]


def _square(at: Point) -> Box:
    return Box(at.x - DOT, at.y - DOT, at.x + DOT, at.y + DOT)


def _label(words: Sequence[str], at: Point) -> Label:
    width = max(text_width(line, SMALL_SIZE) for line in words)
    return Label((at,), width + 2 * AIR, LABEL_LINE * len(words) + AIR)


def _write(figure: Figure, words: Sequence[str], colour: str, placed: Placed, points: Transform) -> None:
    box, (start, end) = placed
    for i, line in enumerate(words):
        y = box.y1 - AIR / 2 - LABEL_LINE * (i + 0.5) - 0.36 * SMALL_SIZE
        figure.text(box.x0 + AIR, y, line, size=SMALL_SIZE, color=colour, va="baseline", transform=points)
    if abs(end.x - start.x) + abs(end.y - start.y) > 3 * DOT_RADIUS:
        curve(figure, [start, end], points, color=colour, linewidth=0.4)
