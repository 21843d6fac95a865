"""Two models of card: how many times as fast the second is, per ceiling and best cell, and the roofs of both."""

import math
from collections.abc import Sequence

from matplotlib.figure import Figure
from pairing import ComparedPair
from t_test import ComparedQuantity

from roofline.api import DTYPES, MarkdownTable, dtype_colour, group_by, number
from roofline.api import figure_style as style

COLUMNS = ["figure", "A", "B", "B is so many times as fast", "95 % interval"]
QUESTION = "how many times as fast B is, for each ceiling and the best cells."
BEST = (
    "Best cells, of each operator and dtype: the longest case in A by the implementation that is fastest in A, of cells"
    " that both sides have. A side's own fastest may be another."
)
INTENSITIES = (0.1, 1e4)  # FLOP/byte, of the picture


def select_best(figures: Sequence[ComparedQuantity]) -> list[ComparedQuantity]:
    """Return every ceiling, and for each operator and dtype the fastest GPU time of its longest case."""
    times = [figure for figure in figures if figure.kind == "gpu_time"]
    by_case = group_by(times, lambda figure: (figure.key.split("/")[0], *figure.key.split("/")[2:]))
    fastest = [min(of_case, key=lambda figure: figure.a[0]) for of_case in by_case.values()]
    by_operator = group_by(fastest, lambda figure: (figure.key.split("/")[0], figure.key.split("/")[-4]))
    longest = [max(cells, key=lambda figure: figure.a[0]) for cells in by_operator.values()]
    return [figure for figure in figures if not figure.kind.endswith("_time")] + longest


def format_table(figures: Sequence[ComparedQuantity]) -> str:
    """Return these figures as a table, and how the best cells are chosen; the ratio of a time is inverted."""
    rows = []
    for figure in select_best(figures):
        faster, ends = figure.ratio, figure.ci95
        if not figure.higher_is_better:
            faster, ends = 1 / faster, ends and (1 / ends[1], 1 / ends[0])
        interval = f"{number(ends[0])} to {number(ends[1])}" if ends and ends[1] < 100 else "not known"
        values = [f"{number(value)} {figure.unit}" for value in (figure.a[0], figure.b[0])]
        rows.append([figure.name, *values, number(faster), interval])
    return f"{MarkdownTable(COLUMNS, rows)}\n\n{BEST}"


@style.styled()
def draw_roofs(pair: ComparedPair) -> Figure:
    """Draw roofs that both sides have and the slope of memory reads: of a device of A, and dashed of one of B.

    Only sound figures count: roofs are flat without reads, and those of multiply-adds if there is no GEMM.
    """
    names = [name for name in pair.a[0].figures if name in pair.b[0].figures]
    names = [name for name in names if not name.endswith("_fma")] if DTYPES.keys() & {*names} else names
    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.subplots()
    for device, dashes in ((pair.a[0], "-"), (pair.b[0], "--")):
        rows = [row for row in device.figures.values() if not row.doubt]
        reads = next((row.value / 1e3 for row in rows if row.kind == "memory" and row.key.endswith("_read")), math.inf)
        for row in (row for row in rows if row.kind == "burst" and row.key in names):
            intensities = [INTENSITIES[0], max(INTENSITIES[0], row.value / reads), INTENSITIES[1]]
            rates = [min(row.value, intensity * reads) for intensity in intensities]
            label = f"{device.record.name} {row.name} {number(row.value)}"
            axes.loglog(intensities, rates, dashes, color=dtype_colour(row.key.removesuffix("_fma")), label=label)
    axes.set(xlabel="intensity, FLOP/byte", ylabel="TFLOPS, bursts under the slope of memory reads")
    for axis in (axes.xaxis, axes.yaxis):
        style.set_log_axis(axis, "{:g}".format)
    axes.legend(fontsize=7, ncols=2, loc="lower right")
    return figure
