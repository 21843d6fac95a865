"""What the terminal shows before a run, after it, and after a failure."""

import math
import os
from collections.abc import Iterable
from pathlib import Path

from roofline.analysis.distribution import OTHERS
from roofline.analysis.host_cards import ALIKE
from roofline.analysis.results import read_table
from roofline.analysis.seals import moment
from roofline.analysis.spread import between_runs
from roofline.analysis.table import Acceptance
from roofline.core.formatting import counted
from roofline.core.statistics import median
from roofline.devices import kind_of
from roofline.devices.host import usable_cores
from roofline.measure.lock import HOST
from roofline.operators.base import Operator
from roofline.records.base import CorruptRecord, read
from roofline.report import screen
from roofline.run.jobs import JOBS, RUN_STARTED, count_jobs, job_times, now
from roofline.run.settings import Checked

ARGUMENTS = "ROOFLINE_ARGS"  # the variable with what make was given as ARGS
COUNTER_FILE = Path("logs/.jobs-ended")

# Seconds of a job beyond its timed blocks, seen on an H200's host and on two CPU cores: libraries load, a context is
# made, operands are drawn and checked.
START_UP_S = {"gpu": 2.2, "cpu": 1.5}
OTHER_JOB_S = 0.5
PROFILED_S = {"profiler": 2, "counters": 6}  # of a process under the profiler
# A block of an operator seldom spends its whole budget on a GPU and nearly always does on a CPU.
BUDGET_SPENT = {"gpu": 0.2, "cpu": 0.8}
# About how many budgets a memory level spends: on read, write, copy and triad, or on copies from or to the host.
STREAMS = 4
PATTERNS = 20  # kernels of the instruction roofline
# Products that a CPU's ceiling takes whatever its budget, warm-up and both blocks together; and FLOP/s in them.
FEWEST_PRODUCTS, FLOPS_OF_CORE = 17, {"fp32": 9e10, "fp64": 4.5e10}


def remember_start() -> None:
    """Leave the moment for the jobs of this run, which inherit the environment; the manifest reads it."""
    os.environ[RUN_STARTED] = now()


def announce(jobs: Iterable, checked: Checked, cores: int) -> None:
    """How many measurements there will be, and about how long and at what cost: as such jobs took here before."""
    planned = [job for job in jobs if job.rule.name != "all"]
    jobs = [(job.rule.name, dict(job.wildcards)) for job in planned]
    count_jobs(len(jobs), COUNTER_FILE)
    measuring = [(rule, wildcards) for rule, wildcards in jobs if _measures(rule, checked)]
    before = times_before()
    named = [(rule, wildcards.get("device", ""), wildcards.get("dtype")) for rule, wildcards in jobs]
    each = [before.get(one) or expected_s(*one, checked) for one in named]
    uses = [str(job.resources.get("uses") or "").split() for job in planned]
    seconds = together_s(zip(uses, each, strict=True), cores)
    price = checked.config.cost.usd_per_hour
    cost = f", about ${price * seconds / 3600:.2f} at ${price:g} per hour" if price else ""
    devices = sorted({wildcards["device"] for _, wildcards in measuring}, key=lambda name: (name == "cpu", name))
    on = f" on {', '.join(devices)}" if devices else ""
    _say(
        f"{counted(len(measuring), 'measurement')}{on}, about {_rounded(seconds)}{cost}; "
        f"{counted(len(jobs), 'job')} in all."
    )


def together_s(jobs: Iterable[tuple[list[str], float]], cores: int) -> float:
    """About how long jobs take that run at once unless they use the same, by (what a job uses, its seconds).

    What uses no GPU runs alone. Of the rest the largest of: what any one resource is used for, and all of it over the
    cores; a schedule cannot be shorter, and with few resources is hardly longer.
    """
    alone, shared = 0.0, 0.0
    used: dict[str, float] = {}
    for uses, seconds in jobs:
        if not uses or uses == [HOST]:
            alone += seconds
            continue
        shared += seconds
        for one in uses:
            used[one] = used.get(one, 0.0) + seconds
    return alone + max([shared / cores, *used.values()])


