"""comparison.md and what the terminal shows of it: what differs first, then verdicts, then every figure."""

import math
from collections import Counter
from collections.abc import Sequence

from roofline.core.equivalence import Verdict
from roofline.core.formatting import counted, listed, number, percent
from roofline.records.comparison import ComparedQuantity, Comparison
from roofline.report.markdown import table

VERDICTS: tuple[Verdict, ...] = ("SLOWER", "FASTER", "UNCLEAR", "SAME")
CELLS = ("operator_time", "device_time", "caller_time")
COLUMNS = ["quantity", "unit", "A", "B", "B/A", "95 % interval", "verdict", "would find", "why"]
LOOKED_FOR = 0.03
GROUPS = {
    "ceilings": None,  # all that are of no operator
    "operators' means": ("operator_time",),
    "GPU times": ("device_time",),
    "callers' times": ("caller_time",),
}
RATIO = "B/A is of the figure itself: of a time, more than 1 is slower."
INTERVAL = (
    "The interval is by the spread between runs. SAME: it lies within the margin. SLOWER, FASTER: beyond chance,"
    " corrected for all figures, beyond the margin and five times the spread between runs."
)
SMALLEST = "Would find: the smallest slowing that nine of ten such comparisons call SLOWER."
RULE = "docs/comparing.md has the rule."


def summary(comparison: Comparison) -> str:
    """One line."""
    counts = Counter(one.verdict for one in comparison.quantities)
    told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
    same = "; A and B are the same run" if comparison.identical else ""
    return f"{told or 'nothing'}: of {counted(len(comparison.quantities), 'figure')} that both sides have{same}"


def markdown(comparison: Comparison) -> str:
    """The whole page."""
    parts = ["# B compared with A", summary(comparison) + ".", _sides(comparison), _differing(comparison)]
    for subject in comparison.subjects:
        mine = [one for one in comparison.quantities if one.subject == subject.name]
        parts += [f"## {subject.name}", _cards(subject), *_blocks(mine)]
        lacking = [
            f"{len(keys)} only in {side}" for side, keys in (("A", subject.only_a), ("B", subject.only_b)) if keys
        ]
        parts += [f"Of other figures {listed(lacking)}: comparison.json names them."] if lacking else []
    return "\n\n".join([*filter(None, parts), _rule(comparison)]) + "\n"


def screen(comparison: Comparison) -> str:
    """The same for a terminal: of operator cells only those that changed, and counts."""
    parts = [_sides(comparison), _differing(comparison)]
    for subject in comparison.subjects:
        mine = [one for one in comparison.quantities if one.subject == subject.name]
        ceilings, cells = _parted(mine)
        changed = [one for one in cells if one.kind == "operator_time" or one.verdict in ("SLOWER", "FASTER")]
        parts += [f"{subject.name}: {_cards(subject)}", _table([*ceilings, *changed])]
        counts = Counter(one.verdict for one in cells)
        told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
        parts += [f"Of {counted(len(cells), 'time')} of operators: {told}."] if cells else []
    return "\n\n".join(filter(None, [*parts, _rule(comparison), _smallest(comparison.quantities), summary(comparison)]))


def _rule(comparison: Comparison) -> str:
    """Of what the tables show."""
    figures = comparison.quantities
    said = {
        "(3): the mean of 3 runs.": any(len(side) > 1 for one in figures for side in (one.a, one.b)),
        RATIO: True,
        INTERVAL: any(one.ci95 for one in figures),
        SMALLEST: any(one.smallest_change is not None for one in figures),
        RULE: True,
    }
    return " ".join(words for words, shown in said.items() if shown)


def _sides(comparison: Comparison) -> str:
    rows = [
        [one.side, one.source, one.measured_at[:16].replace("T", " "), (one.commit or "unknown")[:8], devices]
        for one in comparison.runs
        for devices in ["; ".join(one.devices.values())]
    ]
    return table(["side", "run", "measured, UTC", "commit", "devices"], rows, left=5)


