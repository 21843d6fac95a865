"""What the renderer makes of a picture: the boxes of its texts, legends among them, and its dots, in points."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from itertools import combinations

import numpy as np
from matplotlib.lines import Line2D

from roofline.report.figure_style import save, styled


def texts_of(figure):
    """Each text but those of ticks and axes, and its box without the blank above and below lower-case letters."""
    with styled():
        figure.draw_without_rendering()  # which places the legends
        found, legends = list(figure.texts), list(figure.legends)
        for axes in figure.axes:
            found += axes.texts
            legends += [axes.get_legend()] if axes.get_legend() else []
        found += [text for legend in legends for text in legend.get_texts()]
        boxes = [(text, text.get_window_extent()) for text in found if text.get_text().strip()]
    return [(text, box.x0, box.y0 + 0.12 * box.height, box.x1, box.y1 - 0.12 * box.height) for text, box in boxes]


def overlapping_texts(figure):
    return [
        (a.get_text(), b.get_text())
        for (a, *one), (b, *other) in combinations(texts_of(figure), 2)
        if one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
    ]


def texts_over_dots(figure):
    found, texts = [], texts_of(figure)
    for dot in dots_of(figure):
        near = 0.4 * dot.get_markersize()
        for text, x0, y0, x1, y1 in texts:
            x, y = dot.get_transform().transform(dot.get_xydata()).T
            if np.any((x0 - near < x) & (x < x1 + near) & (y0 - near < y) & (y < y1 + near)):
                found.append(text.get_text())
    return found


def texts_outside(figure):
    width, height = figure.get_size_inches() * 72
    return [t.get_text() for t, x0, y0, x1, y1 in texts_of(figure) if min(x0, y0) < 0 or x1 > width or y1 > height]


def dots_of(figure):
    lines = [artist for axes in figure.axes for artist in axes.get_children() if isinstance(artist, Line2D)]
    return [line for line in lines if line.get_marker() not in ("None", None, "")]


def labels_of(axes):
    """What is written beside dots: shares."""
    return [text.get_text() for text in axes.texts if text.get_text().endswith(" %")]


def words_of(figure, path):
    """The texts of a figure, as a reader of the vector picture gets them."""
    save(figure, [path])
    return [e.text for e in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text") if e.text]
