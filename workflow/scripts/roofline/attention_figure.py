"""How near decode attention comes to its roof, over the bytes that a step moves: results/attention.png.

A panel a device (and preset, where there are several). A marker is an implementation, a colour a dtype, as in the
picture of the roofline. Shaded is the launch-bound zone: fewer bytes than the memory delivers in the time that the same
calls take where there is next to nothing to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, log10
from statistics import median

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.transforms import Transform

from roofline.figure_content import INK, KNOWN_MARKERS, MUTED, dtype_colour, number, percent
from roofline.figure_layout import DOT_RADIUS, MARGIN, SMALL_SIZE, TEXT_SIZE, TITLE_SIZE, WIDTH
from roofline.figures import STYLE, blank, curve, in_points, readable, small_axes
from roofline.label_placement import Box, Label, Point, Segment, Surroundings, place
from roofline.records import DecodeAttnRecord, Operator, Roofline
from roofline.reporting import duration
from roofline.text_metrics import shortened, text_width, wrapped

TITLE = "Decode attention: how near to its roof"
NOTHING = "No decode attention was placed under a roof: none was measured, or no ceiling."
MARKS = (
    "Share of the roof that a step of one layer attains (core, without projections), over the keys and values that it "
    "reads. Filled: by the caller's time; hollow, where it differs: by the device's part alone. Lines join S at one "
    "batch size. Shaded, launch-bound: at its roof a step would be over before it is started."
)
HIGH, LEFT, LANE, GAP, TICKS_BELOW, ROW = 190.0, 40.0, 132.0, 22.0, 30.0, 11.0
MARKER, HOLLOW, DIFFERS, AIR = 5.6, 4.6, 1.05, 2.0
SHADES = ("#f4f5f6", "#e9ebee", "#dee1e5", "#d3d7dc")  # the deeper, the more implementations wait there
PREFIXES = ("bytes", "kB", "MB", "GB", "TB")


@dataclass(frozen=True)
class Zone:
    """Where an implementation waits for its calls."""

    implementation: str
    start_s: float
    gb_per_s: float

    @property
    def bytes(self) -> float:
        return self.start_s * self.gb_per_s * 1e9


@dataclass(frozen=True)
class Panel:
    title: str
    cells: tuple[Operator, ...]
    zones: tuple[Zone, ...]  # the widest first

    @property
    def series(self) -> list[list[Operator]]:
        """Cells that differ in S alone, in its order."""
        found: dict[tuple, list[Operator]] = {}
        for cell in sorted(self.cells, key=lambda cell: cell.bytes):
            shape = [item for item in cell.shape.items() if item[0] != "seq_len"]
            found.setdefault((cell.implementation, cell.dtype, cell.cache, *shape), []).append(cell)
        return list(found.values())

    @property
    def batches(self) -> list[tuple[int, float, float]]:
        """Each batch size with its fewest and most bytes."""
        sizes = sorted({cell.shape["batch"] for cell in self.cells})
        of = {size: [cell.bytes for cell in self.cells if cell.shape["batch"] == size] for size in sizes}
        return [(size, min(of[size]), max(of[size])) for size in sizes]


def panels(roofline: Roofline, records: Sequence[DecodeAttnRecord]) -> list[Panel]:
    """GPUs first, as in the picture of the roofline."""
    found = []
    for device, entry in sorted(roofline.devices.items(), key=lambda item: item[1].kind != "gpu"):
        cells = [cell for cell in roofline.operators if cell.device == device and _has_place(cell)]
        presets = list(dict.fromkeys(cell.preset for cell in cells))
        for preset in presets:
            mine = tuple(cell for cell in cells if cell.preset == preset)
            title = f"{device}: {entry.name}" + (f", {preset}" if len(presets) > 1 else "")
            zones = tuple(sorted(_zones(device, preset, mine, roofline, records), key=lambda zone: -zone.bytes))
            found.append(Panel(title, mine, zones))
    return found


def _has_place(cell: Operator) -> bool:
    core = cell.operator == "decode_attention" and cell.scope == "core"
    return bool(core and cell.bytes and cell.fraction_of_roof)


def _zones(
    device: str, preset: str, cells: Sequence[Operator], roofline: Roofline, records: Sequence[DecodeAttnRecord]
) -> Iterable[Zone]:
    speeds = {c.name: c.gb_per_s for c in roofline.ceilings if c.device == device and c.kind == "memory"}
    mine = [record for record in records if (record.device, record.preset) == (device, preset)]
    for implementation in dict.fromkeys(cell.implementation for cell in cells):
        starts = [
            one.overhead_s
            for record in mine
            for one in record.measurements
            if one.scope == "core" and one.implementation == implementation and one.overhead_s
        ]
        slope = next((cell.memory_ceiling for cell in cells if cell.implementation == implementation), None)
        if starts and slope in speeds:
            yield Zone(implementation, median(starts), speeds[slope])


def draw(roofline: Roofline, records: Sequence[DecodeAttnRecord]) -> Figure:
    """A panel below the other; without any, paper that says so."""
    found = panels(roofline, records)
    below = wrapped(MARKS if found else NOTHING, WIDTH - 2 * MARGIN, SMALL_SIZE)
    heights = [_head(panel) + HIGH + _foot(panel) for panel in found]
    height = 2 * MARGIN + TITLE_SIZE + 4.0 + ROW * len(below) + sum(heights) + GAP * len(found)
    with matplotlib.rc_context(STYLE):
        figure = blank(WIDTH, height, TITLE)
        points = in_points(figure, Point(0, 0))
        top = height - MARGIN - TITLE_SIZE
        figure.text(MARGIN, top, TITLE, size=TITLE_SIZE, color=INK, weight="bold", transform=points)
        top -= 4.0
        for line in below:
            top -= ROW
            figure.text(MARGIN, top, line, size=SMALL_SIZE, color=MUTED, transform=points)
        for panel, high in zip(found, heights, strict=True):
            top -= GAP
            _paint(figure, panel, top, points)
            top -= high
    return figure


def _head(panel: Panel) -> float:
    return TEXT_SIZE + 8.0 + ROW * _rows(panel)


def _foot(panel: Panel) -> float:
    return TICKS_BELOW + ROW * len(panel.zones)


def _rows(panel: Panel) -> int:
    """Of brackets above the frame: one, unless batch sizes have bytes in common."""
    return 1 if all(one[2] < other[1] for one, other in pairwise(panel.batches)) else len(panel.batches)


# ------------------------------------------------------------------------------------------------ the scale


@dataclass(frozen=True)
class Scale:
    """Bytes, logarithmic, and shares, linear, over a frame."""

    first: float
    last: float
    most: float
    frame: Box

    def x(self, size: float) -> float:
        share = log10(size / self.first) / log10(self.last / self.first)
        return self.frame.x0 + (self.frame.x1 - self.frame.x0) * min(max(share, 0.0), 1.0)

    def at(self, size: float, share: float) -> Point:
        return Point(self.x(size), self.frame.y0 + (self.frame.y1 - self.frame.y0) * share / self.most)


def _scale(panel: Panel, frame: Box) -> Scale:
    sizes = [cell.bytes for cell in panel.cells]
    shares = [max(cell.fraction_of_roof, cell.device_fraction_of_roof or 0) for cell in panel.cells]
    return Scale(min(sizes) / 2.5, 2.5 * max(sizes), 1.08 * max(1.0, *shares), frame)


def in_decimal(size: float) -> str:
    """Bytes as bandwidths count them: 262 kB, 1.07 GB."""
    power = min(max(0, floor(log10(size) / 3)), len(PREFIXES) - 1) if size >= 1 else 0
    return f"{number(size / 1e3**power)} {PREFIXES[power]}"


def _sizes(scale: Scale) -> list[tuple[float, str]]:
    powers = range(ceil(log10(scale.first)), floor(log10(scale.last)) + 1)
    return [(scale.x(10.0**power), f"{10 ** (power % 3)} {PREFIXES[power // 3]}") for power in powers if power < 15]


def _shares(scale: Scale) -> list[tuple[float, str]]:
    """With 100 % among them, as long as nothing is several times above it."""
    step = 0.2 if scale.most <= 1.4 else 0.5 if scale.most <= 3.5 else ceil(scale.most / 6)
    count = floor(scale.most / step + 1e-9)
    return [(scale.at(scale.first, step * i).y, f"{100 * step * i:.0f} %") for i in range(count + 1)]


# ------------------------------------------------------------------------------------------------ the paint


def _paint(figure: Figure, panel: Panel, top: float, points: Transform) -> None:
    high = top - _head(panel)
    frame = Box(MARGIN + LEFT, high - HIGH, WIDTH - MARGIN - LANE, high)
    scale = _scale(panel, frame)
    title = shortened(panel.title, WIDTH - 2 * MARGIN, TEXT_SIZE + 1)
    figure.text(MARGIN, top - TEXT_SIZE, title, size=TEXT_SIZE + 1, color=INK, weight="bold", transform=points)
    _paint_zones(figure, panel, scale, points)
    small_axes(figure, frame, _sizes(scale), _shares(scale), ("bytes moved a step", "of the roof"), points)
    curve(figure, [scale.at(scale.first, 1), scale.at(scale.last, 1)], points, color=INK, linewidth=1.0, zorder=2)
    _paint_batches(figure, panel, scale, points)
    _paint_dots(figure, panel, scale, points)
    _paint_labels(figure, panel, scale, points)
    _paint_legend(figure, panel, frame, points)


def _paint_zones(figure: Figure, panel: Panel, scale: Scale, points: Transform) -> None:
    """Shades within the frame, and below it a row for each with what it is."""
    x0, y0, x1, y1 = scale.frame
    for i, zone in enumerate(panel.zones):
        end, low = scale.x(zone.bytes), y0 - TICKS_BELOW - ROW * (i + 1)
        shade = SHADES[min(i, len(SHADES) - 1)]
        for corner, high in (((x0, y0), y1 - y0), ((x0, low + 2), ROW - 3)):
            box = Rectangle(
                corner, end - x0, high, facecolor=shade, linewidth=0, transform=points, zorder=0.1 + i / 100
            )
            figure.add_artist(box)
        if x0 < end < x1:
            curve(figure, [Point(end, y0), Point(end, y1)], points, color=MUTED, linewidth=0.4, linestyle=(0, (2, 2)))
        words = (
            f"{zone.implementation}: starting takes {duration(zone.start_s)}, in which {number(zone.gb_per_s)} GB/s "
            f"move {in_decimal(zone.bytes)}"
        )
        fits = text_width(words, SMALL_SIZE) + 8 < end - x0
        at = x0 + 4 if fits else end + 4
        at = min(at, WIDTH - MARGIN - text_width(words, SMALL_SIZE))
        figure.text(at, low + 3, words, size=SMALL_SIZE, color=MUTED, transform=points)


def _paint_batches(figure: Figure, panel: Panel, scale: Scale, points: Transform) -> None:
    """Brackets above the frame."""
    rows = _rows(panel)
    for i, (batch, first, last) in enumerate(panel.batches):
        y = scale.frame.y1 + 3.0 + (ROW * (rows - 1 - i) if rows > 1 else 0.0)
        left, right = scale.x(first) - DOT_RADIUS, scale.x(last) + DOT_RADIUS
        ends = Point(left, y - 1), Point(left, y + 1), Point(right, y + 1), Point(right, y - 1)
        curve(figure, ends, points, color=MUTED, linewidth=0.6)
        words = f"batch {batch}"
        at = right + 4 if rows > 1 else (left + right) / 2 - text_width(words, SMALL_SIZE) / 2
        figure.text(at, y - 1 if rows > 1 else y + 3, words, size=SMALL_SIZE, color=MUTED, transform=points)


def _paint_dots(figure: Figure, panel: Panel, scale: Scale, points: Transform) -> None:
    for cells in panel.series:
        colour, marker = dtype_colour(cells[0].dtype), _marker(cells[0].implementation)
        edge = {"markeredgecolor": "#ffffff", "markeredgewidth": 0.5}
        callers = [scale.at(cell.bytes, cell.fraction_of_roof) for cell in cells]
        look = {"color": colour, "marker": marker, "markersize": MARKER, "linewidth": 0.8, "zorder": 4}
        curve(figure, callers, points, **look, **edge)
        for cell, at in zip(cells, callers, strict=True):
            if _differs(cell):
                alone = scale.at(cell.bytes, cell.device_fraction_of_roof)
                curve(figure, [at, alone], points, color=colour, linewidth=0.35, zorder=2.8)
                look = {"color": colour, "marker": marker, "markersize": HOLLOW, "markerfacecolor": "#ffffff"}
                curve(figure, [alone], points, **look, markeredgewidth=0.7, zorder=3)


def _differs(cell: Operator) -> bool:
    return bool(cell.device_fraction_of_roof) and cell.device_fraction_of_roof > DIFFERS * cell.fraction_of_roof


def _marker(implementation: str | None) -> str:
    return KNOWN_MARKERS.get(f"decode attention, {implementation}", "o")


def _paint_labels(figure: Figure, panel: Panel, scale: Scale, points: Transform) -> None:
    """The share at the end of each line, where there is room."""
    frame, dots, lines, wanted = scale.frame, [], [], []
    for cells in panel.series:
        at = [scale.at(cell.bytes, cell.fraction_of_roof) for cell in cells]
        dots += at + [scale.at(cell.bytes, cell.device_fraction_of_roof) for cell in cells if _differs(cell)]
        lines += [Segment(*pair) for pair in pairwise(at)]
        words, colour = percent(cells[-1].fraction_of_roof), readable(dtype_colour(cells[-1].dtype))
        label = Label((at[-1],), text_width(words, SMALL_SIZE) + 2 * AIR, SMALL_SIZE + AIR)
        wanted.append((words, colour, label))
    whole = Segment(scale.at(scale.first, 1), scale.at(scale.last, 1))
    around = Surroundings(
        bounds=Box(frame.x0 + 2, frame.y0 + 2, frame.x1 - 2, frame.y1 - 2),
        dots=tuple(Box(at.x - DOT_RADIUS, at.y - DOT_RADIUS, at.x + DOT_RADIUS, at.y + DOT_RADIUS) for at in dots),
        lines=(*lines, whole),
    )
    for (words, colour, _), found in zip(wanted, place([label for *_, label in wanted], around), strict=True):
        if found:
            box, (start, end) = found
            figure.text(box.x0 + AIR, box.y0 + AIR, words, size=SMALL_SIZE, color=colour, transform=points)
            if abs(end.x - start.x) + abs(end.y - start.y) > 3 * DOT_RADIUS:
                curve(figure, [start, end], points, color=colour, linewidth=0.35)


def _paint_legend(figure: Figure, panel: Panel, frame: Box, points: Transform) -> None:
    """Right of the frame: markers, then colours."""
    implementations = list(dict.fromkeys(cell.implementation for cell in panel.cells))
    entries = [(_marker(name), INK, True, str(name)) for name in implementations]
    entries += [("s", dtype_colour(name), True, name) for name in dict.fromkeys(cell.dtype for cell in panel.cells)]
    if any(map(_differs, panel.cells)):
        entries.append(("o", MUTED, False, "hollow: the device alone"))
    left = frame.x1 + 14.0
    for i, (marker, colour, filled, words) in enumerate(entries):
        y = frame.y1 - 6.0 - 13.0 * i
        look = {"color": colour, "marker": marker, "markersize": MARKER if filled else HOLLOW, "markeredgewidth": 0.7}
        curve(figure, [Point(left, y)], points, **look, markerfacecolor=colour if filled else "#ffffff")
        words = shortened(words, WIDTH - MARGIN - left - 9, TEXT_SIZE)
        figure.text(left + 9, y - 0.36 * TEXT_SIZE, words, size=TEXT_SIZE, color=INK, transform=points)
