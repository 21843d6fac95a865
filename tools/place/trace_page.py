"""A trace's verdict, notes and page."""

from collections import Counter
from collections.abc import Sequence
from math import fsum
from pathlib import Path

from place_page import ADVICE, advice_key, build_table, kernel_title
from trace_rows import PARTLY, Section, TracedOperation
from trace_steps import TraceSteps

from roofline.api import count_words, duration, join_words, percent, regime_text

FIRST, WORTH = 3, 0.02  # sentences of the verdict, each at least this share of the step
ABOVE = 1.03  # from this share on something is not what it seems
LACKING_NAMED = 8  # operators without a formula


def step_verdict(section: Section) -> str:
    """Return what the step takes, what it would take at the roofs, and what would save most."""
    step = section.step
    unknown_s = fsum(row.total_s for row in section.kernels if row.label.lacking)
    text = f"{'The step takes' if step.name else 'The trace covers'} {duration(step.seconds)}"
    text += " under the profiler, which widens gaps; " if step.seconds == step.profiled_s else "; "
    text += f"{duration(section.roofs_s)} at the roofs"
    text += f", {duration(unknown_s)} of it without a formula." if unknown_s > WORTH * step.seconds else "."
    worth = [row for row in section.kernels if row.saving_s and row.saving_s[0] >= WORTH * step.seconds]
    for row in worth[:FIRST]:
        finding, advice = _finding(row), ADVICE[_advice_key(row)]
        colon = ";" if ":" in advice else ":"
        text += f" {finding}." if advice in text else f" {finding}{colon} {advice}."  # each advice once
    if step.exposed_s >= WORTH * step.seconds:
        text += f" {duration(step.exposed_s)} are collectives that no kernel overlaps."
    return text


def _finding(row: TracedOperation) -> str:
    """Return the time of a row, and for an operator its share of the roof and its regime."""
    if row.label.kind == "idle":
        return f"{duration(row.total_s)} are {row.label.name}"
    share = max((roof.share for roof in row.roofs if roof.share and roof.level != "l2"), default=0.0)
    calls = f"{count_words(row.launches, 'call')} of {kernel_title(row)}"
    return f"{duration(row.total_s)} are {calls} at {percent(share)} of the roof, {regime_text(row.regime)}"


def _advice_key(row: TracedOperation) -> str:
    """Return the key of ADVICE for a row."""
    if row.label.kind in ("idle", "copy"):
        return row.label.name if row.label.kind == "idle" else "copy"
    key = advice_key(row)
    return "operator" if key == "implementation" else key


def step_notes(section: Section) -> list[str]:
    """Return notes on the step: its events, busy time, MFU, collectives, operators without a formula, odd shares."""
    step, rows = section.step, section.kernels
    notes = [
        f"{Path(section.report).name}, GPU {section.gpu}, {section.card}: {_step_words(step)}; {len(step.places)} of "
        f"{step.events} GPU events. Busy {duration(step.busy_s)}, idle {duration(step.seconds - step.busy_s)}. MFU "
        f"{percent(section.mfu)} of the measured ceilings."
    ]
    if step.seconds != step.profiled_s:
        notes.append(f"Under the profiler it took {duration(step.profiled_s)}; gaps are scaled to the time without.")
    if step.collective_s:
        notes.append(f"Collectives: {duration(step.collective_s)}, {duration(step.exposed_s)} of it exposed.")
    seconds_by_lacking: Counter[str] = Counter()
    for row in rows:
        if row.label.lacking and row.total_s > 0:
            seconds_by_lacking[row.label.lacking] += row.total_s
    if seconds_by_lacking:
        share = percent(seconds_by_lacking.total() / step.seconds)
        longest = seconds_by_lacking.most_common(LACKING_NAMED)
        operators = join_words(f"{name} {duration(seconds)}" for name, seconds in longest)
        notes.append(f"Without a formula: {share} of the time ({operators}).")
    if any(row.label.inferred or row.overlapped > PARTLY for row in rows):
        notes.append("Marked *: a shape inferred from the same kernel outside of its graph. +: other kernels ran too.")
    return notes + [text for row in rows if (text := _high_share_note(row))][:FIRST]


def _step_words(step: TraceSteps) -> str:
    name = step.name or "all of it"
    return f"{name}, the median of {step.steps} without the ends" if step.steps > 1 else name


def _high_share_note(row: TracedOperation) -> str:
    """Return a note on a share of a roof above 1, with a possible cause; empty if there is none."""
    roofs = [roof for roof in row.roofs if roof.level != "l2"]
    highest = max(roofs, key=lambda roof: roof.share or 0.0, default=None)
    if not highest or (highest.share or 0.0) <= ABOVE or row.label.kind != "operator":
        return ""
    cause = ADVICE[f"above {highest.level}"]
    return f"{kernel_title(row)} is at {percent(highest.share)} of {highest.ceiling}: {cause}."


def format_page(sections: Sequence[Section], source: str, pictures: Sequence[str]) -> str:
    """Return the sections of a trace as Markdown; `pictures` are files next to the page, one for each section."""
    parts = [f"# {Path(sections[0].report).name} under measured ceilings", f"Ceilings: {source}."]
    for section, picture in zip(sections, pictures, strict=True):
        parts += [f"## GPU {section.gpu}", step_verdict(section), *step_notes(section)]
        parts += [str(build_table(section.kernels)), f"![Operators]({picture})"]
    return "\n\n".join(parts) + "\n"
