"""What the terminal shows after a run, at most 25 lines a device."""

import textwrap
from collections.abc import Sequence

from roofline.core.formatting import count_words, duration, flops_unit, mark_doubtful, number, percent
from roofline.core.levels import LEVEL_TITLES
from roofline.report import words
from roofline.report.report_model import DeviceView, OperatorView, ReportView, reliable_share
from roofline.table.rows import CheckResult, ComputeCeiling, count_passed

MOST_COLUMNS = 120
MOST_FAILURES = 4  # by name; ROOFLINE.md has all
OTHER_CEILINGS = ("l2", "l1", "shared", "d2h")


class Row(str):
    """A line of a table: it is cut where it is too long, and not wrapped."""


def format_summary(
    report: ReportView,
    seconds: float | None = None,
    usd: float | None = None,
    again: str = "",
    width: int | None = MOST_COLUMNS,
) -> str:
    """Return what the terminal shows after a run.

    `seconds` and `usd` are of the whole run; `again` is the command that measures disturbed records again. Lines are
    cut to `width`, at most MOST_COLUMNS; with None, as in a file, they are whole.
    """
    width = width and min(width, MOST_COLUMNS)
    shown = [""]
    cost = [f"this run {seconds:.0f} s"] if seconds else []
    cost += [f"${usd:.2f}"] if usd else []
    for device in report.devices:
        for line in _device(device, report, cost if device is report.first_device else []):
            shown += _fit(line, width)
        shown.append("")
    if report.ratios:
        ratios = " · ".join(
            f"{ratio.title} {' and '.join(map(words.format_span, filter(None, [ratio.roof_ratios, ratio.speed_ups])))}"
            for ratio in report.ratios
        )
        shown += [*_fit(f"GPU over CPU, fp32, roofs and times against NumPy: {ratios}", width), ""]
    if report.table.records_to_repeat:  # not cut: it is to be pasted
        shown += [f"Disturbed by other load. When the machine is idle: {again}"]
    return "\n".join(shown)


def _fit(line: str, width: int | None) -> list[str]:
    """The lines that a line takes on a terminal of this width: a row is cut, of a sentence two lines are shown. Without
    a width the line is whole."""
    if width is None:
        return [line]
    if isinstance(line, Row):
        return [line if len(line) <= width else f"{line[: width - 1]}…"]
    return textwrap.wrap(line, width, subsequent_indent="    ", max_lines=3, placeholder=" …")


def _device(device: DeviceView, report: ReportView, cost: Sequence[str]) -> list[str]:
    all_reduces = [f"  {line}" for line in words.describe_all_reduces(report.table, device.device)]
    ceilings = [*_compute(device), *_memory(device), *all_reduces]
    lines = [_head(device, cost), *ceilings, *_operators(device, report)]
    if device.score.cell_count:
        lines.append(f"  Predicted before timing: {words.describe_score(device.score)}")
    if drawn := words.describe_drawn(report.table, device.device):
        lines.append(f"  {drawn}")
    if own_score := report.table.own_scores.get(device.device):
        lines.append(f"  Your predictions: {words.describe_own_score(own_score)}")
    if standing := words.describe_standing(report.table, device.device):
        lines.append(f"  {standing}")
    lines += [f"  Skipped {line}" for line in words.describe_skipped(report.table, device.device)]
    failed = device.checks_with("fail")
    lines += [f"  FAIL: {check.check} ({check.reason}){_action(check)}" for check in failed[:MOST_FAILURES]]
    if len(failed) > MOST_FAILURES:
        lines.append(f"  {len(failed) - MOST_FAILURES} more in ROOFLINE.md")
    lines += [f"  Note: {check.reason}{_action(check)}" for check in device.checks_with("note")]
    if any("*" in line for line in ceilings):
        lines.append(f"  * {words.DOUBTS}: do not use")
    return lines


def _head(device: DeviceView, cost: Sequence[str]) -> str:
    driver = device.facts.get("driver")
    checks = count_passed(device.checks)
    if notes := device.checks_with("note"):
        checks += f", {count_words(len(notes), 'note')}"
    return " · ".join([f"{device.device}: {device.row.name}", *([f"driver {driver}"] if driver else []), *cost, checks])


