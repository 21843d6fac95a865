"""Where labels go: plane geometry in points, without matplotlib and without chance.

Iterative packages (adjustText and the like) push labels apart until a step count runs out: they promise
neither that nothing overlaps, nor the same picture twice. Here labels stand in columns beside their dots, and
the best free places of a column are found exactly, by dynamic programming. A label covers nothing, or has no
place and the answer says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations
from math import cos, inf, sin
from typing import NamedTuple

import numpy as np

STEP = 1.0  # points between the places that a column considers
DISTANCES = (9, 15, 24, 36, 54, 80, 115, 160, 220)  # points between a stack of dots and its column

# What a label pays, in squared points (one that is 10 points from where it would like to be pays 100), for what
# its leader crosses; a line or wall has two edges, and each counts.
CROSSES_DOT, CROSSES_WALL, CROSSES_LINE, CROSSES_LEADER = 900.0, 1500.0, 15.0, 300.0
A_POINT_ASIDE, ABOVE_OR_BELOW, SPLIT, NO_PLACE = 1.5, 20.0, 25.0, 1e6
FAR = 20.0  # points; further away, a label pays by the point and no longer by its square
NEIGHBOURS = 60.0  # points between stacks that may share a column


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

    def overlaps(self, other: Box) -> bool:
        return self.x0 < other.x1 and other.x0 < self.x1 and self.y0 < other.y1 and other.y0 < self.y1

    def grown(self, by: float) -> Box:
        return Box(self.x0 - by, self.y0 - by, self.x1 + by, self.y1 + by)

    def shrunk(self, by: float) -> Box:
        return self.grown(-by)

    def holds(self, other: Box) -> bool:
        return self.x0 <= other.x0 and self.y0 <= other.y0 and other.x1 <= self.x1 and other.y1 <= self.y1


class Segment(NamedTuple):
    start: Point
    end: Point

    def turned(self, angle: float) -> Segment:
        return Segment(self.start.turned(angle), self.end.turned(angle))


Groups = list[list[int]]  # indices of labels


@dataclass(frozen=True)
class Label:
    """A text of a known size that wants to be near its anchor."""

    anchor: Point
    width: float
    height: float


@dataclass(frozen=True)
class Placed:
    """The box a label got, and the line that leads from its anchor to it."""

    box: Box
    leader: Segment


@dataclass(frozen=True)
class Obstacles:
    """What no label may cover.

    No leader crosses a label either. It crosses the rest where it must, lines readily, walls and dots hardly.
    """

    bounds: Box
    dots: tuple[Box, ...] = ()
    lines: tuple[Segment, ...] = ()
    walls: tuple[Segment, ...] = ()
    labels: tuple[Box, ...] = ()
    leaders: tuple[Segment, ...] = ()

    def with_placed(self, placed: Iterable[Placed | None]) -> Obstacles:
        found = [p for p in placed if p is not None]
        return replace(
            self,
            labels=self.labels + tuple(p.box for p in found),
            leaders=self.leaders + tuple(p.leader for p in found),
        )

    @cached_property
    def boxes(self) -> np.ndarray:
        return _boxes(self.dots + self.labels)

    @cached_property
    def segments(self) -> np.ndarray:
        return _segments(self.lines + self.walls + self.leaders)

    @cached_property
    def prices(self) -> np.ndarray:
        """What crossing each of the segments costs a leader."""
        each = ((self.lines, CROSSES_LINE), (self.walls, CROSSES_WALL), (self.leaders, CROSSES_LEADER))
        return np.concatenate([np.full(len(group), price) for group, price in each])

    @cached_property
    def bottoms(self) -> np.ndarray:
        return np.arange(self.bounds.y0, self.bounds.y1, STEP)


def _boxes(boxes: Sequence[Box]) -> np.ndarray:
    return np.array(boxes, dtype=float).reshape(-1, 4)


def _segments(segments: Sequence[Segment]) -> np.ndarray:
    """Rows of x0, y0, x1, y1 with x0 <= x1."""
    return np.array([(*p, *q) for p, q in map(sorted, segments)], dtype=float).reshape(-1, 4)


# ------------------------------------------------------------------------------------------- lists, exactly


def spread(cost: np.ndarray, gap: int) -> list[int] | None:
    """The cheapest places p(0) < p(1) < ... with p(i) + gap <= p(i + 1); None where there are none.

    cost[i, p] is what the i-th label pays at place p, infinite where it may not stand.
    """
    if len(cost) == 0:
        return []
    totals, origins = _sweep(cost, gap)
    last = int(np.argmin(totals[-1]))
    if not np.isfinite(totals[-1][last]):
        return None
    chosen = [last]
    for origin in reversed(origins):
        chosen.append(int(origin[chosen[-1]]))
    return chosen[::-1]


def _sweep(cost: np.ndarray, gap: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """For each label: the least total up to it, had it each place; and the place before that this took."""
    places = cost.shape[1]
    totals, origins = [cost[0]], []
    for row in cost[1:]:
        cheapest, where = _running_minimum(totals[-1])
        reach, origin = np.full(places, inf), np.zeros(places, dtype=int)
        reach[gap:] = cheapest[: max(places - gap, 0)]
        origin[gap:] = where[: max(places - gap, 0)]
        totals.append(row + reach)
        origins.append(origin)
    return totals, origins


def _running_minimum(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The minimum of values[: p + 1] for every p, and where it first occurs."""
    minimum = np.minimum.accumulate(values)
    is_new = np.concatenate([[True], minimum[1:] < minimum[:-1]])
    return minimum, np.maximum.accumulate(np.where(is_new, np.arange(len(values)), 0))


