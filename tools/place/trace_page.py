"""A trace's verdict, notes and page."""

from collections import Counter
from collections.abc import Sequence
from math import fsum
from pathlib import Path

from place_page import ADVICE, advice_key, build_table, kernel_title, write_notes
from placing import LaunchRoof, find_slowest
from trace_calls import IN_GRAPH
from trace_rows import PARTLY, Section, TracedOperation

from roofline.api import count_words, duration, join_words, percent, regime_text

FIRST, WORTH = 3, 0.02  # sentences of the verdict, each at least this share of the step
ABOVE = 1.03  # from this share on something is not what it seems
TILE = 64  # of a product: kernels pad sizes that are no multiple of it
LACKING_NAMED = 8  # operators without a formula


def step_notes(section: Section) -> list[str]:
    """Return what the step takes, what it would take at the roofs, and what would save most; then notes on the step.

    These are on its events, busy time, MFU, collectives, operators without a formula, and odd shares.
    """
    rows, worth_s = section.kernels, WORTH * section.step.seconds
    worth = [row for row in rows if row.saving_s and row.saving_s[0] >= worth_s]
    findings: list[str] = []
    for row in worth[:FIRST]:
        finding, advice = _finding(row), _find_advice(row)
        colon = ";" if ":" in advice else ":"
        is_repeated = any(advice in earlier for earlier in findings)
        findings.append(finding if is_repeated else f"{finding}{colon} {advice}")  # each advice once
    seconds_by_lacking: Counter[str] = Counter()
    for row in rows:
        if row.label.lacking and row.total_s > 0:
            seconds_by_lacking[row.label.lacking] += row.total_s
    lacking = [f"{name} {duration(seconds)}" for name, seconds in seconds_by_lacking.most_common(LACKING_NAMED)]
    collectives_s = fsum(row.total_s for row in rows if row.label.lacking and row.label.kind == "collective")
    facts = {"worth_s": worth_s, "findings": findings, "lacking": lacking, "lacking_s": seconds_by_lacking.total()}
    facts["at_roofs_s"] = seconds_by_lacking.total() - collectives_s  # as it is
    facts["lacks_graph"] = IN_GRAPH in seconds_by_lacking
    facts["is_marked"] = any(row.label.inferred or row.overlapped > PARTLY for row in rows)
    notes = write_notes("trace", section=section, **facts)
    return notes + [text for row in rows if (text := _high_share_note(row))][:FIRST]


def _finding(row: TracedOperation) -> str:
    """Return the time of a row, and for an operator its share of the roof and its regime."""
    if row.label.kind == "idle":
        return f"{duration(row.total_s)} are {row.label.name}"
    roof = _slowest_roof(row)
    share = percent(roof.share if roof else 0.0)
    calls = f"{count_words(row.launches, 'call')} of {kernel_title(row)}"
    regime = "bound by the link" if row.limited_at == "link" else regime_text(row.regime)
    return f"{duration(row.total_s)} are {calls} at {share} of the roof, {regime}"


def _find_advice(row: TracedOperation) -> str:
    """Return what helps a row: by its kind, by what limits it, and by the family of its operator."""
    label = row.label
    if label.kind in ("idle", "copy", "collective"):
        return ADVICE[label.name if label.kind == "idle" else label.kind]
    key = advice_key(row)
    if key == "implementation":
        uneven = [size for size in label.work.sizes if size > TILE and size % TILE] if label.work else []
        if uneven:
            return ADVICE["uneven"].format(sizes=join_words(dict.fromkeys(map(str, uneven))), tile=TILE)
        key = "operator"
    if key == "memory" and label.work.sizes and label.work.sizes[0] > min(label.work.sizes):
        return ADVICE[key]  # a product of many rows
    return ADVICE.get(f"{key} {label.family}", ADVICE[key])


def _slowest_roof(row: TracedOperation) -> LaunchRoof | None:
    """Return the roof that takes the most time if no data is in the L2."""
    return find_slowest(roof for roof in row.roofs if roof.level != "l2")


def _high_share_note(row: TracedOperation) -> str:
    """Return a note on a share of a roof above 1, with a possible cause; empty if there is none."""
    roof = _slowest_roof(row)
    if not roof or roof.share <= ABOVE or row.label.kind != "operator":
        return ""
    return f"{kernel_title(row)} is at {percent(roof.share)} of {roof.ceiling}: {ADVICE[f'above {roof.level}']}."


def format_page(sections: Sequence[Section], source: str, pictures: Sequence[str]) -> str:
    """Return the sections of a trace as Markdown; `pictures` are files next to the page, one for each section."""
    parts = [f"# {Path(sections[0].report).name} under measured ceilings", f"Ceilings: {source}."]
    for section, picture in zip(sections, pictures, strict=True):
        parts += [f"## {section.title}", *step_notes(section)]
        parts += [str(build_table(section.kernels)), f"![Operators]({picture})"]
    return "\n\n".join(parts) + "\n"