def _action(check: CheckResult) -> str:
    return f"; {check.action}" if check.action else ""


def _compute(device: DeviceView) -> list[str]:
    if not device.compute:
        return []
    small = max(ceiling.burst_tflops for ceiling in device.compute) < 1
    scale, unit = (1e3, "GFLOPS") if small else (1, "TFLOPS")

    def rate(tflops: float | None) -> str:
        return number(scale * tflops) if tflops else ""

    def burst_rate(ceiling: ComputeCeiling) -> str:
        return mark_doubtful(rate(ceiling.burst_tflops), ceiling.doubt)

    head = f"  {f'compute, {unit}':<17}{'sustained':>15}{'burst':>8}{device.row.peaks_by:>11}{'share':>10}  limited by"
    lines: list[str] = [Row(head)]
    for ceiling in device.gemms:
        name = f"{ceiling.name}, TOPS" if flops_unit(ceiling.name) == "TOPS" else ceiling.name
        sustained, datasheet = words.format_sustained(ceiling, scale), rate(ceiling.datasheet_tflops)
        figures = f"{sustained:>15}{burst_rate(ceiling):>8}{datasheet:>11}{words.format_shares(ceiling):>10}"
        lines.append(Row(f"    {name:<15}{figures}  {words.format_limits(ceiling)}".rstrip()))
    registers = [f"{row.dtype} {burst_rate(row)} {words.format_shares(row)}".rstrip() for row in device.registers]
    if registers:
        lines.append(Row(f"    multiply-adds in registers: {', '.join(registers)}"))
    return lines


def _memory(device: DeviceView) -> list[str]:
    main = [ceiling for mix in ("read", "copy") if (ceiling := device.memory_ceiling(mix))]
    levels = [ceiling for name in OTHER_CEILINGS for ceiling in device.memory if ceiling.name == name]
    one_core = [ceiling for ceiling in device.memory if ceiling.cores == 1 and ceiling.mix == "read"]
    peers = [ceiling for ceiling in device.memory if ceiling.level == "p2p" and ceiling.mix == "copy"]
    parts = []
    if main:
        rates = ", ".join(f"{ceiling.mix} {words.format_bandwidth(ceiling)}" for ceiling in main)
        parts.append(f"{LEVEL_TITLES[main[0].level]} {rates}")
    parts += [f"{LEVEL_TITLES.get(level.name, level.name)} {words.format_bandwidth(level)}" for level in levels]
    parts += [f"{ceiling.mix} by one core {words.format_bandwidth(ceiling)}" for ceiling in one_core]
    for ceiling in peers:
        parts.append(f"to {ceiling.peer} {words.format_bandwidth(ceiling)}{' both ways' if ceiling.both_ways else ''}")
    return [f"  memory, GB/s  {' · '.join(parts)}"] if parts else []


def _operators(device: DeviceView, report: ReportView) -> list[str]:
    if not device.operators:
        return []
    head = f"  {'operator':<20}{'best case':<38}{'time':>8}{'of roof':>9}  cells limited by"
    return [Row(head), *(Row(_operator(operator, report)) for operator in device.operators)]


def _operator(operator: OperatorView, report: ReportView) -> str:
    """The best cell of an operator, what limits most cells, and what helps."""
    best = operator.best_cell
    if best is None:
        return f"    {operator.about.title:<18}{operator.cells[0].no_roof_reason or 'no cell to rely on'}"
    case = " ".join(filter(None, [best.implementation, best.dtype, report.table.label(best)]))
    case = case if len(case) < 38 else f"{case[:36]}…"
    figures = f"{duration(best.cpu_time_s):>8}{percent(reliable_share(best)):>9}"
    remedy = f"; try {operator.remedies[0]}" if operator.remedies else ""
    limits = [f"{count} of {len(operator.sound_cells)} {regime}" for regime, count in operator.regime_counts[:1]]
    return f"    {operator.about.title:<18}{case:<38}{figures}  {''.join(limits)}{remedy}"
