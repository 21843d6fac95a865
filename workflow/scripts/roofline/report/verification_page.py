"""verification.md: the summary, every cell beside its prediction, and a sentence on each error."""

from collections.abc import Iterable, Mapping

from roofline.analysis.prediction_error import CLOSE
from roofline.analysis.table import (
    Accuracy,
    Call,
    CountedEntry,
    ErrorStatistics,
    Operator,
    Roofline,
    Score,
)
from roofline.analysis.verification import error_statistics
from roofline.core.formatting import counted, duration, percent, regime_words, traffic
from roofline.records.check import CheckResult
from roofline.report.markdown import Table, filled, table
from roofline.report.tables import fail_lines

COUNTED = (
    "Of one step, by Nsight Compute, separate from all that was timed: bytes read from the device's memory and written "
    "to it; FLOPs executed on the pipes that the kernel's formula is of, or on all. The last column tells of "
    "differences above 2 % (of bytes, and above 1 MB)."
)
MANY = 9.995  # errors from here on are shown as a factor
REGIMES = {"not_found": "not found"}
SEALED = (
    "*Sealed*: written, and its hash recorded, before any record that carries it was begun, by the model from "
    "datasheets and constants; *from ceilings*: by the same model from what this run measured, the ceilings and what a "
    "call and a start cost. An error is (predicted - measured) / measured; the tables of cells begin with the largest. "
    "The model and its constants are in docs/prediction.md."
)
RIGHT = "A prediction is *right* where its regime is and its time is within a factor of two of the measured one."
CALLS = "Beside it, a kernel with as many arguments that does nothing. The least of the records' medians."


