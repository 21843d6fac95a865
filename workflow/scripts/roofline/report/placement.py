"""Places for labels next to their dots, where they cover no text, no dot and no line. Lengths are points."""

from collections.abc import Iterable, Iterator, Sequence
from math import dist

import numpy as np

SAMPLE_STEP = 2.0  # between samples of a line
TEXT_CLEARANCE = 1.5  # around a text
NEAREST, FARTHEST, DISTANCE_STEP = 6.0, 230.0, 6.0  # places of a label, from the middle of its dot
ANGLES = (0, 180, -15, 15, -30, 30, 165, 195, 150, 210, -50, 50, 130, 230, -75, 75, 105, 255, 270, 90)
LEADER_CLEARANCE = 3.5  # a leader passes no other dot or text nearer than this
UNPLACED_COST = 1e6  # of a label without a place, in points of leaders
Point = tuple[float, float]
Points = Sequence[Point]
Box = tuple[float, float, float, float]  # x_min, y_min, x_max, y_max


def sample_lines(ends: Iterable[Points | np.ndarray]) -> np.ndarray:
    """Return points along straight lines, an array of n x 2."""
    samples = [np.empty((0, 2))]
    for start, end in ends:
        count = max(2, int(dist(start, end) / SAMPLE_STEP) + 1)
        samples.append(np.linspace(start, end, count))
    return np.concatenate(samples)


def place_labels(dots: Points, sizes: Points, lines: np.ndarray, texts: np.ndarray, frame: Box) -> list[Box | None]:
    """Return a box for the label of each dot, or None where there is no room.

    Boxes cover no point of `lines`, `texts` or dots; the leader to a dot may cross lines. Dots are taken in several
    orders, of which the best counts: most labels, then the shortest leaders.
    """
    corners = [np.add(dot, shift) for dot in dots for shift in ((-2, -2), (-2, 2), (2, -2), (2, 2))]
    occupied = np.concatenate([lines, texts, np.array(corners).reshape(-1, 2)])

    def cost(boxes: list[Box | None]) -> float:
        pairs = zip(boxes, dots, strict=True)
        return sum(dist(nearest_point(box, dot), dot) if box else UNPLACED_COST for box, dot in pairs)

    orders = [
        sorted(range(len(dots)), key=lambda place: (by_x * round(dots[place][0]), by_y * dots[place][1]))
        for by_x in (-1, 0)
        for by_y in (-1, 1)
    ]
    return min((_place_in_order(order, dots, sizes, occupied, texts, frame) for order in orders), key=cost)


def _place_in_order(
    order: Sequence[int], dots: Points, sizes: Points, occupied: np.ndarray, texts: np.ndarray, frame: Box
) -> list[Box | None]:
    """A box for each dot's label, each clear of those before it in the order."""
    boxes: list[Box | None] = [None] * len(dots)
    for place in order:
        dot = dots[place]
        points = np.concatenate([texts, np.array(dots)])
        obstacles = points[np.hypot(*(points - dot).T) > LEADER_CLEARANCE]  # no leader avoids those at its dot
        placed = [box for box in boxes if box]
        for box in _candidates(dot, sizes[place]):
            if _is_free(box, dot, obstacles, placed, occupied, frame):
                boxes[place] = box
                occupied = np.concatenate([occupied, sample_lines([(dot, nearest_point(box, dot))])])
                break
    return boxes


def nearest_point(box: Box, dot: Point) -> Point:
    """Return the point of a box that is nearest to a dot, where the leader ends."""
    x_min, y_min, x_max, y_max = box
    return float(np.clip(dot[0], x_min, x_max)), float(np.clip(dot[1], y_min, y_max))


def _candidates(dot: Point, size: Point) -> Iterator[Box]:
    """The boxes that a label may take, the nearest first."""
    (x, y), (width, height) = dot, size
    for distance in np.arange(NEAREST, FARTHEST, DISTANCE_STEP):
        for angle in np.radians(ANGLES):
            anchor, y_min = x + distance * np.cos(angle), y + distance * np.sin(angle) - height / 2
            x_min = anchor - width * _share_left_of_anchor(np.cos(angle))
            yield x_min, y_min, x_min + width, y_min + height


def _share_left_of_anchor(cosine: float) -> float:
    """The share of a box that is left of its anchor: none to the right of the dot, all to the left, half above it."""
    if cosine > 0.2:
        return 0.0
    return 1.0 if cosine < -0.2 else 0.5


def _is_free(box: Box, dot: Point, obstacles: np.ndarray, placed: list[Box], occupied: np.ndarray, frame: Box) -> bool:
    """Return whether a box is in the frame and covers nothing, and its leader passes all obstacles at a distance."""
    inside = frame[0] <= box[0] and frame[1] <= box[1] and box[2] <= frame[2] and box[3] <= frame[3]
    if not inside or _within(occupied, box).any() or any(_overlap(box, placed_box) for placed_box in placed):
        return False
    leader = sample_lines([(dot, nearest_point(box, dot))])
    leader_box = *leader.min(axis=0), *leader.max(axis=0)
    nearby_points = obstacles[_within(obstacles, leader_box, LEADER_CLEARANCE)]
    clearance = np.hypot(*(leader[:, None] - nearby_points).T).min(initial=np.inf)
    return clearance > LEADER_CLEARANCE and not any(_within(leader, placed_box).any() for placed_box in placed)


def _within(points: np.ndarray, box: Box, clearance: float = TEXT_CLEARANCE) -> np.ndarray:
    """Return whether each point is in a box, or within a clearance of it."""
    (x, y), (x_min, y_min, x_max, y_max) = points.T, box
    inside_x = (x > x_min - clearance) & (x < x_max + clearance)
    return inside_x & (y > y_min - clearance) & (y < y_max + clearance)


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
