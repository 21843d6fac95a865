"""What the terminal shows before a run and after it."""

import os
from collections.abc import Iterable
from pathlib import Path

from roofline.records import Acceptance, CorruptRecord, Operator, Roofline, read
from roofline.reporting import count_jobs, duration, now, number, percent

RUN_STARTED = "ROOFLINE_RUN_STARTED"
COUNTER_FILE = Path("logs/.jobs-ended")
MEASURING = ("device_query", "peak_flops", "bandwidth", "decode_attn")

# Seconds of a job beyond its timed blocks, seen on an H200's host and on two CPU cores: libraries load, a context is
# made, operands are drawn and checked.
ABOVE = 1.05  # of its roof: more than noise
START_UP_S = {"gpu": 3.0, "cpu": 1.5}
OTHER_JOB_S = 1.0
# A block seldom spends its whole budget on a GPU and nearly always does on a CPU.
BUDGET_SPENT = {"gpu": 0.2, "cpu": 0.8}


def remember_start() -> None:
    """Leave the moment for the jobs of this run, which inherit the environment; the manifest reads it."""
    os.environ[RUN_STARTED] = now()


def announce(jobs: Iterable, settings: dict) -> None:
    """How many measurements there will be, and about how long and at what cost."""
    jobs = [(job.rule.name, dict(job.wildcards)) for job in jobs if job.rule.name != "all"]
    measuring = [(rule, wildcards) for rule, wildcards in jobs if rule in MEASURING]
    seconds = sum(expected_s(rule, wildcards.get("device", ""), settings) for rule, wildcards in jobs)
    price = settings["cost"]["usd_per_hour"]
    cost = f", about ${price * seconds / 3600:.2f} at ${price:g} an hour" if price else ""
    devices = sorted({wildcards["device"] for _, wildcards in measuring}, key=lambda name: (name == "cpu", name))
    on = f" on {', '.join(devices)}" if devices else ""
    count_jobs(len(jobs), COUNTER_FILE)
    _say(f"{_count(len(measuring), 'measurement')}{on}, about {_rounded(seconds)}{cost}; {len(jobs)} jobs in all.")


def expected_s(rule: str, device: str, settings: dict) -> float:
    """About how long a job takes."""
    if rule not in MEASURING:
        return OTHER_JOB_S
    kind = device.rstrip("0123456789")
    blocks = {"peak_flops": 1, "bandwidth": 1, "decode_attn": 2 * len(settings["decode_attn"]["batch_sizes"])}
    budget = settings.get(rule, {}).get("time_budget_s", 0)
    return START_UP_S[kind] + blocks.get(rule, 0) * budget * BUDGET_SPENT[kind]


def summarise(results: Path) -> None:
    """The ceilings, the operators, the checklist, and where the files are."""
    try:
        roofline = read(Roofline, results / "roofline.json")
        acceptance = read(Acceptance, results / "acceptance.json")
    except (OSError, CorruptRecord):
        return
    lines = [""]
    for name, device in roofline.devices.items():
        lines += [f"{name}: {device.name}", *_ceilings(name, roofline), *_operators(name, roofline), ""]
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
    lines = []
    for ceiling in (c for c in roofline.ceilings if c.device == device):
        if ceiling.kind == "compute":
            value, unit, vendor = ceiling.tflops, "TFLOPS", ceiling.vendor_tflops
        else:
            value, unit, vendor = ceiling.gb_per_s, "GB/s", ceiling.vendor_gb_per_s
        origin = "vendor's" if ceiling.kind == "memory" or ceiling.unit != "cpu" else "formula's"
        share = f"{percent(ceiling.fraction_of_vendor):>6} of the {origin} {number(vendor)}" if vendor else ""
        lines.append(f"  {ceiling.name:<10} {number(value):>8} {unit:<6} {share}".rstrip())
    return lines + [
        f"  {skip.name or skip.dtype:<10}  skipped: {skip.reason}" for skip in roofline.skipped if skip.device == device
    ]


def _operators(device: str, roofline: Roofline) -> list[str]:
    found = [operator for operator in roofline.operators if operator.device == device]
    if not found:
        return []
    head = f"  {'operator':<44} {'latency':>9} {'TFLOPS':>9} {'of roof':>8}  bound by"
    return [head, *(_operator_line(operator) for operator in found)]


def _operator_line(o: Operator) -> str:
    latency = duration(o.latency_s) if o.latency_s else "-"
    attained = number(o.attained_tflops) if o.attained_tflops is not None else "-"
    share = percent(o.fraction_of_roof) if o.fraction_of_roof is not None else "-"
    above = "  above its roof: are its counts right?" if (o.fraction_of_roof or 0) > ABOVE else ""
    return f"  {operator_name(o):<44} {latency:>9} {attained:>9} {share:>8}  {o.regime or '-'}{above}"


def operator_name(o: Operator) -> str:
    """One line's name of an operator: what, dtype and shape."""
    if o.operator == "gemm":
        return f"gemm {o.dtype} {o.shape['m']} x {o.shape['n']} x {o.shape['k']}"
    if o.operator == "decode_attention":
        return f"decode {o.scope} {o.dtype} batch {o.shape['batch']} S {o.shape['seq_len']} {o.preset}"
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
