"""Read bandwidth over the size of the working set: a panel per sweep, with the levels found."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from roofline.core.formatting import capacity, number, plateau_label
from roofline.core.terms import KNEE_SHARE
from roofline.report import figure_style as style
from roofline.report.palette import MUTED, SERIES_COLOURS
from roofline.table.rows import Plateau, Roofline, SweepRow

COLUMNS, ROW, HEAD, FOOT, HIGH = 2, 262.0, 90.0, 58.0, 172.0
MARKS = "Dots: measured. Horizontal lines: levels, medians of dots. Ticks: the knee; dotted, the capacity reported."


@style.styled()
def draw_sweeps(roofline: Roofline) -> Figure:
    rows = -(-len(roofline.sweeps) // COLUMNS)
    height = HEAD + FOOT + ROW * (rows - 1) + HIGH
    figure = style.new_titled_figure(height, "Read bandwidth over the size of the working set", style.wrap_text(MARKS))
    place = style.subplot_margins(height, top=HEAD, bottom=FOOT) | {"hspace": ROW / HIGH - 1, "wspace": 0.17}
    grid = figure.add_gridspec(rows, COLUMNS, **place)
    for i, sweep in enumerate(roofline.sweeps):
        _paint(figure.add_subplot(grid[divmod(i, COLUMNS)]), sweep)
    return figure


def _paint(axes: Axes, sweep: SweepRow) -> None:
    counted = style.wrap_text(sweep.counting_rule, axes.bbox.width + 42)
    title = f"{sweep.device}: {sweep.series.replace('_', ' ')}"
    axes.set_title(title, x=-42 / axes.bbox.width, pad=6 + 10 * len(counted))
    small = {"xycoords": "axes points", "size": style.SMALL_SIZE, "color": MUTED, "va": "bottom"}
    axes.annotate("\n".join(counted), (-42, axes.bbox.height + 3), **small)
    sizes = [point.size_bytes for point in sweep.points]
    rates = [point.gb_per_s for point in sweep.points]
    entries = [
        style.legend_line(_words(plateau), SERIES_COLOURS[1 + i % 7], 1.6) for i, plateau in enumerate(sweep.plateaus)
    ]
    # A decade at least, so that a flat curve looks flat; the legend below the curve.
    air = max(1.6, (10 * min(rates) / max(rates)) ** 0.5)
    low, high = min(rates) / air, max(rates) * air
    room = (style.LEGEND_LINE * len(entries) + 8) / axes.bbox.height
    axes.set(xlabel=f"working set of {sweep.reader}", xlim=(min(sizes) / 1.5, max(sizes) * 1.5))
    axes.set(ylabel="GB/s", ylim=(low / (high / low) ** (room / (1 - room)), high))
    style.set_log_axis(axes.xaxis, capacity, base=2, numticks=7)
    style.set_log_axis(axes.yaxis, "{:g}".format, subs=(1, 2, 5))
    axes.plot(sizes, rates, color=SERIES_COLOURS[0], lw=0.9, marker="o", ms=3, zorder=3)
    for entry, level in zip(entries, sweep.plateaus, strict=True):
        colour = entry.get_color()
        axes.plot([level.first_bytes, level.last_bytes], [level.gb_per_s] * 2, color=colour, lw=1.6, zorder=4)
        for size, dashes in ((level.knee_bytes, "-"), (level.knee_bytes and level.reported_bytes, (0, (1, 1)))):
            if size:
                tick = [KNEE_SHARE * level.gb_per_s / 1.2, KNEE_SHARE * level.gb_per_s * 1.2]
                axes.plot([size] * 2, tick, color=colour, lw=1.6, ls=dashes, solid_capstyle="butt", zorder=5)
    if entries:
        axes.legend(handles=entries, loc="lower left", bbox_to_anchor=(0.02, 0.03))


def _words(level: Plateau) -> str:
    """The level, its knee, and the capacity that the device reports."""
    words = f"{plateau_label(level.name, level.knee_bytes)} {number(level.gb_per_s)} GB/s"
    if level.knee_bytes:
        words += f", knee {capacity(level.knee_bytes)}"
        words += f" (reported {capacity(level.reported_bytes)})" if level.reported_bytes else ""
    return words
