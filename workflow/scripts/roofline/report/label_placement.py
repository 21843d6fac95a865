"""Labels beside what they speak of, where they cover nothing: greedy and without chance, in points.

Everything in the way is a disc: lines, leaders and texts are sampled. So one test serves them all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import hypot

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.text import Text

from roofline.report.figure_style import SMALL_SIZE, in_points, readable

STEP = 2.0  # between samples of a line
AIR = 1.5  # between a label and what it must not cover
TURNS = np.radians(np.arange(0, 360, 15))
DISTANCES = np.array([4, 7, 11, 16, 22, 29, 37, 46, 56, 68, 82, 98, 116, 136, 160, 190, 225], dtype=float)
BATCH = 96
MARKER = 6.2  # wide
SHIFTS = MARKER * np.arange(24)  # to the right alone: to the left, a dot under a slope would stand above it
SHORT = 9.0  # a label that is as near needs no leader
# What a leader pays, in points of its length, for each disc of such a thing that it runs through.
LINE, DOT, TEXT = 12.0, 20.0, 400.0

Taken = dict[tuple[int, int], list[tuple[float, float]]]  # centres of markers, by squares of half a marker
Discs = np.ndarray  # rows of x, y, radius, and what a leader through it pays


@dataclass(frozen=True)
class Label:
    """A text for one or more points of the data; it stands beside one of them."""

    text: str
    at: tuple[tuple[float, float], ...]
    colour: str
    weight: str = "normal"


@dataclass(frozen=True)
class Place:
    box: tuple[float, float, float, float]
    leader: tuple[tuple[float, float], tuple[float, float]]


def write(axes: Axes, labels: Sequence[Label], above: float = 0.0, reach: float = 140.0) -> list[Label]:
    """Write the labels onto the axes, those in the thick of things first; returns those that found no place.

    The limits of the axes must be final. `above` is what is reserved along their upper edge, `reach` how far a label
    may stand from what it speaks of.
    """
    points, renderer = in_points(axes.figure), axes.figure.canvas.get_renderer()
    frame, around = axes.bbox, discs(axes)
    bounds = (frame.x0 + AIR, frame.y0 + AIR, frame.x1 - AIR, frame.y1 - AIR - above)
    anchors = [axes.transData.transform(np.array(label.at, dtype=float)) for label in labels]
    lost = []
    for i in sorted(range(len(labels)), key=lambda i: -_crowd(anchors[i], around)):
        label = labels[i]
        look = {"size": SMALL_SIZE, "color": readable(label.colour), "weight": label.weight}
        text = axes.text(0, 0, label.text, va="bottom", linespacing=1.25, transform=points, **look)
        extent = text.get_window_extent(renderer)
        found = place(extent.width, extent.height, anchors[i], around, bounds, reach)
        if found is None:
            text.remove()
            lost.append(label)
            continue
        text.set_position(found.box[:2])
        around = np.vstack([around, _of_box(found.box)])
        (x0, y0), (x1, y1) = found.leader
        length = np.hypot(x1 - x0, y1 - y0)
        if length > SHORT:
            xs, ys = ([a + (b - a) * share for share in (4 / length, 1 - 1 / length)] for a, b in ((x0, x1), (y0, y1)))
            axes.add_artist(Line2D(xs, ys, lw=0.5, color=label.colour, transform=points, zorder=1.9))
            around = np.vstack([around, _of_line(np.array(found.leader), 0.5, LINE)])
    return lost


def place(
    width: float, height: float, anchors: np.ndarray, around: Discs, bounds: Sequence[float], reach: float = 140.0
) -> Place | None:
    """The free place whose leader costs least; the nearest are looked at first."""
    boxes, starts = _candidates(width, height, anchors, DISTANCES[reach >= DISTANCES])
    inside = (boxes[:, :2] >= bounds[:2]).all(axis=1) & (boxes[:, 2:] <= bounds[2:]).all(axis=1)
    boxes, starts = boxes[inside], starts[inside]
    ends = np.clip(starts, boxes[:, :2], boxes[:, 2:])
    lengths = np.hypot(*(ends - starts).T)
    order = lengths.argsort(kind="stable")
    best, least = None, np.inf
    for batch in (order[i : i + BATCH] for i in range(0, len(order), BATCH)):
        if lengths[batch[0]] >= least:
            break
        free = batch[~_covers(boxes[batch], around)]
        for i in free:
            if lengths[i] < least and (cost := lengths[i] + _crossed(starts[i], ends[i], around)) < least:
                best, least = i, cost
    if best is None:
        return None
    return Place(tuple(boxes[best].tolist()), (tuple(starts[best].tolist()), tuple(ends[best].tolist())))


def marker_place(axes: Axes, point: tuple[float, float], taken: Taken) -> tuple[float, float]:
    """Where a marker is drawn: at its point, or to the right of it where another's centre is nearer than half a marker.

    `taken` holds the centres of the others, in points, and gets this one's; the limits of the axes must be final.
    """
    x, y = axes.transData.transform(point).tolist()
    shift = next((shift for shift in SHIFTS.tolist() if not _near(x + shift, y, taken)), 0.0)
    place = tuple(axes.transData.inverted().transform((x + shift, y)).tolist()) if shift else point
    x, y = axes.transData.transform(place).tolist()
    taken.setdefault(_square(x, y), []).append((x, y))
    return place


def _near(x: float, y: float, taken: Taken) -> bool:
    column, row = _square(x, y)
    around = ((column + i, row + j) for i in (-1, 0, 1) for j in (-1, 0, 1))
    return any(hypot(x - u, y - v) < MARKER / 2 for square in around for u, v in taken.get(square, ()))


def _square(x: float, y: float) -> tuple[int, int]:
    return int(x // (MARKER / 2)), int(y // (MARKER / 2))


def discs(axes: Axes) -> Discs:
    """What labels on these axes must not cover: lines, dots and texts."""
    found = [np.empty((0, 4))]
    for line in (artist for artist in axes.get_children() if isinstance(artist, Line2D)):
        at = line.get_transform().transform(line.get_xydata())
        if line.get_linestyle() not in ("None", "none", ""):
            found.append(_of_line(at, line.get_linewidth() / 2, LINE))
        if line.get_marker() not in ("None", "none", "", None):
            found.append(_rows(at, line.get_markersize() / 2, DOT))
    found += [_of_text(text) for text in axes.texts if text.get_text()]
    return np.vstack(found)


def _candidates(
    width: float, height: float, anchors: np.ndarray, distances: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Boxes on ellipses around each anchor, and the anchor of each."""
    half, out = np.array([width, height]) / 2, np.column_stack([np.cos(TURNS), np.sin(TURNS)])
    offsets = (out[None] * (half + distances[:, None, None])).reshape(-1, 2)
    centres = (anchors[:, None] + offsets[None]).reshape(-1, 2)
    return np.hstack([centres - half, centres + half]), np.repeat(anchors, len(offsets), axis=0)


