"""The roofline as a picture: results/roofline.json in, roofline.png and roofline.svg out.

Words (figure_content), then places (figure_layout, label_placement), then paint: here. Only the number of pixels
depends on the resolution, and the same data give the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import log10
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from matplotlib.transforms import Affine2D, Transform

from roofline.report import text_metrics
from roofline.report.figure_content import MUTED, panels
from roofline.report.figure_layout import SMALL_SIZE, TEXT_SIZE, Layout, Page, Spot, Stroke, Text, lay_out, page
from roofline.report.label_placement import Box, Point

PAPER, GRID, SPINES = "#ffffff", "#dfe2e6", "#aab0b8"
PNG_PACKING = {"compress_level": 3}  # two thirds of the usual 6's time, and files as small to within a few per cent
STYLE = {
    # Browsers without DejaVu Sans take a narrower font, so that labels which do not overlap here do not there.
    "font.family": [text_metrics.FONT, "sans-serif"],
    "svg.fonttype": "none",
    "svg.hashsalt": "roofline",
    "text.hinting": "none",
}


def draw(roofline: dict, paths: list[Path], dpi: int) -> None:
    """Write the picture of a validated results/roofline.json to each path, as its suffix says."""
    with matplotlib.rc_context(STYLE):
        figure = painted(roofline, dpi)
    save(figure, paths, dpi)


def save(figure: Figure, paths: list[Path], dpi: int) -> None:
    """Write a figure to each path, as its suffix says, under the title that it carries as its label."""
    title = figure.get_label()
    with matplotlib.rc_context(STYLE):
        for path in map(Path, paths):
            metadata = {".svg": {"Title": title, "Date": None}, ".png": {"Title": title}}.get(path.suffix, {})
            packing = {"pil_kwargs": PNG_PACKING} if path.suffix == ".png" else {}
            figure.savefig(path, dpi=dpi, metadata=metadata, **packing)


def blank(width: float, height: float, title: str, dpi: int = 100) -> Figure:
    """Paper of so many points, without a window."""
    figure = Figure(figsize=(width / 72, height / 72), dpi=dpi, facecolor=PAPER)
    figure.set_label(title)
    FigureCanvasAgg(figure)
    return figure


def painted(roofline: dict, dpi: int) -> Figure:
    whole = page([lay_out(panel) for panel in panels(roofline)])
    names = ", ".join(device["name"] for device in roofline["devices"].values())
    figure = blank(whole.width, whole.height, f"Measured roofline: {names}", dpi)
    for layout, origin in whole.panels:
        _paint_panel(figure, whole, layout, origin)
    for text in whole.footer:
        write(figure, text, in_points(figure, Point(0, 0)))
    return figure


def in_points(figure: Figure, origin: Point) -> Transform:
    return Affine2D().translate(*origin).scale(1 / 72) + figure.dpi_scale_trans


Ticks = Sequence[tuple[float, str]]  # how far along an axis, in points, and what it says there


def small_axes(figure: Figure, frame: Box, across: Ticks, up: Ticks, names: tuple[str, str], points: Transform) -> None:
    """Grid, two axes and what they say, for a picture of many small plots: matplotlib's own take a while each."""
    x0, y0, x1, y1 = frame
    grid = [[(x, y0), (x, y1)] for x, _ in across] + [[(x0, y), (x1, y)] for y, _ in up]
    lines = LineCollection(grid, colors=GRID, linewidths=0.5, transform=points, zorder=0.5)
    figure.add_artist(lines)
    figure.add_artist(Line2D([x0, x0, x1], [y1, y0, y0], color=SPINES, linewidth=0.8, transform=points, zorder=2.5))
    look = {"size": SMALL_SIZE, "color": MUTED, "transform": points, "va": "baseline", "parse_math": False}
    for x, words in across:
        figure.text(x, y0 - 10, words, ha="center", **look)
    for y, words in up:
        figure.text(x0 - 3.5, y - 0.36 * SMALL_SIZE, words, ha="right", **look)
    widest = max((text_metrics.text_width(words, SMALL_SIZE) for _, words in up), default=0.0)
    figure.text((x0 + x1) / 2, y0 - 22, names[0], ha="center", **look)
    upright = {"rotation": 90, "rotation_mode": "anchor", "ha": "center"}
    figure.text(x0 - widest - 8, (y0 + y1) / 2, names[1], **upright, **look)


