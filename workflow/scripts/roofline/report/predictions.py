"""Predictions beside measurements: the score, the worst ones, and per implementation every cell and its error."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from roofline.core.formatting import counted, duration, percent, regime_name, regime_words
from roofline.core.prediction import CLOSE_TIMES, TIMES
from roofline.report.markdown import Table, filled
from roofline.table.prediction_error import CLOSE
from roofline.table.rows import Cell, Roofline, Score

WORST = 5  # predictions by name
MANY = 9.995  # errors from here on are shown as a factor
CAUSES = {
    "launch": "launch overhead",
    "start": "start-up",
    "ceiling": "a ceiling that is not as promised",
    "share": "the share of its roof",
}
RIGHT = {True: "yes", False: "**no**", None: "-"}


@dataclass(frozen=True)
class Miss:
    """One prediction that was far off."""

    cell: str
    predicted: str
    measured: str
    error: str
    why: str


@dataclass(frozen=True)
class Section:
    """The cells of one device, operator and implementation, the worst sealed prediction first."""

    title: str
    cells: Table
    advice: list[str]  # per regime found
    explained: list[str]  # each error that needs an explanation


def score_words(score: Score) -> str:
    """How far off the times are, and how many predictions are right."""
    close, right = score.times_close / score.cells, score.both_right / score.cells
    return (
        f"Median error of the times {_size(score.median_error)}, {percent(close)} of them within {CLOSE_TIMES:g} x. "
        f"{score.both_right} of {score.cells} cells predicted right ({percent(right)}): regime {score.regimes_right}, "
        f"time within a factor of two {score.times_right}."
    )


def predictors(score: Score) -> Table:
    """The sealed model next to a predictor without one."""
    columns = ("predictor", "cells", "median error", f"within {CLOSE_TIMES:g} x", f"within {TIMES:g} x", "regime right")
    known = {"the sealed model": score, "the roof and a start-up time": score.baseline}
    rows = [
        [name, str(one.cells), _size(one.median_error)]
        + [str(n) for n in (one.times_close, one.times_right, one.regimes_right)]
        for name, one in known.items()
        if one and one.cells
    ]
    return filled(columns, rows, left=1)


def worst(entries: Iterable[Cell]) -> list[Cell]:
    return sorted((entry for entry in entries if _factor(entry)), key=_factor, reverse=True)[:WORST]


def miss(entry: Cell, table: Roofline) -> Miss:
    what = f"{table.title(entry.operator)}, {entry.implementation}, {cell_name(entry, table)} on {entry.device}"
    error = signed(entry.sealed_error)
    return Miss(what, duration(entry.sealed.cpu_time_s), duration(entry.cpu_time_s), error, why(entry))


def why(entry: Cell) -> str:
    """What explains most of an error."""
    if entry.cause is None:
        return "close enough" if entry.sealed_error is not None else "not known"
    return f"{CAUSES[entry.cause]} {'adds' if entry.cause_s > 0 else 'saves'} {duration(abs(entry.cause_s))}"


def cell_name(entry: Cell, table: Roofline) -> str:
    """What tells a cell from the others of its device, operator and implementation."""
    return " ".join(part for part in (entry.preset, entry.scope, entry.dtype, table.label(entry)) if part)


def signed(share: float | None) -> str:
    """An error as a share in percent, or as a factor where it is large."""
    return "-" if share is None else f"{'-' if share < 0 else '+'}{_size(abs(share))}"


def _size(share: float) -> str:
    return f"{share:.0f} times" if share >= MANY else percent(share)


def _factor(entry: Cell) -> float:
    """By which the sealed time was missed, whichever way."""
    known = entry.sealed and entry.sealed.cpu_time_s and entry.cpu_time_s
    return math.exp(abs(math.log(entry.sealed.cpu_time_s / entry.cpu_time_s))) if known else 0.0


# ---------------------------------------------------------------- tables


def sections(table: Roofline) -> list[Section]:
    found: dict[str, list[Cell]] = {}
    for entry in table.entries:
        title = f"{entry.device}, {table.title(entry.operator)}, {entry.implementation}"
        found.setdefault(title, []).append(entry)
    ordered = {title: sorted(entries, key=_size_of_error, reverse=True) for title, entries in found.items()}
    return [
        Section(title, _cells(mine, table), advice(mine, table), _explained(mine, table))
        for title, mine in ordered.items()
    ]


def _size_of_error(entry: Cell) -> float:
    return abs(entry.sealed_error) if entry.sealed_error is not None else -1.0


def _cells(entries: list[Cell], table: Roofline) -> Table:
    columns = ("cell", "measured", "sealed", "error", "device time", "sealed", "error")
    columns += ("predicted", "found", "regime right", "time right")
    rows = []
    for entry in entries:
        sealed = entry.sealed
        row = [cell_name(entry, table), _seconds(entry.cpu_time_s)]
        row += [_seconds(sealed and sealed.cpu_time_s), signed(entry.sealed_error)]
        row += [
            _seconds(entry.gpu_time_s),
            _seconds(entry.gpu_time_s and sealed and sealed.gpu_time_s),
        ]
        row += [signed(entry.sealed_gpu_error), regime_name(sealed.regime, sealed.level) if sealed else "-"]
        row.append(regime_name(entry.regime, entry.regime_level) if entry.regime else "not found")
        rows.append([*row, RIGHT[entry.sealed_regime_correct], RIGHT[entry.sealed_time_right]])
    return filled(columns, rows)


def _seconds(value: float | None) -> str:
    return duration(value) if value else "-"


# ---------------------------------------------------------------- sentences


def advice(entries: Iterable[Cell], table: Roofline) -> list[str]:
    """What helps in each regime that was found; which dtypes or cells each advice is for, unless all alike."""
    entries, lines = [entry for entry in entries if entry.regime and table.remedies(entry)], []
    for regime in dict.fromkeys(entry.regime for entry in entries):
        mine = [entry for entry in entries if entry.regime == regime]
        alike: dict[tuple, list[Cell]] = {}
        for entry in mine:
            alike.setdefault(tuple(table.remedies(entry)), []).append(entry)
        parts = [f"{_for(some, mine, table)}{', '.join(remedies)}" for remedies, some in alike.items()]
        lines.append(f"What helps where {regime_words(regime)}: {'; '.join(parts)}.")
    return lines


def _for(some: list[Cell], every: list[Cell], table: Roofline) -> str:
    """By implementation or dtype where that tells them from the rest, else by name."""
    if len(some) == len(every):
        return ""
    rest = [entry for entry in every if entry not in some]
    for of in ("implementation", "dtype"):
        names = dict.fromkeys(getattr(entry, of) for entry in some)
        if not names.keys() & {getattr(entry, of) for entry in rest}:
            return f"{', '.join(map(str, names))}: "
    return f"{', '.join(cell_name(one, table) for one in some)}: "


def _explained(entries: list[Cell], table: Roofline) -> list[str]:
    """A sentence on each error that needs one."""
    close = sum(entry.cause is None for entry in entries)
    alike: dict[str, list[str]] = {}
    for entry in entries:
        if entry.cause:
            name = f"**{cell_name(entry, table)}** ({signed(entry.sealed_error)})"
            alike.setdefault(why(entry), []).append(name)
    lines = [f"{', '.join(names)}: {explanation}." for explanation, names in alike.items()]
    return lines + ([f"{counted(close, 'cell')} within {percent(CLOSE)}."] if close else [])
