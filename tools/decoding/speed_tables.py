"""Tables of decode steps on the terminal: speeds, times, dollars, on one card or on several."""

import textwrap
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

from bound import CardLimits, DecodeStepBound

import roofline.api as api

HEAD = 8  # letters of a line in the head of a column
UNFIT, LEGEND = "*", "*: does not fit the memory"


class MeasuredStep(NamedTuple):
    seconds: float  # of a measured step
    joules_per_token: float | None = None


Times = Mapping[tuple[int, int], MeasuredStep]  # by batch and context


def one_card(steps: Sequence[DecodeStepBound], times: Times) -> api.MarkdownTable:
    rows = [_row(one, times.get((one.batch, one.context))) for one in steps]
    return api.drop_empty_columns(list(rows[0]), [list(row.values()) for row in rows], left_columns=0)


def _row(step: DecodeStepBound, timed: MeasuredStep | None) -> dict[str, str]:
    """A dash: not known, or too wide next to dollars or whole requests."""
    ((part, share),) = largest_parts(step, 1)
    alone = not (step.usd_per_million or step.output_per_s)
    return {
        "batch": str(step.batch),
        "context": str(step.context),
        **_speeds(step),
        "step by uniform routing": api.duration(step.expected.seconds) if step.routed else "-",
        "step at least": api.duration(step.bound.seconds),
        "measured": api.duration(timed.seconds) if timed else "-",
        "of the bound": api.percent(step.bound.seconds / timed.seconds) if timed else "-",
        "one by one": api.duration(step.expected.one_by_one_s) if alone else "-",
        "sustained": api.duration(step.sustained_s) if step.sustained_s else "-",
        "J per token": api.number(timed.joules_per_token) if timed and timed.joules_per_token else "-",
        "J per token, about": api.number(step.joules_per_token) if step.joules_per_token else "-",
        "limited by": step.expected.limited_by,
        "largest part": f"{part} {api.percent(share)}" if alone else "-",
        "memory": api.capacity(step.memory_bytes),
        "fits": {None: "unknown", True: "yes", False: "no"}[step.fits],
    }


def _speeds(step: DecodeStepBound) -> dict[str, str]:
    """Tokens per second, of whole requests if these are known, and dollars."""
    by = "by uniform routing" if step.routed else "at most"
    speeds = {f"tokens/s {by}": step.tokens_per_s, "tokens/s at most": step.most_per_s}
    speeds = {f"output tokens/s {by}": step.output_per_s} if step.output_per_s else speeds
    dollars = {f"$ per M tokens {by.replace('most', 'least')}": step.usd_per_million or 0}
    return {head: api.number(value) if value else "-" for head, value in (speeds | dollars).items()}


def largest_parts(step: DecodeStepBound, count: int) -> list[tuple[str, float]]:
    shares = {part: seconds / step.expected.seconds for part, seconds in step.expected.by_part.items()}
    return sorted(shares.items(), key=lambda item: -item[1])[:count]


def side_by_side(cards: Sequence[CardLimits], steps: Sequence[Sequence[DecodeStepBound]]) -> api.MarkdownTable:
    """Speeds of one model on several cards and their dollars, with the cheapest card on which a batch fits."""
    names, rows = [card.name.removeprefix("NVIDIA ") for card in cards], []
    names = [one if names.count(one) == 1 else f"{one} ({place})" for place, one in enumerate(names, 1)]
    for same in zip(*steps, strict=True):
        row = [str(same[0].batch), str(same[0].context)]
        for one in same:
            row += [cell + UNFIT * (one.fits is False and cell != "-") for cell in _speeds(one).values()]
        usd = {name: one.usd_per_million for name, one in zip(names, same, strict=True) if one.fits is not False}
        rows.append([*row, min(filter(usd.get, usd), key=usd.__getitem__, default="-")])
    heads = [f"{head}, {name}" for name in names for head in _speeds(steps[0][0])]
    return api.drop_empty_columns(["batch", "context", *heads, "cheapest"], rows, left_columns=0)


def narrow(table: api.MarkdownTable) -> str:
    """As text, with heads of several short lines."""
    heads = zip_longest(*(textwrap.wrap(one, HEAD, break_long_words=False) for one in table.columns), fillvalue="")
    lines = [*heads, *table.rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = "\n".join("  ".join(map(str.rjust, line, widths)).rstrip() for line in lines)
    return f"{text}\n{LEGEND}" if UNFIT in text else text
