"""Where everything in the picture of the roofline stands, in points (1/72 inch).

A panel's own coordinates have y = 0 on its lower axis. Nothing here depends on a resolution, a file format or a
renderer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import atan2, degrees, dist, log10, radians

import numpy as np

from roofline.report.figure_content import (
    COUNTING,
    FMA_DASHES,
    INK,
    MUTED,
    PREDICTED_SIZE,
    SUSTAINED_DASHES,
    Dot,
    MemoryCeiling,
    Panel,
)
from roofline.report.label_placement import (
    Box,
    Label,
    Point,
    Segment,
    Surroundings,
    as_rows,
    meets,
    overlap,
    place,
    spread,
)
from roofline.report.text_metrics import shortened, text_width, wrapped

SLOPE = "#4a515b"

# The picture is 720 points wide: at 900 pixels a text of 8 points is 10 pixels high.
WIDTH, MARGIN, AXIS_WIDTH, LANE_INDENT = 720.0, 14.0, 42.0, 16.0
TITLE_SIZE, TEXT_SIZE, SMALL_SIZE = 14.0, 8.0, 7.5
HEADER, AXIS_HEIGHT, LINE, PANEL_GAP = 42.0, 34.0, 11.0, 26.0
STRIP, DOT_RADIUS, LEGEND_LINE, LABEL_LINE, AIR = 11.0, 3.6, 13.0, 9.5, 2.0
POINTS_A_DECADE, LOWEST_PANEL, GROWTHS = 66.0, 270.0, (1.0, 1.25, 1.5, 1.8, 2.2)
FAR, NEARER_UP_TO = 70.0, 1.5  # a leader's length in points, and the growth of a panel that is worth a shorter one
LABEL_WIDTH, SERIES_REACH = 130.0, 70.0  # dots of a series that are further apart have labels of their own
EDGE = 8.0  # right of the longest label of a ceiling, within the margin
COINCIDE = 6.0  # dots of two series that are no further apart share a label
GHOST_RADIUS = 1.6  # of what was predicted
LABEL_ROOM = 146.0  # left of a stack of dots
NO_BREAK = "\N{NO-BREAK SPACE}"
COLUMNS_FROM = 4  # with so many devices the panels stand in two columns


@dataclass(frozen=True)
class Scale:
    """Logarithmic axes over a frame."""

    x0: float
    x1: float
    y0: float
    y1: float
    frame: Box

    def at(self, x: float, y: float) -> Point:
        frame = self.frame
        return Point(
            frame.x0 + (frame.x1 - frame.x0) * log10(x / self.x0) / log10(self.x1 / self.x0),
            frame.y0 + (frame.y1 - frame.y0) * log10(y / self.y0) / log10(self.y1 / self.y0),
        )

    def of(self, dot: Dot) -> Point:
        return Point(self.frame.x1 - 16, self.at(1, dot.y).y) if dot.x is None else self.at(dot.x, dot.y)

    @property
    def slope(self) -> float:
        """The angle of every memory ceiling."""
        one, ten = self.at(1, 1), self.at(10, 10)
        return atan2(ten.y - one.y, ten.x - one.x)


@dataclass(frozen=True)
class Text:
    """A text at its baseline's start, turned by an angle in degrees."""

    at: Point
    text: str
    size: float
    colour: str
    angle: float = 0.0
    weight: str = "normal"


@dataclass(frozen=True)
class Stroke:
    """The more `faded`, the closer to the paper's white."""

    points: tuple[Point, ...]
    colour: str
    width: float
    faded: float = 0.0
    dashes: tuple[float, ...] = ()
    order: float = 2.0


@dataclass(frozen=True)
class Spot:
    at: Point
    marker: str
    colour: str
    size: float = 6.2
    hollow: bool = False
    faded: float = 0.0


@dataclass
class Layout:
    """Everything that a panel shows, at its place."""

    scale: Scale
    above: float = 0.0  # how far the panel reaches above its lower axis, and below
    below: float = 0.0
    texts: list[Text] = field(default_factory=list)
    strokes: list[Stroke] = field(default_factory=list)
    spots: list[Spot] = field(default_factory=list)
    regimes: list[tuple[Box, str]] = field(default_factory=list)
    homeless: list[str] = field(default_factory=list)  # labels without a place
    astray: int = 0  # labels that are far from their dots


