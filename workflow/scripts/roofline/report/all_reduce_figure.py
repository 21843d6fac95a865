"""All-reduces between GPUs: time and bandwidth over size, a row for each pair."""

from math import log10

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from roofline.core.formatting import capacity
from roofline.report import figure_style as style
from roofline.report.palette import INK, MUTED, SERIES_COLOURS
from roofline.table.rows import AllReduceRow, AllReduceSize, Roofline

PANELS = style.PanelRows(head=78.0, panel=190.0, row=246.0, foot=44.0)
PANELS_PER_ROW = 2
CAPTION = "Each card has so many bytes of bf16, and afterwards the sums of both. Lines connect measured sizes. "
CAPTION += f"Bandwidth: size over time. {style.DOUBT_NOTE}"
OURS, IN_GRAPHS, EAGER, *_ = SERIES_COLOURS
# Fields of a size, with the label, the colour and the marker of their curve; bound and prediction are lines alone.
CURVES = (
    ("nccl_eager_time_s", "NCCL, eager", EAGER, "s"),
    ("nccl_graph_time_s", "NCCL, in a graph", IN_GRAPHS, "D"),
    ("sealed_time_s", "predicted", INK, ""),
    ("bound_time_s", "bound by the link", MUTED, ""),
    ("time_s", "ours, in a graph", OURS, "o"),
)


def draw_all_reduces(roofline: Roofline) -> Figure:
    """Return the picture of all-reduces: time on the left, bandwidth on the right."""
    title, rows = "All-reduce between two GPUs over its size", roofline.all_reduces
    figure, grid = PANELS.lay_out(title, CAPTION, PANELS_PER_ROW * len(rows), PANELS_PER_ROW)
    for (times, rates), row in zip(grid.subplots(squeeze=False), rows, strict=True):
        _paint(times, row, as_rate=False)
        _paint(rates, row, as_rate=True)
        version = f", NCCL {row.nccl_version}" if row.nccl_version else ""
        times.set_title(f"{row.device} and {row.peer}{version}", x=-42 / times.bbox.width)
    return figure


def _paint(axes: Axes, row: AllReduceRow, as_rate: bool) -> None:
    entries = []
    for field, label, colour, marker in CURVES:
        points = [(size, time_s) for size in row.sizes if (time_s := getattr(size, field))]
        if not points:
            continue
        sizes = [size.size_bytes for size, _ in points]
        values = [size.size_bytes / time_s / 1e9 if as_rate else 1e6 * time_s for size, time_s in points]
        dashes = "-" if marker else (0, (1, 1)) if field == "sealed_time_s" else (0, (4, 2))
        look = style.dot_style(colour, marker) if marker else {}
        axes.plot(sizes, values, **look | {"color": colour, "ls": dashes, "lw": 1.0}, zorder=3)
        line = style.legend_line(label, colour, 1.0, dashes)
        entries.append(style.legend_dot(label, colour, marker) if marker else line)
    doubtful = [size for size in row.sizes if size.doubt]
    axes.plot([size.size_bytes for size in doubtful], [_value(size, as_rate) for size in doubtful], **style.CROSSED)
    entries += [style.crossed_entry()] if doubtful else []
    axes.set(xlabel="bytes on each card", ylabel="GB/s" if as_rate else "us")
    style.set_log_axis(axes.xaxis, capacity, base=4, numticks=8)
    style.set_log_axis(axes.yaxis, "{:g}".format, numticks=8)
    if not as_rate:
        low, high = axes.get_ylim()
        axes.set_ylim(low / 10 ** (0.1 * log10(high / low)), high)
        axes.legend(handles=entries[::-1], loc="upper left")


def _value(size: AllReduceSize, as_rate: bool) -> float:
    return size.gb_per_s if as_rate else 1e6 * size.time_s
