"""A comparison as a picture: each ceiling with its interval and margin, each implementation with a dot per cell."""

from collections.abc import Sequence

import compare_page
from t_test import Compared

from roofline.api import figure_style as style

TITLE = "B compared with A"
HEAD, FOOT, ROW, TITLED, RIGHT, NAMES = 38.0, 40.0, 12.0, 26.0, 96.0, 214.0  # points
LINEAR, REACH = 2.0, 20.0  # per cent: as far as the axis is linear, and shown at least
LOOK = {  # marker, colour, filled
    "SAME": ("o", style.MUTED, True),
    "FASTER": (">", "#0072B2", True),
    "SLOWER": ("<", style.FAULT, True),
    "UNCLEAR": ("o", style.MUTED, False),
}
MARKS = (
    "How much faster B is (times are inverted), with the 95 % interval. Shaded: changes that do not matter. Arrows:"
    " SLOWER and FASTER. Full dots: SAME. Open dots: UNCLEAR. An operator has a dot per case."
)


@style.styled()
def draw(comparison):
    """A panel per pair of devices."""
    panels = [(name, rows) for name in comparison.pairs if (rows := _rows(comparison.figures, name))]
    if not panels:
        return style.nothing(TITLE, "The two lists have no figure in common.")
    lines = [*style.wrapped(compare_page.summary(comparison)), *style.wrapped(MARKS)]
    top = height = HEAD + style.LINE * len(lines) + sum(TITLED + ROW * len(rows) + FOOT for _, rows in panels)
    figure = style.headed(height, TITLE, lines)
    top -= HEAD + style.LINE * len(lines)
    for name, rows in panels:
        high, wide = ROW * len(rows), style.WIDTH - NAMES - RIGHT
        top -= TITLED + high
        place = (NAMES / style.WIDTH, top / height, wide / style.WIDTH, high / height)
        _paint(figure.add_axes(place), name, rows)
        top -= FOOT
    return figure


def _rows(figures: Sequence[Compared], name: str) -> dict[str, list[Compared]]:
    found: dict[str, list[Compared]] = {}
    for one in figures:
        if one.device == name:
            found.setdefault(_series(one) if one.kind in compare_page.TIMES else one.name, []).append(one)
    return found


def _series(cell: Compared) -> str:
    """Its key without dtype, cache and shape."""
    *parts, _, _, _, kind = cell.key.split("/")
    return f"{' '.join(parts).replace('_', ' ')}, {kind.split('_')[0]}"


def _paint(axes, name: str, rows: dict[str, list[Compared]]) -> None:
    axes.set_title(style.drawable(name), x=(style.MARGIN - NAMES) / axes.bbox.width)
    reach = max([REACH, *(1.25 * abs(_faster(one.ratio, one)) for some in rows.values() for one in some)])
    axes.set(xlim=(max(-reach, -99.9), reach), ylim=(len(rows) - 0.5, -0.5), xlabel="B faster than A by, %")
    axes.set_xscale("symlog", linthresh=LINEAR, linscale=1.0)
    ticks = [tick for tick in (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if tick <= reach]
    axes.set_xticks([-tick for tick in ticks if 0 < tick < 99] + ticks)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_locator(style.NullLocator())
    names = [style.shortened(style.drawable(one), NAMES - 24, style.SMALL_SIZE) for one in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.grid(visible=False, axis="y")
    axes.axvline(0, color=style.SPINES, lw=0.8, zorder=1)
    for place, some in enumerate(rows.values()):
        margin = 100 * some[0].margin
        axes.fill_betweenx([place - 0.4, place + 0.4], -margin, margin, color=style.SHADE, lw=0, zorder=0.5)
        for one in some:
            marker, colour, filled = LOOK[one.verdict]
            if len(some) == 1 and one.ci95:
                ends = [_faster(end, one) for end in one.ci95]
                axes.plot(ends, [place] * 2, color=colour, lw=1.0, zorder=2, solid_capstyle="butt")
            face = colour if filled else style.PAPER
            axes.plot(_faster(one.ratio, one), place, marker, color=colour, mfc=face, ms=4.5, mew=0.9, zorder=3)
        verdicts = [one.verdict for one in some]
        worst = next((one for one in ("SLOWER", "FASTER") if one in verdicts), "SAME")
        told = f"{verdicts.count(worst)} of {len(some)} {worst}"
        if len(some) == 1:
            told = f"{round(_faster(some[0].ratio, some[0]), 1) + 0.0:+.1f} % {verdicts[0]}"
        at = {"xycoords": axes.get_yaxis_transform(), "va": "center", "size": style.SMALL_SIZE}
        axes.annotate(told, (1.02, place), color=LOOK[worst][1], annotation_clip=False, **at)


def _faster(ratio: float, one: Compared) -> float:
    """By how many per cent B is faster."""
    return 100 * ((ratio if one.higher_is_better else 1 / ratio) - 1)