def markdown(verification: Roofline, failed: Iterable[CheckResult] = ()) -> str:
    """The page; tables and sentences in sections of one device, operator and implementation each."""
    titles = verification.titles
    sections = _sections(verification.entries, titles)
    fails = [f"**{line}.**" for line in fail_lines(failed)]
    parts = ["# Predictions, verified", *fails, _verdict(verification), _summary(verification, titles), RIGHT, SEALED]
    parts.append("\n".join(_seal(check) for check in verification.seals))
    parts.append("## Cells")
    for title, entries in sections.items():
        parts += [f"### {title}", _cells(entries)]
    if verification.calls:
        parts += ["## What a call costs at least, on the smallest case", CALLS, _calls(verification.calls, titles)]
    parts += _counted(verification)
    parts.append("## What explains the errors, and what helps")
    for title, entries in sections.items():
        parts += [f"### {title}", _helps(entries), _explained(entries)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _sections(entries: list[Operator], titles: Mapping[str, str]) -> dict[str, list[Operator]]:
    """By device, operator and implementation, the worst sealed prediction first."""
    found: dict[str, list[Operator]] = {}
    for entry in entries:
        title = f"{entry.device}, {titles.get(entry.operator, entry.operator)}, {entry.implementation}"
        found.setdefault(title, []).append(entry)
    return {title: sorted(cells, key=_size_of_error, reverse=True) for title, cells in found.items()}


def _size_of_error(entry: Operator) -> float:
    return abs(entry.sealed_error) if entry.sealed_error is not None else -1.0


def _verdict(verification: Roofline) -> str:
    if not verification.score.cells:
        return "No prediction has a measured counterpart."
    missed = error_statistics(e.sealed_error for e in verification.entries if e.sealed_error is not None)
    by = f" End-to-end times were missed by {_size(missed.median)} in the median." if missed else ""
    return f"**{score_words(verification.score)}**{by}"


def score_words(score: Score) -> str:
    """How many predictions are right, beside what a rule of thumb would have named."""
    thumb = f"the textbook's rule of thumb names {score.textbook_regimes_right} of {score.textbook_cells}"
    return (
        f"{score.both_right} of {score.cells} cells predicted right ({percent(score.both_right / score.cells)}): "
        f"regime {score.regimes_right}{f' ({thumb})' if score.textbook_cells else ''}, time within a factor of two "
        f"{score.times_right}."
    )


def _seal(check) -> str:
    if check.violations:
        return f"- {check.device}: **broken**: {'; '.join(check.violations)}"
    first, last = min(check.seals.values(), default="never"), max(check.seals.values(), default="never")
    when = f"sealed at {first}" if first == last else f"sealed from {first} to {last}"
    return f"- {check.device}: {when}; every record began after the seals that it carries."


# ---------------------------------------------------------------- tables


def _summary(verification: Roofline, titles: Mapping[str, str]) -> str:
    columns = ("device", "operator", "implementation", "regime found", "cells")
    columns += ("sealed: right", "regime right", "time right", "sealed: median, worst error")
    columns += ("from ceilings: right", "regime right", "time right", "from ceilings: median, worst error")
    columns += ("device time, sealed", "device time, from ceilings")
    rows = []
    for group in verification.summary:
        ways = (group.sealed, group.from_ceilings)
        row = [group.device, titles.get(group.operator, group.operator), group.implementation or "all"]
        row += [REGIMES.get(group.regime, group.regime), str(group.cells)]
        row += [cell for way in ways for cell in (*_right(way), _median_and_worst(way.latency))]
        rows.append(row + [_median_and_worst(way.device_latency) for way in ways])
    return table(columns, rows, left=4)


def _right(accuracy: Accuracy) -> list[str]:
    """Both, regime, time."""
    if not accuracy.regimes:
        return ["-"] * 3
    both = f"{accuracy.both_right} of {accuracy.regimes} ({percent(accuracy.both_right / accuracy.regimes)})"
    return [both, str(accuracy.regimes_correct), str(accuracy.times_right)]


def _median_and_worst(errors: ErrorStatistics | None) -> str:
    return f"{_size(errors.median)}, {_size(errors.worst)}" if errors else "-"


def _calls(calls: list[Call], titles: Mapping[str, str]) -> str:
    columns = ("device", "operator", "implementation", "scope", "records")
    columns += ("a call", "device time", "a call of an empty kernel", "its device time")
    rows = []
    for call in calls:
        times = (call.smallest_s, call.smallest_device_s, call.empty_kernel_s, call.empty_kernel_device_s)
        names = [call.device, titles.get(call.operator, call.operator), call.implementation, call.scope or ""]
        rows.append([*names, str(call.records), *map(_seconds, times)])
    return table(columns, rows, left=4)


def _cells(entries: list[Operator]) -> str:
    columns = ("cell", "measured", "sealed", "error", "from ceilings", "error", "device time", "sealed", "error")
    columns += ("predicted", "found", "regime right", "time right")
    rows = []
    for entry in entries:
        sealed, from_ceilings = entry.sealed, entry.from_ceilings
        row = [cell_name(entry), _seconds(entry.latency_s)]
        row += [_seconds(sealed and sealed.latency_s), signed(entry.sealed_error)]
        row += [_seconds(from_ceilings and from_ceilings.latency_s), signed(entry.from_ceilings_error)]
        row += [
            _seconds(entry.device_latency_s),
            _seconds(entry.device_latency_s and sealed and sealed.device_latency_s),
        ]
        row += [signed(entry.sealed_device_error), sealed.regime if sealed else "-", entry.regime or "not found"]
        right = (entry.sealed_regime_correct, entry.sealed_time_right)
        rows.append([*row, *({True: "yes", False: "**no**", None: "-"}[one] for one in right)])
    return table(columns, rows)


def cell_name(entry: Operator) -> str:
    """What tells a cell from the others of its device, operator and implementation."""
    return " ".join(part for part in (entry.preset, entry.scope, entry.dtype, entry.label) if part)


def _counted(verification: Roofline) -> list[str]:
    """Declared and counted side by side, or why nothing was counted."""
    parts = [
        f"- {one.device}{f', {one.record}' if one.record else ''}: {one.reason}." for one in verification.not_counted
    ]
    told = ["Not counted:\n\n" + "\n".join(parts)] if parts else []
    if not verification.counted:
        return ["## What the hardware counted", *told] if told else []
    shown = counted_table(verification.counted, verification.titles)
    rows = [[*row, one.explanation] for row, one in zip(shown.rows, verification.counted, strict=True)]
    return ["## What the hardware counted", COUNTED, table([*shown.columns, ""], rows), *told]


def counted_table(entries: Iterable[CountedEntry], titles: Mapping[str, str]) -> Table:
    """Declared and counted side by side."""
    columns = ("cell", "read: declared", "counted", "written: declared", "counted")
    columns += ("FLOPs: declared", "kernel's formula", "counted", "tensor cores active", "occupancy")
    rows = []
    for one in entries:
        moved = (one.declared_read_bytes, one.read_bytes, one.declared_write_bytes, one.write_bytes)
        flops = (one.declared_flops, one.kernel_flops, one.flops)
        shares = (one.tensor_pipe_active_fraction, one.achieved_occupancy_fraction)
        words = [traffic(value) if value is not None else "-" for value in moved]
        words += [f"{value:.4g}" if value is not None else "-" for value in flops]
        words += [percent(value) if value is not None else "-" for value in shares]
        rows.append([counted_name(one, titles), *words])
    return filled(columns, rows)


def counted_name(one: CountedEntry, titles: Mapping[str, str]) -> str:
    names = (one.device, one.preset, one.scope, one.dtype, one.label)
    return f"{titles.get(one.operator, one.operator)}, {one.implementation}: {' '.join(filter(None, names))}"


# ---------------------------------------------------------------- words


def _helps(entries: list[Operator]) -> str:
    """What helps in each regime that was found, and which dtypes; which cells where those of a dtype differ."""
    helps = []
    for regime in dict.fromkeys(entry.regime for entry in entries if entry.regime and entry.remedies):
        mine = [entry for entry in entries if entry.regime == regime]
        lists = {(entry.dtype, tuple(entry.remedies)) for entry in mine}
        alike: dict[tuple, dict[str, None]] = {}
        for entry in mine:
            by_dtype = sum(dtype == entry.dtype for dtype, _ in lists) == 1
            alike.setdefault(tuple(entry.remedies), {})[entry.dtype if by_dtype else cell_name(entry)] = None
        told = [f"{', '.join(names)}: {', '.join(remedies)}" for remedies, names in alike.items() if remedies]
        helps.append(f"- What helps where {regime_words(regime)}: {'; '.join(told)}.")
    return "\n".join(helps)


def _explained(entries: list[Operator]) -> str:
    """A sentence on each error that needs one."""
    close = sum(entry.cause == "close" for entry in entries)
    alike: dict[str, list[str]] = {}
    for entry in entries:
        if entry.cause != "close":
            name = f"**{cell_name(entry)}** ({signed(entry.sealed_error)})"
            alike.setdefault(entry.explanation, []).append(name)
    lines = [f"- {', '.join(names)}: {explanation}." for explanation, names in alike.items()]
    return "\n".join(lines + ([f"- {counted(close, 'cell')} within {percent(CLOSE)}."] if close else []))


def _seconds(value: float | None) -> str:
    return duration(value) if value else "-"


def _size(share: float) -> str:
    """An absolute error: a share in percent, or a factor where it is large."""
    return f"{share:.0f} times" if share >= MANY else percent(share)


def signed(share: float | None) -> str:
    if share is None:
        return "-"
    return f"{'-' if share < 0 else '+'}{_size(abs(share))}"