@dataclass(frozen=True)
class Page:
    width: float
    height: float
    panels: tuple[tuple[Layout, Point], ...]
    footer: tuple[Text, ...]


def page(layouts: Sequence[Layout]) -> Page:
    """One panel under the other, or two abreast where there are many."""
    columns = 1 if len(layouts) < COLUMNS_FROM else 2
    rows = [layouts[i : i + columns] for i in range(0, len(layouts), columns)]
    width = columns * WIDTH
    footer = _lines_up_to(MARGIN, wrapped(COUNTING, width - 2 * MARGIN, SMALL_SIZE))
    height = MARGIN + LINE * len(footer) + PANEL_GAP / 2
    placed = []
    for row in reversed(rows):
        height += max(layout.below for layout in row)
        placed += [(layout, Point(i * WIDTH, height)) for i, layout in enumerate(row)]
        height += max(layout.above for layout in row) + PANEL_GAP
    return Page(width, height - PANEL_GAP + MARGIN, tuple(placed), footer)


def _lines_up_to(last: float, lines: Sequence[str]) -> tuple[Text, ...]:
    """Small print, the last of its baselines at this height."""
    heights = [last + LINE * i for i in reversed(range(len(lines)))]
    return tuple(Text(Point(MARGIN, y), line, SMALL_SIZE, MUTED) for y, line in zip(heights, lines, strict=True))


def lay_out(panel: Panel) -> Layout:
    """The panel, as high as its labels need; what has no place even then is told in a note."""
    tried = []
    for growth in GROWTHS:
        tried.append(_arrange(panel, growth * _least_height(panel)))
        if not tried[-1].homeless and (not tried[-1].astray or growth >= NEARER_UP_TO):
            break
    return min(tried, key=lambda layout: (len(layout.homeless), layout.astray))


def _least_height(panel: Panel) -> float:
    _, _, low, high = _limits(panel)
    lists = 1.5 * TEXT_SIZE * len(panel.compute) + LEGEND_LINE * len(panel.legend) + 40.0
    return max(LOWEST_PANEL, POINTS_A_DECADE * log10(high / low) + 40.0, lists)


def _arrange(panel: Panel, height: float) -> Layout:
    lane = max([text_width(c.text, TEXT_SIZE) for c in panel.compute] + [_legend_width(panel)]) + LANE_INDENT + EDGE
    layout = Layout(_scale(panel, Box(MARGIN + AXIS_WIDTH, 0.0, WIDTH - MARGIN - lane, height)), height + HEADER)
    top = height + HEADER - TITLE_SIZE
    layout.texts += [
        Text(Point(MARGIN, top), shortened(panel.title, 470.0, TITLE_SIZE), TITLE_SIZE, INK, weight="bold"),
        Text(Point(MARGIN, top - 13), panel.subtitle, TEXT_SIZE, MUTED),
    ]
    layout.regimes += _regimes(panel, layout.scale)
    lines = _add_ceilings(panel, layout)
    _add_lane(panel, layout)
    dots = _add_dots(panel, layout)
    _add_labels(panel, layout, lines, dots)
    lost = [f"No room above for: {'; '.join(layout.homeless)}."] if layout.homeless else []
    notes = [line for note in (*panel.notes, *lost) for line in wrapped(note, WIDTH - 2 * MARGIN, SMALL_SIZE)]
    layout.below = AXIS_HEIGHT + LINE * len(notes)
    layout.texts += _lines_up_to(2.0 - layout.below, notes)
    return layout


def _legend_width(panel: Panel) -> float:
    return max((min(text_width(entry.text, TEXT_SIZE) + 10.0, 190.0) for entry in panel.legend), default=0.0)


# ---------------------------------------------------------------------------------------------------- axes


