"""Where labels go: plane geometry in points, without matplotlib and without chance.

Labels of dots that stand above each other share a column beside them, in the order of the dots, spread where
they are close. Of the columns nearby the cheapest is taken, and in it each label's nearest free place. A label
covers nothing, or it has no place and the answer says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import cos, sin
from typing import NamedTuple

import numpy as np

DISTANCES = (8, 14, 22, 34, 50, 70, 95, 125)  # points between dots and a column of labels
OFFSETS = np.arange(-90.0, 91.0, 1.5)  # points up and down that a label may move
TRIALS = 5
BATCH = 48
FAR = 40.0  # points; the cost of a leader as long is twice its length
STACK = 9.0  # points from left to right within which dots count as standing above each other

# What a label pays, in points: its leader's length, its distance from where it would like to be, and this for
# each thing that its leader crosses.
CROSSES_DOT, CROSSES_LEADER, CROSSES_LINE, NO_PLACE = 60.0, 80.0, 70.0, 1000.0


class Point(NamedTuple):
    x: float
    y: float

    def turned(self, angle: float) -> Point:
        return Point(self.x * cos(angle) - self.y * sin(angle), self.x * sin(angle) + self.y * cos(angle))


class Box(NamedTuple):
    x0: float
    y0: float
    x1: float
    y1: float


class Segment(NamedTuple):
    start: Point
    end: Point

    def turned(self, angle: float) -> Segment:
        return Segment(self.start.turned(angle), self.end.turned(angle))


@dataclass(frozen=True)
class Label:
    """A text of a known size that wants to be near its dots."""

    anchors: tuple[Point, ...]
    width: float
    height: float

    @property
    def x(self) -> float:
        return sum(at.x for at in self.anchors) / len(self.anchors)

    @property
    def y(self) -> float:
        return sum(at.y for at in self.anchors) / len(self.anchors)


class Placed(NamedTuple):
    """The box a label got, and the line that leads to it from the nearest of its dots."""

    box: Box
    leader: Segment


@dataclass(frozen=True)
class Surroundings:
    """What no label may cover. A leader never crosses a label, and the rest only where it must."""

    bounds: Box
    dots: tuple[Box, ...] = ()
    lines: tuple[Segment, ...] = ()
    labels: tuple[Box, ...] = ()
    leaders: tuple[Segment, ...] = ()

    def having(self, placed: Iterable[Placed | None]) -> Surroundings:
        found = [each for each in placed if each is not None]
        return replace(
            self,
            labels=(*self.labels, *(each.box for each in found)),
            leaders=(*self.leaders, *(each.leader for each in found)),
        )


def place(labels: Sequence[Label], around: Surroundings) -> list[Placed | None]:
    """A free place for every label that has one: the largest stacks first, then from left to right.

    Where a stack finds no room among those before it, it is asked first, and all begin anew.
    """
    order = sorted(stacks([label.x for label in labels]), key=len, reverse=True)
    fewest = len(labels) + 1
    for _ in range(TRIALS):
        placed = _placed_in_order(labels, order, around)
        stuck = [stack for stack in order if any(placed[i] is None for i in stack)]
        missing = sum(each is None for each in placed)
        if missing < fewest:
            best, fewest = placed, missing
        if not stuck:
            break
        order = stuck + [stack for stack in order if stack not in stuck]
    return best


def _placed_in_order(
    labels: Sequence[Label], order: Sequence[Sequence[int]], around: Surroundings
) -> list[Placed | None]:
    placed: list[Placed | None] = [None] * len(labels)
    for stack in order:
        rising = sorted(stack, key=lambda i: labels[i].y)
        found = _place_stack([labels[i] for i in rising], around)
        around = around.having(found)
        for i, each in zip(rising, found, strict=True):
            placed[i] = each
    return placed


def stacks(positions: Sequence[float], within: float = STACK) -> list[list[int]]:
    """Indices of positions, from left to right, grouped so that a group spans at most `within`."""
    groups: list[list[int]] = []
    for i in sorted(range(len(positions)), key=lambda i: positions[i]):
        if groups and positions[i] - positions[groups[-1][0]] <= within:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


def spread(targets: Sequence[float], heights: Sequence[float], low: float, high: float) -> list[float]:
    """Centres in the order of the rising targets, as near to them as their heights allow, within low and high.

    Pooling adjacent violators: neighbours that would overlap become one block, which stands at its own mean.
    """
    starts = np.cumsum([0.0, *heights])[:-1] + np.asarray(heights) / 2  # centres, were all pushed together at 0
    blocks: list[tuple[float, int]] = []  # where a block's first label would start, and how many it holds
    for wish in np.asarray(targets, dtype=float) - starts:
        blocks.append((float(wish), 1))
        while len(blocks) > 1 and blocks[-2][0] >= blocks[-1][0]:
            (one, n), (other, m) = blocks[-2:]
            blocks[-2:] = [((one * n + other * m) / (n + m), n + m)]
    shifts = np.repeat([block for block, _ in blocks], [count for _, count in blocks])
    return (starts + np.clip(shifts, low, max(low, high - sum(heights)))).tolist()


# ------------------------------------------------------------------------------------------------- one stack


def _place_stack(labels: Sequence[Label], around: Surroundings) -> list[Placed | None]:
    """All in one column, in order; what finds no place there, each for itself."""
    placed: list[Placed | None] = [None] * len(labels)
    if len(labels) > 1:
        tried = [_in_column(labels, *column, up, around) for column in _columns(labels) for up in (True, False)]
        _, placed = min(tried, key=lambda it: it[0])
    for i, label in enumerate(labels):
        if placed[i] is None:
            _, placed[i] = _alone(label, around.having(placed))
    return placed


def _columns(labels: Sequence[Label]) -> list[tuple[int, float]]:
    """The side (right is 1, left -1) and the edge of every column that may be tried."""
    outermost = {side: max(side * at.x for label in labels for at in label.anchors) for side in (1, -1)}
    return [(side, side * (outermost[side] + distance)) for distance in DISTANCES for side in (1, -1)]


def _in_column(
    labels: Sequence[Label], side: int, edge: float, upwards: bool, around: Surroundings
) -> tuple[float, list[Placed | None]]:
    """What the column costs, filled upwards or downwards."""
    wishes = spread([la.y for la in labels], [la.height for la in labels], around.bounds.y0, around.bounds.y1)
    total, placed = 0.0, [None] * len(labels)
    for i in range(len(labels)) if upwards else reversed(range(len(labels))):
        cost, found = _cheapest(labels[i], *_beside(labels[i], side, edge, wishes[i]), around)
        total, placed[i] = total + cost, found
        if found:
            rest = {"y0": found.box.y1} if upwards else {"y1": found.box.y0}
            around = replace(around.having([found]), bounds=around.bounds._replace(**rest))
    return total, placed


def _alone(label: Label, around: Surroundings) -> tuple[float, Placed | None]:
    """Beside its dots, above or below."""
    tried = [_beside(label, side, edge, label.y) for side, edge in _columns([label])]
    tried += [_over(label, at, share) for at in label.anchors for share in (0.5, 0.2, 0.8)]
    return _cheapest(label, *(np.concatenate(parts) for parts in zip(*tried, strict=True)), around)


Candidates = tuple[np.ndarray, np.ndarray, np.ndarray]  # boxes, where their leaders end, distances from the wish


def _beside(label: Label, side: int, edge: float, wish: float) -> Candidates:
    middles = wish + OFFSETS
    x0, x1 = sorted((edge, edge + side * label.width))
    lows, highs = middles - label.height / 2, middles + label.height / 2
    boxes = np.column_stack([np.full_like(middles, x0), lows, np.full_like(middles, x1), highs])
    return boxes, np.column_stack([np.full_like(middles, edge), middles]), np.abs(OFFSETS)


def _over(label: Label, at: Point, share: float) -> Candidates:
    """Above and below a dot that stands over this share of the label's width."""
    away = np.array([*DISTANCES[:6]], dtype=float) - 1.0
    lows = np.concatenate([at.y + away, at.y - away - label.height])
    ends = np.concatenate([at.y + away, at.y - away])
    x0 = np.full_like(lows, at.x - share * label.width)
    boxes = np.column_stack([x0, lows, x0 + label.width, lows + label.height])
    return boxes, np.column_stack([np.full_like(ends, at.x), ends]), np.full_like(ends, 6.0)


