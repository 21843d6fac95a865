"""Tokens a second at most over the batch, a panel for each model on each device, a line for each context."""

from collections.abc import Sequence
from itertools import cycle

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from roofline.analysis.table import DecodedModel, Roofline
from roofline.core.formatting import number
from roofline.report import figure_style as style
from roofline.report.charts import CONTEXTS

TITLE = "What decoding costs at least"
MARKS = (
    "Tokens a second of all sequences, at most: the longer of reading weights, keys and values, and of computing, each "
    "at its measured ceiling. Filled: it fits the card's memory. Hollow: it does not. Dashed: with the experts that "
    "uniform routing uses. Cross: a chain of kernels that was timed. A line is the most that the ceilings allow; "
    "how far below it an engine stays depends on the engine."
)
HEAD, HIGH, AXIS, COLUMNS = 78.0, 190.0, 52.0, 2


@style.styled()
def draw(roofline: Roofline) -> Figure:
    roofline = style.drawable(roofline)
    lines, models = style.wrapped(MARKS), roofline.models
    if not models:
        return style.nothing(TITLE, "No device of this run has the ceilings that decoding stands under.")
    across = min(COLUMNS, len(models))
    down = -(-len(models) // across)
    top = HEAD + style.LINE * (len(lines) - 1)
    height = top + down * (HIGH + AXIS)
    figure = style.headed(height, TITLE, lines)
    place = style.margins(height, top=top, bottom=AXIS) | {"hspace": AXIS / HIGH, "wspace": 0.2}
    grid = figure.subplots(down, across, squeeze=False, gridspec_kw=place)
    for axes in grid.flat[len(models) :]:
        axes.remove()
    for axes, row in zip(grid.flat, models, strict=False):
        _paint(axes, row, roofline.devices[row.device].name)
    return figure


def _paint(axes: Axes, row: DecodedModel, device: str) -> None:
    title = f"{row.model} on {device}"
    axes.set_title(style.shortened(title, 0.85 * axes.bbox.width, style.TEXT_SIZE + 1), pad=6)
    for colour, context in zip(cycle(CONTEXTS), [one.context for one in row.contexts], strict=False):
        mine = sorted((one for one in row.steps if one.context == context), key=lambda one: one.batch)
        batches = [one.batch for one in mine]
        _line(axes, batches, [one.batch / one.floor_s for one in mine], colour, "-", f"context {context}")
        if mine[0].expected_s:
            _line(axes, batches, [one.batch / one.expected_s for one in mine], colour, (0, (3, 2)), None)
        tried = [one for one in mine if one.measured_s]
        y = [one.batch / one.measured_s for one in tried]
        axes.plot([one.batch for one in tried], y, color=colour, marker="x", ls="none", zorder=5)
        for one in mine:
            look = style.dot_look(colour, "o", hollow=one.fits is False)
            axes.plot([one.batch], [one.batch / one.floor_s], **look, zorder=4)
    style.logarithmic(axes.xaxis, number, base=2, numticks=9)
    axes.set_xticks(sorted({one.batch for one in row.steps}))
    style.logarithmic(axes.yaxis, number, subs=(1, 2, 5), numticks=9)
    axes.set_xlabel("batch: sequences decoded at once")
    axes.set_ylabel("tokens/s")
    axes.legend(loc="upper left", fontsize=style.SMALL_SIZE)


def _line(axes: Axes, x: Sequence[float], y: Sequence[float], colour: str, dashes, label: str | None) -> None:
    axes.plot(x, y, color=colour, lw=1.3, ls=dashes, label=label, zorder=3)
