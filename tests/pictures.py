"""What the renderer makes of a picture: the boxes of its texts, legends among them, its lines and dots, in points."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from functools import cache
from itertools import combinations, pairwise
from math import cos, radians, sin

import numpy as np
from matplotlib.lines import Line2D
from workflow_run import NEWEST

from roofline.records.base import read
from roofline.records.manifest_record import Manifest
from roofline.report.figure_style import measure_text, save, styled
from roofline.run.archive import unpacked
from roofline.run.make_manifest import hashes
from roofline.table.load import build_table
from roofline.table.rows import Roofline
from roofline.table.run_records import Request, read_results


@cache
def reference() -> Roofline:
    """The table of the newest reference run, from its records."""
    with unpacked(NEWEST) as root:
        manifest = read(Manifest, root / "results/manifest.json")
        results = read_results(root / "results", [root / output.path for output in manifest.outputs])
    return build_table(results, Request(**manifest.asked), hashes(manifest.outputs))


def texts_of(figure):
    """Each text but those of ticks and axes with its boxes, without the blank above and below lower-case letters; a
    rotated text has several."""
    with styled():
        figure.draw_without_rendering()  # which places the legends
        texts, legends = list(figure.texts), list(figure.legends)
        for axes in figure.axes:
            texts += axes.texts
            legends += [axes.get_legend()] if axes.get_legend() else []
        texts += [text for legend in legends for text in legend.get_texts()]
        return [(text, list(boxes_of(text))) for text in texts if text.get_text().strip()]


def boxes_of(text):
    if not text.get_rotation():
        box = text.get_window_extent()
        yield box.x0, box.y0 + 0.12 * box.height, box.x1, box.y1 - 0.12 * box.height
        return
    angle, (x, y) = radians(text.get_rotation()), text.get_transform().transform(text.get_position())
    for along in np.arange(2.0, measure_text(text.get_text(), text.get_size()), 2.0):
        middle = x + along * cos(angle), y + along * sin(angle)
        yield middle[0] - 2, middle[1] - 2, middle[0] + 2, middle[1] + 2


def overlapping_texts(figure):
    return [
        (a.get_text(), b.get_text())
        for (a, boxes_of_a), (b, boxes_of_b) in combinations(texts_of(figure), 2)
        if any(overlap(box_of_a, box_of_b) for box_of_a in boxes_of_a for box_of_b in boxes_of_b)
    ]


def overlap(a, b):
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def crossed_texts(figure, lines=()):
    """Texts that a line of the axes runs through, and dots that they cover."""
    crossed = []
    texts = [(text, box) for text, boxes in texts_of(figure) for box in boxes]
    for dot in dots_of(figure):
        points, clearance = dot.get_transform().transform(dot.get_xydata()), 0.4 * dot.get_markersize()
        crossed += [text.get_text() for text, box in texts if within(points, box, clearance)]
    for line in lines:
        ends = line.get_transform().transform(line.get_xydata())
        points = np.concatenate([np.linspace(a, b, 400) for a, b in pairwise(ends)])
        crossed += [text.get_text() for text, box in texts if within(points, box, -0.5)]
    return crossed


def within(points, box, clearance):
    """Whether a point is in a box, or within a clearance of it."""
    (x, y), (left, bottom, right, top) = points.T, box
    inside_x = (left - clearance < x) & (x < right + clearance)
    return np.any(inside_x & (bottom - clearance < y) & (y < top + clearance))


def texts_outside(figure):
    width, height = figure.get_size_inches() * 72
    return [
        text.get_text()
        for text, boxes in texts_of(figure)
        for x0, y0, x1, y1 in boxes
        if min(x0, y0) < 0 or x1 > width or y1 > height
    ]


def dots_of(figure):
    lines = [artist for axes in figure.axes for artist in axes.get_children() if isinstance(artist, Line2D)]
    return [line for line in lines if line.get_marker() not in ("None", None, "")]


def words_of(figure, path):
    """The texts of a figure, as a reader of the vector picture gets them."""
    save(figure, [path])
    return [e.text for e in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text") if e.text]
