"""Two sides compared, as a picture: each ceiling with its interval and margin, and every operator's cells."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from roofline.analysis.quantities import TIMES
from roofline.core.equivalence import Verdict
from roofline.records.comparison import ComparedQuantity, Comparison
from roofline.report import figure_style as style
from roofline.report.comparison_page import summary

TITLE = "B compared with A"
HEAD, FOOT, ROW, TITLED, RIGHT = 38.0, 40.0, 12.0, 26.0, 96.0
NAMES = 214.0  # points for the names of rows
LINEAR = 2.0  # per cent: as far as the axis is linear
REACH, SIDE = 20.0, 1.25  # per cent that the axis shows at least; of the largest change
LOOK: dict[Verdict, tuple[str, str, bool]] = {  # marker, colour, filled
    "SAME": ("o", style.MUTED, True),
    "FASTER": (">", "#0072B2", True),
    "SLOWER": ("<", style.FAULT, True),
    "UNCLEAR": ("o", style.MUTED, False),
}
MARKS = (
    "By how much B is faster (times are turned round), with its 95 % interval by the spread between runs; shaded, the"
    " margin within which no change matters. Arrows: SLOWER and FASTER; full dots: SAME; open ones: UNCLEAR. A row"
    " of an operator has a dot per cell. The axis is linear to 2 % and logarithmic beyond."
)


@style.styled()
def draw(comparison: Comparison) -> Figure:
    """A panel per subject, a row per ceiling and operator's mean, and one per implementation with a dot per cell."""
    panels = [(name, rows) for name in (s.name for s in comparison.subjects) if (rows := _rows(comparison, name))]
    if not panels:
        return style.nothing(TITLE, "The two sides have no figure in common.")
    lines = [*style.wrapped(summary(comparison)), *style.wrapped(MARKS)]
    head = HEAD + style.LINE * len(lines)
    height = head + sum(TITLED + ROW * len(rows) + FOOT for _, rows in panels)
    figure = style.headed(height, TITLE, lines)
    top = height - head
    for name, rows in panels:
        high = ROW * len(rows)
        top -= TITLED + high
        wide = style.WIDTH - NAMES - RIGHT
        axes = figure.add_axes((NAMES / style.WIDTH, top / height, wide / style.WIDTH, high / height))
        _paint(axes, name, rows)
        top -= FOOT
    return figure


def _rows(comparison: Comparison, subject: str) -> list[tuple[str, list[ComparedQuantity]]]:
    """A name and its quantities, one of a ceiling and as many as there are of an implementation."""
    found: dict[str, list[ComparedQuantity]] = {}
    for one in comparison.quantities:
        if one.subject == subject:
            found.setdefault(_series(one) if one.kind in TIMES else one.name, []).append(one)
    return list(found.items())


def _series(cell: ComparedQuantity) -> str:
    """Of a cell's key all but its dtype, cache and shape."""
    *parts, _, _, _, kind = cell.key.split("/")
    return f"{' '.join(parts).replace('_', ' ')}, {kind.split('_')[0]}"


def _paint(axes: Axes, name: str, rows: Sequence[tuple[str, list[ComparedQuantity]]]) -> None:
    axes.set_title(style.drawable(name), x=(style.MARGIN - NAMES) / axes.bbox.width)
    quantities = [one for _, some in rows for one in some]
    reach = max([REACH, *(SIDE * abs(_faster(one.ratio, one)) for one in quantities)])
    axes.set(xlim=(max(-reach, -99.9), reach), ylim=(len(rows) - 0.5, -0.5), xlabel="B faster than A by, %")
    axes.set_xscale("symlog", linthresh=LINEAR, linscale=1.0)
    ticks = [t for t in (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if t <= reach]
    axes.set_xticks([-t for t in ticks if 0 < t < 99] + ticks)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_locator(style.NullLocator())
    axes.set_yticks(
        range(len(rows)), [style.shortened(style.drawable(n), NAMES - 24, style.SMALL_SIZE) for n, _ in rows]
    )
    axes.grid(visible=False, axis="y")
    axes.axvline(0, color=style.SPINES, lw=0.8, zorder=1)
    for place, (_, some) in enumerate(rows):
        margin = 100 * some[0].margin
        axes.fill_betweenx([place - 0.4, place + 0.4], -margin, margin, color=style.SHADE, lw=0, zorder=0.5)
        for one in some:
            _mark(axes, place, one, alone=len(some) == 1)
        _told(axes, place, some)


def _mark(axes: Axes, place: int, one: ComparedQuantity, alone: bool) -> None:
    marker, colour, filled = LOOK[one.verdict]
    if alone and one.ci95:
        ends = sorted(_faster(end, one) for end in one.ci95 if end > 0)
        axes.plot([ends[0], ends[-1]], [place] * 2, color=colour, lw=1.0, zorder=2, solid_capstyle="butt")
    face = colour if filled else style.PAPER
    axes.plot(_faster(one.ratio, one), place, marker, color=colour, mfc=face, ms=4.5, mew=0.9, zorder=3)


def _told(axes: Axes, place: int, some: Sequence[ComparedQuantity]) -> None:
    """To the right, of a ceiling its change and verdict; of an implementation how many cells changed."""
    verdicts = [one.verdict for one in some]
    if len(some) == 1:
        change = f"{_faster(some[0].ratio, some[0]):+.1f}"
        words = f"{'0' if change in ('+0.0', '-0.0') else change} % {verdicts[0]}"
    else:
        words = ", ".join(f"{verdicts.count(v)} {v}" for v in LOOK if v in verdicts and v not in ("SAME", "UNCLEAR"))
        words = words or f"{verdicts.count('SAME')} of {len(some)} SAME"
    worst = next((v for v in ("SLOWER", "FASTER") if v in verdicts), "SAME")
    at = {"xycoords": axes.get_yaxis_transform(), "va": "center", "size": style.SMALL_SIZE}
    axes.annotate(words, (1.02, place), color=LOOK[worst][1], annotation_clip=False, **at)


def _faster(ratio: float, one: ComparedQuantity) -> float:
    """Per cent by which B is the faster one."""
    return 100 * ((ratio if one.higher_is_better else 1 / ratio) - 1)
