"""A trace's verdict, notes and page."""

from collections import Counter
from collections.abc import Sequence
from math import fsum
from pathlib import Path

from place_page import ADVICE, table, title_of
from trace_rows import PARTLY, Section, TracedOperation

from roofline.api import count_words, duration, join_words, percent, regime_text

FIRST, WORTH = 3, 0.02  # sentences of the verdict, each at least this share of the step
ABOVE = 1.03  # a share from which on something is not what it seems


def verdict(section: Section) -> str:
    """The step, what it would take at the roofs, and what would save most."""
    step = section.step
    unknown_s = fsum(one.total_s for one in section.kernels if one.label.lacking)
    text = f"{'The step takes' if step.name else 'The trace covers'} {duration(step.seconds)}"
    text += " under the profiler, which widens gaps; " if step.seconds == step.profiled_s else "; "
    text += f"{duration(section.roofs_s)} at the roofs"
    text += f", {duration(unknown_s)} of it without a formula." if unknown_s > WORTH * step.seconds else "."
    worth = [one for one in section.kernels if one.saving_s and one.saving_s[0] >= WORTH * step.seconds]
    for what, advice in map(_of_row, worth[:FIRST]):  # each advice once
        text += f" {what}." if advice in text else f" {what}{';' if ':' in advice else ':'} {advice}."
    if step.exposed_s >= WORTH * step.seconds:
        text += f" {duration(step.exposed_s)} are collectives that no kernel overlaps."
    return text


def _of_row(one: TracedOperation) -> tuple[str, str]:
    if one.label.kind == "idle":
        return f"{duration(one.total_s)} are {one.label.name}", ADVICE[one.label.name]
    key = one.roof_at("compute").unit if one.limited_at == "compute" else one.limited_at or one.regime
    key = "copy" if one.label.kind == "copy" else "operator" if key == "implementation" else key
    share = max((roof.share for roof in one.roofs if roof.share and roof.level != "l2"), default=0.0)
    what = f"{duration(one.total_s)} are {count_words(one.launches, 'call')} of {title_of(one)} at {percent(share)} of"
    return f"{what} the roof, {regime_text(one.regime)}", ADVICE[key]


def notes(section: Section) -> list[str]:
    step, rows = section.step, section.kernels
    lacking = sum((Counter({one.label.lacking: one.total_s}) for one in rows if one.label.lacking), Counter())
    which = f"{step.name or 'all of it'}{f', the median of {step.steps} without the ends' if step.steps > 1 else ''}"
    lines = [
        f"{Path(section.report).name}, GPU {section.gpu}, {section.card}: {which}; {len(step.places)} of {step.events} "
        f"GPU events. Busy {duration(step.busy_s)}, idle {duration(step.seconds - step.busy_s)}. MFU "
        f"{percent(section.mfu)} of the measured ceilings."
    ]
    if step.seconds != step.profiled_s:
        lines += [f"Under the profiler it took {duration(step.profiled_s)}; gaps are scaled to the time without."]
    if step.collective_s:
        lines += [f"Collectives: {duration(step.collective_s)}, {duration(step.exposed_s)} of it exposed."]
    if lacking:
        shown = join_words(f"{what} {duration(seconds)}" for what, seconds in lacking.most_common(8))
        lines += [f"Without a formula: {percent(lacking.total() / step.seconds)} of the time ({shown})."]
    if any(one.label.inferred or one.overlapped > PARTLY for one in rows):
        lines += ["Marked *: a shape inferred from the same kernel outside of its graph. +: other kernels ran too."]
    return lines + [text for one in rows if (text := _above(one))][:FIRST]


def _above(one: TracedOperation) -> str:
    """What a share above 1 may come from."""
    roof = max((roof for roof in one.roofs if roof.level != "l2"), key=lambda roof: roof.share or 0.0, default=None)
    if not roof or (roof.share or 0.0) <= ABOVE or one.label.kind != "operator":
        return ""
    return f"{title_of(one)} is at {percent(roof.share)} of {roof.ceiling}: {ADVICE[f'above {roof.level}']}."


def page(found: Sequence[Section], source: str, pictures: Sequence[str]) -> str:
    parts = [f"# {Path(found[0].report).name} under measured ceilings", f"Ceilings: {source}."]
    for one, picture in zip(found, pictures, strict=True):
        parts += [f"## GPU {one.gpu}", verdict(one), *notes(one), str(table(one.kernels)), f"![Operators]({picture})"]
    return "\n\n".join(parts) + "\n"