def _limits(panel: Panel) -> tuple[float, float, float, float]:
    """The intensities and the TFLOPS that have to be seen."""
    shown, slopes = panel.dots + panel.predicted, [m.gb_per_s / 1e3 for m in panel.memory if m.weight != "faint"]
    peaks, xs = [c.tflops for c in panel.compute], [dot.x for dot in shown if dot.x]
    ridges = [peak / slope for peak in peaks for slope in slopes]
    left = min([*xs, *([] if _stacked(panel) else [ridge / 20 for ridge in ridges])], default=0.1)
    right = max([*xs, *(ridge * 5 for ridge in ridges)], default=1e3)
    right = max(right, 10 * left)
    low = min([*(dot.y for dot in shown), *(left * s for s in slopes), *(peak / 30 for peak in peaks)], default=1e-3)
    high = max([*(dot.y for dot in shown), *(peaks or [right * slope for slope in slopes])], default=1.0)
    return left, right, low, max(high, 10 * low)


def _stacked(panel: Panel) -> bool:
    """Do dots stand above each other at the left, so that their labels need room there?"""
    xs = [dot.x for dot in panel.dots if dot.x]
    return sum(1 for x in xs if x < 1.2 * min(xs)) > 2


def _scale(panel: Panel, frame: Box) -> Scale:
    x0, x1, y0, y1 = _limits(panel)
    left, right = LABEL_ROOM if _stacked(panel) else 40.0, 30.0 if all(dot.x for dot in panel.dots) else 70.0
    below, above = 40.0 if _stacked(panel) else 18.0, 22.0 + STRIP
    across = log10(x1 / x0) / (frame.x1 - frame.x0 - left - right)
    up = log10(y1 / y0) / (frame.y1 - frame.y0 - below - above)
    return Scale(
        x0 / 10 ** (across * left), x1 * 10 ** (across * right), y0 / 10 ** (up * below), y1 * 10 ** (up * above), frame
    )


def _regimes(panel: Panel, scale: Scale) -> Iterable[tuple[Box, str]]:
    """What bounds a kernel at each intensity: left of every ridge point memory, right of all compute."""
    usual = [m.gb_per_s for m in panel.memory if m.weight != "faint"]
    slopes = [m.gb_per_s for m in panel.memory if m.weight == "bold"] or usual
    ridges = [c.tflops * 1e3 / slope for c in panel.compute for slope in slopes]
    if not ridges:
        return
    x0, x1, top = scale.frame.x0, scale.frame.x1, scale.frame.y1
    first, last = (min(max(scale.at(ridge, 1).x, x0), x1) for ridge in (min(ridges), max(ridges)))
    spans = [(x0, first, "memory-bound"), (first, last, "depends on dtype"), (last, x1, "compute-bound")]
    for start, end, text in spans:
        fits = text_width(text, SMALL_SIZE) + 6 < end - start
        if end > start:
            yield Box(start, top - STRIP, end, top), text if fits else ""


# ------------------------------------------------------------------------------------------------ ceilings


def _add_ceilings(panel: Panel, layout: Layout) -> list[tuple[MemoryCeiling, Segment]]:
    """Draws all lines; returns the memory ceilings with theirs."""
    fastest = max((m.gb_per_s for m in panel.memory), default=None)
    for c in panel.compute:
        width = 1.6 if c.strong else 0.8
        levels = [(c.tflops, width, 0.0 if c.strong else 0.25, FMA_DASHES if c.fma else ())]
        levels += [(c.sustained, 0.7, 0.45, SUSTAINED_DASHES)] if c.sustained else []
        for level, width, faded, dashes in levels:
            line = _compute_line(layout.scale, level, fastest)
            layout.strokes.append(Stroke(tuple(line), c.colour, width, faded, dashes, 2.2 - faded / 5))
    found = [(m, line) for m in panel.memory if (line := _memory_line(panel, layout.scale, m))]
    looks = {"bold": (2.0, 0.0, ()), "normal": (0.8, 0.35, ()), "faint": (0.9, 0.55, (1, 1.6))}
    layout.strokes += [Stroke(tuple(line), SLOPE, *looks[m.weight]) for m, line in found]
    return found


def _compute_line(scale: Scale, tflops: float, fastest: float | None) -> Segment:
    """From its first ridge point rightwards."""
    start = max(scale.x0, tflops * 1e3 / fastest) if fastest else scale.x0
    return Segment(scale.at(start, tflops), scale.at(scale.x1, tflops))