def _steps(height: float) -> int:
    return int(np.ceil(height / STEP - 1e-9))


def list_beside(
    targets: Sequence[float],
    height: float,
    low: float,
    high: float,
    taken: Sequence[Sequence[tuple[float, float]]] | None = None,
) -> list[float] | None:
    """Centres for labels of one height, in the targets' order and near them, between low and high.

    taken[i] are the spans that the i-th label has to keep clear of.
    """
    if len(targets) == 0:
        return []
    order = np.argsort(targets, kind="stable")
    places = np.arange(low + height / 2, high - height / 2 + 1e-9, STEP)
    if len(places) == 0:
        return None
    cost = (places[None, :] - np.asarray(targets, dtype=float)[:, None]) ** 2
    for row, spans in enumerate(taken or ()):
        for start, end in spans:
            cost[row, (places - height / 2 < end) & (places + height / 2 > start)] = inf
    chosen = spread(cost[order], _steps(height))
    if chosen is None:
        return None
    centres = np.empty(len(targets))
    centres[order] = places[chosen]
    return centres.tolist()


# ------------------------------------------------------------------------------------------ columns of labels


@dataclass(frozen=True)
class Attempt:
    """Groups in the order in which they were placed, and what came of it. The placed are among the obstacles."""

    cost: float
    groups: Groups
    placed: dict[int, Placed | None]
    obstacles: Obstacles


def place(labels: Sequence[Label], obstacles: Obstacles, within: float = 7.0) -> list[Placed | None]:
    """A free place for every label that has one.

    Anchors that lie within so many points from left to right are a stack, and share a column of labels, or two:
    the lower ones on one side, the upper ones on the other. Large stacks come first; of several orders and
    groupings the cheapest is taken. Then each of the rest may move to where it has come to be cheaper.
    """
    groups = stacks([label.anchor.x for label in labels], within)
    groups.sort(key=lambda group: (-len(group), group))
    large = [group for group in groups[:3] if len(group) > 1]
    rest = groups[len(large) :]
    empty = Attempt(0.0, [], {}, obstacles)
    starts = [_place_in_order(labels, order, empty) for order in _orders_of_large(labels, large)]
    start = min(starts, key=lambda start: _place_in_order(labels, rest, start).cost)
    found = _cheapest_order(labels, _orders_of_rest(labels, rest, start.obstacles), start)
    for _ in range(3):
        stuck = [group for group in found.groups if any(found.placed[i] is None for i in group)]
        if not stuck:
            break
        easier = [group for group in found.groups if group not in stuck]
        found = _cheapest_order(labels, [found.groups, [*stuck, *easier]], start)
    placed = _moved({**start.placed, **found.placed}, labels, rest, obstacles)
    return [placed.get(i) for i in range(len(labels))]


def _cheapest_order(labels: Sequence[Label], orders: Iterable[Groups], start: Attempt) -> Attempt:
    return min((_place_in_order(labels, order, start) for order in orders), key=lambda attempt: attempt.cost)


def _place_in_order(labels: Sequence[Label], groups: Groups, start: Attempt) -> Attempt:
    cost, placed, obstacles = start.cost, {}, start.obstacles
    for group in groups:
        more, found = _place_stack([labels[i] for i in group], obstacles)
        cost += more
        placed.update(zip(group, found, strict=True))
        obstacles = obstacles.with_placed(found)
    return Attempt(cost, groups, placed, obstacles)


