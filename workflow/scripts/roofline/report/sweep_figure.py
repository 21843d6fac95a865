"""The read bandwidth over the size of the working set as a picture: one panel per sweep, with the levels found."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from roofline.core import terms
from roofline.core.formatting import capacity, level_name, number
from roofline.report import figure_style as style
from roofline.report.palette import SERIES_COLOURS
from roofline.table.rows import Plateau, Roofline, Sweep

COLUMNS, ROW, HEAD, FOOT, HIGH = 2, 262.0, 90.0, 58.0, 172.0
CURVE = "#0072B2"
LEVELS = SERIES_COLOURS[1:]
TITLE = "Read bandwidth over the size of the working set"
MARKS = (
    "Points: medians of a few passes. Horizontal lines: plateaus, medians of points. "
    "Ticks: solid, the knee between two; dotted, the capacity reported."
)
NOTHING = "No sweep over the size of the working set was measured in this run."


@style.styled()
def draw(roofline: Roofline) -> Figure:
    """Every sweep, two abreast; without any, paper that says so."""
    sweeps = roofline.sweeps
    if not sweeps:
        return style.nothing(TITLE, NOTHING)
    rows = -(-len(sweeps) // COLUMNS)
    height = HEAD + FOOT + ROW * (rows - 1) + HIGH
    figure = style.headed(height, TITLE, [MARKS])
    place = style.margins(height, top=HEAD, bottom=FOOT) | {"hspace": ROW / HIGH - 1, "wspace": 0.17}
    grid = figure.add_gridspec(rows, COLUMNS, **place)
    for i, sweep in enumerate(sweeps):
        levels = [one for one in roofline.levels if (one.device, one.series) == (sweep.device, sweep.series)]
        _paint(figure.add_subplot(grid[divmod(i, COLUMNS)]), sweep, levels)
    return figure


def _paint(axes: Axes, sweep: Sweep, levels: Sequence[Plateau]) -> None:
    counted = style.wrapped(sweep.counted, axes.bbox.width + 42)
    series = sweep.series.replace("_", " ")
    axes.set_title(f"{sweep.device}: {series}", x=-42 / axes.bbox.width, pad=6 + 10 * len(counted))
    small = {"xycoords": "axes points", "size": style.SMALL_SIZE, "color": style.MUTED, "va": "bottom"}
    axes.annotate("\n".join(counted), (-42, axes.bbox.height + 3), **small)
    sizes, rates = zip(*sweep.points, strict=True)
    air = max(1.6, (10 * min(rates) / max(rates)) ** 0.5)  # a flat curve is to look flat
    axes.set(xlabel=f"working set of {sweep.reader}", xlim=(min(sizes) / 1.5, max(sizes) * 1.5))
    axes.set(ylabel="GB/s", ylim=(min(rates) / air, max(rates) * air))
    style.logarithmic(axes.xaxis, capacity, base=2, numticks=7)
    style.logarithmic(axes.yaxis, "{:g}".format, subs=(1, 2, 5))
    axes.plot(sizes, rates, color=CURVE, lw=0.9, marker="o", ms=3, zorder=3)
    for i, level in enumerate(levels):
        colour = LEVELS[i % len(LEVELS)]
        axes.plot([level.first_bytes, level.last_bytes], [level.gb_per_s] * 2, color=colour, lw=1.6, zorder=4)
        middle = terms.KNEE * level.gb_per_s
        for size, dashes in ((level.knee_bytes, "-"), (level.knee_bytes and level.reported_bytes, (0, (1, 1)))):
            if size:
                tick = [middle / 1.2, middle * 1.2]
                axes.plot([size] * 2, tick, color=colour, lw=1.6, ls=dashes, solid_capstyle="butt", zorder=5)
    entries = [style.line(_words(level), LEVELS[i % len(LEVELS)], 1.6) for i, level in enumerate(levels)]
    if entries:
        axes.legend(handles=entries, loc="lower left", bbox_to_anchor=(0.02, 0.03))
    low, high = axes.get_ylim()
    room = (style.LEGEND_LINE * len(entries) + 8) / axes.bbox.height  # below the curve
    axes.set_ylim(low / (high / low) ** (room / (1 - room)), high)


def _words(level: Plateau) -> str:
    """The plateau, its knee, and the capacity that the device reports, where it reports one."""
    words = f"{level_name(level.name, level.knee_bytes)} {number(level.gb_per_s)} GB/s"
    if level.knee_bytes:
        words += f", knee {capacity(level.knee_bytes)}"
        words += f" (reported {capacity(level.reported_bytes)})" if level.reported_bytes else ""
    return words