def _cheapest(
    label: Label, boxes: np.ndarray, ends: np.ndarray, astray: np.ndarray, around: Surroundings
) -> tuple[float, Placed | None]:
    """The first of the cheapest places that are free. The nearest are looked at first, as far as that may help."""
    anchors = np.array(label.anchors)
    distances = np.hypot(*(ends[:, None] - anchors[None]).T).T
    leaders, length = np.column_stack([anchors[distances.argmin(axis=1)], ends]), distances.min(axis=1)
    least = length + length**2 / FAR + astray
    order = least.argsort(kind="stable")
    cost, best = np.inf, -1
    for start in range(0, len(order), BATCH):
        some = order[start : start + BATCH]
        if least[some[0]] >= cost:
            break
        some = some[_are_free(boxes[some], around)]
        if len(some):
            costs = least[some] + _crossing_costs(leaders[some], around)
            if costs.min() < cost:
                cost, best = float(costs.min()), int(some[costs.argmin()])
    if best < 0:
        return NO_PLACE, None
    ax, ay, bx, by = leaders[best].tolist()
    return cost, Placed(Box(*boxes[best].tolist()), Segment(Point(ax, ay), Point(bx, by)))


def _are_free(boxes: np.ndarray, around: Surroundings) -> np.ndarray:
    low, high = np.array(around.bounds).reshape(2, 2)
    inside = (boxes[:, :2] >= low).all(axis=1) & (boxes[:, 2:] <= high).all(axis=1)
    covers = overlap(as_rows(around.dots + around.labels), boxes).any(axis=0)
    return inside & ~covers & ~meets(as_rows(around.lines + around.leaders), boxes).any(axis=0)


