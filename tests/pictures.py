"""What the renderer makes of a picture: the corners of its texts, the lines and the dots, in points."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from itertools import combinations, pairwise
from math import cos, radians, sin

import numpy as np
from matplotlib.lines import Line2D

from roofline.report.figure_style import MARKERS, PAPER, WIDTH, save, styled


def texts_of(figure):
    """Each text but those of ticks and axes, and its corners without the blank above and below lower-case letters."""
    found = list(figure.texts)
    for axes in figure.axes:
        found += axes.texts
    with styled():
        return [(text, _shrunk(_corners(text, figure), 0.12)) for text in found if text.get_text().strip()]


def overlapping_texts(figure):
    return [
        (a.get_text(), b.get_text())
        for (a, first), (b, second) in combinations(texts_of(figure), 2)
        if not apart(first, second)
    ]


def texts_over_lines(figure, least_width=0.6):
    """Leaders are thinner: they end at their texts."""
    lines = [pair for line in _lines_of(figure) if line.get_linewidth() >= least_width for pair in pairwise(_at(line))]
    return [text.get_text() for text, quad in texts_of(figure) for pair in lines if not apart(quad, np.array(pair))]


def texts_over_dots(figure):
    found = []
    for line in _artists(figure):
        if line.get_marker() in ("None", None, ""):
            continue
        radius = 0.8 * line.get_markersize() / 2
        squares = [at + radius * np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)]) for at in _at(line)]
        found += [t.get_text() for t, quad in texts_of(figure) if any(not apart(quad, square) for square in squares)]
    return found


def coinciding_dots(figure):
    """Pairs of filled markers whose centres are nearer than two pixels of 900 across."""
    found = []
    for axes in figure.axes:
        lines = [line for line in axes.get_children() if isinstance(line, Line2D)]
        lines = [line for line in lines if line.get_marker() in MARKERS and line.get_markerfacecolor() != PAPER]
        dots = [tuple(place) for line in lines for place in _at(line)]
        found += [pair for pair in combinations(dots, 2) if np.hypot(*np.subtract(*pair)) < 2 * WIDTH / 900]
    return found


def texts_outside(figure):
    width, height = figure.get_size_inches() * 72
    return [t.get_text() for t, q in texts_of(figure) if q.min() < 0 or q[:, 0].max() > width or q[:, 1].max() > height]


def labels_of(figure):
    """The texts within the frames that speak of dots."""
    found = []
    for text, quad in texts_of(figure):
        frame = text.axes and text.axes.bbox
        if frame and frame.x0 < quad[0][0] < frame.x1 and frame.y0 < quad[0][1] < frame.y1:
            found += [text.get_text()] if text.get_text().endswith((" %", "not measured", "no roof")) else []
    return found


def words_of(figure, path):
    """The texts of a figure, as a reader of the vector picture gets them."""
    save(figure, [path])
    return [e.text for e in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text") if e.text]


def apart(one, other):
    """Are two convex shapes disjoint? (Separating axes: the normals of all their edges.)"""
    for shape in (one, other):
        for start, end in zip(shape, np.roll(shape, -1, axis=0), strict=True):
            normal = np.array([start[1] - end[1], end[0] - start[0]])
            a, b = one @ normal, other @ normal
            if a.max() <= b.min() or b.max() <= a.min():
                return True
    return False


def _corners(text, figure):
    turned, anchor = radians(text.get_rotation()), text.get_transform().transform(text.get_position())
    text.set_rotation(0)
    flat = text.get_window_extent(figure.canvas.get_renderer())
    text.set_rotation(turned * 180 / np.pi)
    turn = np.array([[cos(turned), -sin(turned)], [sin(turned), cos(turned)]])
    ends = [(flat.x0, flat.y0), (flat.x1, flat.y0), (flat.x1, flat.y1), (flat.x0, flat.y1)]
    return np.array([turn @ (np.array(end) - anchor) + anchor for end in ends])


def _shrunk(quad, by):
    up = (quad[3] - quad[0]) * by
    return np.array([quad[0] + up, quad[1] + up, quad[2] - up, quad[3] - up])


def _artists(figure):
    return [artist for axes in figure.axes for artist in axes.get_children() if isinstance(artist, Line2D)]


def _lines_of(figure):
    return [line for line in _artists(figure) if line.get_linestyle() not in ("None", "none")]


def _at(line):
    return line.get_transform().transform(line.get_xydata())
