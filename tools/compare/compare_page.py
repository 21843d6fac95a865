"""A comparison as comparison.md and as the summary on the terminal."""

import math
from collections import Counter
from collections.abc import Sequence

import two_models
from t_test import TIMES, ComparedQuantity, Comparison

from roofline.api import count_words, drop_empty_columns, number, percent

VERDICTS = ("SLOWER", "FASTER", "UNCLEAR", "SAME")
COLUMNS = ["figure", "unit", "A", "B", "B/A", "95 % interval", "verdict", "would find", "why"]
SCREEN = ["figure", "unit", "A", "B", "B/A", "verdict", "would find"]
SHOWN_TIMES, NAME_LENGTH = 20, 72  # on the terminal: times that changed, and characters of a name
LEGEND = (
    "B/A: for a time, above 1 is slower. SAME: the 95 % interval lies within the margin. SLOWER, FASTER: beyond chance"
    " after Holm's correction, and not SAME. Would find: the slowing that nine of ten such comparisons call SLOWER."
)


def format_summary(comparison: Comparison) -> str:
    """Return the number of figures of one model by verdict, and of all of them, in a line."""
    suffix = "; both lists hold the same runs" if comparison.identical else ""
    count = count_words(len(comparison.judged), "figure")
    count += " of one model" if comparison.models else ""
    return f"{_counts(comparison.judged)}: of {count} that both sides have{suffix}"


def format_page(comparison: Comparison) -> str:
    """Return the whole comparison as Markdown."""
    parts = ["# B compared with A", *(f"{name}: {two_models.QUESTION}" for name in comparison.models)]
    judged = comparison.judged or not comparison.models
    parts += [f"{format_summary(comparison)}." if judged else "", *_head(comparison, "- ")]
    for name, cards in comparison.pairs.items():
        figures = comparison.figures_of(name)
        if name in comparison.models:
            parts += [f"## {name}", two_models.format_table(figures)]
            continue
        reasons = dict.fromkeys(figure.reason for figure in figures if figure.reason)
        notes = {reason: place for place, reason in enumerate(reasons, 1)}
        table = drop_empty_columns(COLUMNS, [_row(figure, notes) for figure in figures], 2)
        below = "\n".join(f"- [{place}] {reason}" for reason, place in notes.items())
        parts += [f"## {name}", f"Measured on {cards}.", str(table), below]
    return "\n\n".join(filter(None, [*parts, LEGEND if judged else ""])) + "\n"


def format_screen(comparison: Comparison) -> str:
    """Return what the terminal shows: every ceiling, and the times that changed most."""
    parts = _head(comparison, "  ")
    for name, cards in comparison.pairs.items():
        figures = comparison.figures_of(name)
        if name in comparison.models:
            parts += [name, two_models.format_table(figures)]
            continue
        rows = [dict(zip(COLUMNS, _row(figure, {}), strict=True)) for figure in select_shown(figures)]
        table = drop_empty_columns(SCREEN, [[shorten_name(row[column]) for column in SCREEN] for row in rows], 2)
        reasons = Counter(figure.reason for figure in figures if figure.reason)
        below = [f"Times of operators: {_counts([figure for figure in figures if figure.kind in TIMES])}."]
        below += [f"Not judged, {count_words(count, 'figure')}: {reason}" for reason, count in reasons.items()]
        parts += [f"{name}: {cards}", str(table), "\n".join(below)]
    return "\n\n".join([*parts, format_summary(comparison)] if comparison.judged else parts)


def select_shown(figures: Sequence[ComparedQuantity]) -> list[ComparedQuantity]:
    """Return every ceiling among the figures of a pair of devices, and the times that changed most."""
    changed = [figure for figure in figures if figure.kind in TIMES and figure.verdict in ("SLOWER", "FASTER")]
    changed.sort(key=lambda figure: -abs(math.log(figure.ratio)))
    return [figure for figure in figures if figure.kind not in TIMES] + changed[:SHOWN_TIMES]


def shorten_name(name: str) -> str:
    """Return the name of a figure without the word time, and without its middle if it is long."""
    name = name.replace(" time", "")
    half = NAME_LENGTH // 2
    return name if len(name) <= NAME_LENGTH else f"{name[:half]}…{name[1 - half :]}"


def _head(comparison: Comparison, bullet: str) -> list[str]:
    """Return the runs, and the differences apart from the figures."""
    runs = [f"A: {line}" for line in comparison.a] + [f"B: {line}" for line in comparison.b]
    parts = {"Runs": runs, "Also different": comparison.differences, "Not compared": comparison.left_out}
    return [f"{title}:\n\n" + "\n".join(f"{bullet}{line}" for line in lines) for title, lines in parts.items() if lines]


def _counts(figures: Sequence[ComparedQuantity]) -> str:
    counts = Counter(figure.verdict for figure in figures)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict]) or "nothing"


def _row(figure: ComparedQuantity, notes: dict[str, int]) -> list[str]:
    interval = f"{figure.ci95[0]:.3f} to {figure.ci95[1]:.3f}" if figure.ci95 and figure.ci95[1] < 100 else "-"
    smallest = "-" if figure.smallest_change is None else percent(figure.smallest_change)
    values = [_value(figure.a), _value(figure.b)]
    note = f"[{notes[figure.reason]}]" if figure.reason in notes else ""
    return [figure.name, figure.unit, *values, f"{figure.ratio:.3f}", interval, figure.verdict, smallest, note]


def _value(runs: Sequence[float]) -> str:
    """Return the geometric mean, with the number of runs if there are several."""
    mean = math.exp(sum(map(math.log, runs)) / len(runs))
    text = f"{mean:.4g}" if 1 <= mean < 1000 else number(mean)
    return text if len(runs) == 1 else f"{text} ({len(runs)})"
