"""A trace's verdict, notes and table."""

from collections.abc import Sequence
from pathlib import Path

from place_page import ADVICE, ROWS, limit_of, or_dash, share_words, title_of
from trace_rows import Operation, Section

from roofline.api import Table, counted, duration, filled, listed, number, percent, regime_words

GAPS = {
    "launch": ("gaps between launches", "try CUDA graphs or torch.compile, or more work per call"),
    "synchronisation": ("gaps after the host waited for the GPU", "avoid .item(), .cpu() and printing of tensors"),
    "copy": ("gaps next to copies", "pin the memory and copy with non_blocking=True"),
    "dependency": ("gaps between kernels that were queued", "fewer, larger kernels"),
}
BETTER = "try a fused operator, sizes that are multiples of 64, another layout or backend"
FIRST, WORTH = 3, 0.02  # sentences of the verdict, each at least this share of the step
PARTLY = 0.05  # of a row's time: more counts as overlapped
ADDED = "a file in tools/place/formulas adds one"
COLUMNS = ("operator", "shape", "limited by", "calls", "total", "of step", "each", "GFLOP", "MB", "of compute")
COLUMNS += ("of sustained", "of memory", "of L2", "saves")


def verdict(section: Section) -> str:
    """The step, what it would take at the roofs, and what would save most."""
    step = section.step
    what = "The step takes" if step.name else "The trace covers"
    found = [(seconds, _of_gap(kind, seconds)) for kind, seconds in step.gaps.items()]
    found += [(one.saving_s[0], _of_row(one)) for one in section.kernels if one.saving_s]
    found += [(step.exposed_s, f"{duration(step.exposed_s)} are collectives that no kernel overlaps.")]
    first = sorted((one for one in found if one[0] >= WORTH * step.seconds), reverse=True)[:FIRST]
    start = f"{what} {duration(step.seconds)}; {duration(section.roofs_s)} at the roofs."
    return " ".join([start, *(text for _, text in first)])


def _of_gap(kind: str, seconds: float) -> str:
    name, advice = GAPS[kind]
    return f"{duration(seconds)} are {name}: {advice}."


def _of_row(one: Operation) -> str:
    known = f"at {percent(share)} of their roof" if (share := roof_share(one)) else ""
    key = one.roof_at("compute").unit if one.limited_at == "compute" else one.limited_at or one.regime
    advice = BETTER if one.regime == "implementation" else ADVICE[key]
    what = f"{counted(one.launches, 'call')} of {title_of(one)} ({one.shape})"
    return f"{duration(one.total_s)} are {what} {known}, {regime_words(one.regime)}: {advice}."


def roof_share(one: Operation) -> float | None:
    """Of the nearer ceiling; of memory, not of the L2."""
    return max((roof.share for roof in one.roofs if roof.share and roof.level != "l2"), default=None)


def notes(section: Section) -> list[str]:
    step, rows = section.step, section.kernels
    lines = [
        f"{Path(section.report).name}, GPU {section.gpu}, {section.card}: {_which(section)}. Busy "
        f"{duration(step.busy_s)}, idle {duration(step.seconds - step.busy_s)}. MFU {percent(section.model_share)} of "
        f"the measured ceilings."
    ]
    if step.seconds != step.profiled_s:
        lines += [f"Under the profiler the step took {duration(step.profiled_s)}; gaps are scaled to the time without."]
    if step.collective_s:
        lines += [f"Collectives: {duration(step.collective_s)}, {duration(step.exposed_s)} of it exposed."]
    lacking: dict[str, float] = {}
    for one in rows:
        if one.lacking:
            lacking[one.lacking] = lacking.get(one.lacking, 0.0) + one.total_s
    if lacking:
        names = sorted(lacking.items(), key=lambda item: -item[1])
        shown = listed(f"{name} {duration(seconds)}" for name, seconds in names[:8])
        lines += [f"No formula for {percent(sum(lacking.values()) / step.seconds)} of the time: {shown}; {ADDED}."]
    marks = {
        "marked * took their shape from the same kernel outside of the CUDA graph": [one.inferred for one in rows],
        "marked + overlapped with other streams": [one.overlapped > PARTLY for one in rows],
    }
    lines += [f"{counted(sum(those), 'row')} {what}." for what, those in marks.items() if any(those)]
    return lines + [text for one in rows if (text := _above(one))][:FIRST]


def _which(section: Section) -> str:
    step = section.step
    skipped = f" of {step.steps}, the first left out" if step.steps > 1 else ""
    which = f"{step.name}, the median{skipped}" if step.name else "no steps, so all of the trace"
    return f"{which}; {counted(len(step.places), 'GPU event')} in {counted(len(section.kernels), 'row')}"


def _above(one: Operation) -> str:
    """What a share above 1 may come from."""
    roof = max(one.roofs, key=lambda roof: (roof.share or 0.0) * (roof.level != "l2"), default=None)
    if not roof or (roof.share or 0.0) <= 1.03 or one.kind != "operator":
        return ""
    why = "another arithmetic than that of its dtype, or fewer FLOPs (Winograd)"
    if roof.level == "memory":
        why = "data in a cache" if one.roof_at("l2") else "fewer bytes than its arguments have, or data in a cache"
    return f"{title_of(one)} ({one.shape}) is at {percent(roof.share)} of {roof.ceiling}: {why}."


def table(section: Section, most: int = ROWS) -> Table:
    """Operators and gaps, by what they would save."""
    step = section.step
    gaps = [(seconds, _gap_row(kind, seconds, step.seconds)) for kind, seconds in step.gaps.items() if seconds]
    rows = [(one.saving_s[0] if one.saving_s else 0.0, _row(one)) for one in section.kernels]
    ordered = [row for _, row in sorted(gaps + rows, key=lambda item: -item[0])]
    rest = [[f"{len(ordered) - most} others", *[""] * (len(COLUMNS) - 1)]] if len(ordered) > most else []
    return filled(COLUMNS, ordered[:most] + rest, 3)


def _gap_row(kind: str, seconds: float, whole: float) -> list[str]:
    share = percent(seconds / whole)
    return ["idle", GAPS[kind][0], "", "", duration(seconds), share, *["-"] * 7, duration(seconds)]


def _row(one: Operation) -> list[str]:
    shares = [one.roof_at("compute"), one.sustained_share, one.roof_at("memory"), one.roof_at("l2")]
    shares = [share if isinstance(share, float | None) else share.share for share in shares]
    low, high = one.saving_s or (None, None)
    saves = (
        "-" if low is None else duration(low) if high - low < 0.01 * high else f"{duration(low)} to {duration(high)}"
    )
    return [
        title_of(one) + "*" * one.inferred + "+" * (one.overlapped > PARTLY),
        one.shape,
        limit_of(one) if one.regime else one.kind if one.kind != "operator" else "no formula",
        str(one.launches),
        duration(one.total_s),
        or_dash(share_words, one.share_of_time),
        duration(one.mean_s),
        or_dash(number, one.flops and one.flops / 1e9),
        or_dash(number, one.least_bytes and one.least_bytes / 1e6),
        *(or_dash(share_words, share) for share in shares),
        saves,
    ]


def page(found: Sequence[Section], source: str, pictures: Sequence[str]) -> str:
    parts = [f"# {Path(found[0].report).name} under measured ceilings", f"Ceilings: {source}."]
    for section, picture in zip(found, pictures, strict=True):
        parts += [f"## GPU {section.gpu}", verdict(section), *notes(section), str(table(section))]
        parts += [f"![Operators under their ceilings]({picture})"]
    return "\n\n".join(parts) + "\n"
