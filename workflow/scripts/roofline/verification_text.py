"""verification.md: the summary, every cell beside its prediction, and a sentence on each gap."""

from collections.abc import Iterable

from roofline.records import Accuracy, Call, ErrorStatistics, Verification, VerificationEntry, VerificationGroup
from roofline.remedy import WORDS
from roofline.reporting import duration, percent

MANY = 9.995  # errors from here are told as a factor
INTRODUCTION = """\
*Sealed* was written before anything was timed, from datasheets and constants; *from ceilings* is the same model with \
what this run measured: the ceilings, and what a call and a start cost. An error is (predicted - measured) / measured; \
the tables of cells begin with the largest. The model and its constants are in docs/prediction.md."""
SUMMARY_COLUMNS = (
    "device",
    "implementation",
    "regime found",
    "cells",
    "sealed: named rightly",
    "sealed: median, worst error",
    "from ceilings: named rightly",
    "from ceilings: median, worst error",
    "device alone, sealed",
    "device alone, from ceilings",
)
CALL_COLUMNS = (
    "device",
    "implementation",
    "scope",
    "records",
    "a call",
    "device alone",
    "a call of an empty kernel",
    "device alone",
)
CALLS = """\
The smallest cell, S = 1 at batch 1, a layer, beside a kernel with as many arguments that does nothing; medians over \
records."""
CELL_COLUMNS = ("cell", "measured", "sealed", "error", "from ceilings", "error")
DEVICE_COLUMNS = ("device alone", "sealed", "error")
REGIME_COLUMNS = ("predicted", "found", "named rightly")
REGIMES = {"all": "all", "not_found": "not found", "shared_memory": "shared memory"}


def markdown(verification: Verification) -> str:
    """The page; tables and sentences in sections of one device and implementation each."""
    sections = _sections(verification.entries)
    lines = ["# Predictions, verified", "", _verdict(verification), "", *_summary(verification.summary), ""]
    lines += [INTRODUCTION, "", *(_seal(check) for check in verification.seals), "", "## Cells", ""]
    for title, entries in sections.items():
        lines += [f"### {title}", "", *_cells(entries), ""]
    if verification.calls:
        rows = map(_call_row, verification.calls)
        lines += ["## What a call takes at least", "", CALLS, "", *_table(CALL_COLUMNS, rows, left=3), ""]
    lines += ["## What explains the gaps, and what helps", ""]
    for title, entries in sections.items():
        lines += [f"### {title}", "", *(_explained(entry) for entry in entries), ""]
    return "\n".join(lines).rstrip() + "\n"


def _sections(entries: list[VerificationEntry]) -> dict[str, list[VerificationEntry]]:
    """By device and implementation, the worst sealed prediction first."""
    found: dict[str, list[VerificationEntry]] = {}
    for entry in entries:
        found.setdefault(f"{entry.device}, {entry.implementation}", []).append(entry)
    return {title: sorted(cells, key=_wrongness, reverse=True) for title, cells in found.items()}


def _wrongness(entry: VerificationEntry) -> float:
    return abs(entry.sealed_error) if entry.sealed_error is not None else -1.0


def _verdict(verification: Verification) -> str:
    judged = [e.sealed_named_rightly for e in verification.entries if e.sealed_named_rightly is not None]
    if not judged:
        return "No prediction has a measured counterpart."
    return f"The sealed prediction named the regime of {sum(judged)} of {len(judged)} cells rightly."


def _seal(check) -> str:
    told = f"- {check.device}: sealed at {check.sealed_at}, first measured at {check.first_measurement_at or 'no time'}"
    return f"{told}; **broken**: {'; '.join(check.violations)}" if check.violations else f"{told}."


# ---------------------------------------------------------------- tables


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]], left: int) -> list[str]:
    """A Markdown table whose first columns are aligned to the left, and the others to the right."""
    columns = list(columns)
    rule = ["---"] * left + ["--:"] * (len(columns) - left)
    return [f"| {' | '.join(row)} |" for row in (columns, rule, *rows)]


