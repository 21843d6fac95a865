"""spread.md: the ceilings of several runs side by side, and which spreads most."""

from collections.abc import Sequence

from roofline.analysis.spread import CeilingSpread, SpreadRecord, widest
from roofline.core.formatting import counted, listed, percent
from roofline.report.markdown import table


def markdown(ceilings: Sequence[CeilingSpread]) -> str:
    """A row per figure, and a sentence."""
    runs = max((len(ceiling.runs) for ceiling in ceilings), default=0)
    columns = ["ceiling", "unit", *(f"run {i + 1}" for i in range(runs)), "spread", "interval within a run"]
    shown = [one for one in ceilings if one.figure != "ceiling" or one.unit == "GB/s"]  # else the higher of the others
    return f"{table(columns, map(_row, shown), left=2)}\n\n{verdict(shown)}\n"


def provenance(record: SpreadRecord) -> str:
    """Which devices, when, and by which code."""
    devices = listed(f"{name} ({device})" for device, name in record.devices.items())
    return f"{devices}; back to back, {record.started_at} to {record.ended_at}; commit {record.commit or 'not known'}."


def left_out(told: Sequence[str]) -> list[str]:
    """A paragraph, where there is anything to say."""
    lines = "\n".join(f"- {line}" for line in told)
    return [f"Left out, since a check failed: {counted(len(told), 'record')}.\n\n{lines}"] if told else []


def verdict(ceilings: Sequence[CeilingSpread]) -> str:
    """Which ceiling spreads most, and whether the runs' own intervals tell as much."""
    most = widest(ceilings)
    if not most:
        return "No ceiling is left in two runs."
    known = most.ci95_relative is not None
    within = f", ± {percent(most.ci95_relative)} within one" if known else "; it has no interval of its own"
    return f"{_name(most)} spreads most: {percent(most.spread)} between the runs{within}."


def _row(ceiling: CeilingSpread) -> list[str]:
    values = ["-" if value is None else _four_digits(value) for value in ceiling.runs]
    spread = "-" if ceiling.spread is None else percent(ceiling.spread)
    within = "-" if ceiling.ci95_relative is None else f"± {percent(ceiling.ci95_relative)}"
    return [_name(ceiling), ceiling.unit, *values, spread, within]


def _four_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def _name(ceiling: CeilingSpread) -> str:
    return f"{ceiling.device} {ceiling.name}" + ("" if ceiling.figure == "ceiling" else f", {ceiling.figure}")
