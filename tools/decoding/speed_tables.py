"""Tables of decode steps on the terminal: speeds, times, dollars, on one card or on several."""

import textwrap
from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest
from typing import Any, NamedTuple

from bound import DecodeStepBound

import roofline.api as api

HEAD_WIDTH = 8  # letters of a line in the head of a column
UNFIT, UNFIT_LEGEND = "*", "*: does not fit the memory"


class MeasuredStep(NamedTuple):
    """A decode step that was timed; `joules_per_token` if the device has an energy counter."""

    seconds: float
    joules_per_token: float | None = None


MeasuredSteps = Mapping[tuple[int, int], MeasuredStep]  # by batch and context


def build_card_table(steps: Sequence[DecodeStepBound], measured: MeasuredSteps) -> api.MarkdownTable:
    """Return the table of a model's steps on one card, a row for each, without columns that would be empty."""
    rows = [_build_row(step, measured.get((step.batch, step.context))) for step in steps]
    return api.drop_empty_columns(list(rows[0]), [list(row.values()) for row in rows], left_columns=0)


def _build_row(step: DecodeStepBound, measured: MeasuredStep | None) -> dict[str, str]:
    """Return the cells by column. A dash: not known, or too wide next to dollars or whole requests."""
    ((part, share),) = find_largest_parts(step, 1)
    has_room = not (step.usd_per_million_tokens or step.output_tokens_per_s)
    return {
        "batch": str(step.batch),
        "context": str(step.context),
        **_format_speeds(step),
        "step by uniform routing": api.duration(step.expected.seconds) if step.model.has_routed_experts else "-",
        "step at least": api.duration(step.bound.seconds),
        "measured": api.duration(measured.seconds) if measured else "-",
        "of the bound": api.percent(step.bound.seconds / measured.seconds) if measured else "-",
        "one by one": api.duration(step.expected.without_overlap_s) if has_room else "-",
        "sustained": api.duration(step.sustained_s) if step.sustained_s else "-",
        "J per token": api.number(measured.joules_per_token) if measured and measured.joules_per_token else "-",
        "J per token, about": api.number(step.joules_per_token) if step.joules_per_token else "-",
        "limited by": step.expected.limited_by,
        "largest part": f"{part} {api.percent(share)}" if has_room else "-",
        "memory": api.capacity(step.memory_bytes),
        "fits": {None: "unknown", True: "yes", False: "no"}[step.fits],
    }


def _format_speeds(step: DecodeStepBound) -> dict[str, str]:
    """Return, by column, tokens per second and dollars; both of whole requests if their rate is known."""
    basis = "by uniform routing" if step.model.has_routed_experts else "at most"
    if step.output_tokens_per_s:
        numbers = {f"output tokens/s {basis}": step.output_tokens_per_s}
    else:
        numbers = {f"tokens/s {basis}": step.tokens_per_s, "tokens/s at most": step.most_tokens_per_s}
    numbers[f"$ per M tokens {basis.replace('most', 'least')}"] = step.usd_per_million_tokens or 0
    return {head: api.number(value) if value else "-" for head, value in numbers.items()}


def find_largest_parts(step: DecodeStepBound, count: int) -> list[tuple[str, float]]:
    """Return the parts of a model that take most of the expected time of a step, each with its share, largest first."""
    shares = {part: seconds / step.expected.seconds for part, seconds in step.expected.seconds_by_part.items()}
    return sorted(shares.items(), key=lambda item: -item[1])[:count]


def list_steps(steps: Sequence[Sequence[DecodeStepBound]], measured: MeasuredSteps) -> list[dict[str, Any]]:
    """Return the data of the picture: a row for each card, context and batch, in seconds and bytes."""
    rows = []
    for step in chain.from_iterable(steps):
        timed = measured.get((step.batch, step.context))
        rows.append(
            {
                "model": step.model.name,
                "card": step.card.title,
                "batch": step.batch,
                "context": step.context,
                "expected_s": step.expected.seconds,
                "bound_s": step.bound.seconds,
                "sustained_s": step.sustained_s,
                "measured_s": timed.seconds if timed else None,
                "measured_joules_per_token": timed.joules_per_token if timed else None,
                "limited_by": step.expected.limited_by,
                "seconds_by_part": dict(step.expected.seconds_by_part),
                "tokens_per_s": step.tokens_per_s,
                "most_tokens_per_s": step.most_tokens_per_s,
                "usd_per_million_tokens": step.usd_per_million_tokens,
                "memory_bytes": step.memory_bytes,
                "fits": step.fits,
            }
        )
    return rows


def build_comparison_table(steps: Sequence[Sequence[DecodeStepBound]]) -> api.MarkdownTable:
    """Return speeds of one model on several cards and their dollars, with the cheapest card on which a batch fits."""
    names = [card_steps[0].card.name.removeprefix("NVIDIA ") for card_steps in steps]
    names = [name if names.count(name) == 1 else f"{name} ({number})" for number, name in enumerate(names, 1)]
    rows = []
    for row_steps in zip(*steps, strict=True):
        row = [str(row_steps[0].batch), str(row_steps[0].context)]
        prices = {}
        for name, step in zip(names, row_steps, strict=True):
            for cell in _format_speeds(step).values():
                row.append(f"{cell}{UNFIT}" if step.fits is False and cell != "-" else cell)
            if step.fits is not False and step.usd_per_million_tokens:
                prices[name] = step.usd_per_million_tokens
        rows.append([*row, min(prices, key=prices.__getitem__, default="-")])
    heads = [f"{head}, {name}" for name in names for head in _format_speeds(steps[0][0])]
    return api.drop_empty_columns(["batch", "context", *heads, "cheapest"], rows, left_columns=0)


def format_narrow(table: api.MarkdownTable) -> str:
    """Return the table as text, with heads of several short lines."""
    heads = [textwrap.wrap(column, HEAD_WIDTH, break_long_words=False) for column in table.columns]
    lines = [*zip_longest(*heads, fillvalue=""), *table.rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = "\n".join("  ".join(map(str.rjust, line, widths)).rstrip() for line in lines)
    return f"{text}\n{UNFIT_LEGEND}" if UNFIT in text else text
