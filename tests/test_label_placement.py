"""Labels on a plane, whatever they are labels of."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import apart, overlapping_texts, texts_of

from roofline.report.figure_style import paper, styled
from roofline.report.label_placement import DOT, Label, place, write
from roofline.report.roofline_figure import spread

COORDINATES = st.floats(0, 400).map(lambda x: round(x, 1))
POINTS = st.tuples(COORDINATES, COORDINATES)
BOUNDS = (-100.0, -20.0, 500.0, 420.0)


def dots(*points):
    return np.array([(x, y, 3.0, DOT) for x, y in points], dtype=float).reshape(-1, 4)


@settings(deadline=None, max_examples=50)
@given(st.lists(POINTS, min_size=1, max_size=60), st.floats(5, 90), st.floats(6, 30))
def test_a_label_covers_nothing_and_stays_within_bounds(points, width, height):
    around = dots(*points)
    found = place(width, height, np.array(points[:1]), around, BOUNDS)
    if found is None:
        assert len(points) > 5  # a few dots take no place on the whole plane
        return
    x0, y0, x1, y1 = found.box
    assert BOUNDS[0] <= x0 and BOUNDS[1] <= y0 and x1 <= BOUNDS[2] and y1 <= BOUNDS[3]
    assert not any(x0 - 3 < x < x1 + 3 and y0 - 3 < y < y1 + 3 for x, y in points)
    (start, end) = found.leader
    assert start == points[0] and x0 <= end[0] <= x1 and y0 <= end[1] <= y1


def test_the_one_gap_is_found_however_far_down_the_list_it_stands():
    wall = [(x, y) for x in range(0, 401, 8) for y in range(80, 321, 8) if not (255 < x < 330 and 205 < y < 235)]
    found = place(50, 12, np.array([(200.0, 200.0)]), dots(*wall), (0, 80, 400, 320))
    x0, y0, x1, y1 = found.box
    assert min(x0 - 251, 333 - x1, y0 - 203, 237 - y1) > 0  # between the dots that are left around the gap


def test_no_place_where_nothing_is_free():
    assert place(50, 10, np.array([(10.0, 10.0)]), dots((10, 10)), (0, 0, 40, 40)) is None


def test_a_label_stands_by_the_dot_of_its_series_that_has_room():
    crowd = [(x, y) for x in range(60, 241, 8) for y in range(60, 241, 8)]
    found = place(40, 10, np.array([(150.0, 150.0), (350.0, 350.0)]), dots(*crowd, (350, 350)), BOUNDS)
    assert found.leader[0] == (350.0, 350.0)


def test_leaders_go_around_dots_where_they_can():
    fence = [(215, y) for y in range(150, 251, 7)]
    found = place(30, 10, np.array([(200.0, 200.0)]), dots((200, 200), *fence), BOUNDS)
    assert found.box[2] < 215


@styled()
def drawn(points, texts):
    figure = paper(288.0, "labels")
    axes = figure.add_subplot(xlim=(0, 400), ylim=(0, 400))
    axes.plot(*zip(*points, strict=True), marker="o", ms=5, color="#0072B2")
    return figure, write(axes, [Label(text, (at,), "#0072B2") for at, text in zip(points, texts, strict=True)])


@settings(deadline=None, max_examples=15)
@given(st.lists(POINTS, min_size=1, max_size=15, unique=True))
def test_labels_of_a_crowded_line_never_overlap_and_what_is_lost_is_told(points):
    texts = [f"dot {i}" for i in range(len(points))]
    figure, lost = drawn(points, texts)
    assert overlapping_texts(figure) == []
    assert sorted([label.text for label in lost] + [text.get_text() for text, _ in texts_of(figure)]) == sorted(texts)
    again, _ = drawn(points, texts)
    places = [[text.get_position() for text in one.axes[0].texts] for one in (figure, again)]
    assert places[0] == places[1]


def test_shapes_are_told_apart():
    """What the tests of pictures rest on."""
    square = np.array([(0, 0), (2, 0), (2, 2), (0, 2)])
    turned = np.array([(3, 0), (5, 2), (3, 4), (1, 2)])
    others = {"inside": square / 4 + 0.5, "across": turned - (1, 1), "beside": square + np.array((2.1, 0))}
    assert [name for name, shape in others.items() if apart(square, shape)] == ["beside"]
    assert all(not apart(*pair) for pair in combinations([square, square / 2, turned - (1, 1)], 2))


# ------------------------------------------------------------------------------------------------------ spread


@given(st.lists(st.floats(0, 100), max_size=12))
def test_spread_keeps_order_distance_and_bounds(targets):
    found = spread(sorted(targets), 20.0, 0, 400)
    assert len(found) == len(targets)
    assert all(other - one >= 20 - 1e-9 for one, other in pairwise(found))
    assert all(-1e-9 <= each <= 400 + 1e-9 for each in found)


def test_spread_leaves_alone_what_has_room_and_centres_what_has_none():
    assert spread([10, 50, 90], 10, 0, 100) == [10, 50, 90]
    assert spread([50, 50, 50], 10, 0, 100) == [40, 50, 60]
    assert spread([2, 50], 10, 5, 100) == [5, 50]