def _crossing_costs(leaders: np.ndarray, around: Surroundings) -> np.ndarray:
    """What each leader pays for what it crosses; its own dot, and those that overlap it, are free."""
    dots = as_rows(around.dots)
    starts = leaders[:, None, :2]
    own = ((dots[:, :2] <= starts) & (starts <= dots[:, 2:])).all(axis=2)
    cost = CROSSES_DOT * (meets(leaders, dots) & ~own).sum(axis=1)
    cost = cost + CROSSES_LINE * cross(leaders, as_rows(around.lines)).sum(axis=1)
    cost = cost + CROSSES_LEADER * cross(leaders, as_rows(around.leaders)).sum(axis=1)
    return np.where(meets(leaders, as_rows(around.labels)).any(axis=1), np.inf, cost)


# ------------------------------------------------------------------------------------------ boxes and segments


def as_rows(shapes: Sequence[Box | Segment]) -> np.ndarray:
    """Boxes or segments as rows of x0, y0, x1, y1."""
    return np.array(shapes, dtype=float).reshape(-1, 4)


def overlap(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """[box, other]: do the two share any area?"""
    x0, y0, x1, y1 = boxes.T[:, :, None]
    u0, v0, u1, v1 = others.T
    return (x0 < u1) & (u0 < x1) & (y0 < v1) & (v0 < y1)


def meets(segments: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """[segment, box]: does any part of the segment lie within the box?"""
    ax, ay, bx, by = segments.T[:, :, None]
    x0, y0, x1, y1 = boxes.T
    enter, leave = 0.0, 1.0  # shares of the segment
    for start, end, low, high in ((ax, bx, x0, x1), (ay, by, y0, y1)):
        way = np.where(start == end, 1e-9, end - start)
        one, other = (low - start) / way, (high - start) / way
        enter, leave = np.maximum(enter, np.minimum(one, other)), np.minimum(leave, np.maximum(one, other))
    return enter < leave


def cross(segments: np.ndarray, others: np.ndarray) -> np.ndarray:
    """[segment, other]: do the two cross each other, and not merely touch?"""
    a, b = segments[:, None, :2], segments[:, None, 2:]
    c, d = others[None, :, :2], others[None, :, 2:]
    return (_side(a, b, c) * _side(a, b, d) < 0) & (_side(c, d, a) * _side(c, d, b) < 0)


def _side(start: np.ndarray, end: np.ndarray, point: np.ndarray) -> np.ndarray:
    """Positive where the point lies left of the way from start to end."""
    way, to = end - start, point - start
    return way[..., 0] * to[..., 1] - way[..., 1] * to[..., 0]
