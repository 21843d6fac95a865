"""A comparison as comparison.md and as the summary on the terminal."""

import math
from collections import Counter
from collections.abc import Sequence

from t_test import Compared

from roofline.api import counted, filled, number, percent

VERDICTS = ("SLOWER", "FASTER", "UNCLEAR", "SAME")
TIMES = ("device_time", "caller_time")
COLUMNS = ["figure", "unit", "A", "B", "B/A", "95 % interval", "verdict", "would find", "spread A", "spread B", "why"]
SCREEN = ["figure", "A", "B", "B/A", "verdict", "would find"]
SHOWN, NAME = 20, 58  # on the terminal: times that changed, and characters of a name
LOOKED_FOR = 0.05
LEGEND = (
    "B/A: for a time, above 1 is slower. SAME: the 95 % interval lies within the margin. SLOWER, FASTER: beyond chance"
    " after Holm's correction, and beyond the margin. Would find: the slowing that nine of ten such comparisons call"
    " SLOWER. Spread: between runs of one card inside each list."
)


def summary(comparison) -> str:
    """One line."""
    same = "; both lists hold the same runs" if comparison.identical else ""
    return f"{_counts(comparison.figures)}: of {counted(len(comparison.figures), 'figure')} that both sides have{same}"


def page(comparison) -> str:
    parts = ["# B compared with A", f"{summary(comparison)}.", *_head(comparison, "- ")]
    for name, cards in comparison.pairs.items():
        mine = [one for one in comparison.figures if one.device == name]
        notes = {text: place for place, text in enumerate(dict.fromkeys(one.reason for one in mine if one.reason), 1)}
        table = filled(COLUMNS, [_row(one, notes) for one in mine], 2)
        below = "\n".join(f"- [{place}] {text}" for text, place in notes.items())
        parts += [f"## {name}", f"{cards[0].upper()}{cards[1:]}.", str(table), below]
    return "\n\n".join([*filter(None, parts), LEGEND]) + "\n"


def screen(comparison) -> str:
    """Every ceiling, the times that changed most, and counts."""
    parts = _head(comparison, "  ")
    for name, cards in comparison.pairs.items():
        mine = [one for one in comparison.figures if one.device == name]
        times = [one for one in mine if one.kind in TIMES]
        changed = [one for one in times if one.verdict in ("SLOWER", "FASTER")]
        changed.sort(key=lambda one: -abs(math.log(one.ratio)))
        rows = [_row(one, {}) for one in mine if one not in times] + [_row(one, {}) for one in changed[:SHOWN]]
        short = [[_shortened(row[0]), *(row[COLUMNS.index(name)] for name in SCREEN[1:])] for row in rows]
        parts += [f"{name}: {cards}", str(filled(SCREEN, short))]
        more = f", {len(changed) - SHOWN} more in comparison.md" if len(changed) > SHOWN else ""
        parts += [f"Times of operators: {_counts(times)}{more}."] if times else []
        reasons = Counter(one.reason for one in mine if one.reason)
        parts += ["\n".join(f"Not judged, {counted(count, 'figure')}: {text}" for text, count in reasons.items())]
    return "\n\n".join(filter(None, [*parts, _power(comparison.figures), summary(comparison)]))


def _head(comparison, bullet: str) -> list[str]:
    """The runs, and what differs apart from the figures."""
    runs = [f"{side}: {line}" for side, lines in (("A", comparison.a), ("B", comparison.b)) for line in lines]
    told = {"Runs": runs, "Also different": comparison.differences, "Not compared": comparison.left_out}
    return [f"{title}:\n\n" + "\n".join(f"{bullet}{line}" for line in lines) for title, lines in told.items() if lines]


def _counts(figures: Sequence[Compared]) -> str:
    counts = Counter(one.verdict for one in figures)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict]) or "nothing"


def _power(figures: Sequence[Compared]) -> str:
    """In how many figures a slowing of LOOKED_FOR would have been found."""
    groups = {"ceilings": [one for one in figures if one.kind not in TIMES]}
    groups["GPU times"] = [one for one in figures if one.kind == "device_time"]
    shares = [
        f"{sum((one.smallest_change or 1) <= LOOKED_FOR for one in mine)} of {len(mine)} {words}"
        for words, mine in groups.items()
        if mine
    ]
    tested = any(one.smallest_change is not None for one in figures)
    return f"A slowing of {percent(LOOKED_FOR)} is found with 90 % power in {', '.join(shares)}." if tested else ""


def _row(one: Compared, notes: dict[str, int]) -> list[str]:
    shares = [one.smallest_change, one.spread_a, one.spread_b]
    return [
        one.name,
        one.unit,
        *(_value(values) for values in (one.a, one.b)),
        f"{one.ratio:.3f}",
        f"{one.ci95[0]:.3f} to {one.ci95[1]:.3f}" if one.ci95 and one.ci95[1] < 100 else "-",
        one.verdict,
        *("-" if share is None else percent(share) for share in shares),
        f"[{notes[one.reason]}]" if one.reason in notes else "",
    ]


def _value(runs: Sequence[float]) -> str:
    """The geometric mean, with the number of runs if there are several."""
    mean = math.exp(sum(map(math.log, runs)) / len(runs))
    shown = f"{mean:.0f}" if mean >= 1000 else number(mean) if mean < 1 else f"{mean:.4g}"
    return shown if len(runs) == 1 else f"{shown} ({len(runs)})"


def _shortened(name: str) -> str:
    name = name.replace("device's time", "GPU").replace("caller's time", "CPU")
    return name if len(name) <= NAME else f"{name[: NAME // 2]}…{name[1 - NAME // 2 :]}"
