"""A comparison as a picture: the figures of the terminal, each with its interval and margin."""

from collections.abc import Sequence

import compare_page
from t_test import Compared

from roofline.api import figure_style as style

TITLE = "B compared with A"
HEAD, FOOT, ROW, TITLED, RIGHT, NAMES = 38.0, 40.0, 12.0, 26.0, 96.0, 310.0  # points
LINEAR, REACH = 2.0, 20.0  # per cent: as far as the axis is linear, and shown at least
LOOK, DOT = {"FASTER": (">", "#0072B2"), "SLOWER": ("<", style.FAULT)}, ("o", style.MUTED)
MARKS = (
    "How much faster B is (times are inverted), with the 95 % interval. Shaded: changes that do not matter."
    " Arrows: SLOWER and FASTER. Full dots: SAME. Open dots: UNCLEAR."
)


@style.styled()
def draw(comparison):
    """A panel per pair of devices."""
    panels = [(name, rows) for name in comparison.pairs if (rows := compare_page.shown(comparison.figures, name))]
    lines = [*style.wrap_text(compare_page.summary(comparison)), *style.wrap_text(MARKS)]
    top = sum(TITLED + ROW * len(rows) + FOOT for _, rows in panels)
    figure = style.new_titled_figure(height := HEAD + style.LINE * len(lines) + top, TITLE, lines)
    for name, rows in panels:
        high, wide = ROW * len(rows), style.WIDTH - NAMES - RIGHT
        top -= TITLED + high
        place = (NAMES / style.WIDTH, top / height, wide / style.WIDTH, high / height)
        _paint(figure.add_axes(place), name, rows)
        top -= FOOT
    return figure


def _paint(axes, name: str, rows: Sequence[Compared]) -> None:
    axes.set_title(name, x=(style.MARGIN - NAMES) / axes.bbox.width)
    reach = max([REACH, *(1.25 * abs(_faster(one.ratio, one)) for one in rows)])
    axes.set(xlim=(max(-reach, -99.9), reach), ylim=(len(rows) - 0.5, -0.5), xlabel="B faster than A by, %")
    axes.set_xscale("symlog", linthresh=LINEAR, linscale=1.0)
    ticks = [tick for tick in (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if tick <= reach]
    axes.set_xticks([-tick for tick in ticks if 0 < tick < 99] + ticks)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_locator(style.NullLocator())
    names = [compare_page.short(one.name) for one in rows]
    axes.set_yticks(range(len(rows)), [style.shorten_middle(one, NAMES - 24, style.SMALL_SIZE) for one in names])
    axes.grid(visible=False, axis="y")
    axes.axvline(0, color=style.SPINES, lw=0.8, zorder=1)
    at = {"xycoords": axes.get_yaxis_transform(), "va": "center", "size": style.SMALL_SIZE, "annotation_clip": False}
    for place, one in enumerate(rows):
        (marker, colour), change = LOOK.get(one.verdict, DOT), _faster(one.ratio, one)
        band = (-100 * one.margin, 100 * one.margin)
        axes.fill_betweenx([place - 0.4, place + 0.4], *band, color=style.SHADE, lw=0, zorder=0.5)
        if one.ci95:
            ends = [_faster(end, one) for end in one.ci95]
            axes.plot(ends, [place] * 2, color=colour, lw=1.0, zorder=2, solid_capstyle="butt")
        face = style.PAPER if one.verdict == "UNCLEAR" else colour
        axes.plot(change, place, marker, color=colour, mfc=face, ms=4.5, mew=0.9, zorder=3)
        axes.annotate(f"{round(change, 1) + 0.0:+.1f} % {one.verdict}", (1.02, place), color=colour, **at)


def _faster(ratio: float, one: Compared) -> float:
    """By how many per cent B is faster."""
    return 100 * ((ratio if one.higher_is_better else 1 / ratio) - 1)
