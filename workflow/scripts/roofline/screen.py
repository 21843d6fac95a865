"""What the terminal shows before a run and after it."""

import os
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from roofline.ceiling_table import Row, compute_rows, level_rows, memory_rows
from roofline.devices.cpu import NATIVE_DTYPES
from roofline.operators.decode_attention import implementations_of
from roofline.records import AboveRoof, Acceptance, CorruptRecord, Operator, Roofline, read
from roofline.reporting import count_jobs, duration, now, number, percent

RUN_STARTED = "ROOFLINE_RUN_STARTED"
COUNTER_FILE = Path("logs/.jobs-ended")
WIDTH = 100  # columns
USERS_OWN = "; its counts and time are the user's own"  # the end of the evidence for an operation of the config
WAYS_ABREAST = 4
BOUND_BY = {"overhead": "o", "memory": "m", "compute": "c"}
MEASURING = ("device_query", "peak_flops", "bandwidth", "decode_attn")

# Seconds of a job beyond its timed blocks, seen on an H200's host and on two CPU cores: libraries load, a context is
# made, operands are drawn and checked.
START_UP_S = {"gpu": 2.2, "cpu": 1.5}
OTHER_JOB_S = 0.5
# A block of attention seldom spends its whole budget on a GPU and nearly always does on a CPU.
BUDGET_SPENT = {"gpu": 0.2, "cpu": 0.8}
WITH_BLOCK = ("eager", "numpy")  # implementations that are timed with the projections too
# About how many budgets a memory level spends: on read, write, copy and triad, or on copies from or to the host.
STREAMS = 4


def remember_start() -> None:
    """Leave the moment for the jobs of this run, which inherit the environment; the manifest reads it."""
    os.environ[RUN_STARTED] = now()


def announce(jobs: Iterable, settings: dict) -> None:
    """How many measurements there will be, and about how long and at what cost."""
    jobs = [(job.rule.name, dict(job.wildcards)) for job in jobs if job.rule.name != "all"]
    measuring = [(rule, wildcards) for rule, wildcards in jobs if rule in MEASURING]
    seconds = sum(
        expected_s(rule, wildcards.get("device", ""), settings, wildcards.get("dtype")) for rule, wildcards in jobs
    )
    price = settings["cost"]["usd_per_hour"]
    cost = f", about ${price * seconds / 3600:.2f} at ${price:g} an hour" if price else ""
    devices = sorted({wildcards["device"] for _, wildcards in measuring}, key=lambda name: (name == "cpu", name))
    on = f" on {', '.join(devices)}" if devices else ""
    count_jobs(len(jobs), COUNTER_FILE)
    what, all_jobs = _count(len(measuring), "measurement"), _count(len(jobs), "job")
    _say(f"{what}{on}, about {_rounded(seconds)}{cost}; {all_jobs} in all.")


def expected_s(rule: str, device: str, settings: dict, dtype: str | None = None) -> float:
    """About how long a job takes."""
    kind = device.rstrip("0123456789")
    skipped = rule == "peak_flops" and kind == "cpu" and dtype not in (None, *NATIVE_DTYPES)
    if rule not in MEASURING or skipped:
        return OTHER_JOB_S
    peaks, attention = settings["peak_flops"], settings["decode_attn"]
    ways = sum(2 if name in WITH_BLOCK else 1 for name in implementations_of(kind, attention["implementations"]))
    timed = {
        "peak_flops": 1.5 * peaks["time_budget_s"] + peaks["sustained_s"],
        "bandwidth": STREAMS * settings["bandwidth"]["time_budget_s"],
        "decode_attn": ways * len(attention["batch_sizes"]) * attention["time_budget_s"] * BUDGET_SPENT[kind],
    }
    return START_UP_S[kind] + timed.get(rule, 0)


