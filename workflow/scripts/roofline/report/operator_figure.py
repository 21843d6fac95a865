"""How near an operator comes to its roof, over the bytes that a step moves: results/{picture}.png."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from roofline.analysis.table import Operator, Roofline
from roofline.core.formatting import percent, traffic
from roofline.core.statistics import FEWEST_SAMPLES, few
from roofline.operators.about import About
from roofline.report import figure_style as style
from roofline.report.cells import series_of, title
from roofline.report.label_placement import Label, marker_place, write

NOTHING = "Nothing to draw: it was not measured, or has no roof."
HOLLOWS = "Filled: by the caller's time; hollow, where it differs by more than 5 %: by the device's part alone."
BESIDE = "Markers that would hide others are shifted right."
HIGH, HIGHER, ABOVE, BELOW, LANE, LEGEND_LINE, BRACKET = 200.0, 300.0, 40.0, 36.0, 190.0, 12.5, 11.0
MOST_LABELS, MOST_BRACKETS = 24, 6  # in one panel
MANY = f"Of more than {MOST_LABELS} series the highest and the lowest are labelled."
FILLED, HOLLOW, DIFFERS = 5.6, 4.6, 0.05
WIDE = 20  # times: shares that range over more have a logarithmic axis


@dataclass(frozen=True)
class Panel:
    title: str
    cells: list[Operator]
    brackets: list[tuple[str, float, float, int]]  # a series, its fewest and most bytes, and the row of its bracket

    @property
    def shares(self) -> list[float]:
        return [share for c in self.cells for share in (c.fraction_of_roof, c.device_fraction_of_roof) if share]

    @property
    def wide(self) -> bool:
        """Whether the shares need a logarithmic axis."""
        return max(self.shares) > WIDE * min(self.shares)

    @property
    def head(self) -> float:
        return ABOVE + BRACKET * max((row + 1 for *_, row in self.brackets), default=0)


@style.styled()
def draw(roofline: Roofline, name: str) -> Figure:
    """One panel per device, and per preset where there are several; without any, paper that says so."""
    roofline, name = style.drawable(roofline), style.drawable(name)
    info = roofline.operator_info.get(name)
    heading = title(name, roofline.operator_info)
    heading = f"{heading[0].upper()}{heading[1:]}: share of its roof"
    panels = list(_panels(roofline, name, info))
    if not panels:
        return style.nothing(heading, NOTHING)
    markers = style.markers_of(_way(cell) for panel in panels for cell in panel.cells)
    legends = [_handles(panel, markers) for panel in panels]
    lists = [LEGEND_LINE * sum(1 + handle.get_label().count("\n") for handle in handles) for handles in legends]
    heights = [max(HIGHER if panel.wide else HIGH, space) for panel, space in zip(panels, lists, strict=True)]
    about = style.wrapped(_about(panels, info))
    top = style.MARGIN + 22.0 + style.LINE * len(about)
    whole = style.MARGIN + top + sum(heights) + sum(panel.head + BELOW for panel in panels)
    figure = style.headed(whole, heading, about)
    for panel, handles, height in zip(panels, legends, heights, strict=True):
        top += panel.head
        place = style.margins(whole, top=top, bottom=whole - top - height, right=LANE)
        axes = figure.add_subplot(figure.add_gridspec(1, 1, **place)[0])
        axes.set_title(panel.title, x=-42 / axes.bbox.width, pad=panel.head - ABOVE + 10)
        _paint(axes, panel, markers, info)
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.02, 1))
        top += height + BELOW
    return figure


def _about(panels: Sequence[Panel], info: About | None) -> str:
    """What the marks mean, of those that occur."""
    told = [f"Lines join cells that differ in {info.axis.symbol} alone."] if info and info.axis else []
    told += [HOLLOWS] if any(_differs(cell) for panel in panels for cell in panel.cells) else []
    told += [MANY] if any(len(series_of(panel.cells, info)) > MOST_LABELS for panel in panels) else []
    return " ".join([*told, BESIDE])


def _panels(roofline: Roofline, name: str, info: About | None) -> Iterable[Panel]:
    """GPUs first."""
    for device, entry in sorted(roofline.devices.items(), key=lambda item: item[1].kind != "gpu"):
        cells = [o for o in roofline.operators if (o.device, o.operator) == (device, name)]
        cells = [cell for cell in cells if cell.bytes and cell.fraction_of_roof]
        presets = dict.fromkeys(cell.preset for cell in cells)
        for preset in presets:
            mine = [cell for cell in cells if cell.preset == preset]
            words = f"{device}: {entry.name}" + (f", {preset}" if len(presets) > 1 else "")
            yield Panel(words, mine, _brackets(mine))


def _brackets(cells: Sequence[Operator]) -> list[tuple[str, float, float, int]]:
    """Which series is where, each in the lowest row that has room; none where there are many."""
    sizes: dict[str, list[int]] = {}
    for cell in cells:
        sizes.setdefault(cell.series or "", []).append(cell.bytes)
    found, ends = [], []
    for name, mine in sorted(sizes.items(), key=lambda item: min(item[1])):
        row = next((i for i, end in enumerate(ends) if end < min(mine) / 2), len(ends))
        ends[row : row + 1] = [max(mine)]
        found.append((name, min(mine), max(mine), row))
    return found if 1 < len(found) <= MOST_BRACKETS else []


def _way(cell: Operator) -> str:
    words = " ".join(filter(None, [cell.implementation, cell.scope])) or cell.operator
    return style.shortened(words, LANE - 36, style.TEXT_SIZE)


def _differs(cell: Operator) -> bool:
    alone = cell.device_fraction_of_roof
    return alone is not None and abs(alone / cell.fraction_of_roof - 1) > DIFFERS


def _paint(axes: Axes, panel: Panel, markers: Mapping[str, str], info: About | None) -> None:
    sizes = [cell.bytes for cell in panel.cells]
    low, high = min(sizes) / 3, 5 * max(sizes)
    most = max(1.0, *panel.shares)
    axes.set(xlim=(low, high), ylim=(0, 1.08 * most), xlabel="bytes moved per step", ylabel="of the roof")
    style.logarithmic(axes.xaxis, traffic, subs=(1, 2, 5) if high / low < 300 else (1,), numticks=12)
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    if panel.wide:
        narrow = max(panel.shares) < 300 * min(panel.shares)
        style.logarithmic(
            axes.yaxis, lambda share: f"{100 * share:g} %", subs=(1, 2, 5) if narrow else (1,), numticks=12
        )
        axes.set_ylim(min(panel.shares) / 1.5, 1.5 * most)
    axes.axhline(1, color=style.INK, lw=1.0, zorder=2)
    labels, taken = [], {}
    for group in series_of(panel.cells, info):
        look = {"color": style.dtype_colour(group[0].dtype), "marker": markers[_way(group[0])], "clip_on": False}
        places = [marker_place(axes, (cell.bytes, cell.fraction_of_roof), taken) for cell in group]
        filled = {"ms": FILLED, "mec": style.PAPER, "mew": 0.5, "lw": 0.8, "zorder": 4}
        axes.plot(*zip(*places, strict=True), **look, **filled)
        for cell, (x, _) in ((cell, place) for cell, place in zip(group, places, strict=True) if _differs(cell)):
            ends = [cell.fraction_of_roof, cell.device_fraction_of_roof]
            hollow = {"ms": HOLLOW, "mfc": style.PAPER, "mew": 0.7, "lw": 0.35, "zorder": 3}
            axes.plot([x] * 2, ends, markevery=[1], **look, **hollow)
        crossed = [place for cell, place in zip(group, places, strict=True) if few(cell.samples)]
        if crossed:
            axes.plot(*zip(*crossed, strict=True), **style.FEW, clip_on=False)
        words = [group[-1].dtype] if len(group) == 1 else []  # at the end of a line its colour is enough
        words = " ".join([*words, percent(group[-1].fraction_of_roof)])
        labels.append(Label(words, (places[-1],), look["color"]))
    labels.sort(key=lambda label: label.at[0][1])  # of very many the lowest and the highest
    half = MOST_LABELS // 2
    write(axes, labels if len(labels) <= MOST_LABELS else labels[:half] + labels[-half:], reach=30.0)
    for name, first, last, row in panel.brackets:
        y, above = 1 + (4 + BRACKET * row) / axes.bbox.height, {"transform": axes.get_xaxis_transform()}
        axes.plot([first / 1.15, last * 1.15], [y, y], color=style.MUTED, lw=0.8, clip_on=False, **above)
        y += 2 / axes.bbox.height
        axes.text((first * last) ** 0.5, y, name, color=style.MUTED, ha="center", va="bottom", **above)


def _handles(panel: Panel, markers: Mapping[str, str]) -> list[Line2D]:
    """The legend's entries."""

    def dot(words: str, colour: str, marker: str, **look) -> Line2D:
        return Line2D([], [], color=colour, marker=marker, ls="none", label=words, **{"ms": FILLED, **look})

    found = [dot(way, style.INK, markers[way]) for way in dict.fromkeys(map(_way, panel.cells))]
    found += [dot(dtype, style.dtype_colour(dtype), "s") for dtype in dict.fromkeys(cell.dtype for cell in panel.cells)]
    if any(map(_differs, panel.cells)):
        found.append(dot("hollow: the device alone", style.MUTED, "o", ms=HOLLOW, mfc=style.PAPER, mew=0.7))
    if any(few(cell.samples) for cell in panel.cells):
        found.append(Line2D([], [], **style.FEW, label=f"crossed: fewer than {FEWEST_SAMPLES} samples"))
    return found
