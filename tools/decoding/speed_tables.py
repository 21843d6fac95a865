"""Answers as tables on the terminal, and as rows of JSON and CSV."""

import csv
import io
import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from bound import CardLimits, DecodeStepBound, Steps, find_largest_batch
from config_file import SHIPPED_MODELS, read_model
from number_formats import PLAIN_FORMATS

import roofline.api as api

HEAD_WIDTH = 8  # letters of a line in the head of a column
SCHEMA_VERSION = 1  # of the data
OBJECTS = ("split", "card", "cache_format", "expected", "bound", "first_token")  # of a step; its rows have numbers
STEP_FIELDS = [field.name for field in fields(DecodeStepBound) if field.name not in OBJECTS]
STEP_FIELDS += ["tokens_per_s", "most_tokens_per_s", "usd_per_million_tokens"]
STEP_FIELDS += ["cards", "card_weight_bytes", "card_cache_bytes", "exchange_s", "exchange_origin"]
MODEL_FIELDS = ("parameters", "active_parameters", "weight_bytes")
LISTED_CONTEXT = 1024  # tokens of each sequence that the list of models counts
UNFIT, UNFIT_LEGEND = "*", "*: does not fit the memory"
FITS = {None: "unknown", True: "yes", False: "no"}


class MeasuredStep(NamedTuple):
    """A decode step that was timed; `joules_per_token` if the device has an energy counter."""

    seconds: float
    joules_per_token: float | None = None


MeasuredSteps = Mapping[tuple[int, int], MeasuredStep]  # by batch and context


def build_card_table(steps: Steps, measured: MeasuredSteps) -> api.MarkdownTable:
    """Return the table of a model's steps on one card, a row for each, without columns that would be empty."""
    rows = [_build_row(step, measured.get((step.batch, step.context))) for step in steps]
    return api.drop_empty_columns(list(rows[0]), [list(row.values()) for row in rows], left_columns=0)


def _build_row(step: DecodeStepBound, measured: MeasuredStep | None) -> dict[str, str]:
    """Return the cells by column. A dash: not known, or too wide next to dollars, whole requests or drafts."""
    ((part, share),) = find_largest_parts(step, 1)
    speculative = step.speculative_tokens_per_s
    has_room = not (step.usd_per_million_tokens or step.output_tokens_per_s or speculative)
    return {
        "batch": str(step.batch),
        "context": str(step.context),
        **_format_speeds(step),
        "gain": api.number(speculative / step.tokens_per_s) if speculative else "-",
        "step by uniform routing": api.duration(step.expected.seconds) if step.model.has_routed_experts else "-",
        "step at least": api.duration(step.bound.seconds),
        "measured": api.duration(measured.seconds) if measured else "-",
        "of the bound": api.percent(step.bound.seconds / measured.seconds) if measured else "-",
        "exchange": api.duration(step.exchange_s) if step.exchange_s else "-",
        "one by one": api.duration(step.expected.without_overlap_s) if has_room else "-",
        "sustained": api.duration(step.sustained_s) if step.sustained_s and not speculative else "-",
        "J per token": api.number(measured.joules_per_token) if measured and measured.joules_per_token else "-",
        "J per token, about": api.number(step.joules_per_token) if step.joules_per_token and not speculative else "-",
        "limited by": step.expected.limited_by,
        "largest part": f"{part} {api.percent(share)}" if has_room else "-",
        "memory": api.capacity(step.memory_bytes),
        "fits": FITS[step.fits],
    }


