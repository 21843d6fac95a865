"""Places for labels next to their dots, where they cover no text, no dot and no line. Lengths are points."""

from collections.abc import Iterable, Iterator, Sequence
from math import dist

import numpy as np

STEP, CLEAR = 2.0, 1.5  # between samples of a line; around a text
AWAY, FARTHEST = 6.0, 230.0  # from the middle of a dot to the nearest and farthest place of its label
ANGLES = (0, 180, -15, 15, -30, 30, 165, 195, 150, 210, -50, 50, 130, 230, -75, 75, 105, 255, 270, 90)
NEAR = 3.5  # a leader passes no other dot or text nearer than this
Point = tuple[float, float]
Box = tuple[float, float, float, float]  # left, bottom, right, top


def sample_lines(ends: Iterable[tuple[Point, Point]]) -> np.ndarray:
    """Points along straight lines."""
    found = [np.empty((0, 2))]
    for one, other in ends:
        count = max(2, int(dist(one, other) / STEP) + 1)
        found.append(np.linspace(one, other, count))
    return np.concatenate(found)


def place_labels(
    dots: Sequence[Point], sizes: Sequence[Point], lines: np.ndarray, texts: np.ndarray, frame: Box
) -> list[Box | None]:
    """A box for each dot's label; None without room.

    Boxes cover no point of `lines`, `texts` or dots; the leader to its dot may cross lines. Of several
    orders the best: most labels, then the shortest leaders.
    """
    corners = [np.add(dot, shift) for dot in dots for shift in ((-2, -2), (-2, 2), (2, -2), (2, 2))]
    taken = np.concatenate([lines, texts, np.array(corners).reshape(-1, 2)])

    def cost(boxes: list[Box | None]) -> float:
        return sum(dist(nearest_point(box, dot), dot) if box else 1e6 for box, dot in zip(boxes, dots, strict=True))

    orders = [
        sorted(range(len(dots)), key=lambda i: (a * round(dots[i][0]), b * dots[i][1]))
        for a in (-1, 0)
        for b in (-1, 1)
    ]
    return min((_placed(order, dots, sizes, taken, texts, frame) for order in orders), key=cost)


def _placed(order, dots, sizes, taken: np.ndarray, texts: np.ndarray, frame: Box) -> list[Box | None]:
    found: list[Box | None] = [None] * len(dots)
    for i in order:
        others = np.array([one for one in dots if dist(one, dots[i]) > NEAR]).reshape(-1, 2)
        passed, boxes = np.concatenate([texts, others]), [box for box in found if box]
        free = (box for box in _candidates(dots[i], sizes[i]) if _is_free(box, dots[i], passed, boxes, taken, frame))
        if box := next(free, None):
            found[i] = box
            taken = np.concatenate([taken, sample_lines([(dots[i], nearest_point(box, dots[i]))])])
    return found


def nearest_point(box: Box, dot: Point) -> Point:
    """Of the box, to the dot: where its leader ends."""
    return float(np.clip(dot[0], box[0], box[2])), float(np.clip(dot[1], box[1], box[3]))


def _candidates(dot: Point, size: Point) -> Iterator[Box]:
    (x, y), (wide, high) = dot, size
    for away in np.arange(AWAY, FARTHEST, 6.0):
        for angle in np.radians(ANGLES):
            left, low = x + away * np.cos(angle), y + away * np.sin(angle) - high / 2
            left -= wide * (0.0 if np.cos(angle) > 0.2 else 1.0 if np.cos(angle) < -0.2 else 0.5)
            yield left, low, left + wide, low + high


def _is_free(box: Box, dot: Point, passed: np.ndarray, boxes: Sequence[Box], taken: np.ndarray, frame: Box) -> bool:
    inside = frame[0] <= box[0] and frame[1] <= box[1] and box[2] <= frame[2] and box[3] <= frame[3]
    if not inside or _within(taken, box).any() or any(_overlap(box, other) for other in boxes):
        return False
    leader = sample_lines([(dot, nearest_point(box, dot))])
    near = passed[_within(passed, (*leader.min(axis=0), *leader.max(axis=0)), NEAR)]
    apart = np.hypot(*(leader[:, None] - near).T).min(initial=np.inf)
    return apart > NEAR and not any(_within(leader, other).any() for other in boxes)


def _within(points: np.ndarray, box: Box, clear: float = CLEAR) -> np.ndarray:
    (x, y), (left, low, right, high) = points.T, box
    return (x > left - clear) & (x < right + clear) & (y > low - clear) & (y < high + clear)


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
