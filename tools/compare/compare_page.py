"""A comparison as comparison.md and as the summary on the terminal."""

import math
from collections import Counter
from collections.abc import Sequence

from t_test import Compared

from roofline.api import count_words, drop_empty_columns, number, percent

VERDICTS = ("SLOWER", "FASTER", "UNCLEAR", "SAME")
TIMES = ("gpu_time", "cpu_time")
COLUMNS = ["figure", "unit", "A", "B", "B/A", "95 % interval", "verdict", "would find", "why"]
SCREEN = ["figure", "A", "B", "B/A", "verdict", "would find"]
SHOWN, NAME = 20, 72  # on the terminal: times that changed, and characters of a name
LEGEND = (
    "B/A: for a time, above 1 is slower. SAME: the 95 % interval lies within the margin. SLOWER, FASTER: beyond chance"
    " after Holm's correction, and not SAME. Would find: the slowing that nine of ten such comparisons call SLOWER."
)


def summary(comparison) -> str:
    same = "; both lists hold the same runs" if comparison.identical else ""
    return (
        f"{_counts(comparison.figures)}: of {count_words(len(comparison.figures), 'figure')} that both sides have{same}"
    )


def page(comparison) -> str:
    parts = ["# B compared with A", f"{summary(comparison)}.", *_head(comparison, "- ")]
    for name, cards in comparison.pairs.items():
        mine = [one for one in comparison.figures if one.device == name]
        notes = {text: place for place, text in enumerate(dict.fromkeys(one.reason for one in mine if one.reason), 1)}
        table = drop_empty_columns(COLUMNS, [_row(one, notes) for one in mine], 2)
        below = "\n".join(f"- [{place}] {text}" for text, place in notes.items())
        parts += [f"## {name}", f"Measured on {cards}.", str(table), below]
    return "\n\n".join([*filter(None, parts), LEGEND]) + "\n"


def screen(comparison) -> str:
    parts = _head(comparison, "  ")
    for name, cards in comparison.pairs.items():
        mine = [one for one in comparison.figures if one.device == name]
        rows = [dict(zip(COLUMNS, _row(one, {}), strict=True)) for one in shown(mine, name)]
        table = drop_empty_columns(SCREEN, [[short(row[column]) for column in SCREEN] for row in rows])
        reasons = Counter(one.reason for one in mine if one.reason)
        below = [f"Times of operators: {_counts([one for one in mine if one.kind in TIMES])}."]
        below += [f"Not judged, {count_words(count, 'figure')}: {text}" for text, count in reasons.items()]
        parts += [f"{name}: {cards}", str(table), "\n".join(below)]
    return "\n\n".join([*parts, summary(comparison)])


def shown(figures: Sequence[Compared], name: str) -> list[Compared]:
    """Of a pair of devices every ceiling, and the times that changed most."""
    mine = [one for one in figures if one.device == name]
    changed = [one for one in mine if one.kind in TIMES and one.verdict in ("SLOWER", "FASTER")]
    changed.sort(key=lambda one: -abs(math.log(one.ratio)))
    return [one for one in mine if one.kind not in TIMES] + changed[:SHOWN]


def short(name: str) -> str:
    name = name.replace(" time", "")
    return name if len(name) <= NAME else f"{name[: NAME // 2]}…{name[1 - NAME // 2 :]}"


def _head(comparison, bullet: str) -> list[str]:
    """The runs, and what differs apart from the figures."""
    runs = [f"{side}: {line}" for side, lines in (("A", comparison.a), ("B", comparison.b)) for line in lines]
    parts = {"Runs": runs, "Also different": comparison.differences, "Not compared": comparison.left_out}
    return [f"{title}:\n\n" + "\n".join(f"{bullet}{line}" for line in lines) for title, lines in parts.items() if lines]


def _counts(figures: Sequence[Compared]) -> str:
    counts = Counter(one.verdict for one in figures)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict]) or "nothing"


def _row(one: Compared, notes: dict[str, int]) -> list[str]:
    interval = f"{one.ci95[0]:.3f} to {one.ci95[1]:.3f}" if one.ci95 and one.ci95[1] < 100 else "-"
    smallest = "-" if one.smallest_change is None else percent(one.smallest_change)
    values = [_value(values) for values in (one.a, one.b)]
    why = f"[{notes[one.reason]}]" if one.reason in notes else ""
    return [one.name, one.unit, *values, f"{one.ratio:.3f}", interval, one.verdict, smallest, why]


def _value(runs: Sequence[float]) -> str:
    """The geometric mean, with the number of runs if there are several."""
    mean = math.exp(sum(map(math.log, runs)) / len(runs))
    text = f"{mean:.0f}" if mean >= 1000 else number(mean) if mean < 1 else f"{mean:.4g}"
    return text if len(runs) == 1 else f"{text} ({len(runs)})"