def _format_speeds(step: DecodeStepBound) -> dict[str, str]:
    """Return, by column, tokens per second and dollars; both of whole requests if their rate is known.

    Dollars are those of steps without drafts.
    """
    basis = "by uniform routing" if step.model.has_routed_experts else "at most"
    if step.output_tokens_per_s:
        numbers = {f"output tokens/s {basis}": step.output_tokens_per_s}
    elif step.speculative_tokens_per_s:
        numbers = {f"tokens/s {basis}": step.tokens_per_s, "tokens/s with drafts": step.speculative_tokens_per_s}
    else:
        numbers = {f"tokens/s {basis}": step.tokens_per_s, "tokens/s at most": step.most_tokens_per_s}
    numbers[f"$ per M tokens {basis.replace('most', 'least')}"] = step.usd_per_million_tokens or 0
    return {head: api.number(value) if value else "-" for head, value in numbers.items()}


def find_largest_parts(step: DecodeStepBound, count: int) -> list[tuple[str, float]]:
    """Return the parts of a model that take most of the expected time of a step, each with its share, largest first."""
    shares = {part: seconds / step.expected.seconds for part, seconds in step.expected.seconds_by_part.items()}
    return sorted(shares.items(), key=lambda item: -item[1])[:count]


def list_steps(steps: Sequence[Steps], measured: MeasuredSteps, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each card, context and batch: what was asked and the answers, in seconds and bytes."""
    rows = []
    for step in chain.from_iterable(steps):
        seconds, joules_per_token = measured.get((step.batch, step.context)) or (None, None)
        row: dict[str, Any] = {"model": step.model.name, "card": step.card.title, **asked}
        row |= {name: getattr(step, name) for name in STEP_FIELDS}
        row |= {name: getattr(step.model, name) for name in MODEL_FIELDS}
        row |= {"cache_dtype": step.cache_format.name, "limited_by": step.expected.limited_by}
        row |= {"expected_s": step.expected.seconds, "bound_s": step.bound.seconds}
        row["first_token_s"] = step.first_token.seconds if step.first_token else None
        row |= {"usd_per_hour": step.card.usd_per_hour, "estimated_joules_per_token": step.joules_per_token}
        row |= {"measured_s": seconds, "measured_joules_per_token": joules_per_token}
        rows.append({**row, "seconds_by_part": dict(step.expected.seconds_by_part)})
    return rows


def build_comparison_table(steps: Sequence[Steps]) -> api.MarkdownTable:
    """Return speeds of one model on several cards and their dollars, with the cheapest card on which a batch fits."""
    names, rows = _name_cards(card_steps[0].title for card_steps in steps), []
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


def build_split_table(splits: Sequence[DecodeStepBound]) -> api.MarkdownTable:
    """Return what each number of cards holds and exchanges in one step of the model, and its speed and dollars."""
    rows = []
    for step in splits:
        row = {"cards": str(step.cards), "weights per card": api.capacity(step.card_weight_bytes)}
        row["K/V per card"] = api.capacity(step.card_cache_bytes)
        row["fits"] = FITS[step.fits]
        row["largest batch"] = "unknown" if step.largest_batch is None else str(step.largest_batch)
        row["exchange"] = api.duration(step.exchange_s) if step.exchange_s else "-"
        row["all-reduces"] = step.exchange_origin or "-"
        speeds = {head.replace("M tokens", "M tokens of steps"): text for head, text in _format_speeds(step).items()}
        rows.append(row | {"step at least": api.duration(step.bound.seconds), **speeds})
    return api.drop_empty_columns(list(rows[0]), [list(row.values()) for row in rows], left_columns=0)


def _name_cards(titles: Iterable[str]) -> list[str]:
    """Return short names of cards, numbered where two are alike."""
    names = [title.partition(" (")[0].replace("NVIDIA ", "") for title in titles]
    return [name if names.count(name) == 1 else f"{name} ({number})" for number, name in enumerate(names, 1)]


def build_training_table(training: Sequence[Sequence[Mapping[str, Any]]]) -> api.MarkdownTable:
    """Return a token's FLOPs by each count, and what share of the peaks of each card a rate of training reaches."""
    columns = ["FLOPs counted", "card", "dtype", "GFLOP per token", "of the datasheet", "of the sustained rate"]
    lines = []
    for card, rows in zip(_name_cards(rows[0]["card"] for rows in training), training, strict=True):
        for row in rows:
            shares = [row["share_of_datasheet"], row["share_of_sustained"]]
            cells = [f"{100 * share:.1f} %" if share else "-" for share in shares]
            lines.append([row["flops_counted"], card, row["dtype"], api.number(row["flops_per_token"] / 1e9), *cells])
    return api.drop_empty_columns(columns, lines)


def list_models(cards: Sequence[CardLimits]) -> list[dict[str, Any]]:
    """Return a row for each model by name: its sizes, and on each card the sequences that fit next to its weights."""
    rows = []
    for name, entry in SHIPPED_MODELS.items():
        model = read_model({"name": name, **entry})
        cache_format, context = PLAIN_FORMATS[model.cache_dtype], min(LISTED_CONTEXT, model.longest_context)
        batches = {card.title: find_largest_batch(model, context, cache_format, card.memory_bytes) for card in cards}
        sizes = {field: getattr(model, field) for field in MODEL_FIELDS}
        cache_bytes = model.cache_bytes(context, cache_format)
        rows.append({"model": name, **sizes, "cache_bytes": cache_bytes, "context": context, "largest_batch": batches})
    return rows


def build_model_table(rows: Sequence[Mapping[str, Any]]) -> api.MarkdownTable:
    """Return the table of the rows of `list_models`."""
    heads = [f"sequences that fit, {name}" for name in _name_cards(rows[0]["largest_batch"])]
    columns = ["model", "parameters", "active", "weights", f"K/V of {LISTED_CONTEXT} tokens", *heads]
    table_rows = []
    for row in rows:
        sizes = [format_parameters(row["parameters"]), format_parameters(row["active_parameters"])]
        sizes += [api.capacity(row["weight_bytes"]), api.capacity(row["cache_bytes"])]
        fits = ["unknown" if batch is None else str(batch or "no") for batch in row["largest_batch"].values()]
        table_rows.append([row["model"], *sizes, *fits])
    return api.MarkdownTable(columns, table_rows)


def format_parameters(parameters: int) -> str:
    """Return a count of parameters: 8.03 G, 124 M."""
    return f"{api.number(parameters / 1e9)} G" if parameters >= 1e9 else f"{api.number(parameters / 1e6)} M"


def write_answers(answers: Mapping[str, Sequence[Mapping[str, Any]]], path: Path) -> str:
    """Write the rows of each question to PATH.json, and all to PATH.csv, a line each. Returns the names of both."""
    rows = [{"schema_version": SCHEMA_VERSION, "question": name, **row} for name in answers for row in answers[name]]
    lines = [*map(_flatten, rows)]
    text = io.StringIO()
    writer = csv.DictWriter(text, dict.fromkeys(chain.from_iterable(lines)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    api.write_text(text.getvalue(), path.with_suffix(".csv"))
    data = {"schema_version": SCHEMA_VERSION, **answers}
    api.write_text(json.dumps(data, indent=1) + "\n", path.with_suffix(".json"))
    return f"{path.stem}.json, {path.stem}.csv"


def _flatten(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row without mappings in it; their values are called after them, such as seconds_by_part.MLP."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        inner = value.items() if isinstance(value, Mapping) else ()
        flat |= {f"{name}.{key}": number for key, number in inner} if inner else {name: value}
    return flat


def format_narrow(table: api.MarkdownTable) -> str:
    """Return the table as text, with heads of several short lines."""
    heads = [textwrap.wrap(column, HEAD_WIDTH, break_long_words=False) for column in table.columns]
    lines = [*zip_longest(*heads, fillvalue=""), *table.rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = "\n".join("  ".join(map(str.rjust, line, widths)).rstrip() for line in lines)
    return f"{text}\n{UNFIT_LEGEND}" if UNFIT in text else text