def curve(figure: Figure, at: Sequence[Point], points: Transform, **look) -> None:
    figure.add_artist(Line2D(*zip(*at, strict=True), transform=points, **look))


def _paint_panel(figure: Figure, whole: Page, layout: Layout, origin: Point) -> None:
    axes, points = _axes(figure, whole, layout, origin), in_points(figure, origin)
    for box, text in layout.regimes:
        _paint_regime(axes, box, text, points)
    for stroke in layout.strokes:
        axes.add_artist(_line(stroke, points))
    for spot in layout.spots:
        axes.add_artist(_marker(spot, points))
    for text in layout.texts:
        write(axes, text, points)


def _axes(figure: Figure, whole: Page, layout: Layout, origin: Point) -> Axes:
    scale, (x0, y0, x1, y1) = layout.scale, layout.scale.frame
    left, bottom = (origin.x + x0) / whole.width, (origin.y + y0) / whole.height
    axes = figure.add_axes((left, bottom, (x1 - x0) / whole.width, (y1 - y0) / whole.height))
    axes.set(xscale="log", yscale="log", xlim=(scale.x0, scale.x1), ylim=(scale.y0, scale.y1), facecolor="none")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(numticks=30))
        axis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
        axis.set_minor_formatter(NullFormatter())
        axis.grid(which="major", color=GRID, linewidth=0.5)
    axes.tick_params(which="both", length=0, labelsize=TEXT_SIZE, labelcolor=MUTED)
    axes.minorticks_off()
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(SPINES)
    axes.set_xlabel("intensity, FLOP/byte", size=TEXT_SIZE, color=MUTED)
    axes.set_ylabel("attained, TFLOPS", size=TEXT_SIZE, color=MUTED)
    return axes


def _tick(value: float) -> str:
    """Powers of ten written out, as far as that is short."""
    return f"{value:g}" if 1e-4 <= value < 1e6 else f"$10^{{{log10(value):.0f}}}$"


def _paint_regime(axes: Axes, box: Box, text: str, points: Transform) -> None:
    shade = "#eef0f2" if text in ("depends on dtype", "") else "#f6f7f8"
    corner, size = (box.x0, box.y0), (box.x1 - box.x0, box.y1 - box.y0)
    axes.add_patch(Rectangle(corner, *size, facecolor=shade, lw=0, transform=points, zorder=1))
    middle = (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2 - 0.36 * SMALL_SIZE
    axes.text(*middle, text, size=SMALL_SIZE, color=MUTED, ha="center", va="baseline", transform=points)


def write(onto: Axes | Figure, text: Text, points: Transform) -> None:
    onto.text(
        *text.at,
        text.text,
        size=text.size,
        color=readable(text.colour),
        weight=text.weight,
        rotation=text.angle,
        rotation_mode="anchor",
        va="baseline",
        transform=points,
        parse_math=False,
    )


def _line(stroke: Stroke, points: Transform) -> Line2D:
    return Line2D(
        *zip(*stroke.points, strict=True),
        color=_faded(stroke.colour, stroke.faded),
        linewidth=stroke.width,
        linestyle=(0, stroke.dashes) if stroke.dashes else "-",
        zorder=stroke.order,
        transform=points,
        clip_on=False,
        solid_capstyle="round",
    )


def _marker(spot: Spot, points: Transform) -> Line2D:
    colour = _faded(spot.colour, spot.faded)
    return Line2D(
        [spot.at.x],
        [spot.at.y],
        marker=spot.marker,
        markersize=spot.size,
        markerfacecolor=PAPER if spot.hollow else colour,
        markeredgecolor=colour if spot.hollow else PAPER,
        markeredgewidth=0.16 * spot.size if spot.hollow else 0.6,
        linestyle="none",
        zorder=4,
        transform=points,
        clip_on=False,
    )


def _faded(colour: str, by: float) -> str:
    return to_hex([c + (1 - c) * by for c in to_rgb(colour)])


@cache
def readable(colour: str) -> str:
    """The colour, darkened until text in it stands out from white paper by 4.5 to 1 (WCAG, level AA)."""
    while 1.05 / (_luminance(colour) + 0.05) < 4.5:
        colour = to_hex([0.95 * c for c in to_rgb(colour)])
    return colour


def _luminance(colour: str) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