def _moved(
    placed: dict[int, Placed | None], labels: Sequence[Label], groups: Groups, obstacles: Obstacles
) -> dict[int, Placed | None]:
    """Each group placed anew among all others, twice. Its old place is free, so that it never fares worse."""
    for group in groups * 2:
        others = obstacles.with_placed(p for i, p in placed.items() if i not in group)
        _, found = _place_stack([labels[i] for i in group], others)
        if sum(p is None for p in found) <= sum(placed[i] is None for i in group):
            placed = {**placed, **dict(zip(group, found, strict=True))}
    return placed


def _orders_of_large(labels: Sequence[Label], large: Groups) -> Iterable[Groups]:
    yield large
    yield [*large[1:2], *large[:1], *large[2:]]
    yield from _regrouped(labels, large)


def _regrouped(labels: Sequence[Label], groups: Groups) -> Iterable[Groups]:
    """The upper part of a stack may share a column with the stack right of it: under a roof that rises to the
    right the room is on the right. It is parted where its dots are farthest from each other."""
    for right, left in permutations(groups, 2):
        if not 0 < labels[right[0]].anchor.x - labels[left[0]].anchor.x < NEIGHBOURS:
            continue
        others = [group for group in groups if group is not left and group is not right]
        rising = sorted(left, key=lambda i: labels[i].anchor.y)
        gaps = sorted(range(1, len(rising)), key=lambda k: labels[rising[k - 1]].anchor.y - labels[rising[k]].anchor.y)
        for split in [0, *gaps[:3]]:
            yield [right + rising[split:], *([rising[:split]] if split else []), *others]


def _orders_of_rest(labels: Sequence[Label], rest: Groups, obstacles: Obstacles) -> Iterable[Groups]:
    """By size, then: who has it easiest, from the left, from the right, from below, from above."""
    ease = {group[0]: _place_stack([labels[i] for i in group], obstacles)[0] for group in rest}
    for way in (
        lambda i: ease[i],
        lambda i: labels[i].anchor.x,
        lambda i: -labels[i].anchor.x,
        lambda i: labels[i].anchor.y,
        lambda i: -labels[i].anchor.y,
    ):
        yield sorted(rest, key=lambda group: (-len(group), way(group[0]), group))


def stacks(positions: Sequence[float], within: float) -> list[list[int]]:
    """Indices of positions, grouped so that a group spans at most `within`."""
    groups: list[list[int]] = []
    for i in sorted(range(len(positions)), key=lambda i: positions[i]):
        if groups and positions[i] - positions[groups[-1][0]] <= within:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


def _place_stack(labels: Sequence[Label], obstacles: Obstacles) -> tuple[float, list[Placed | None]]:
    """The cheapest columns for a stack; where it has none, a place for each label that has one."""
    order = sorted(range(len(labels)), key=lambda i: (labels[i].anchor.y, i))
    cost, ordered = _best_columns([labels[i] for i in order], obstacles)
    if len(labels) == 1:
        cost, ordered = min((cost, ordered), _above_or_below(labels[0], obstacles), key=lambda found: found[0])
    placed: list[Placed | None] = [None] * len(labels)
    if ordered is not None:
        for i, p in zip(order, ordered, strict=True):
            placed[i] = p
        return cost, placed
    if len(labels) == 1:
        return NO_PLACE, placed
    total = 0.0
    for i in order:
        cost, placed[i : i + 1] = _place_stack([labels[i]], obstacles)
        obstacles = obstacles.with_placed(placed[i : i + 1])
        total += cost
    return total, placed


def _best_columns(labels: Sequence[Label], obstacles: Obstacles) -> tuple[float, list[Placed] | None]:
    """Of a stack in order of height, the lower labels on one side and the upper ones on the other."""
    gap = _steps(max(label.height for label in labels))
    edges = {side: _edges(labels, side) for side in (-1, 1)}
    costs = {side: [_column_costs(labels, edge, side, obstacles) for edge in edges[side]] for side in (-1, 1)}
    lower = {side: _cheapest([_totals(cost, gap) for cost in costs[side]]) for side in (-1, 1)}
    upper = {side: _cheapest([_totals(cost[::-1, ::-1], gap) for cost in costs[side]]) for side in (-1, 1)}
    count = len(labels)
    choices = []
    for below in (-1, 1):
        for split in range(1, count + 1):
            one, other = lower[below][split], upper[-below][count - split]
            choices.append(
                (one[0] + other[0] + (SPLIT * count if split < count else 0.0), below, split, one[1], other[1])
            )
    cost, below, split, one, other = min(choices)
    if not np.isfinite(cost):
        return inf, None
    columns = [(below, one, slice(0, split)), (-below, other, slice(split, count))]
    placed: list[Placed] = []
    for side, which, part in columns:
        chosen = spread(costs[side][which][part], gap)
        bottoms = obstacles.bottoms[chosen]
        placed += [_placed(*each, edges[side][which], side) for each in zip(labels[part], bottoms, strict=True)]
    return float(cost), placed


