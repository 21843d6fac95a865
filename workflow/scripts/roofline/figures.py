"""The roofline as a picture: results/roofline.json in, roofline.png and roofline.svg out.

Words, then layout, then paint. All layout is done in points (1/72 inch), on text measured by font metrics, so
that every format and every resolution shows the same picture, and the same data give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import atan2, cos, degrees, dist, log10, pi, sin
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.textpath import TextToPath
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from matplotlib.transforms import Affine2D, Transform

from roofline.label_placement import (
    Box,
    Label,
    Obstacles,
    Placed,
    Point,
    Segment,
    covered,
    list_beside,
    longest_free_run,
    place,
)

# Okabe and Ito's palette, safe for the colour-blind. A dtype has one colour, as a ceiling and as a dot.
DTYPE_COLOURS = {
    "fp64": "#009E73",
    "fp32": "#D55E00",
    "tf32": "#E69F00",
    "fp16": "#0072B2",
    "bf16": "#56B4E9",
    "fp8_e4m3": "#CC79A7",
    "int8": "#000000",
}
OTHER_DTYPE = "#777777"
INK, MUTED, FAINT, PAPER = "#22262b", "#646a73", "#dfe2e6", "#ffffff"
SLOPE = "#4a515b"
MARKERS = "osD^vPXph*<>8d"
UNITS = {"tensor_core": "tensor cores", "cuda_core": "CUDA cores"}
HOST_LINK = ("h2d", "d2h")
BOLD = {"d2d": "measured device-to-device copy", "dram_copy": "measured copy in memory"}
MANY_SLOPES = 4  # with more of them their labels are kept brief

# Points. The picture is 720 wide: at 900 pixels a text of 8 points is 10 pixels high.
WIDTH, MARGIN, AXIS_WIDTH, LANE_INDENT = 720.0, 14.0, 42.0, 16.0
TITLE_SIZE, TEXT_SIZE, DOT_SIZE, NOTE_SIZE = 14.0, 8.0, 7.5, 7.5
HEADER, AXIS_HEIGHT, LINE, PANEL_GAP = 42.0, 34.0, 11.0, 26.0
STRIP, DOT_RADIUS, LEGEND_LINE, SLOPE_LINE = 11.0, 3.6, 13.0, 9.5
POINTS_A_DECADE, LOWEST_PANEL = 66.0, 270.0
GROWTHS, LONG_LEADER = (1.0, 1.15, 1.35, 1.6, 2.0), 85.0
COLUMNS_FROM = 4  # with so many devices the panels stand in two columns
FONT = {
    # Browsers without DejaVu Sans take a narrower font, so that labels which do not overlap here do not there.
    "font.family": ["DejaVu Sans", "sans-serif"],
    "svg.fonttype": "none",
    "svg.hashsalt": "roofline",
    "text.hinting": "none",
}
COUNTING = (
    "Every line and every filled dot is measured. Per cent: attained of the dot's own roof, which is the lower of "
    "its dtype's ceiling and intensity × the bandwidth of its memory level. A multiply-add is two FLOPs. Bytes: "
    "GEMM, A, B and C once each; decode attention, K and V once (block: and the projections' weights); a copy, read "
    "plus written. Vendor: the dense peak, without sparsity."
)


def draw(roofline: dict, paths: list[Path], dpi: int) -> None:
    """Write the picture of a validated results/roofline.json to each path, as its suffix says."""
    with matplotlib.rc_context(FONT):
        figure = _figure(roofline, dpi)
        for path in paths:
            path = Path(path)
            when = {"Date": None} if path.suffix == ".svg" else {}
            figure.savefig(path, dpi=dpi, metadata={**when, **_metadata(path.suffix, roofline)})


def _metadata(suffix: str, roofline: dict) -> dict:
    names = ", ".join(device["name"] for device in roofline["devices"].values())
    return {"Title": f"Measured roofline: {names}"} if suffix in (".png", ".svg") else {}


def _figure(roofline: dict, dpi: int) -> Figure:
    markers = _markers(roofline["operators"])
    panels = [_panel(roofline, device, markers) for device in _in_order(roofline["devices"])]
    page = _page([_lay_out(panel) for panel in panels])
    figure = Figure(figsize=(page.width / 72, page.height / 72), dpi=dpi, facecolor=PAPER)
    FigureCanvasAgg(figure)
    for layout, origin in page.panels:
        _paint_panel(figure, page, layout, origin)
    points = Affine2D().scale(1 / 72) + figure.dpi_scale_trans
    for i, line in enumerate(page.footer):
        baseline = MARGIN + LINE * (len(page.footer) - 1 - i)
        figure.text(MARGIN, baseline, line, size=NOTE_SIZE, color=MUTED, transform=points)
    return figure


def _in_order(devices: dict) -> list[str]:
    return sorted(devices, key=lambda device: devices[device]["kind"] != "gpu")


# ---------------------------------------------------------------------------------------------------- words


def percent(fraction: float) -> str:
    """Two significant digits, whole numbers from 10 % on."""
    value = 100 * fraction
    if value >= 9.95:
        return f"{value:.0f} %"
    if value <= 0:
        return "0 %"
    digits = max(1, 1 - int(_floor(log10(value))))
    text = f"{value:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if digits > 1 else text} %"


def number(value: float) -> str:
    """Three significant digits, all digits before the point."""
    if value <= 0:
        return "0"
    digits = max(0, 2 - int(_floor(log10(value))))
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if digits > 2 else text


def _floor(value: float) -> int:
    return int(value // 1)


def compute_text(ceiling: dict) -> str:
    name = " ".join(filter(None, [ceiling["name"], UNITS.get(ceiling["unit"])]))
    return f"{name} {number(ceiling['tflops'])} TFLOPS{_of_vendor(ceiling)}"


def memory_text(ceiling: dict) -> str:
    return f"{ceiling['name']} {number(ceiling['gb_per_s'])} GB/s{_of_vendor(ceiling)}"


def _of_vendor(ceiling: dict) -> str:
    fraction = ceiling.get("fraction_of_vendor")
    return "" if fraction is None else f" · {percent(fraction)} of vendor"


def operation_name(operator: dict) -> str:
    return str(operator.get("name") or operator["implementation"] or operator["operator"])


def marker_key(operator: dict) -> str:
    """What has a marker of its own: an implementation of an operator; all the user's operations share one."""
    if operator["operator"] == "operation":
        return "operations of the user"
    return ", ".join(filter(None, [operator["operator"].replace("_", " "), operator["implementation"]]))


