"""Upper bound of tokens per second over the batch: a panel for each card, a line for each context."""

from collections.abc import Mapping, Sequence
from itertools import cycle

from bound import CardLimits, DecodeStepBound
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from roofline.api import figure_style as style
from roofline.api import number

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")  # of contexts
MARKS = "Hollow: does not fit the memory. Experts by uniform routing; dashed: the fewest. Cross: measured."
HEAD, HIGH, AXIS = 78.0, 190.0, 52.0


@style.styled()
def draw(model: str, cards: Sequence[CardLimits], steps: Sequence[Sequence[DecodeStepBound]], times: Mapping) -> Figure:
    """`times` has the steps that were measured, by batch and context."""
    height = HEAD + len(cards) * (HIGH + AXIS)
    figure = style.new_titled_figure(height, f"Decode speed of {model}: upper bound", [MARKS])
    place = style.subplot_margins(height, top=HEAD, bottom=AXIS) | {"hspace": AXIS / HIGH}
    grid = figure.subplots(len(cards), 1, squeeze=False, gridspec_kw=place)
    for axes, card, of_card in zip(grid.flat, cards, steps, strict=True):
        _paint(axes, card.title, of_card, times)
    return figure


def _paint(axes: Axes, title: str, steps: Sequence[DecodeStepBound], times: Mapping) -> None:
    axes.set_title(style.shorten_middle(title, 0.85 * axes.bbox.width, style.TEXT_SIZE + 1), pad=6)
    for colour, context in zip(cycle(COLOURS), dict.fromkeys(one.context for one in steps), strict=False):
        mine = sorted((one for one in steps if one.context == context), key=lambda one: one.batch)
        batches, look = [one.batch for one in mine], {"color": colour, "lw": 1.3, "zorder": 3}
        axes.plot(batches, [one.tokens_per_s for one in mine], label=f"context {context}", **look)
        if mine[0].routed:
            axes.plot(batches, [one.most_per_s for one in mine], ls=(0, (3, 2)), **look)
        timed = [batch for batch in batches if (batch, context) in times]
        axes.plot(
            timed,
            [batch / times[batch, context].seconds for batch in timed],
            color=colour,
            marker="x",
            ls="none",
            zorder=5,
        )
        for one in mine:
            axes.plot(
                [one.batch], [one.tokens_per_s], **style.dot_style(colour, "o", hollow=one.fits is False), zorder=4
            )
    style.set_log_axis(axes.xaxis, number, base=2, numticks=9)
    axes.set_xticks(sorted({one.batch for one in steps}))
    style.set_log_axis(axes.yaxis, number, subs=(1, 2, 5), numticks=9)
    axes.set_xlabel("batch: sequences decoded at once")
    axes.set_ylabel("tokens/s")
    axes.legend(loc="upper left", fontsize=style.SMALL_SIZE)