def _memory_line(panel: Panel, scale: Scale, ceiling: MemoryCeiling) -> Segment | None:
    """From the left or lower edge up to the highest compute ceiling; of the host's link the upper half is enough,
    and only up to the lowest."""
    peaks, slope = [c.tflops for c in panel.compute] or [scale.y1], ceiling.gb_per_s / 1e3
    start = max(scale.x0, scale.y0 / slope)
    end = min(scale.x1, (min(peaks) if ceiling.weight == "faint" else max(peaks)) / slope)
    if ceiling.weight == "faint":
        start = max(start, (start * end) ** 0.5)
    return Segment(scale.at(start, start * slope), scale.at(end, end * slope)) if start < end else None


def _add_lane(panel: Panel, layout: Layout) -> None:
    """Right of the plot: the compute ceilings' labels at the ends of their lines, and below them the legend."""
    scale = layout.scale
    edge, left = scale.frame.x1, scale.frame.x1 + LANE_INDENT
    legend_top = LEGEND_LINE * len(panel.legend)
    ceilings = sorted(panel.compute, key=lambda c: c.tflops)
    heights = [scale.at(1, c.tflops).y for c in ceilings]
    centres = spread(heights, [TEXT_SIZE * 1.45] * len(heights), legend_top + 10.0, scale.frame.y1)
    for c, y, centre in zip(ceilings, heights, centres, strict=True):
        elbow = Point(edge, y), Point(edge + 3, y), Point(left - 5, centre), Point(left - 2.5, centre)
        layout.strokes.append(Stroke(elbow, c.colour, 0.8))
        layout.texts.append(Text(_baseline(left, centre, TEXT_SIZE), c.text, TEXT_SIZE, c.colour))
    for i, entry in enumerate(panel.legend):
        centre = legend_top - LEGEND_LINE * (i + 0.5)
        if entry.dashes:
            ends = Point(left - 7, centre), Point(left + 5, centre)
            layout.strokes.append(Stroke(ends, entry.colour, 0.9, 0.2, entry.dashes))
        else:
            layout.spots.append(Spot(Point(left, centre), entry.marker, entry.colour, entry.size, entry.hollow))
        text = shortened(entry.text, WIDTH - MARGIN - left - 9, TEXT_SIZE)
        layout.texts.append(Text(_baseline(left + 9, centre, TEXT_SIZE), text, TEXT_SIZE, INK))


def _baseline(x: float, centre: float, size: float) -> Point:
    return Point(x, centre - 0.36 * size)