def summarise(results: Path) -> None:
    """The ceilings, the operators, the checklist, and where the files are."""
    try:
        roofline = read(Roofline, results / "roofline.json")
        acceptance = read(Acceptance, results / "acceptance.json")
    except (OSError, CorruptRecord):
        return
    lines = [""]
    for name, device in roofline.devices.items():
        lines += [f"{name}: {device.name}", *_ceilings(name, roofline), *_operators(name, roofline)]
        lines += [*_above_roof(name, roofline), ""]
    lines += ["Acceptance", *_criteria(acceptance), ""]
    lines += [
        f"Picture {results}/roofline.png · in words {results}/interpretation.md · numbers {results}/roofline.json",
        "On a rented machine: make archive, fetch the file from results/archive/, then terminate the machine.",
    ]
    _say("\n".join(lines))


def explain() -> None:
    """After a failure: what is kept and what to do."""
    _say(
        "\nA job failed; its line above names the fault and its log. Every finished result is kept: "
        "mend the cause and run again, and only what is missing is measured."
    )


def _ceilings(device: str, roofline: Roofline) -> list[str]:
    compute, memory = compute_rows(roofline, device), memory_rows(roofline, device)
    promise = "formula" if roofline.devices[device].kind == "cpu" else "vendor"
    lines = _table(f"TFLOPS{', int8: TOPS' if any(row.unit == 'TOPS' for row in compute) else ''}", promise, compute)
    lines += _table("GB/s", "vendor", memory) + _levels(device, roofline)
    for skip in (skip for skip in roofline.skipped if skip.device == device):
        lines += _wrapped(f"  {skip.name or skip.dtype:<10}  skipped: {skip.reason}", 4)
    return lines


class _Column(NamedTuple):
    """Of a table of ceilings: a field of its rows; `always` there, though a device may have nothing in it."""

    field: str
    head: str
    width: int
    always: bool = False


COLUMNS = (
    _Column("measured", "measured", 8, always=True),
    _Column("interval", "95 % interval", 14, always=True),
    _Column("sustained", "sustained", 9),
    _Column("vendor", "vendor", 7),  # or what stands for it
    _Column("of_vendor", "of it", 6),
    _Column("of_clock", "of clock", 8),
)


def _table(unit: str, promise: str, rows: list[Row]) -> list[str]:
    if not rows:
        return []
    # Columns in which a device has nothing are left out.
    shown = [column for column in COLUMNS if column.always or any(getattr(row, column.field) for row in rows)]
    head = " ".join(f"{promise if c.field == 'vendor' else c.head:>{c.width}}" for c in shown)
    lines = [f"  {unit:<18} {head}  held back by"]
    for row in rows:
        figures = " ".join(f"{getattr(row, c.field):>{c.width}}" for c in shown)
        lines += _wrapped(f"  {row.name:<18} {figures}  {row.held_back_by}", len(lines[0]) - len("held back by"))
    return lines


def _levels(device: str, roofline: Roofline) -> list[str]:
    rows = level_rows(roofline, device)
    head = f"  {'found by the sweep':<18} {'GB/s':>8} {'knee':>14} {'reported':>9}  series"
    lines = [
        f"  {row.name:<18} {row.gb_per_s:>8} {row.knee or 'none seen':>14} {row.reported or '-':>9}  {row.series}"
        for row in rows
    ]
    return [head, *(part for line in lines for part in _wrapped(line, 55))] if rows else []


def _above_roof(device: str, roofline: Roofline) -> list[str]:
    """Which operators are above their roofs, and what is wrong."""
    above = [found for found in roofline.above_roof if found.device == device]
    return [line for found in above for line in _wrapped(f"  Above its roof: {above_roof_words(found)}", 4)]


def above_roof_words(found: AboveRoof) -> str:
    """What stands above its roof, why, and the evidence."""
    cause = f"the {found.wrong_roof} ceiling is too low" if found.wrong_roof else "the cause is not known"
    if found.cache:
        cause = f"its data came from {found.cache}"
    if found.evidence.endswith(USERS_OWN):
        cause = f"its counts or its time do not fit the {found.wrong_roof or found.cache} ceiling"
    return f"{found.operator} at {percent(found.fraction_of_roof)} of it: {cause} ({found.evidence.rstrip('.')})."