def _differing(comparison: Comparison) -> str:
    """What else differs, of several subjects with their names; and what was not compared."""
    several = len(comparison.subjects) > 1
    names = [f"{one.subject}, {one.what}" if several and one.subject else one.what for one in comparison.conditions]
    rows = [f"- {name}: {one.a} in A, {one.b} in B" for name, one in zip(names, comparison.conditions, strict=True)]
    left_out = "\n".join(f"- {line}" for line in comparison.left_out)
    if comparison.identical:
        return ""
    differs = "What differs beside the figures:\n\n" + "\n".join(rows)
    same = "Card, settings, software and commit are the same on both sides."
    return "\n\n".join([differs if rows else same, *([f"Not compared:\n\n{left_out}"] if left_out else [])])


def _cards(subject) -> str:
    if subject.same_cards and not any(card.startswith("GPU-") for card in subject.a_cards):
        return "the same model, cores and cards beside it on both sides; whether it is one machine is not known."
    if subject.same_cards:
        return "the same device on both sides."
    a, b = len(subject.a_cards), len(subject.b_cards)
    if a == b == 1:
        return "two different devices, so that the spread between cards of their model is part of the error."
    return f"other devices ({a} in A, {b} in B), so that their spread is part of the error."


def _parted(quantities: Sequence[ComparedQuantity]) -> tuple[list[ComparedQuantity], list[ComparedQuantity]]:
    cells = sorted((one for one in quantities if one.kind in CELLS), key=lambda one: one.kind != "operator_time")
    return [one for one in quantities if one.kind not in CELLS], cells


def _blocks(quantities: Sequence[ComparedQuantity]) -> list[str]:
    ceilings, cells = _parted(quantities)
    found = ["### Ceilings", _table(ceilings)] if ceilings else []
    return found + (["### Operators", _table(cells)] if cells else []) + [_smallest(quantities)]


def _table(quantities: Sequence[ComparedQuantity]) -> str:
    """Without columns that are empty, as the interval where no spread is known. With a number where a reason is given,
    and the reasons below: most rows share a few."""
    notes = {text: i for i, text in enumerate(dict.fromkeys(one.reason for one in quantities if one.reason), 1)}
    rows = [_row(one, f"[{notes[one.reason]}]" if one.reason else "") for one in quantities]
    told = [place for place, cells in enumerate(zip(*rows, strict=True)) if {*cells} - {"-", ""}]
    columns, rows = [COLUMNS[place] for place in told], [[row[place] for place in told] for row in rows]
    below = "\n".join(f"- [{i}] {text}" for text, i in notes.items())
    return "\n\n".join(filter(None, [table(columns, rows, left=2), below]))


def _row(one: ComparedQuantity, note: str) -> list[str]:
    interval = f"{one.ci95[0]:.3f} to {one.ci95[1]:.3f}" if one.ci95 and one.ci95[1] < 100 else "-"
    smallest = percent(one.smallest_change) if one.smallest_change is not None else "-"
    values = [_value(side) for side in (one.a, one.b)]
    return [one.name, one.unit, *values, f"{one.ratio:.3f}", interval, one.verdict, smallest, note]


def _value(runs: Sequence[float]) -> str:
    """The geometric mean; of several runs, of how many."""
    mean = math.exp(sum(map(math.log, runs)) / len(runs))
    shown = f"{mean:.0f}" if mean >= 1000 else number(mean) if mean < 1 else f"{mean:.4g}"
    return shown if len(runs) == 1 else f"{shown} ({len(runs)})"


def _smallest(quantities: Sequence[ComparedQuantity]) -> str:
    """What the comparison could have found at all, by groups of figures."""
    words = [f"{name} {share}" for name, share in _found_shares(quantities).items()]
    if not any(one.smallest_change is not None for one in quantities):
        return ""
    slowing = f"A slowing of {percent(LOOKED_FOR)} would have been found, in nine of ten such comparisons, in"
    return f"{slowing}: {', '.join(words)}."


def _found_shares(quantities: Sequence[ComparedQuantity]) -> dict[str, str]:
    """Of how many ceilings, GPU times and callers' times a slowing of LOOKED_FOR would have been found."""
    found = {}
    for name, kinds in GROUPS.items():
        mine = [one for one in quantities if (one.kind in kinds if kinds else one.kind not in CELLS)]
        some = sum(one.smallest_change is not None and one.smallest_change <= LOOKED_FOR for one in mine)
        if mine:
            found[name] = f"{some} of {len(mine)}" if some else "none"
    return found