def _along_slopes(
    ceilings: Sequence[tuple[MemoryCeiling, Segment]], scale: Scale, around: Surroundings
) -> dict[MemoryCeiling, Text]:
    """Labels along the memory ceilings, each at the first free place above or below its line.

    Searched in the plane turned back, so that the lines are level.
    """
    found: dict[MemoryCeiling, Text] = {}
    angle, frame = scale.slope, scale.frame
    edges = [Segment(Point(frame.x0, y), Point(frame.x1, y)) for y in (frame.y0, frame.y1 - STRIP)]
    edges.append(Segment(Point(frame.x0, frame.y0), Point(frame.x0, frame.y1)))
    walls = as_rows([line.turned(-angle) for line in (*around.lines, *edges)])
    middles = [
        Point((box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2).turned(-angle) for box in (*around.dots, *around.ghosts)
    ]
    taken = [_square(at, 4.5) for at in middles]
    for ceiling, line in sorted(ceilings, key=lambda each: -each[0].gb_per_s):
        level, weight = line.turned(-angle), "bold" if ceiling.weight == "bold" else "normal"
        width = text_width(ceiling.text, TEXT_SIZE, weight)
        lefts = np.arange(level.start.x + 8, level.end.x - width, 5.0)
        for low in (level.start.y + 1.2, level.start.y - 1.2 - LABEL_LINE):
            boxes = np.array([(x - 3, low, x + width + 3, low + LABEL_LINE) for x in lefts]).reshape(-1, 4)
            free = ~meets(walls, boxes).any(axis=0) & ~overlap(as_rows(taken), boxes).any(axis=0)
            if free.any():
                box = Box(*boxes[free.argmax()].tolist())
                taken.append(box)
                at = _baseline(box.x0 + 3, low + LABEL_LINE / 2, TEXT_SIZE).turned(angle)
                colour = SLOPE if ceiling.weight == "bold" else MUTED
                found[ceiling] = Text(at, ceiling.text, TEXT_SIZE, colour, degrees(angle), weight)
                break
    return found


def _boxes_along(text: Text) -> list[Box]:
    """A turned text as a chain of upright boxes."""
    angle = radians(text.angle)
    width = text_width(text.text, text.size, text.weight)
    middles = [Point(width * i / (width // 5 + 1), 0.35 * text.size).turned(angle) for i in range(int(width // 5) + 2)]
    return [_square(Point(text.at.x + by.x, text.at.y + by.y), 0.62 * text.size) for by in middles]


# ---------------------------------------------------------------------------------------- dots and their labels


@dataclass(frozen=True)
class Wanted:
    """A label of one or more lines, and what it speaks of."""

    lines: tuple[str, ...]
    colour: str
    anchors: tuple[Point, ...]
    weight: str = "normal"

    @property
    def label(self) -> Label:
        width = max(text_width(line, SMALL_SIZE, self.weight) for line in self.lines)
        return Label(self.anchors, width + 2 * AIR, LABEL_LINE * len(self.lines) + AIR)


def _square(at: Point, radius: float) -> Box:
    return Box(at.x - radius, at.y - radius, at.x + radius, at.y + radius)


def _add_dots(panel: Panel, layout: Layout) -> list[Point]:
    """Draws them; returns where they stand."""
    scale = layout.scale
    layout.spots += [Spot(scale.of(dot), dot.marker, dot.colour, PREDICTED_SIZE, True, 0.5) for dot in panel.predicted]
    layout.spots += [Spot(scale.of(dot), dot.marker, dot.colour, hollow=dot.hollow) for dot in panel.dots]
    layout.strokes += _hair_lines(panel, scale)
    for dot in panel.dots:
        if dot.x is None:  # infinite intensity lies further right than any picture is wide
            at = scale.of(dot)
            tip = Point(scale.frame.x1 - 1, at.y)
            head = Point(tip.x - 3, at.y + 2.5), tip, Point(tip.x - 3, at.y - 2.5)
            layout.strokes += [Stroke((Point(at.x + DOT_RADIUS, at.y), tip), dot.colour, 1.0)]
            layout.strokes += [Stroke(head, dot.colour, 1.0)]
    return [scale.of(dot) for dot in panel.dots]


def _hair_lines(panel: Panel, scale: Scale) -> Iterable[Stroke]:
    """From what was predicted to what was measured, where no other dot stands on the way: in a column of many dots
    the lines would be one."""
    dots = [scale.of(dot) for dot in panel.dots]
    for ghost in panel.predicted:
        start, end = scale.of(ghost), scale.at(ghost.x, ghost.measured)
        low, high = sorted((start.y, end.y))
        near = [at for at in dots if abs(at.x - end.x) < DOT_RADIUS and low - 1 < at.y < high + 1]
        if len(near) == 1 and high - low > 2 * DOT_RADIUS:
            yield Stroke((start, end), ghost.colour, 0.35, 0.5, order=1.8)


def _add_labels(
    panel: Panel, layout: Layout, ceilings: Sequence[tuple[MemoryCeiling, Segment]], dots: Sequence[Point]
) -> None:
    """Of memory ceilings, along their lines or else beside them; then of dots."""
    scale, runs = layout.scale, _runs(panel.dots, dots)
    for run in (run for run in runs if len(run) > 1):
        layout.strokes.append(Stroke(tuple(dots[i] for i in run), panel.dots[run[0]].colour, 0.7, 0.55, order=1.9))
    strokes = [Segment(*pair) for stroke in layout.strokes for pair in pairwise(stroke.points)]
    frame, ghosts = scale.frame, [scale.of(dot) for dot in panel.predicted]
    around = Surroundings(
        bounds=Box(frame.x0 + 3, frame.y0 + 3, frame.x1 - 3, frame.y1 - STRIP - 3),
        dots=tuple(_square(at, DOT_RADIUS) for at in dots),
        ghosts=tuple(_square(at, GHOST_RADIUS) for at in ghosts),
        lines=tuple(line for line in strokes if line.start.x < frame.x1),
    )
    along = _along_slopes(ceilings, scale, around)
    layout.texts += along.values()
    around = replace(around, labels=tuple(box for text in along.values() for box in _boxes_along(text)))
    beside = [_beside_slope(*each, scale) for each in ceilings if each[0] not in along]
    around = _house(beside, layout, around)
    _house(_joined([_of_run(panel, dots, run) for run in runs]), layout, around)


def _beside_slope(ceiling: MemoryCeiling, line: Segment, scale: Scale) -> Wanted:
    """Those without room along their lines point at them from one column."""
    middle = scale.at(1, 1).x if line.start.x < scale.at(1, 1).x < line.end.x else (line.start.x + line.end.x) / 2
    share = (middle - line.start.x) / (line.end.x - line.start.x)
    anchor = Point(middle, line.start.y + (line.end.y - line.start.y) * share)
    return Wanted((ceiling.text,), SLOPE, (anchor,), "bold" if ceiling.weight == "bold" else "normal")


def _house(wanted: Sequence[Wanted], layout: Layout, around: Surroundings) -> Surroundings:
    """Finds a place for every label, draws it there, and returns the surroundings with them."""
    placed = place([want.label for want in wanted], around)
    for want, found in zip(wanted, placed, strict=True):
        if found is None:
            layout.homeless.append(" ".join(want.lines))
            continue
        for i, line in enumerate(want.lines):
            at = _baseline(found.box.x0 + AIR, found.box.y1 - AIR / 2 - LABEL_LINE * (i + 0.5), SMALL_SIZE)
            layout.texts.append(Text(at, line, SMALL_SIZE, want.colour, weight=want.weight))
        start, end = found.leader
        length = dist(start, end)
        layout.astray += length > FAR
        if length > 12:
            share = DOT_RADIUS / length
            edge = Point(start.x + (end.x - start.x) * share, start.y + (end.y - start.y) * share)
            layout.strokes.append(Stroke((edge, end), want.colour, 0.5, 0.4, order=1.9))
    return around.having(placed)


def _runs(dots: Sequence[Dot], at: Sequence[Point]) -> list[list[int]]:
    """Dots that share a label: of one series, in the order of S, each within reach of the one before."""
    series: dict[tuple, list[int]] = {}
    for i, dot in enumerate(dots):
        series.setdefault(dot.series, []).append(i)
    runs: list[list[int]] = []
    for members in series.values():
        members.sort(key=lambda i: dots[i].seq_len or 0)
        runs.append(members[:1])
        for before, i in pairwise(members):
            if dist(at[before], at[i]) <= SERIES_REACH:
                runs[-1].append(i)
            else:
                runs.append([i])
    return runs


def _joined(wanted: Sequence[Wanted]) -> list[Wanted]:
    """Labels of series that nearly coincide as one: their dots would be told apart by leaders alone."""
    found: list[Wanted] = []
    for want in wanted:
        twin = next((i for i, other in enumerate(found) if _coincide(want, other)), None)
        if twin is None:
            found.append(want)
        else:
            found[twin] = replace(found[twin], lines=(*want.lines, *found[twin].lines))
    return found


def _coincide(one: Wanted, other: Wanted) -> bool:
    if one.colour != other.colour or len(one.anchors) != len(other.anchors) or len(one.anchors) == 1:
        return False
    return all(dist(*pair) < COINCIDE for pair in zip(one.anchors, other.anchors, strict=True))


def _of_run(panel: Panel, at: Sequence[Point], run: Sequence[int]) -> Wanted:
    """The name of the dots, and each one's share; with its S where the legend does not tell it."""
    dots = [panel.dots[i] for i in run]
    first = dots[0]
    if len(run) == 1:
        name = shortened(first.name, 120.0, SMALL_SIZE)
        lines = [" ".join(filter(None, [first.seq_len and f"S={first.seq_len}", name, first.value]))]
    else:
        if tuple(dot.seq_len for dot in dots) == panel.seq_lens:
            values = ", ".join(dot.value.removesuffix(" %") for dot in dots) + f"{NO_BREAK}%"
        else:
            values = "S=" + ", ".join(f"{dot.seq_len}: {dot.value}".replace(" ", NO_BREAK) for dot in dots)
        lines = [line.replace(NO_BREAK, " ") for line in wrapped(values, LABEL_WIDTH, SMALL_SIZE)]
        lines = [first.name, *lines] if first.name else lines
    return Wanted(tuple(lines), first.colour, tuple(at[i] for i in run))