def _wrapped(line: str, indent: int) -> list[str]:
    """The line within WIDTH columns; what is over stands below, indented as far as its first so many columns."""
    first, *others = textwrap.wrap(line[indent:], WIDTH - indent) or [""]
    return [(line[:indent] + first).rstrip(), *(" " * indent + other for other in others)]


def _operators(device: str, roofline: Roofline) -> list[str]:
    found = [operator for operator in roofline.operators if operator.device == device]
    steps = [operator for operator in found if operator.operator == "decode_attention"]
    others = [operator for operator in found if operator.operator != "decode_attention"]
    head = f"  {'operator':<44} {'latency':>9} {'TFLOPS':>9} {'of roof':>8}  bound by"
    lines = [head, *(_operator_line(operator) for operator in others)] if others else []
    for preset in dict.fromkeys(step.preset for step in steps):
        lines += _steps([step for step in steps if step.preset == preset])
    return lines


def _steps(steps: list[Operator]) -> list[str]:
    """Decode attention of a preset: a row a cell, a column a way to compute it, as many abreast as have room."""
    ways = list(dict.fromkeys(_way(step) for step in steps))
    dtypes = list(dict.fromkeys(step.dtype for step in steps))
    cells: dict[tuple, dict[str, Operator]] = {}
    for step in steps:
        cells.setdefault((step.dtype, step.shape["batch"], step.shape["seq_len"]), {})[_way(step)] = step
    head = (
        f"  decode attention, {steps[0].preset}: caller's time, of roof, bound by overhead (o), memory (m), compute (c)"
    )
    lines = _wrapped(head, 4)
    for first in range(0, len(ways), WAYS_ABREAST):
        abreast = ways[first : first + WAYS_ABREAST]
        lines.append(f"  {'dtype, batch, S':<16}" + "".join(f" {way:>18}" for way in abreast))
        for (dtype, batch, seq_len), row in sorted(
            cells.items(), key=lambda cell: (dtypes.index(cell[0][0]), *cell[0])
        ):
            name = f"{dtype} {batch:>4} {seq_len:>6}"
            lines.append(f"  {name:<16}" + "".join(f" {_step(row.get(way)):>18}" for way in abreast))
    return [line.rstrip() for line in lines]


def _way(step: Operator) -> str:
    return f"{step.implementation} block" if step.scope == "block" else str(step.implementation)


def _step(step: Operator | None) -> str:
    if step is None or not step.latency_s:
        return "-"
    share = percent(step.fraction_of_roof) if step.fraction_of_roof is not None else "-"
    return f"{duration(step.latency_s)} {share:>8} {BOUND_BY.get(step.regime, '-')}"


def _operator_line(o: Operator) -> str:
    latency = duration(o.latency_s) if o.latency_s else "-"
    attained = number(o.attained_tflops) if o.attained_tflops is not None else "-"
    share = percent(o.fraction_of_roof) if o.fraction_of_roof is not None else "-"
    return f"  {operator_name(o):<44} {latency:>9} {attained:>9} {share:>8}  {o.regime or '-'}"


def operator_name(o: Operator) -> str:
    """One line's name of an operator: what, dtype and shape."""
    if o.operator == "gemm":
        return f"gemm {o.dtype} {o.shape['m']} x {o.shape['n']} x {o.shape['k']}"
    if o.operator == "decode_attention":
        cell = f"{o.dtype} batch {o.shape['batch']} S {o.shape['seq_len']} {o.preset}"
        return f"decode {o.scope} {o.implementation} {cell}"
    return f"{o.name or o.operator} {o.dtype}"


def _criteria(acceptance: Acceptance) -> list[str]:
    words = {"pass": "pass", "fail": "FAIL", "not_applicable": "n/a "}
    return [
        f"  {words[c.result]}  {c.device + ': ' if c.device else ''}{c.criterion} ({c.reason})"
        for c in acceptance.criteria
    ]


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _rounded(seconds: float) -> str:
    return f"{max(5, round(seconds / 5) * 5)} s" if seconds < 100 else f"{seconds / 60:.1f} minutes"


def _say(text: str) -> None:
    print(text, flush=True)