def _edges(labels: Sequence[Label], side: int) -> list[float]:
    """Where a column may begin, right (side 1) or left (side -1) of the stack."""
    outermost = max(side * label.anchor.x for label in labels)
    return [side * (outermost + distance) for distance in DISTANCES]


def _totals(cost: np.ndarray, gap: int) -> list[float]:
    """What the first 0, 1, 2... labels cost together, at best."""
    totals, _ = _sweep(cost, gap)
    return [0.0, *(float(total.min()) for total in totals)]


def _cheapest(totals: Sequence[Sequence[float]]) -> list[tuple[float, int]]:
    """For each number of labels: the least cost, and the edge that has it."""
    return [min((total, which) for which, total in enumerate(each)) for each in zip(*totals, strict=True)]


def _column_costs(labels: Sequence[Label], edge: float, side: int, obstacles: Obstacles) -> np.ndarray:
    return np.stack([_label_costs(label, edge, side, obstacles) for label in labels])


def _placed(label: Label, bottom: float, edge: float, side: int) -> Placed:
    x0, x1 = sorted((edge, edge + side * label.width))
    middle = float(bottom) + label.height / 2
    return Placed(Box(x0, float(bottom), x1, float(bottom) + label.height), Segment(label.anchor, Point(edge, middle)))


def _label_costs(label: Label, edge: float, side: int, obstacles: Obstacles) -> np.ndarray:
    """What the label pays at each place of the column: infinite where it would cover something."""
    x0, x1 = sorted((edge, edge + side * label.width))
    middles = obstacles.bottoms + label.height / 2
    cost = _away(middles - label.anchor.y) + A_POINT_ASIDE * abs(edge - label.anchor.x)
    free = _is_free(x0, x1, label.height, obstacles)
    cost[~free] = inf
    if free.any():
        cost[free] += _leader_costs(label.anchor, edge, middles[free], obstacles)
    return cost


def _above_or_below(label: Label, obstacles: Obstacles) -> tuple[float, list[Placed] | None]:
    """The cheapest place straight above or below a dot."""
    best: tuple[float, list[Placed] | None] = inf, None
    bottoms, anchor = obstacles.bottoms, label.anchor
    ends = np.where(bottoms > anchor.y, bottoms, bottoms + label.height)  # where the leader meets the label
    away = np.abs(ends - anchor.y)
    within = (bottoms < anchor.y) & (bottoms + label.height > anchor.y)
    for share in (0.5, 0.3, 0.7, 0.1, 0.9):
        x0 = anchor.x - share * label.width
        free = _is_free(x0, x0 + label.width, label.height, obstacles) & ~within
        cost = np.full(len(bottoms), inf)
        cost[free] = ABOVE_OR_BELOW + 20 * abs(share - 0.5) + _away(away[free])
        cost[free] += _leader_costs(anchor, anchor.x + 0.01, ends[free], obstacles)
        at = int(np.argmin(cost))
        if cost[at] < best[0]:
            box = Box(x0, float(bottoms[at]), x0 + label.width, float(bottoms[at]) + label.height)
            best = float(cost[at]), [Placed(box, Segment(anchor, Point(anchor.x, float(ends[at]))))]
    return best


def _is_free(x0: float, x1: float, height: float, obstacles: Obstacles) -> np.ndarray:
    """For each place: would a label there cover nothing?"""
    bottoms, bounds = obstacles.bottoms, obstacles.bounds
    if x0 < bounds.x0 or x1 > bounds.x1:
        return np.zeros(len(bottoms), dtype=bool)
    low, high = _taken(obstacles, x0, x1)
    covers = (bottoms < high[:, None]) & (bottoms + height > low[:, None])
    return ~covers.any(axis=0) & (bottoms + height <= bounds.y1)


def _away(distance: np.ndarray) -> np.ndarray:
    return np.where(np.abs(distance) < FAR, distance**2, 2 * FAR * np.abs(distance) - FAR**2)


