"""Upper bound of tokens per second over the batch: a panel for each card, a line for each context."""

from collections.abc import Sequence
from itertools import cycle

from bound import Steps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from speed_tables import MeasuredSteps

from roofline.api import figure_style as style
from roofline.api import group_by, number

CONTEXT_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
HOLLOW, CROSS = "Hollow: does not fit the memory.", "Cross: measured."
DASHED = "Experts by uniform routing; dashed: the fewest."
HEAD_PT, PANEL_PT, AXIS_PT = 78.0, 190.0, 52.0


@style.styled()
def draw_speeds(steps: Sequence[Steps], measured: MeasuredSteps) -> Figure:
    """Return the picture of a model's `steps` on each card, with a cross for each measured step."""
    height = HEAD_PT + len(steps) * (PANEL_PT + AXIS_PT)
    model = steps[0][0].model
    legend = [HOLLOW, *([DASHED] if model.has_routed_experts else []), *([CROSS] if measured else [])]
    figure = style.new_titled_figure(height, f"Decode speed of {model.name}: upper bound", [" ".join(legend)])
    margins = style.subplot_margins(height, top=HEAD_PT, bottom=AXIS_PT) | {"hspace": AXIS_PT / PANEL_PT}
    grid = figure.subplots(len(steps), 1, squeeze=False, gridspec_kw=margins)
    for axes, card_steps in zip(grid.flat, steps, strict=True):
        _draw_panel(axes, card_steps, measured)
    return figure


def _draw_panel(axes: Axes, steps: Steps, measured: MeasuredSteps) -> None:
    axes.set_title(style.shorten_middle(steps[0].title, 0.85 * axes.bbox.width, style.TEXT_SIZE + 1), pad=6)
    lines = group_by(sorted(steps, key=lambda step: step.batch), lambda step: step.context)
    for colour, (context, line_steps) in zip(cycle(CONTEXT_COLOURS), lines.items(), strict=False):
        batches, look = [step.batch for step in line_steps], {"color": colour, "lw": 1.3, "zorder": 3}
        axes.plot(batches, [step.tokens_per_s for step in line_steps], label=f"context {context}", **look)
        if line_steps[0].model.has_routed_experts:
            axes.plot(batches, [step.most_tokens_per_s for step in line_steps], ls=(0, (3, 2)), **look)
        for step in line_steps:
            dot = style.dot_style(colour, "o", hollow=step.fits is False)
            axes.plot([step.batch], [step.tokens_per_s], **dot, zorder=4)
            if found := measured.get((step.batch, context)):
                axes.plot([step.batch], [step.batch / found.seconds], color=colour, marker="x", zorder=5)
    style.set_log_axis(axes.xaxis, number, base=2, numticks=9)
    axes.set_xticks(sorted({step.batch for step in steps}))
    style.set_log_axis(axes.yaxis, number, subs=(1, 2, 5), numticks=9)
    axes.set_xlabel("batch: sequences decoded at once")
    axes.set_ylabel("tokens/s")
    axes.legend(loc="upper left", fontsize=style.SMALL_SIZE)