def _measures(rule: str, checked: Checked) -> bool:
    others = ("device_query", "peak_flops", "bandwidth", "instructions", "profiler", "counters")
    return rule in (*others, *checked.operators)


def times_before(path: Path = JOBS) -> dict[tuple[str, str, str | None], float]:
    """About how long a job took here, by rule, device ("" for all devices) and dtype of a compute ceiling: the median,
    and what starts it."""
    found: dict[tuple[str, str, str | None], list[float]] = {}
    for job in job_times(path).values():
        start, end, parts = moment(job["started_at"]), moment(job["ended_at"]), Path(job["log"]).parts
        if start and end:
            dtype = Path(job["log"]).stem if job["rule"] == "peak_flops" else None
            key = job["rule"], parts[1] if len(parts) > 2 else "", dtype
            found.setdefault(key, []).append((end - start).total_seconds())
    return {key: OTHER_JOB_S + median(seconds) for key, seconds in found.items()}


def expected_s(rule: str, device: str, dtype: str | None, checked: Checked) -> float:
    """About how long a job takes; `dtype` is a compute ceiling's."""
    if not _measures(rule, checked):
        return OTHER_JOB_S
    config, kind = checked.config, kind_of(device)
    if rule == "instructions":
        timed = PATTERNS * config.bandwidth.time_budget_s * BUDGET_SPENT[kind]
    elif rule == "peak_flops":
        loaded = config.peak_flops.sustained_s if kind == "gpu" else 0.0
        timed = max(1.5 * config.peak_flops.time_budget_s + loaded, _products_s(config.peak_flops.size, kind, dtype))
    elif rule in PROFILED_S:
        timed = PROFILED_S[rule]
    elif rule == "bandwidth":
        timed = STREAMS * config.bandwidth.time_budget_s
    else:
        timed = _operator_s(checked.operators[rule], config, kind) if rule in checked.operators else 0.0
    return START_UP_S[kind] + timed


def _products_s(size: int, kind: str, dtype: str | None) -> float:
    """Of the reference GEMM on a CPU, however small the budget."""
    rate = usable_cores() * FLOPS_OF_CORE[dtype] if kind == "cpu" and dtype in FLOPS_OF_CORE else math.inf
    return FEWEST_PRODUCTS * 2 * size**3 / rate


def _operator_s(operator: Operator, config, kind: str) -> float:
    """Of a job's timed blocks, the average over the operator's jobs."""
    settings, jobs = getattr(config, operator.rule), operator.jobs(config)
    ways = sum(len(one.scopes) for one in operator.implementations_on(kind, settings.implementations))
    cases = sum(len(job.cases) for job in jobs) / max(1, len(jobs))
    return ways * cases * settings.time_budget_s * BUDGET_SPENT[kind]


def summarise(results: Path) -> None:
    """The ceilings, the operators, the checklist, and where the files are."""
    try:
        roofline = read_table(results / "roofline.json")
        acceptance = read(Acceptance, results / "acceptance.json")
    except (OSError, CorruptRecord):
        return
    names = {name: device.name for name, device in roofline.devices.items()}
    arguments = os.environ.get(ARGUMENTS, "")
    _say(screen.summary(roofline, acceptance, between_runs(names, results / "spread.json"), arguments))
    for one in acceptance.criteria:
        if one.result != "not_applicable" and one.criterion in (OTHERS, ALIKE):
            _say(f"{one.reason}." if one.criterion == ALIKE else f"{one.device}: {one.reason}.")
    _say(f"Report {results}/report.html, to be opened in a browser")
    _say(f"Picture {results}/roofline.png · in words {results}/interpretation.md · numbers {results}/roofline.json")
    _say("On a rented machine: make archive, fetch the file from results/archive/, then terminate the machine.")


def explain() -> None:
    """After a failure or Ctrl-C: what is kept and what to do."""
    _say(
        "\nThe run did not finish. A job that failed is named above with its fault and its log. "
        "Every finished result is kept: run again, and only what is missing is measured."
    )


def _rounded(seconds: float) -> str:
    return f"{max(5, round(seconds / 5) * 5)} s" if seconds < 100 else f"{seconds / 60:.1f} minutes"


def _say(text: str) -> None:
    print(text, flush=True)