def _taken(obstacles: Obstacles, x0: float, x1: float) -> tuple[np.ndarray, np.ndarray]:
    """From where to where obstacles reach, in height, between x0 and x1."""
    boxes, segments = obstacles.boxes, obstacles.segments
    boxes = boxes[(boxes[:, 0] < x1) & (boxes[:, 2] > x0)]
    ax, ay, bx, by = segments[(segments[:, 0] < x1) & (segments[:, 2] > x0)].T
    slope = (by - ay) / np.where(bx > ax, bx - ax, 1.0)
    at_x0, at_x1 = ay + slope * (np.maximum(ax, x0) - ax), by + slope * (np.minimum(bx, x1) - bx)
    low = np.concatenate([boxes[:, 1], np.minimum(at_x0, at_x1)])
    high = np.concatenate([boxes[:, 3], np.maximum(at_x0, at_x1)])
    return low, high


def _leader_costs(anchor: Point, edge: float, heights: np.ndarray, obstacles: Obstacles) -> np.ndarray:
    x0, x1 = min(anchor.x, edge), max(anchor.x, edge)
    near = (obstacles.boxes[:, 0] <= x1) & (obstacles.boxes[:, 2] >= x0)
    boxes, is_dot = obstacles.boxes[near], near.nonzero()[0] < len(obstacles.dots)
    own = (boxes[:, 0] <= anchor.x) & (anchor.x <= boxes[:, 2]) & (boxes[:, 1] <= anchor.y) & (anchor.y <= boxes[:, 3])
    hits = _rays_hit(anchor, edge, heights, boxes)
    near = (obstacles.segments[:, 0] <= x1) & (obstacles.segments[:, 2] >= x0)
    crossed = _rays_cross(anchor, edge, heights, obstacles.segments[near])
    cost = CROSSES_DOT * hits[is_dot & ~own].sum(axis=0) + obstacles.prices[near] @ crossed
    return np.where(hits[~is_dot].any(axis=0), inf, cost)


def _rays_hit(anchor: Point, edge: float, heights: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """[box, height]: does the segment from the anchor to (edge, height) meet the box?"""
    low = np.maximum(boxes[:, 0], min(anchor.x, edge))[:, None]
    high = np.minimum(boxes[:, 2], max(anchor.x, edge))[:, None]
    slopes = (heights - anchor.y) / (edge - anchor.x)
    at_low, at_high = anchor.y + slopes * (low - anchor.x), anchor.y + slopes * (high - anchor.x)
    meets = (np.minimum(at_low, at_high) <= boxes[:, 3:]) & (np.maximum(at_low, at_high) >= boxes[:, 1:2])
    return meets & (low <= high)


def _rays_cross(anchor: Point, edge: float, heights: np.ndarray, segments: np.ndarray) -> np.ndarray:
    """[segment, height]: does the segment from the anchor to (edge, height) cross that segment?"""
    ax, ay, bx, by = (column[:, None] for column in segments.T)
    side_of_a = (edge - anchor.x) * (ay - anchor.y) - (heights - anchor.y) * (ax - anchor.x)
    side_of_b = (edge - anchor.x) * (by - anchor.y) - (heights - anchor.y) * (bx - anchor.x)
    side_of_anchor = (bx - ax) * (anchor.y - ay) - (by - ay) * (anchor.x - ax)
    side_of_end = (bx - ax) * (heights - ay) - (by - ay) * (edge - ax)
    return (side_of_a * side_of_b < 0) & (side_of_anchor * side_of_end < 0)


# --------------------------------------------------------------------------------------- segments and boxes


def longest_free_run(segment: Segment, boxes: Iterable[Box]) -> Segment | None:
    """The longest part of the segment that no box covers."""
    (ax, ay), (bx, by) = segment
    runs, at = [], 0.0
    for enter, leave in sorted(span for box in boxes if (span := covered(segment, box))):
        runs.append((at, enter))
        at = max(at, leave)
    start, end = max([*runs, (at, 1.0)], key=lambda run: run[1] - run[0])
    if end <= start:
        return None
    first, last = (Point(ax + (bx - ax) * share, ay + (by - ay) * share) for share in (start, end))
    return Segment(first, last)


def covered(segment: Segment, box: Box) -> tuple[float, float] | None:
    """The part of the segment that lies within the box, as shares of its length."""
    (ax, ay), (bx, by) = segment
    enter, leave = 0.0, 1.0
    for start, delta, low, high in ((ax, bx - ax, box.x0, box.x1), (ay, by - ay, box.y0, box.y1)):
        if delta == 0:
            if not low < start < high:
                return None
            continue
        first, last = sorted(((low - start) / delta, (high - start) / delta))
        enter, leave = max(enter, first), min(leave, last)
    return (enter, leave) if enter < leave else None