def _markers(operators: Iterable[dict]) -> dict[str, str]:
    keys = dict.fromkeys(marker_key(operator) for operator in operators)
    return {key: MARKERS[i % len(MARKERS)] for i, key in enumerate(keys)}


def dot_text(operator: dict, varying: set[str]) -> str:
    """What tells the dot from its neighbours, then its fraction of the roof."""
    fraction = operator["fraction_of_roof"]
    value = "not measured" if fraction is None else percent(fraction)
    return " ".join([*_distinctions(operator, varying), value])


def _distinctions(operator: dict, varying: set[str]) -> list[str]:
    shape = operator["shape"]
    if operator["operator"] == "operation":
        return [_shortened(operation_name(operator), 120.0)]
    if operator["operator"] == "gemm" and {"m", "n", "k"} <= shape.keys():
        return ["GEMM " + _product(shape["m"], shape["n"], shape["k"])]
    words = []
    if "seq_len" in shape:
        words.append(f"S={shape['seq_len']}")
    if "batch" in varying and "batch" in shape:
        words.append(f"b={shape['batch']}")
    words += [f"{key}={shape[key]}" for key in shape if key in varying and key not in ("seq_len", "batch")]
    if "scope" in varying and operator["scope"] not in (None, "core"):
        words.append(operator["scope"])
    words += [str(operator[key]) for key in ("cache", "preset") if key in varying and operator[key]]
    return words


def _product(m: int, n: int, k: int) -> str:
    return f"{m}³" if m == n == k else f"{m}×{n}×{k}"


def _varying(operators: Sequence[dict]) -> set[str]:
    """The fields in which operators of one kind differ: only these need to be told at every dot."""
    values: dict[tuple[str, str], set] = {}
    for operator in operators:
        fields = {key: operator.get(key) for key in ("scope", "cache", "preset")} | operator["shape"]
        for key, value in fields.items():
            values.setdefault((operator["operator"], key), set()).add(str(value))
    return {key for (_, key), found in values.items() if len(found) > 1}


@cache
def text_width(text: str, size: float, weight: str = "normal") -> float:
    font = FontProperties(family="DejaVu Sans", size=size, weight=weight)
    return TextToPath().get_text_width_height_descent(text, font, ismath=False)[0]


def _shortened(text: str, width: float, size: float = DOT_SIZE) -> str:
    """The text, without its middle where it is too wide."""
    if text_width(text, size) <= width:
        return text
    keep = next(n for n in range(len(text), 0, -1) if text_width(_without_middle(text, n), size) <= width or n == 1)
    return _without_middle(text, keep)