def _covers(boxes: np.ndarray, around: Discs) -> np.ndarray:
    x, y, radius, _ = around.T
    reach = radius + AIR
    x0, y0, x1, y1 = boxes.T[:, :, None]
    return ((x > x0 - reach) & (x < x1 + reach) & (y > y0 - reach) & (y < y1 + reach)).any(axis=1)


def _crossed(start: np.ndarray, end: np.ndarray, around: Discs) -> float:
    """What a leader pays, beyond the dot that it starts from."""
    way = end - start
    length = float(np.hypot(*way))
    if length < SHORT:
        return 0.0
    shares = np.arange(5.0, length, STEP) / length
    samples = start + shares[:, None] * way
    near = around[np.abs(around[:, :2] - (start + end) / 2).max(axis=1) < length / 2 + 6]
    hit = np.hypot(*(near[:, None, :2] - samples[None]).transpose(2, 0, 1)) < near[:, None, 2] + 0.8
    return float(near[hit.any(axis=1), 3].sum())


def _crowd(anchors: np.ndarray, around: Discs) -> int:
    """How much there is nearby."""
    return int((np.abs(around[:, None, :2] - anchors[None]).max(axis=2) < 40).any(axis=1).sum())


def _rows(at: np.ndarray, radius: float, cost: float) -> Discs:
    at = at[np.isfinite(at).all(axis=1)]
    return np.column_stack([at, np.full(len(at), radius), np.full(len(at), cost)])


def _of_line(at: np.ndarray, radius: float, cost: float) -> Discs:
    parts = [at[:1]]
    for start, end in pairwise(at):
        length = np.hypot(*(end - start))
        if np.isfinite(length) and length:
            shares = np.arange(STEP, length + STEP, STEP).clip(max=length) / length
            parts.append(start + shares[:, None] * (end - start))
    return _rows(np.vstack(parts), radius, cost)


def _of_box(box: Sequence[float]) -> Discs:
    x0, y0, x1, y1 = box
    x, y = np.meshgrid(np.append(np.arange(x0, x1, 3), x1), np.append(np.arange(y0, y1, 3), y1))
    return _rows(np.column_stack([x.ravel(), y.ravel()]), 1.0, TEXT)


def _of_text(text: Text) -> Discs:
    """Along the middle of each line, as it is turned."""
    corner, turn = np.array(text.get_transform().transform(text.get_position())), np.radians(text.get_rotation())
    text.set_rotation(0)
    box = text.get_window_extent(text.figure.canvas.get_renderer())
    text.set_rotation(np.degrees(turn))
    flat = _of_box((box.x0, box.y0, box.x1, box.y1))
    matrix = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    flat[:, :2] = (flat[:, :2] - corner) @ matrix.T + corner
    return flat
