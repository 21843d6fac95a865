"""A comparison as a picture: the figures of the terminal, each with its interval and margin."""

from collections.abc import Sequence

from compare_page import format_summary, select_shown, shorten_name
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from t_test import ComparedQuantity, Comparison

from roofline.api import figure_style as style

TITLE = "B compared with A"
HEAD, FOOT, ROW, PANEL_TITLE, RIGHT, NAMES = 38.0, 40.0, 12.0, 26.0, 96.0, 310.0  # points
LINEAR, REACH = 2.0, 20.0  # per cent: as far as the axis is linear, and shown at least
LOOK, DOT = {"FASTER": (">", "#0072B2"), "SLOWER": ("<", style.FAULT)}, ("o", style.MUTED)
MARKS = "How much faster B is (times are inverted), with the 95 % interval. Shaded: changes that do not matter. "
MARKS += "Arrows: SLOWER and FASTER. Full dots: SAME. Open dots: UNCLEAR."


@style.styled()
def draw_changes(comparison: Comparison) -> Figure:
    """Draw the figures of the terminal in a panel per pair of devices of one model."""
    judged = [name for name in comparison.pairs if name not in comparison.models]
    panels = {name: rows for name in judged if (rows := select_shown(comparison.figures_of(name)))}
    lines = [*style.wrap_text(format_summary(comparison)), *style.wrap_text(MARKS)]
    top = sum(PANEL_TITLE + ROW * len(rows) + FOOT for rows in panels.values())
    height = HEAD + style.LINE * len(lines) + top
    figure = style.new_titled_figure(height, TITLE, lines)
    for name, rows in panels.items():
        panel_height, panel_width = ROW * len(rows), style.WIDTH - NAMES - RIGHT
        top -= PANEL_TITLE + panel_height
        place = (NAMES / style.WIDTH, top / height, panel_width / style.WIDTH, panel_height / height)
        _draw_panel(figure.add_axes(place), name, rows)
        top -= FOOT
    return figure


def _draw_panel(axes: Axes, title: str, rows: Sequence[ComparedQuantity]) -> None:
    axes.set_title(title, x=(style.MARGIN - NAMES) / axes.bbox.width)
    reach = max([REACH, *(1.25 * abs(_faster_percent(row.ratio, row)) for row in rows)])
    axes.set(xlim=(max(-reach, -99.9), reach), ylim=(len(rows) - 0.5, -0.5), xlabel="B faster than A by, %")
    axes.set_xscale("symlog", linthresh=LINEAR, linscale=1.0)
    ticks = [tick for tick in (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if tick <= reach]
    axes.set_xticks([-tick for tick in ticks if 0 < tick < 99] + ticks)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_locator(style.NullLocator())
    names = [shorten_name(row.name) for row in rows]
    axes.set_yticks(range(len(rows)), [style.shorten_middle(name, NAMES - 24, style.SMALL_SIZE) for name in names])
    axes.grid(visible=False, axis="y")
    axes.axvline(0, color=style.SPINES, lw=0.8, zorder=1)
    for place, row in enumerate(rows):
        _draw_row(axes, place, row)


def _draw_row(axes: Axes, place: int, row: ComparedQuantity) -> None:
    """Draw margin, interval, change and verdict of a figure."""
    marker, colour = LOOK.get(row.verdict, DOT)
    change = _faster_percent(row.ratio, row)
    low, high = -100 * row.margin, 100 * row.margin
    axes.fill_betweenx([place - 0.4, place + 0.4], low, high, color=style.SHADE, lw=0, zorder=0.5)
    if row.ci95:
        ends = [_faster_percent(end, row) for end in row.ci95]
        axes.plot(ends, [place, place], color=colour, lw=1.0, zorder=2, solid_capstyle="butt")
    face = style.PAPER if row.verdict == "UNCLEAR" else colour
    axes.plot(change, place, marker, color=colour, mfc=face, ms=4.5, mew=0.9, zorder=3)
    at = {"xycoords": axes.get_yaxis_transform(), "va": "center", "size": style.SMALL_SIZE, "annotation_clip": False}
    axes.annotate(f"{change:+z.1f} % {row.verdict}", (1.02, place), color=colour, **at)


def _faster_percent(ratio: float, row: ComparedQuantity) -> float:
    """Return by how many per cent B is faster, at a ratio B / A of a figure."""
    return 100 * ((ratio if row.higher_is_better else 1 / ratio) - 1)