def _without_middle(text: str, keep: int) -> str:
    return text[: keep - keep // 3].rstrip() + "…" + text[len(text) - keep // 3 :].lstrip()


def _wrapped(text: str, width: float, size: float = NOTE_SIZE) -> list[str]:
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(longer, size) > width:
            lines.append(_shortened(word, width, size))
        else:
            lines[-1] = longer if lines[-1] else _shortened(word, width, size)
    return lines


# --------------------------------------------------------------------------------------------- what is shown


@dataclass(frozen=True)
class ComputeCeiling:
    tflops: float
    text: str
    colour: str
    sustained: float | None
    dashed: bool


@dataclass(frozen=True)
class MemoryCeiling:
    gb_per_s: float
    text: str
    bold: bool


@dataclass(frozen=True)
class Dot:
    x: float | None  # FLOP/byte; None where there is no traffic: at the right edge
    y: float  # TFLOPS
    text: str
    colour: str
    marker: str
    hollow: bool


@dataclass(frozen=True)
class Panel:
    """One device, in the picture's words and units."""

    title: str
    subtitle: str
    compute: tuple[ComputeCeiling, ...]
    memory: tuple[MemoryCeiling, ...]
    link: MemoryCeiling | None
    dots: tuple[Dot, ...]
    predicted: tuple[Dot, ...]
    legend: tuple[tuple[str, str, str, float | None], ...]  # marker, colour, text, size if hollow
    notes: tuple[str, ...]


def _panel(roofline: dict, device: str, markers: dict[str, str]) -> Panel:
    ceilings = [ceiling for ceiling in roofline["ceilings"] if ceiling["device"] == device]
    operators = [operator for operator in roofline["operators"] if operator["device"] == device]
    skipped = [item for item in roofline["skipped"] if item["device"] == device]
    memory = [ceiling for ceiling in ceilings if ceiling["kind"] == "memory"]
    slopes = [ceiling for ceiling in memory if ceiling["name"] not in HOST_LINK]
    dots, predicted = _dots(operators, markers), _predicted(operators, markers)
    return Panel(
        title=_shortened(roofline["devices"][device]["name"], 470.0, TITLE_SIZE),
        subtitle=_subtitle(device, slopes),
        compute=tuple(_compute(ceiling) for ceiling in ceilings if ceiling["kind"] == "compute"),
        memory=tuple(_memory(ceiling, len(slopes) > MANY_SLOPES) for ceiling in slopes),
        link=_link(memory),
        dots=dots,
        predicted=predicted,
        legend=_legend(operators, markers, dots, predicted),
        notes=tuple(_notes(ceilings, operators, skipped)),
    )


def _subtitle(device: str, slopes: Sequence[dict]) -> str:
    told = [f"bold slope = {BOLD[c['name']]}, {number(c['gb_per_s'])} GB/s" for c in slopes if c["name"] in BOLD]
    if len(slopes) > MANY_SLOPES:
        told.append("per cent on the slopes: of the vendor's figure")
    return " · ".join([device, "measured roofline", *told])


def _compute(ceiling: dict) -> ComputeCeiling:
    return ComputeCeiling(
        tflops=ceiling["tflops"],
        text=compute_text(ceiling),
        colour=dtype_colour(ceiling["name"]),
        sustained=ceiling.get("sustained_tflops"),
        dashed=ceiling["method"] == "fma",
    )


def _memory(ceiling: dict, brief: bool) -> MemoryCeiling:
    text = memory_text(ceiling)
    return MemoryCeiling(
        ceiling["gb_per_s"], text.replace(" of vendor", "") if brief else text, ceiling["name"] in BOLD
    )


def _link(memory: Sequence[dict]) -> MemoryCeiling | None:
    """The two directions of the host link differ by less than a line's width: one line, both values in a note."""
    found = [ceiling for ceiling in memory if ceiling["name"] in HOST_LINK]
    if not found:
        return None
    names = " and ".join(ceiling["name"] for ceiling in found)
    return MemoryCeiling(max(ceiling["gb_per_s"] for ceiling in found), f"host link: {names}", False)


def dtype_colour(name: str) -> str:
    """The colour of a dtype, or of a ceiling named after one (fp32_fma)."""
    return DTYPE_COLOURS.get(name) or DTYPE_COLOURS.get(name.split("_")[0], OTHER_DTYPE)


def _dots(operators: Sequence[dict], markers: dict[str, str]) -> tuple[Dot, ...]:
    varying = _varying(operators)
    found = []
    for operator in operators:
        measured = operator["attained_tflops"] is not None
        y = operator["attained_tflops"] if measured else operator["roof_tflops"]
        if _has_place(operator, y):
            found.append(
                Dot(
                    x=None if operator["no_traffic"] else operator["intensity_flops_per_byte"],
                    y=y,
                    text=dot_text(operator, varying),
                    colour=dtype_colour(operator["dtype"]),
                    marker=markers[marker_key(operator)],
                    hollow=not measured,
                )
            )
    return tuple(found)


def _has_place(operator: dict, y: float | None) -> bool:
    """Zero has no place on a logarithmic axis."""
    return bool(y) and (operator["no_traffic"] or bool(operator["intensity_flops_per_byte"]))


def _predicted(operators: Sequence[dict], markers: dict[str, str]) -> tuple[Dot, ...]:
    found = []
    for operator in operators:
        sealed = (operator.get("predicted") or {}).get("sealed") or {}
        x, latency = operator["intensity_flops_per_byte"], sealed.get("latency_s")
        if x and latency and operator["flops"] and operator["attained_tflops"]:
            y = operator["flops"] / latency / 1e12
            found.append(Dot(x, y, "", dtype_colour(operator["dtype"]), markers[marker_key(operator)], True))
    return tuple(found)


def _legend(
    operators: Sequence[dict], markers: dict[str, str], dots: Sequence[Dot], predicted: Sequence[Dot]
) -> tuple[tuple[str, str, str, float | None], ...]:
    entries = [(markers[key], INK, key, None) for key in dict.fromkeys(marker_key(o) for o in operators)]
    ceilings = {operator["compute_ceiling"] for operator in operators}
    without = dict.fromkeys(o["dtype"] for o in operators if o["dtype"] not in ceilings)
    entries += [("s", dtype_colour(dtype), f"{dtype} (no ceiling of its own)", None) for dtype in without]
    if any(dot.hollow for dot in dots):
        entries.append(("o", INK, "hollow: not measured, at its roof", 6.2))
    if predicted:
        entries.append(("o", MUTED, "small, hollow: as predicted", 3.0))
    return tuple(entries)


def _notes(ceilings: Sequence[dict], operators: Sequence[dict], skipped: Sequence[dict]) -> Iterable[str]:
    link = [memory_text(ceiling) for ceiling in ceilings if ceiling["name"] in HOST_LINK]
    if link:
        yield f"Host link: {'; '.join(link)}."
    if any(ceiling.get("sustained_tflops") for ceiling in ceilings):
        yield "Dotted: what the ceiling falls to under sustained load."
    if any(ceiling.get("method") == "fma" for ceiling in ceilings):
        yield "Dashed: multiply-adds in registers alone."
    if len({operator["scope"] for operator in operators} & {"core", "block"}) == 2:
        yield "Decode attention: the core alone, or where so marked the block with its projections."
    without_traffic = [operation_name(o) for o in operators if o["no_traffic"] and o["flops"]]
    if without_traffic:
        yield f"At the right edge, without traffic and so of infinite intensity: {', '.join(without_traffic)}."
    without_flops = [operation_name(o) for o in operators if not o["flops"]]
    if without_flops:
        yield f"Without FLOPs, so without a place on these axes: {', '.join(without_flops)}."
    for item in skipped:
        what = " ".join(filter(None, [item["what"], item.get("dtype"), item.get("level"), item.get("name")]))
        yield f"Skipped: {what} ({item['reason']})."


# --------------------------------------------------------------------------------------------------- layout


@dataclass(frozen=True)
class Scale:
    """Logarithmic axes over a frame, in points."""

    x0: float
    x1: float
    y0: float
    y1: float
    frame: Box

    def x(self, value: float) -> float:
        return self.frame.x0 + (self.frame.x1 - self.frame.x0) * log10(value / self.x0) / log10(self.x1 / self.x0)

    def y(self, value: float) -> float:
        return self.frame.y0 + (self.frame.y1 - self.frame.y0) * log10(value / self.y0) / log10(self.y1 / self.y0)

    def at(self, x: float, y: float) -> Point:
        return Point(self.x(x), self.y(y))

    @property
    def slope(self) -> float:
        """The angle of every memory ceiling."""
        across = (self.frame.x1 - self.frame.x0) / log10(self.x1 / self.x0)
        up = (self.frame.y1 - self.frame.y0) / log10(self.y1 / self.y0)
        return atan2(up, across)


@dataclass(frozen=True)
class Text:
    """A text at its baseline's start, turned by an angle."""

    at: Point
    text: str
    size: float
    colour: str
    angle: float = 0.0
    weight: str = "normal"


@dataclass(frozen=True)
class Stroke:
    points: tuple[Point, ...]
    colour: str
    width: float
    style: str = "-"
    order: float = 2.0


@dataclass(frozen=True)
class Spot:
    at: Point
    marker: str
    colour: str
    size: float
    hollow: bool = False


@dataclass(frozen=True)
class Layout:
    """Everything that a panel shows, at its place: points from the panel's lower left corner."""

    width: float
    height: float
    scale: Scale
    texts: tuple[Text, ...]
    strokes: tuple[Stroke, ...]
    spots: tuple[Spot, ...]
    regimes: tuple[tuple[Box, str], ...]
    homeless: tuple[str, ...]  # labels without a place
    longest_leader: float


@dataclass(frozen=True)
class Page:
    width: float
    height: float
    panels: tuple[tuple[Layout, Point], ...]
    footer: tuple[str, ...]


def _page(layouts: Sequence[Layout]) -> Page:
    """One panel under the other, or two abreast where there are many."""
    columns = 1 if len(layouts) < COLUMNS_FROM else 2
    rows = [layouts[i : i + columns] for i in range(0, len(layouts), columns)]
    width = columns * WIDTH
    footer = tuple(_wrapped(COUNTING, width - 2 * MARGIN))
    height = MARGIN + LINE * len(footer) + PANEL_GAP / 2
    placed = []
    for row in reversed(rows):
        tallest = max(layout.height for layout in row)
        placed += [(panel, Point(i * WIDTH, height + tallest - panel.height)) for i, panel in enumerate(row)]
        height += tallest + PANEL_GAP
    return Page(width, height - PANEL_GAP + MARGIN, tuple(placed), footer)


def _lay_out(panel: Panel) -> Layout:
    """The panel, as high as its labels need to stand near their dots; what has no place at all is told in a note."""
    least = _least_height(panel)
    layouts = []
    for growth in GROWTHS:
        layout = _arrange(panel, least * growth)
        if not layout.homeless and layout.longest_leader < LONG_LEADER:
            return layout
        layouts.append(layout)
    best = min(layouts, key=lambda layout: (len(layout.homeless), layout.longest_leader + 0.15 * layout.height))
    return _lay_out(_without(panel, best.homeless)) if best.homeless else best


def _without(panel: Panel, texts: Sequence[str]) -> Panel:
    """The panel without these labels, and with a note instead."""
    return replace(
        panel,
        dots=tuple(replace(dot, text="" if dot.text in texts else dot.text) for dot in panel.dots),
        memory=tuple(replace(c, text="" if c.text in texts else c.text) for c in panel.memory),
        notes=(*panel.notes, f"No room above for: {'; '.join(texts)}."),
    )


def _least_height(panel: Panel) -> float:
    low, high = _vertical_limits(panel, *_horizontal_limits(panel))
    lists = 1.5 * TEXT_SIZE * len(panel.compute) + LEGEND_LINE * len(panel.legend) + 40.0
    return max(LOWEST_PANEL, POINTS_A_DECADE * log10(high / low) + 40.0, lists)


def _arrange(panel: Panel, plot_height: float) -> Layout:
    notes = [line for note in panel.notes for line in _wrapped(note, WIDTH - 2 * MARGIN)]
    bottom = LINE * len(notes) + AXIS_HEIGHT
    lane = _lane_width(panel)
    frame = Box(MARGIN + AXIS_WIDTH, bottom, WIDTH - MARGIN - lane, bottom + plot_height)
    scale = _scale(panel, frame)
    compute, memory = _compute_lines(panel, scale), _memory_lines(panel, scale)
    lane_texts = _lane(panel, scale, WIDTH - MARGIN)
    slope_texts = _slope_texts(panel, scale, memory, compute)
    dots = [_spot_point(dot, scale) for dot in panel.dots]
    ghosts = [scale.at(dot.x, dot.y) for dot in panel.predicted]
    obstacles = _obstacles(scale, compute, memory, dots, ghosts, slope_texts)
    labelled = [i for i, dot in enumerate(panel.dots) if dot.text]
    placed = place([_label(panel.dots[i].text, dots[i]) for i in labelled], obstacles)
    housed = [(panel.dots[i], p) for i, p in zip(labelled, placed, strict=True) if p is not None]
    homeless = [panel.dots[i].text for i, p in zip(labelled, placed, strict=True) if p is None]
    if not slope_texts:
        homeless += [ceiling.text for ceiling in panel.memory if ceiling.text]
    link = _link_parts(panel, scale, obstacles.with_placed(placed))
    height = bottom + plot_height + HEADER
    return Layout(
        width=WIDTH,
        height=height,
        scale=scale,
        texts=(
            *_header(panel, height),
            *_note_texts(notes),
            *lane_texts[0],
            *slope_texts,
            *(_dot_label(dot, p) for dot, p in housed),
            *link[0],
        ),
        strokes=(
            *_compute_strokes(panel, compute, scale),
            *_memory_strokes(panel, memory),
            *lane_texts[1],
            *filter(None, (_leader(dot, p) for dot, p in housed)),
            *link[1],
            *_arrows(panel, scale),
        ),
        spots=(
            *(
                Spot(at, d.marker, _lighter(d.colour, 0.3), 3.0, True)
                for d, at in zip(panel.predicted, ghosts, strict=True)
            ),
            *(Spot(at, d.marker, d.colour, 6.2, d.hollow) for d, at in zip(panel.dots, dots, strict=True)),
            *lane_texts[2],
        ),
        regimes=_regimes(panel, scale),
        homeless=tuple(homeless),
        longest_leader=max((dist(*p.leader) for _, p in housed), default=0.0),
    )


def _lane_width(panel: Panel) -> float:
    """The strip right of the plot: the compute ceilings' labels, and the legend below them."""
    widths = [text_width(ceiling.text, TEXT_SIZE) for ceiling in panel.compute]
    widths += [min(text_width(text, TEXT_SIZE) + 10.0, 190.0) for _, _, text, _ in panel.legend]
    return max(widths, default=0.0) + LANE_INDENT + 2.0


# -- axes


def _horizontal_limits(panel: Panel) -> tuple[float, float]:
    """The intensities that have to be seen."""
    ridges = [c.tflops * 1e3 / m.gb_per_s for c in panel.compute for m in panel.memory]
    dots = [dot.x for dot in panel.dots + panel.predicted if dot.x]
    low = min([*dots, *(ridge / 20 for ridge in ridges)], default=0.1)
    high = max([*dots, *(ridge * 5 for ridge in ridges)], default=1e3)
    return low, max(high, 10 * low)


def _vertical_limits(panel: Panel, low: float, high: float) -> tuple[float, float]:
    dots = [dot.y for dot in panel.dots + panel.predicted]
    peaks = [c.tflops for c in panel.compute]
    slopes = [low * m.gb_per_s / 1e3 for m in panel.memory]
    tops = dots + (peaks or [high * m.gb_per_s / 1e3 for m in panel.memory])
    bottom = min(dots + slopes + [peak / 30 for peak in peaks], default=1e-3)
    return bottom, max(max(tops, default=1.0), 10 * bottom)


def _scale(panel: Panel, frame: Box) -> Scale:
    low, high = _horizontal_limits(panel)
    bottom, top = _vertical_limits(panel, low, high)
    left, right = _room_for_labels(panel, low), 30.0 if all(dot.x for dot in panel.dots) else 70.0
    width, height = frame.x1 - frame.x0, frame.y1 - frame.y0
    across = log10(high / low) / (width - left - right)
    below, above = 18.0, 22.0 + STRIP
    up = log10(top / bottom) / (height - below - above)
    return Scale(
        low / 10 ** (across * left),
        high * 10 ** (across * right),
        bottom / 10 ** (up * below),
        top * 10 ** (up * above),
        frame,
    )


def _room_for_labels(panel: Panel, low: float) -> float:
    """Space left of the leftmost dots, enough for a column of their labels."""
    leftmost = [text_width(dot.text, DOT_SIZE) for dot in panel.dots if dot.x and dot.x < 1.2 * low]
    return max(leftmost) + 24.0 if len(leftmost) > 2 else 40.0


# -- ceilings


def _compute_lines(panel: Panel, scale: Scale) -> list[Segment]:
    """Each from its first ridge point rightwards, sustained ones after the others."""
    levels = [c.tflops for c in panel.compute] + [c.sustained for c in panel.compute if c.sustained]
    return [_compute_line(panel, scale, level) for level in levels]


def _compute_line(panel: Panel, scale: Scale, tflops: float) -> Segment:
    fastest = max((m.gb_per_s for m in panel.memory), default=None)
    start = scale.x0 if fastest is None else max(scale.x0, tflops * 1e3 / fastest)
    return Segment(scale.at(start, tflops), scale.at(scale.x1, tflops))


def _memory_lines(panel: Panel, scale: Scale) -> list[Segment]:
    return [_memory_line(panel, scale, ceiling.gb_per_s) for ceiling in panel.memory]


def _memory_line(panel: Panel, scale: Scale, gb_per_s: float) -> Segment:
    """From the left or lower edge up to the highest compute ceiling."""
    top = max((c.tflops for c in panel.compute), default=scale.y1)
    start = max(scale.x0, scale.y0 * 1e3 / gb_per_s)
    end = min(scale.x1, top * 1e3 / gb_per_s)
    return Segment(scale.at(start, start * gb_per_s / 1e3), scale.at(end, end * gb_per_s / 1e3))


def _compute_strokes(panel: Panel, lines: Sequence[Segment], scale: Scale) -> Iterable[Stroke]:
    for ceiling, line in zip(panel.compute, lines, strict=False):
        yield Stroke(tuple(line), ceiling.colour, 1.6, (0, (5, 2)) if ceiling.dashed else "-", 2.2)
        if ceiling.sustained:
            sustained = _compute_line(panel, scale, ceiling.sustained)
            yield Stroke(tuple(sustained), _lighter(ceiling.colour, 0.45), 0.9, (0, (1, 1.6)), 2.1)


def _memory_strokes(panel: Panel, lines: Sequence[Segment]) -> Iterable[Stroke]:
    for ceiling, line in zip(panel.memory, lines, strict=True):
        yield Stroke(tuple(line), SLOPE if ceiling.bold else _lighter(SLOPE, 0.25), 2.0 if ceiling.bold else 1.0)


def _lane(panel: Panel, scale: Scale, right: float) -> tuple[list[Text], list[Stroke], list[Spot]]:
    """The compute ceilings' labels at the ends of their lines, spread where these are close; below, the legend."""
    left = scale.frame.x1 + LANE_INDENT
    legend_top = scale.frame.y0 + LEGEND_LINE * len(panel.legend)
    targets = [scale.y(ceiling.tflops) for ceiling in panel.compute]
    centres = list_beside(targets, TEXT_SIZE * 1.45, legend_top + 10.0, scale.frame.y1) or targets
    texts, strokes, spots = [], [], []
    for ceiling, target, centre in zip(panel.compute, targets, centres, strict=True):
        texts.append(Text(Point(left, centre - 0.36 * TEXT_SIZE), ceiling.text, TEXT_SIZE, _readable(ceiling.colour)))
        elbow = (Point(scale.frame.x1, target), Point(scale.frame.x1 + 3, target), Point(left - 5, centre))
        strokes.append(Stroke((*elbow, Point(left - 2.5, centre)), ceiling.colour, 0.8))
    for i, (marker, colour, text, hollow) in enumerate(panel.legend):
        centre = legend_top - LEGEND_LINE * (i + 0.5)
        spots.append(Spot(Point(left, centre), marker, colour, hollow or 6.2, bool(hollow)))
        shown = _shortened(text, right - left - 9, TEXT_SIZE)
        texts.append(Text(Point(left + 9, centre - 0.36 * TEXT_SIZE), shown, TEXT_SIZE, INK))
    return texts, strokes, spots


@dataclass(frozen=True)
class Sloped:
    """A memory ceiling's label and line, in the plane turned back so that the line is level."""

    text: str
    weight: str
    width: float
    line: Segment

    @property
    def target(self) -> float:
        return self.line.start.y + SLOPE_LINE / 2 + 1.5


def _slope_texts(panel: Panel, scale: Scale, memory: Sequence[Segment], compute: Sequence[Segment]) -> list[Text]:
    """The memory ceilings' labels along their lines, in one column or, where that reads better, in two.

    A label stands above its line, or below it where the lines are close to each other. None, if there is no room.
    """
    angle = scale.slope
    named = [_sloped(c, line.turned(-angle)) for c, line in zip(panel.memory, memory, strict=True) if c.text]
    named.sort(key=lambda label: label.target)
    if not named:
        return []
    walls = [line.turned(-angle) for line in (*compute, *memory, *_edges(scale.frame))]
    dots = [_square(_spot_point(dot, scale).turned(-angle), 5) for dot in panel.dots + panel.predicted]
    start = max(label.line.start.x for label in named) + 6
    one = _slope_column(named, start, walls, dots)
    two = _two_slope_columns(named, start, walls, dots) if len(named) > 2 else None
    found = [each for each in (one, two) if each is not None]
    if not found:
        return []
    _, lower_left_corners = min(found)
    return [
        Text(at.turned(angle), label.text, TEXT_SIZE, SLOPE, degrees(angle), label.weight)
        for label, at in zip(named, lower_left_corners, strict=True)
    ]


def _sloped(ceiling: MemoryCeiling, line: Segment) -> Sloped:
    weight = "bold" if ceiling.bold else "normal"
    return Sloped(ceiling.text, weight, text_width(ceiling.text, TEXT_SIZE, weight), line)


def _two_slope_columns(
    named: Sequence[Sloped], start: float, walls: Sequence[Segment], dots: Sequence[Box]
) -> tuple[float, list[Point]] | None:
    """Every other label further along."""
    near, far = named[1::2], named[::2]
    one = _slope_column(near, start, walls, dots)
    if one is None:
        return None
    end = max(at.x + label.width for at, label in zip(one[1], near, strict=True))
    other = _slope_column(far, end + 12, walls, dots)
    if other is None:
        return None
    places = dict(zip((*near, *far), (*one[1], *other[1]), strict=True))
    return one[0] + other[0], [places[label] for label in named]


def _slope_column(
    named: Sequence[Sloped], start: float, walls: Sequence[Segment], dots: Sequence[Box]
) -> tuple[float, list[Point]] | None:
    """What a column costs, and where its labels' baselines begin: as near the lines and as far left as is free."""
    targets = [label.target for label in named]
    low, high = min(targets) - 60, max(targets) + 60
    best: tuple[float, list[Point]] | None = None
    for left in np.arange(start, min(label.line.end.x - label.width for label in named), 6.0):
        taken = []
        for label in named:
            strip = Box(left - 2, low, left + label.width + 2, high)
            taken.append([_span(wall, strip) for wall in walls if covered(wall, strip)])
            taken[-1] += [(dot.y0, dot.y1) for dot in dots if dot.overlaps(strip)]
        centres = list_beside(targets, SLOPE_LINE, low, high, taken)
        if centres is None:
            continue
        cost = sum((c - t) ** 2 for c, t in zip(centres, targets, strict=True)) + 0.5 * (left - start)
        if best is None or cost < best[0]:
            best = cost, [Point(float(left), centre - 0.36 * TEXT_SIZE) for centre in centres]
    return best


def _edges(frame: Box) -> list[Segment]:
    corner = Point(frame.x0, frame.y1)
    return [Segment(Point(frame.x0, frame.y0), corner), Segment(corner, Point(frame.x1, frame.y1))]


def _span(segment: Segment, box: Box) -> tuple[float, float]:
    """The heights that the segment has within the box, with a little air."""
    shares = covered(segment, box) or (0.0, 1.0)
    heights = [segment.start.y + (segment.end.y - segment.start.y) * share for share in shares]
    return min(heights) - 1.2, max(heights) + 1.2


def _link_parts(panel: Panel, scale: Scale, obstacles: Obstacles) -> tuple[list[Text], list[Stroke]]:
    """The host link, far below the rest: lightly, and only where it disturbs no label."""
    if panel.link is None:
        return [], []
    ridge = min((c.tflops for c in panel.compute), default=scale.y1)
    end = min(scale.x1, 0.8 * ridge * 1e3 / panel.link.gb_per_s)
    start = max(scale.x0, scale.y0 * 1e3 / panel.link.gb_per_s)
    if start >= end:
        return [], []
    whole = Segment(scale.at(start, start * panel.link.gb_per_s / 1e3), scale.at(end, end * panel.link.gb_per_s / 1e3))
    boxes = [box.grown(6) for box in obstacles.labels + obstacles.dots] + [_around(s) for s in obstacles.leaders]
    run = longest_free_run(whole, boxes)
    width = text_width(panel.link.text, TEXT_SIZE)
    if run is None or run.end.x - run.start.x < width * cos(scale.slope) + 30:
        return [], []
    angle = scale.slope
    end_of_text = run.end.turned(-angle)
    at = Point(end_of_text.x - width - 4, end_of_text.y + 3).turned(angle)
    line = Stroke(tuple(run), _lighter(SLOPE, 0.55), 1.0, (0, (1, 1.6)))
    return [Text(at, panel.link.text, TEXT_SIZE, MUTED, degrees(angle))], [line]


def _around(segment: Segment) -> Box:
    (ax, ay), (bx, by) = segment
    return Box(min(ax, bx), min(ay, by), max(ax, bx), max(ay, by))


def _regimes(panel: Panel, scale: Scale) -> tuple[tuple[Box, str], ...]:
    """What bounds a kernel at each intensity: left of every ridge point memory, right of all compute."""
    slopes = [m.gb_per_s for m in panel.memory if m.bold] or [m.gb_per_s for m in panel.memory]
    ridges = [c.tflops * 1e3 / slope for c in panel.compute for slope in slopes]
    if not ridges:
        return ()
    x0, x1 = scale.frame.x0, scale.frame.x1
    first, last = (min(max(scale.x(ridge), x0), x1) for ridge in (min(ridges), max(ridges)))
    low, high = scale.frame.y1 - STRIP, scale.frame.y1
    spans = [(x0, first, "memory-bound"), (first, last, "depends on dtype"), (last, x1, "compute-bound")]
    return tuple(
        (Box(start, low, end, high), text if text_width(text, NOTE_SIZE) + 6 < end - start else "")
        for start, end, text in spans
        if end > start
    )


# -- dots


def _spot_point(dot: Dot, scale: Scale) -> Point:
    return Point(scale.frame.x1 - 16, scale.y(dot.y)) if dot.x is None else scale.at(dot.x, dot.y)


def _square(at: Point, radius: float) -> Box:
    return Box(at.x - radius, at.y - radius, at.x + radius, at.y + radius)


def _label(text: str, at: Point) -> Label:
    return Label(at, text_width(text, DOT_SIZE) + 3, DOT_SIZE * 1.3)


def _obstacles(
    scale: Scale,
    compute: Sequence[Segment],
    memory: Sequence[Segment],
    dots: Sequence[Point],
    ghosts: Sequence[Point],
    slope_texts: Sequence[Text],
) -> Obstacles:
    frame = scale.frame
    return Obstacles(
        bounds=Box(frame.x0 + 3, frame.y0 + 3, frame.x1 - 3, frame.y1 - STRIP - 3),
        dots=tuple(_square(at, DOT_RADIUS + 0.8) for at in dots) + tuple(_square(at, 2.2) for at in ghosts),
        lines=tuple(edge for line in compute for edge in _thick(line)),
        walls=tuple(edge for line in memory for edge in _thick(line)),
        labels=tuple(box for text in slope_texts for box in _boxes_along(text)),
    )


def _thick(line: Segment) -> list[Segment]:
    """A line with its width: its upper and its lower edge, with a little air."""
    (ax, ay), (bx, by) = line
    return [Segment(Point(ax, ay + air), Point(bx, by + air)) for air in (-1.5, 1.5)]


def _boxes_along(text: Text) -> list[Box]:
    """A turned text as a chain of upright boxes."""
    angle = text.angle * pi / 180
    width = text_width(text.text, text.size, text.weight)
    count = max(1, int(width // 5))
    boxes = []
    for i in range(count + 1):
        along = width * i / count
        x = text.at.x + along * cos(angle) - 0.35 * text.size * sin(angle)
        y = text.at.y + along * sin(angle) + 0.35 * text.size * cos(angle)
        boxes.append(_square(Point(x, y), 0.62 * text.size))
    return boxes


def _dot_label(dot: Dot, placed: Placed) -> Text:
    box = placed.box
    baseline = (box.y0 + box.y1) / 2 - 0.36 * DOT_SIZE
    return Text(Point(box.x0 + 1.5, baseline), dot.text, DOT_SIZE, _readable(dot.colour))


def _leader(dot: Dot, placed: Placed) -> Stroke | None:
    """From the marker's edge to the label; none where the label touches its dot."""
    start, end = placed.leader
    length = dist(start, end)
    if length < 12:
        return None
    share = DOT_RADIUS / length
    edge = Point(start.x + (end.x - start.x) * share, start.y + (end.y - start.y) * share)
    return Stroke((edge, end), _lighter(dot.colour, 0.5), 0.5, "-", 1.9)


def _arrows(panel: Panel, scale: Scale) -> Iterable[Stroke]:
    """Infinite intensity lies further right than any picture is wide."""
    for dot in panel.dots:
        if dot.x is None:
            at = _spot_point(dot, scale)
            tip = Point(scale.frame.x1 - 1, at.y)
            yield Stroke((Point(at.x + DOT_RADIUS, at.y), tip), dot.colour, 1.0)
            yield Stroke((Point(tip.x - 3, at.y + 2.5), tip, Point(tip.x - 3, at.y - 2.5)), dot.colour, 1.0)


def _header(panel: Panel, height: float) -> list[Text]:
    return [
        Text(Point(MARGIN, height - TITLE_SIZE), panel.title, TITLE_SIZE, INK, weight="bold"),
        Text(Point(MARGIN, height - TITLE_SIZE - 13), panel.subtitle, TEXT_SIZE, MUTED),
    ]


def _note_texts(notes: Sequence[str]) -> list[Text]:
    return [
        Text(Point(MARGIN, LINE * (len(notes) - 1 - i) + 2), note, NOTE_SIZE, MUTED) for i, note in enumerate(notes)
    ]


# ---------------------------------------------------------------------------------------------------- paint


def _lighter(colour: str, by: float) -> str:
    return to_hex([c + (1 - c) * by for c in to_rgb(colour)])


@cache
def _readable(colour: str) -> str:
    """The colour, darkened until text in it stands out from white paper by 4.5 to 1 (WCAG, level AA)."""
    while 1.05 / (_luminance(colour) + 0.05) < 4.5:
        colour = to_hex([0.95 * c for c in to_rgb(colour)])
    return colour


def _luminance(colour: str) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _paint_panel(figure: Figure, page: Page, layout: Layout, origin: Point) -> None:
    axes = _axes(figure, page, layout, origin)
    points = Affine2D().scale(1 / 72).translate(origin.x / 72, origin.y / 72) + figure.dpi_scale_trans
    for box, text in layout.regimes:
        _paint_regime(axes, box, text, points)
    for stroke in layout.strokes:
        axes.add_artist(_line(stroke, points))
    for spot in layout.spots:
        axes.add_artist(_marker(spot, points))
    for text in layout.texts:
        axes.text(
            *text.at,
            text.text,
            size=text.size,
            color=text.colour,
            weight=text.weight,
            rotation=text.angle,
            rotation_mode="anchor",
            va="baseline",
            transform=points,
            parse_math=False,
        )


def _axes(figure: Figure, page: Page, layout: Layout, origin: Point) -> Axes:
    scale, frame = layout.scale, layout.scale.frame
    axes = figure.add_axes(
        (
            (origin.x + frame.x0) / page.width,
            (origin.y + frame.y0) / page.height,
            (frame.x1 - frame.x0) / page.width,
            (frame.y1 - frame.y0) / page.height,
        )
    )
    axes.set(xscale="log", yscale="log", xlim=(scale.x0, scale.x1), ylim=(scale.y0, scale.y1), facecolor="none")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(numticks=30))
        axis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
        axis.set_minor_formatter(NullFormatter())
        axis.grid(which="major", color=FAINT, linewidth=0.5)
    axes.tick_params(which="both", length=0, labelsize=TEXT_SIZE, labelcolor=MUTED)
    axes.minorticks_off()
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#aab0b8")
    axes.set_xlabel("intensity, FLOP/byte", size=TEXT_SIZE, color=MUTED)
    axes.set_ylabel("attained, TFLOPS", size=TEXT_SIZE, color=MUTED)
    return axes


def _tick(value: float) -> str:
    """Powers of ten written out, as far as that is short."""
    return f"{value:g}" if 1e-4 <= value < 1e6 else f"$10^{{{log10(value):.0f}}}$"


def _paint_regime(axes: Axes, box: Box, text: str, points: Transform) -> None:
    middle = text == "depends on dtype" or text == ""
    shade = "#eef0f2" if middle else "#f6f7f8"
    axes.add_patch(
        Rectangle(
            (box.x0, box.y0),
            box.x1 - box.x0,
            box.y1 - box.y0,
            facecolor=shade,
            lw=0,
            transform=points,
            zorder=1,
        )
    )
    where = (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2 - 0.36 * NOTE_SIZE
    axes.text(*where, text, size=NOTE_SIZE, color=MUTED, ha="center", va="baseline", transform=points)


def _line(stroke: Stroke, points: Transform) -> Line2D:
    xs, ys = zip(*stroke.points, strict=True)
    return Line2D(
        xs,
        ys,
        color=stroke.colour,
        linewidth=stroke.width,
        linestyle=stroke.style,
        zorder=stroke.order,
        transform=points,
        clip_on=False,
        solid_capstyle="round",
    )


def _marker(spot: Spot, points: Transform) -> Line2D:
    return Line2D(
        [spot.at.x],
        [spot.at.y],
        marker=spot.marker,
        markersize=spot.size,
        markerfacecolor=PAPER if spot.hollow else spot.colour,
        markeredgecolor=spot.colour if spot.hollow else PAPER,
        markeredgewidth=1.0 if spot.hollow else 0.6,
        linestyle="none",
        zorder=4,
        transform=points,
        clip_on=False,
    )
