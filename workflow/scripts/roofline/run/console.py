"""What the terminal shows before a run, after it, and after a failure."""

import os
import shlex
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from roofline.analysis.results import read_table
from roofline.analysis.seals import moment
from roofline.core.device_kinds import in_order
from roofline.core.formatting import counted
from roofline.devices.discovery import kind_of
from roofline.measure.lock import HOST
from roofline.records.base import CorruptRecord
from roofline.report import screen
from roofline.run.jobs import JOBS, RUN_STARTED, count_jobs, job_times, now
from roofline.run.settings import Checked

ARGUMENTS = "ROOFLINE_ARGS"  # the variable with what make was given as ARGS
LEFT_OUT = (
    "effort quick leaves out counters, the instruction roofline, sustained load, some dtypes and sizes, and of the CPU "
    "all but what comparing it with a GPU needs"
)
COUNTER_FILE = Path("logs/.jobs-ended")
# What `quiet` leaves of Snakemake's talk between the jobs' own lines, and an error that says no more than `explain`.
CHATTER = (
    "Assuming unrestricted shared filesystem",
    "Building DAG of jobs",
    "Using shell",
    "Conda environments: ignored",
    "Select jobs to execute",
    "Execute ",
    "Complete log",
    "Elapsed time",
    "WorkflowError:\nAt least one job did not complete",
)
INTERRUPTED = "returned non-zero exit status 130"  # of a job that Ctrl-C ended
_interrupted = False

# Seconds of a job that no earlier run has timed: to start, and how many of its section's time budgets it spends.
START_UP_S = 2.0
OTHER_JOB_S = 0.5
PROFILED_S = {"counters": 15.0}
BUDGETS = {"peak_flops": 2, "bandwidth": 4, "instructions": 4}
BUDGETS_OF_OPERATOR = 3


def remember_start() -> None:
    """Leave the moment for the jobs of this run, which inherit the environment; the manifest reads it."""
    os.environ[RUN_STARTED] = now()


def announce(jobs: Iterable, checked: Checked, cores: int) -> None:
    """How many measurements there will be, and about how long they take, and the cost."""
    planned = [job for job in jobs if job.rule.name != "all"]
    count_jobs(len(planned), COUNTER_FILE)
    measuring = [job for job in planned if _measures(job.rule.name, checked)]
    before = times_before()
    outputs = [next(iter(map(str, job.output)), "") for job in planned]
    each = [
        before.get(output) or expected_s(job.rule.name, checked) for job, output in zip(planned, outputs, strict=True)
    ]
    uses = [str(job.resources.get("uses") or "").split() for job in planned]
    seconds = together_s(zip(uses, each, strict=True), cores)
    price = checked.config.cost.usd_per_hour
    cost = f", about ${price * seconds / 3600:.2f} at ${price:g} per hour" if price else ""
    devices = in_order(sorted({dict(job.wildcards)["device"] for job in measuring}), kind_of)
    on = f" on {', '.join(devices)}" if devices else ""
    _say(
        f"{counted(len(measuring), 'measurement')}{on}, about {_rounded(seconds)}{cost}; "
        f"{counted(len(planned), 'job')} in all."
    )
    if checked.config.effort == "quick":
        _say(LEFT_OUT)


def together_s(jobs: Iterable[tuple[list[str], float]], cores: int) -> float:
    """About how long jobs take that run at once unless they use the same, by (what a job uses, its seconds).

    What uses no GPU runs alone. Of the rest the largest of: what any one resource is used for, and all of it over the
    cores; a schedule cannot be shorter, and with few resources is hardly longer.
    """
    used, shared = Counter(), 0.0
    for uses, seconds in jobs:
        used.update(dict.fromkeys(uses or [HOST], seconds))
        shared += seconds if set(uses) - {HOST} else 0.0
    alone = used.pop(HOST, 0.0)
    return alone + max(shared / cores, *used.values(), 0.0)


def _measures(rule: str, checked: Checked) -> bool:
    return rule == "device_query" or rule in BUDGETS or rule in PROFILED_S or rule in checked.operators


def times_before(path: Path = JOBS) -> dict[str, float]:
    """Seconds that the last job took for each output, with what starts it."""
    found = {}
    for output, job in job_times(path).items():
        start, end = moment(job["started_at"]), moment(job["ended_at"])
        if start and end:
            found[output] = OTHER_JOB_S + (end - start).total_seconds()
    return found


def expected_s(rule: str, checked: Checked) -> float:
    """About how long a job takes that has not run here before."""
    if not _measures(rule, checked):
        return OTHER_JOB_S
    if rule == "device_query" or rule in PROFILED_S:
        return START_UP_S + PROFILED_S.get(rule, 0.0)
    config = checked.config
    settings = config.bandwidth if rule == "instructions" else getattr(config, rule)
    sustained_s = config.peak_flops.sustained_s if rule == "peak_flops" else 0.0
    return START_UP_S + BUDGETS.get(rule, BUDGETS_OF_OPERATOR) * settings.time_budget_s + sustained_s


def summarise(results: Path) -> None:
    """The ceilings, the operators, the checklist, and where the files are."""
    try:
        roofline = read_table(results / "roofline.json")
    except (OSError, CorruptRecord):
        return
    _say(screen.summary(roofline, os.environ.get(ARGUMENTS, "")))
    _say(f"Report {results}/report.html, to be opened in a browser")
    _say(f"Picture {results}/roofline.png · in words {results}/interpretation.md · numbers {results}/roofline.json")
    _say(f"On a rented machine: {make('archive')}, fetch the file from results/archive/, then terminate the machine.")


def make(*target: str) -> str:
    """A command that concerns this run, with its ARGS."""
    arguments = os.environ.get(ARGUMENTS, "").replace("$", "$$")
    return shlex.join(["make", *target, *([f"ARGS={arguments}"] if arguments else [])])


def is_passed_on(said: str) -> bool:
    """Whether the terminal shows what Snakemake says; remembers Ctrl-C."""
    global _interrupted
    _interrupted |= INTERRUPTED in said
    return not (said.startswith(CHATTER) or INTERRUPTED in said)


def explain() -> None:
    """After a failure: what is kept and what to do."""
    if _interrupted:
        return
    _say(
        "\nThe run did not finish. A job that failed is named above with its fault and its log. "
        f"Every finished result is kept: {make()} measures only what is missing."
    )


def _rounded(seconds: float) -> str:
    return f"{max(5, round(seconds / 5) * 5)} s" if seconds < 100 else f"{seconds / 60:.1f} minutes"


def _say(text: str) -> None:
    print(text, flush=True)
