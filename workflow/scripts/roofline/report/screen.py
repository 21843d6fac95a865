"""What the terminal shows after a run, at most 25 lines a device."""

import shlex
import textwrap

from roofline.core.formatting import duration, flops_unit, mark_doubtful, number, percent
from roofline.report.report_model import DeviceView, OperatorView, ReportView
from roofline.report.words import (
    LEVELS,
    datasheet_word,
    describe_score,
    describe_skipped,
    describe_standing,
    format_bandwidth,
    format_limits,
    format_shares,
    format_span,
    regime_counts,
)
from roofline.table.rows import CheckResult, MemoryCeiling

WIDTH = 120  # columns, at most
MOST_FAILS = 4  # named; ROOFLINE.md has all
RATES = ("read", "copy")  # of device memory
OTHERS = ("l2", "l1", "shared", "d2h")


def format_summary(
    report: ReportView, seconds: float | None = None, usd: float | None = None, arguments: str = "", width: int = WIDTH
) -> str:
    """`seconds` and `usd` are of the whole run; `arguments`, its ARGS, are for the next one too."""
    width = min(width, WIDTH)
    lines = [""]
    for place, device in enumerate(report.devices):
        cost = [
            f"this run {seconds:.0f} s" if seconds and not place else "",
            f"${usd:.2f}" if usd and not place else "",
        ]
        shown = _device(device, report, [one for one in cost if one])
        lines += [*(part for line in shown for part in _fitted(line, width)), ""]
    if report.ratios:
        shown = " · ".join(f"{one.title} {format_span(one.times)}x" for one in report.ratios)
        lines += [*_fitted(f"GPU/CPU, fp32: {shown}", width), ""]
    if report.table.records_to_repeat:  # not cut: it is to be pasted
        lines += [f"Disturbed by other load. When the machine is idle: {format_make_command(arguments, 'AGAIN=1')}"]
    return "\n".join(lines)


def format_make_command(arguments: str, *target: str) -> str:
    """A command that concerns a run, with its ARGS."""
    return shlex.join(["make", *target, *([f"ARGS={arguments.replace('$', '$$')}"] if arguments else [])])


def _device(device: DeviceView, report: ReportView, cost: list[str]) -> list[str]:
    driver = device.facts.get("driver")
    notes = f", {len(device.notes)} note{'s' if len(device.notes) > 1 else ''}" if device.notes else ""
    head = [f"{device.name}: {device.row.name}", *([f"driver {driver}"] if driver else []), *cost]
    lines = [" · ".join([*head, f"{device.passed}{notes}"])]
    lines += [*_compute(device), *_memory(device), *_operators(device, report)]
    if device.score.cell_count:
        lines.append(f"  Predicted before timing: {describe_score(device.score)}")
    if known := describe_standing(report.table, device.name):
        lines.append(f"  {known}")
    lines += [f"  Skipped {words}" for words in describe_skipped(report.table, device.name)]
    lines += [f"  FAIL: {one.check} ({one.reason}){_then(one)}" for one in device.failed[:MOST_FAILS]]
    lines += [f"  {len(device.failed) - MOST_FAILS} more in ROOFLINE.md"] if len(device.failed) > MOST_FAILS else []
    lines += [f"  Note: {one.reason}{_then(one)}" for one in device.notes]
    if any("*" in line for line in lines):
        lines.append("  * disturbed, throttled, too few samples, or contradicted: do not use")
    return lines


def _then(one: CheckResult) -> str:
    return f"; {one.action}" if one.action else ""


def _fitted(line: str, width: int) -> list[str]:
    """A row of a table is cut; of a sentence two lines are shown."""
    if "   " in line:
        return [line if len(line) <= width else f"{line[: width - 1]}…"]
    return textwrap.wrap(line, width, subsequent_indent="    ", max_lines=2, placeholder=" …")


def _compute(device: DeviceView) -> list[str]:
    if not device.compute:
        return []
    small = max(c.burst_tflops for c in device.compute) < 1
    size, unit = (1e3, "GFLOPS") if small else (1, "TFLOPS")

    def rate(tflops: float | None) -> str:
        return number(size * tflops) if tflops else ""

    head = f"compute, {unit}"
    lines = [f"  {head:<17}{'burst':>8}{'sustained':>11}{datasheet_word(device.row):>11}{'share':>11}  limited by"]
    for c in device.gemms:
        name = f"{c.name}, TOPS" if flops_unit(c.name) == "TOPS" else c.name
        burst = mark_doubtful(rate(c.burst_tflops), c.doubt)
        figures = f"{burst:>8}{rate(c.sustained_tflops):>11}{rate(c.datasheet_tflops):>11}{format_shares(c):>11}"
        lines.append(f"    {name:<15}{figures}  {format_limits(c)}".rstrip())
    found = [
        f"{c.dtype} {mark_doubtful(rate(c.burst_tflops), c.doubt)} {format_shares(c)}".rstrip()
        for c in device.registers
    ]
    return lines + ([f"    multiply-adds in registers: {', '.join(found)}"] if found else [])


def _memory(device: DeviceView) -> list[str]:
    main = [c for mix in RATES if (c := device.main(mix))]
    shown = [f"{LEVELS[main[0].level]} " + ", ".join(f"{c.mix} {format_bandwidth(c)}" for c in main)] if main else []
    by_name: dict[str, MemoryCeiling] = {c.name: c for c in device.memory}
    shown += [f"{LEVELS.get(name, name)} {format_bandwidth(by_name[name])}" for name in OTHERS if name in by_name]
    shown += [f"{c.mix} by one core {format_bandwidth(c)}" for c in device.memory if c.cores == 1 and c.mix == "read"]
    peers = [c for c in device.memory if c.level == "p2p" and c.mix == "copy"]
    shown += [f"to {c.peer} {format_bandwidth(c)}{' both ways' if c.both_ways else ''}" for c in peers]
    return [f"  memory, GB/s  {' · '.join(shown)}"] if shown else []


def _operators(device: DeviceView, report: ReportView) -> list[str]:
    if not device.operators:
        return []
    head = f"  {'operator':<20}{'best case':<38}{'time':>8}{'of roof':>9}  cells limited by"
    return [head, *(_operator(one, report) for one in device.operators)]


def _operator(one: OperatorView, report: ReportView) -> str:
    """The best cell, what limits most cells, what helps."""
    if one.best is None:
        return f"    {one.title:<18}{one.cells[0].no_roof_reason or 'no cell to rely on'}"
    best = one.best
    case = " ".join(filter(None, [best.implementation, best.dtype, report.table.label(best)]))
    case = case if len(case) < 38 else f"{case[:36]}…"
    helps = f"; try {one.remedies[0]}" if one.remedies else ""
    figures = f"{duration(best.cpu_time_s):>8}{percent(best.reliable_fraction_of_roof):>9}"
    cells = [cell for cell in one.cells if cell.reliable_fraction_of_roof]
    words = regime_counts(cells).split(",")[0].replace("-bound", "").replace("limited by the ", "")
    return f"    {one.title:<18}{case:<38}{figures}  {words.replace(' ', f' of {len(cells)} ', 1)}{helps}"
