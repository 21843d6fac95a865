"""Where labels go: plane geometry in points, without matplotlib and without chance.

Labels of dots that stand above each other share a column beside them, in the order of the dots, spread where
they are close. Of the columns nearby the cheapest is taken, and in it each label's nearest free place. A label
covers nothing, or it has no place and the answer says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import cos, sin
from typing import NamedTuple

import numpy as np

DISTANCES = (8, 14, 22, 34, 50, 70, 95, 125)  # points between dots and a column of labels
OFFSETS = np.arange(-90.0, 91.0, 1.5)  # points up and down that a label may move
TRIALS = 5
BATCH = 128
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

    @property
    def reach(self) -> float:
        """From the leftmost of its dots to the rightmost."""
        return max(at.x for at in self.anchors) - min(at.x for at in self.anchors)


class Placed(NamedTuple):
    """The box a label got, and the line that leads to it from the nearest of its dots."""

    box: Box
    leader: Segment


@dataclass(frozen=True)
class Surroundings:
    """What no label may cover. A leader never crosses a label, and the rest only where it must; ghosts it may."""

    bounds: Box
    dots: tuple[Box, ...] = ()
    ghosts: tuple[Box, ...] = ()
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
    ground = _ground(around)
    order = [_stack([labels[i] for i in indices], indices, ground) for indices in _stacked(labels)]
    best, fewest, asked = [None] * len(labels), len(labels) + 1, []
    while len(asked) < TRIALS and order not in asked:
        placed = _placed_in_order(order, len(labels))
        asked.append(order)
        missing = sum(each is None for each in placed)
        if missing < fewest:
            best, fewest = placed, missing
        stuck = [stack for stack in order if any(placed[i] is None for i in stack.indices)]
        order = stuck + [stack for stack in order if stack not in stuck]
        if not stuck:
            break
    return best


def _stacked(labels: Sequence[Label]) -> list[list[int]]:
    """The stacks, largest first, each from its lowest label up. Dots that reach further to the side join none."""
    upright = [i for i, label in enumerate(labels) if label.reach <= STACK]
    groups = [[upright[i] for i in group] for group in stacks([labels[i].x for i in upright])]
    groups += [[i] for i, label in enumerate(labels) if label.reach > STACK]
    groups.sort(key=lambda group: (-len(group), min(labels[i].x for i in group)))
    return [sorted(group, key=lambda i: labels[i].y) for group in groups]


def _placed_in_order(order: Sequence[Stack], count: int) -> list[Placed | None]:
    placed: list[Placed | None] = [None] * count
    taken = NOTHING_TAKEN
    for stack in order:
        for i, each in zip(stack.indices, _place_stack(stack, taken), strict=True):
            placed[i] = each
            taken = _with(taken, each)
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


# ------------------------------------------------------------------------------------------- what is in the way


class Ground(NamedTuple):
    """The surroundings as rows of numbers: all that is there before the first label has its place."""

    bounds: Box
    dots: np.ndarray
    ghosts: np.ndarray
    labels: np.ndarray
    lines: np.ndarray
    leaders: np.ndarray


class Taken(NamedTuple):
    """The labels that have a place so far, as rows, and the heights that are left in a column."""

    boxes: np.ndarray
    leaders: np.ndarray
    low: float
    high: float


NOTHING_TAKEN = Taken(np.empty((0, 4)), np.empty((0, 4)), -np.inf, np.inf)


def _ground(around: Surroundings) -> Ground:
    return Ground(
        around.bounds, *map(as_rows, (around.dots, around.ghosts, around.labels, around.lines, around.leaders))
    )


def _around(boxes: np.ndarray, leaders: np.ndarray, ground: Ground) -> Ground:
    """The ground as far as it may concern these boxes and leaders."""
    ends = np.vstack([boxes, _hulls(leaders)])
    region = np.concatenate([ends[:, :2].min(axis=0), ends[:, 2:].max(axis=0)])
    return Ground(
        ground.bounds,
        _near(ground.dots, ground.dots, region),
        _near(ground.ghosts, ground.ghosts, region),
        _near(ground.labels, ground.labels, region),
        _near(ground.lines, _hulls(ground.lines), region),
        _near(ground.leaders, _hulls(ground.leaders), region),
    )


def _with(taken: Taken, placed: Placed | None) -> Taken:
    if placed is None:
        return taken
    start, end = placed.leader
    return taken._replace(
        boxes=np.vstack([taken.boxes, placed.box]), leaders=np.vstack([taken.leaders, (*start, *end)])
    )


# ------------------------------------------------------------------------------------------------- one stack


@dataclass(eq=False)
class Stack:
    """Labels of dots above each other, from the lowest up, with every place that they may take."""

    labels: list[Label]
    indices: list[int]
    columns: list[list[Places]]
    alone: list[Places]


def _stack(labels: list[Label], indices: list[int], ground: Ground) -> Stack:
    low, high = ground.bounds.y0, ground.bounds.y1
    wishes = spread([label.y for label in labels], [label.height for label in labels], low, high)
    columns = [
        [
            Places(label, partial(_beside, label, side, edge, wish), ground)
            for label, wish in zip(labels, wishes, strict=True)
        ]
        for side, edge in (_columns(labels) if len(labels) > 1 else [])
    ]
    return Stack(labels, indices, columns, [Places(label, partial(_anywhere, label), ground) for label in labels])


def _place_stack(stack: Stack, taken: Taken) -> list[Placed | None]:
    """All in one column, in order; what finds no place there, each for itself."""
    placed: list[Placed | None] = [None] * len(stack.labels)
    cost = np.inf
    for column in stack.columns:
        for upwards in (True, False):
            total, found = _in_column(column, upwards, taken, cost)
            if total < cost:
                cost, placed = total, found
    for each in placed:
        taken = _with(taken, each)
    for i, places in enumerate(stack.alone):
        if placed[i] is None:
            _, placed[i] = places.cheapest(taken)
            taken = _with(taken, placed[i])
    return placed


def _columns(labels: Sequence[Label]) -> list[tuple[int, float]]:
    """The side (right is 1, left -1) and the edge of every column that may be tried."""
    outermost = {side: max(side * at.x for label in labels for at in label.anchors) for side in (1, -1)}
    return [(side, side * (outermost[side] + distance)) for distance in DISTANCES for side in (1, -1)]


def _in_column(
    column: Sequence[Places], upwards: bool, taken: Taken, limit: float
) -> tuple[float, list[Placed | None]]:
    """What the column costs, filled upwards or downwards; given up as soon as that is certain to reach the limit."""
    placed: list[Placed | None] = [None] * len(column)
    total = sum(places.nearest for places in column)
    for places in column:
        if total >= limit:
            return np.inf, placed
        total += places.least - places.nearest
    for i in range(len(placed)) if upwards else reversed(range(len(placed))):
        if total >= limit:
            return np.inf, placed
        cost, found = column[i].cheapest(taken)
        total, placed[i] = total + cost - column[i].least, found
        if found:
            rest = {"low": found.box.y1} if upwards else {"high": found.box.y0}
            taken = _with(taken, found)._replace(**rest)
    return total, placed


def _way(length: float | np.ndarray) -> float | np.ndarray:
    """What a leader costs for its length."""
    return length + length**2 / FAR


Candidates = tuple[np.ndarray, np.ndarray, np.ndarray]  # boxes, where their leaders end, distances from the wish


def _anywhere(label: Label) -> Candidates:
    """Beside its dots, above or below."""
    tried = [_beside(label, side, edge, label.y) for side, edge in _columns([label])]
    tried += [_over(label, at, share) for at in label.anchors for share in (0.5, 0.2, 0.8)]
    boxes, ends, astray = zip(*tried, strict=True)
    return np.concatenate(boxes), np.concatenate(ends), np.concatenate(astray)


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


class Places:
    """The places that a label may take, the nearest first.

    What is on the ground does not move while labels are tried: each place is held against it once, and only when
    the search comes as far.
    """

    def __init__(self, label: Label, candidates: Callable[[], Candidates], ground: Ground):
        self._label, self._candidates, self._ground = label, candidates, ground
        self._batches: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    @cached_property
    def _nearest_first(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Boxes, leaders, and what they cost at least."""
        boxes, ends, astray = self._candidates()
        anchors = np.array(self._label.anchors)
        distances = np.hypot(*(ends[:, None] - anchors[None]).T).T
        least = _way(distances.min(axis=1)) + astray
        order = least.argsort(kind="stable")
        return boxes[order], np.column_stack([anchors[distances.argmin(axis=1)], ends])[order], least[order]

    def _batch(self, i: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Those of one batch that the ground leaves free, with what they cost on it."""
        if i == len(self._batches):
            boxes, leaders, least = (each[i * BATCH : (i + 1) * BATCH] for each in self._nearest_first)
            ground = _around(boxes, leaders, self._ground)
            free = _are_free(boxes, ground)
            boxes, leaders = boxes[free], leaders[free]
            costs = least[free] + _crossing_costs(leaders, ground)
            self._batches.append((boxes, leaders, costs))
        return self._batches[i]

    @property
    def nearest(self) -> float:
        """What the label costs at least."""
        return float(self._nearest_first[2][0])

    @cached_property
    def least(self) -> float:
        """What the label costs where no other has its place yet."""
        return self.cheapest(NOTHING_TAKEN)[0]

    def cheapest(self, taken: Taken) -> tuple[float, Placed | None]:
        """The first of the cheapest places that are free. The nearest are looked at first, as far as that may help."""
        cost, best = np.inf, None
        for i, least in enumerate(self._nearest_first[2][::BATCH].tolist()):
            if least >= cost:
                break
            boxes, leaders, costs = self._batch(i)
            if not len(costs) or costs.min() >= cost:
                continue
            costs = _costs_among(boxes, leaders, costs, taken)
            if costs.min() < cost:
                at = costs.argmin()
                cost, best = float(costs[at]), (boxes[at].tolist(), leaders[at].tolist())
        if best is None:
            return NO_PLACE, None
        box, (ax, ay, bx, by) = best
        return cost, Placed(Box(*box), Segment(Point(ax, ay), Point(bx, by)))


def _are_free(boxes: np.ndarray, ground: Ground) -> np.ndarray:
    low, high = np.array(ground.bounds).reshape(2, 2)
    free = (boxes[:, :2] >= low).all(axis=1) & (boxes[:, 2:] <= high).all(axis=1)
    for covers, shapes in (
        (overlap, ground.dots),
        (overlap, ground.ghosts),
        (overlap, ground.labels),
        (meets, ground.lines),
        (meets, ground.leaders),
    ):
        if len(shapes):
            free[free] = ~covers(shapes, boxes[free]).any(axis=0)
    return free


def _crossing_costs(leaders: np.ndarray, ground: Ground) -> np.ndarray:
    """What each leader pays for what it crosses; its own dot, and those that overlap it, are free."""
    cost = np.zeros(len(leaders))
    if len(ground.dots):
        starts = leaders[:, None, :2]
        own = ((ground.dots[:, :2] <= starts) & (starts <= ground.dots[:, 2:])).all(axis=2)
        cost += CROSSES_DOT * (meets(leaders, ground.dots) & ~own).sum(axis=1)
    if len(ground.lines):
        cost += CROSSES_LINE * cross(leaders, ground.lines).sum(axis=1)
    if len(ground.leaders):
        cost += CROSSES_LEADER * cross(leaders, ground.leaders).sum(axis=1)
    if len(ground.labels):
        cost[meets(leaders, ground.labels).any(axis=1)] = np.inf
    return cost


def _costs_among(boxes: np.ndarray, leaders: np.ndarray, costs: np.ndarray, taken: Taken) -> np.ndarray:
    """What places cost where other labels have theirs: infinitely much where these are in the way."""
    covered = (boxes[:, 1] < taken.low) | (boxes[:, 3] > taken.high)
    if len(taken.boxes):
        covered |= overlap(taken.boxes, boxes).any(axis=0) | meets(taken.leaders, boxes).any(axis=0)
        covered |= meets(leaders, taken.boxes).any(axis=1)
        costs = costs + CROSSES_LEADER * cross(leaders, taken.leaders).sum(axis=1)
    return np.where(covered, np.inf, costs)


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
    """[segment, box]: does any part of the segment lie within the box?

    It does where the two overlap from left to right and from bottom to top, and the box's middle is nearer to the
    segment's line than its corners are.
    """
    near = overlap(_hulls(segments), boxes)
    if not near.any():  # as for most, and then the rest need not be computed
        return near
    ax, ay, bx, by = segments.T[:, :, None]
    x0, y0, x1, y1 = boxes.T
    way_x, way_y = bx - ax, by - ay
    off = np.abs(way_x * ((y0 + y1) / 2 - ay) - way_y * ((x0 + x1) / 2 - ax))
    reach = np.abs(way_x) * ((y1 - y0) / 2) + np.abs(way_y) * ((x1 - x0) / 2)
    return near & (off <= reach)


def _hulls(segments: np.ndarray) -> np.ndarray:
    """The upright boxes around segments."""
    hulls = np.empty_like(segments)
    np.minimum(segments[:, :2], segments[:, 2:], out=hulls[:, :2])
    np.maximum(segments[:, :2], segments[:, 2:], out=hulls[:, 2:])
    return hulls


def _near(shapes: np.ndarray, hulls: np.ndarray, region: np.ndarray) -> np.ndarray:
    """The shapes whose hulls touch the region."""
    return shapes[((hulls[:, :2] <= region[2:]) & (hulls[:, 2:] >= region[:2])).all(axis=1)]


def cross(segments: np.ndarray, others: np.ndarray) -> np.ndarray:
    """[segment, other]: do the two cross each other, and not merely touch?"""
    if not (len(segments) and len(others)):
        return np.zeros((len(segments), len(others)), dtype=bool)
    a, b = segments[:, None, :2], segments[:, None, 2:]
    c, d = others[None, :, :2], others[None, :, 2:]
    return (_side(a, b, c) * _side(a, b, d) < 0) & (_side(c, d, a) * _side(c, d, b) < 0)


def _side(start: np.ndarray, end: np.ndarray, point: np.ndarray) -> np.ndarray:
    """Positive where the point lies left of the way from start to end."""
    way, to = end - start, point - start
    return way[..., 0] * to[..., 1] - way[..., 1] * to[..., 0]
