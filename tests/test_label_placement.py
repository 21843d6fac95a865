"""Labels on a plane, whatever they are labels of."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.report.label_placement import (
    Box,
    Label,
    Point,
    Segment,
    Surroundings,
    as_rows,
    meets,
    place,
    spread,
    stacks,
)

LENGTHS = st.floats(0, 400, allow_nan=False).map(lambda x: round(x, 1))
POINTS = st.builds(Point, LENGTHS, LENGTHS)
LABELS = st.builds(Label, st.tuples(POINTS), st.floats(5, 90), st.floats(6, 30))
BOUNDS = Box(-100, -20, 500, 420)


def around(at):
    return Box(at.x - 3, at.y - 3, at.x + 3, at.y + 3)


def overlap(one, other):
    return min(one.x1, other.x1) - max(one.x0, other.x0) > 1e-6 and min(one.y1, other.y1) - max(one.y0, other.y0) > 1e-6


def within(segment, box):
    smaller = Box(box.x0 + 1e-3, box.y0 + 1e-3, box.x1 - 1e-3, box.y1 - 1e-3)
    return meets(as_rows([segment]), as_rows([smaller])).any()


@settings(deadline=None, max_examples=30)
@given(st.lists(LABELS, max_size=12), st.lists(st.builds(Segment, POINTS, POINTS), max_size=5))
def test_placed_labels_cover_nothing(labels, lines):
    dots = tuple(around(at) for label in labels for at in label.anchors)
    ghosts = tuple(around(Point(at, 400 - at)) for at in range(0, 400, 80))
    placed = place(labels, Surroundings(BOUNDS, dots=dots, ghosts=ghosts, lines=tuple(lines)))
    found = [each for each in placed if each]
    assert len(placed) == len(labels)
    for box, leader in found:
        assert BOUNDS.x0 <= box.x0 and BOUNDS.y0 <= box.y0 and box.x1 <= BOUNDS.x1 and box.y1 <= BOUNDS.y1
        assert not any(overlap(box, dot) for dot in dots + ghosts)
        assert not any(within(line, box) for line in lines)
        assert not any(within(leader, other.box) for other in found)
    assert not any(overlap(one.box, other.box) for one, other in combinations(found, 2))


@settings(deadline=None, max_examples=15)
@given(st.lists(LENGTHS, max_size=10))
def test_a_stack_with_room_is_labelled_whole_in_order_and_always_the_same(heights):
    labels = [Label((Point(200, y),), 80, 10) for y in sorted(heights)]
    surroundings = Surroundings(BOUNDS, dots=tuple(around(at) for label in labels for at in label.anchors))
    placed = place(labels, surroundings)
    assert None not in placed
    assert placed == place(labels, surroundings)
    for one, other in pairwise(placed):
        assert one.box.x0 != other.box.x0 or one.box.y1 <= other.box.y0 + 1e-6


def test_what_is_on_the_ground_is_in_the_way_however_far_down_the_list_it_stands():
    """Every place within reach is taken but for one."""
    at, room = Point(200, 200), Box(322, 270, 390, 284)
    beside = (Box(-100, -20, room.x0, 420), Box(room.x1, -20, 500, 420))
    over = (Box(room.x0, -20, room.x1, room.y0), Box(room.x0, room.y1, room.x1, 420))
    (found,) = place([Label((at,), 60, 12)], Surroundings(BOUNDS, (around(at),), ghosts=(*beside, *over)))
    assert room.x0 <= found.box.x0 and found.box.x1 <= room.x1
    assert room.y0 <= found.box.y0 and found.box.y1 <= room.y1


def test_a_series_that_reaches_to_the_side_joins_no_stack():
    """Else its last dot would push the labels of the others that far away."""
    upright = [Label((Point(200, y),), 60, 10) for y in (100, 130)]
    wide = Label((Point(170, 200), Point(200, 200), Point(240, 200)), 60, 10)
    dots = tuple(around(at) for label in (*upright, wide) for at in label.anchors)
    placed = place([*upright, wide], Surroundings(BOUNDS, dots))
    assert all(abs(each.leader.end.x - 200) < 10 for each in placed[:2])


def test_a_leader_begins_at_the_nearest_of_its_dots():
    anchors = tuple(Point(100, y) for y in (50, 100, 150))
    walls = (Segment(Point(0, 130), Point(300, 130)),)
    (found,) = place([Label(anchors, 60, 40)], Surroundings(BOUNDS, tuple(map(around, anchors)), walls))
    nearest = min(anchors, key=lambda at: np.hypot(at.x - found.leader.end.x, at.y - found.leader.end.y))
    assert found.leader.start == nearest


def test_no_place_where_nothing_is_free():
    at = Point(10, 10)
    assert place([Label((at,), 50, 10)], Surroundings(Box(0, 0, 40, 40), dots=(around(at),))) == [None]


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(4, 20)), max_size=12))
def test_spread_keeps_order_distance_and_bounds(labels):
    targets = sorted(target for target, _ in labels)
    heights = [height for _, height in labels]
    centres = spread(targets, heights, 0, 400)
    assert len(centres) == len(labels)
    for (one, h), (other, k) in pairwise(zip(centres, heights, strict=True)):
        assert other - one >= (h + k) / 2 - 1e-9
    assert all(h / 2 - 1e-9 <= c <= 400 - h / 2 + 1e-9 for c, h in zip(centres, heights, strict=True))


def test_spread_leaves_alone_what_has_room_and_centres_what_has_none():
    assert spread([10, 50, 90], [10, 10, 10], 0, 100) == [10, 50, 90]
    assert spread([50, 50, 50], [10, 10, 10], 0, 100) == [40, 50, 60]
    assert spread([2, 50], [10, 10], 0, 100) == [5, 50]


@given(st.lists(LENGTHS, max_size=20), st.floats(0, 50))
def test_stacks_hold_everything_once_and_are_narrow(positions, width):
    groups = stacks(positions, width)
    assert sorted(i for group in groups for i in group) == list(range(len(positions)))
    for group in groups:
        spanned = [positions[i] for i in group]
        assert max(spanned) - min(spanned) <= width


def test_meets():
    box = as_rows([Box(0, 0, 10, 10)])
    segments = [((-5, 5), (15, 5)), ((2, 2), (3, 3)), ((-5, -5), (15, -5)), ((5, 10.5), (10.5, 5)), ((5, 20), (5, 5))]
    found = meets(np.array(segments, dtype=float).reshape(-1, 4), box)[:, 0]
    assert found.tolist() == [True, True, False, True, True]