def _summary(groups: list[VerificationGroup]) -> list[str]:
    return _table(SUMMARY_COLUMNS, map(_summary_row, groups), left=3)


def _summary_row(group: VerificationGroup) -> list[str]:
    ways = (group.sealed, group.from_ceilings)
    told = [cell for way in ways for cell in (_named(way), _median_and_worst(way.latency))]
    alone = [_median_and_worst(way.device_latency) for way in ways]
    names = " and ".join(group.implementations)
    return [group.device, names, REGIMES.get(group.regime, group.regime), str(group.cells), *told, *alone]


def _named(accuracy: Accuracy) -> str:
    if not accuracy.regimes:
        return "-"
    return f"{accuracy.named_rightly} of {accuracy.regimes} ({percent(accuracy.share_named_rightly)})"


def _median_and_worst(errors: ErrorStatistics | None) -> str:
    return f"{_size(errors.median)}, {_size(errors.worst)}" if errors else "-"


def _call_row(call: Call) -> list[str]:
    times = (call.smallest_s, call.smallest_device_s, call.empty_kernel_s, call.empty_kernel_device_s)
    return [call.device, call.implementation, call.scope, str(call.records), *map(_seconds, times)]


def _cells(entries: list[VerificationEntry]) -> list[str]:
    alone = any(entry.device_latency_s for entry in entries)
    columns = [*CELL_COLUMNS, *(DEVICE_COLUMNS if alone else ()), *REGIME_COLUMNS]
    return _table(columns, (_cell_row(entry, alone) for entry in entries), left=1)


def _cell_row(entry: VerificationEntry, alone: bool) -> list[str]:
    sealed, from_ceilings = entry.sealed, entry.from_ceilings
    row = [cell_name(entry), _seconds(entry.latency_s)]
    row += [_seconds(sealed and sealed.latency_s), _signed(entry.sealed_error)]
    row += [_seconds(from_ceilings and from_ceilings.latency_s), _signed(entry.from_ceilings_error)]
    if alone:
        row += [_seconds(entry.device_latency_s), _seconds(sealed and sealed.device_latency_s)]
        row += [_signed(entry.sealed_device_error)]
    named = sealed.regime if sealed else "-"
    rightly = {True: "yes", False: "**no**", None: "-"}[entry.sealed_named_rightly]
    return [*row, named, entry.regime or "not found", rightly]


def cell_name(entry: VerificationEntry) -> str:
    """What tells a cell from the others of its device and implementation."""
    if entry.operator == "gemm":
        return f"{entry.dtype} {entry.shape['m']} x {entry.shape['n']} x {entry.shape['k']}"
    if entry.operator == "decode_attention":
        sizes = f"batch {entry.shape['batch']} S {entry.shape['seq_len']}"
    else:
        sizes = " ".join(f"{name} {size}" for name, size in entry.shape.items())
    return " ".join(part for part in (entry.preset, entry.scope, entry.dtype, sizes) if part)


# ---------------------------------------------------------------- words


def _explained(entry: VerificationEntry) -> str:
    said = f"- **{cell_name(entry)}** ({_signed(entry.sealed_error)}): {entry.gap}."
    if entry.regime is None:
        return f"{said} No regime was found, for want of a ceiling."
    helps = ", ".join(WORDS[name] for name in entry.remedies) or "none, this is the lowest precision"
    return f"{said} Bound by {REGIMES.get(entry.regime, entry.regime)}; remedies: {helps}."


def _seconds(value: float | None) -> str:
    return duration(value) if value else "-"


def _size(share: float) -> str:
    """An absolute error: a share in per cent, or a factor where it is large."""
    return f"{share:.0f} times" if share >= MANY else percent(share)


def _signed(share: float | None) -> str:
    if share is None:
        return "-"
    return f"{'-' if share < 0 else '+'}{_size(abs(share))}"
