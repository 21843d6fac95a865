"""What the terminal shows before a run, after it, and after a failure."""

import os
import shlex
import shutil
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel

from roofline.core.formatting import counted
from roofline.core.terms import UserError, in_order
from roofline.devices.discovery import kind_of
from roofline.records.base import read
from roofline.records.manifest import Manifest
from roofline.report import screen
from roofline.report.model import report
from roofline.run.jobs import JOBS, RUN_STARTED, count_jobs, job_times, now
from roofline.run.settings import Checked
from roofline.table.rows import Roofline

ARGUMENTS = "ROOFLINE_ARGS"  # the variable with what make was given as ARGS
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

# Seconds of a job that no earlier run has timed: to start, of what measures nothing, and of the profiler.
START_UP_S, OTHER_JOB_S, PROFILED_S = 2.0, 0.5, 15.0
BUDGETS = 3  # time budgets of its section that a measuring job spends


def remember_start() -> None:
    """Leave the moment for the jobs of this run, which inherit the environment; the manifest reads it."""
    os.environ[RUN_STARTED] = now()


def announce(jobs: Iterable, checked: Checked, cores: int) -> None:
    """How many measurements there will be, about how long they take, and the cost."""
    planned = [job for job in jobs if job.rule.name != "all"]
    count_jobs(len(planned), COUNTER_FILE)
    devices = [dict(job.wildcards)["device"] for job in planned if _measures(job.rule.name, checked)]
    before, core_s = times_before(), 0.0
    for job in planned:
        output = next(iter(map(str, job.output)), "")
        core_s += job.threads * (before.get(output) or expected_s(job.rule.name, checked))
    seconds, price = core_s / cores, checked.config.cost.usd_per_hour
    cost = f", about ${price * seconds / 3600:.2f} at ${price:g} per hour" if price else ""
    on = f" on {', '.join(in_order(sorted({*devices}), kind_of))}" if devices else ""
    took = f"{max(5, round(seconds / 5) * 5)} s" if seconds < 100 else f"{seconds / 60:.1f} minutes"
    told = f"{counted(len(devices), 'measurement')}{on}, about {took}{cost}; {counted(len(planned), 'job')} in all."
    print(told, flush=True)


def times_before(path: Path = JOBS) -> dict[str, float]:
    """Seconds that the last job took for each output, with what starts it."""
    moments = {
        output: [datetime.fromisoformat(job[key]) for key in ("started_at", "ended_at")]
        for output, job in job_times(path).items()
    }
    return {output: OTHER_JOB_S + (end - start).total_seconds() for output, (start, end) in moments.items()}


def expected_s(rule: str, checked: Checked) -> float:
    """About how long a job takes that has not run here before."""
    section = _section(rule, checked)
    if section is None:
        return {"device_query": START_UP_S, "counters": PROFILED_S}.get(rule, OTHER_JOB_S)
    return START_UP_S + BUDGETS * section.time_budget_s + (getattr(section, "sustained_s", 0) or 0)


def _measures(rule: str, checked: Checked) -> bool:
    return rule in ("device_query", "counters") or _section(rule, checked) is not None


def _section(rule: str, checked: Checked) -> BaseModel | None:
    """The settings of a rule that measures in a time budget."""
    section = getattr(checked.config, "bandwidth" if rule == "instructions" else rule, None)
    return section if hasattr(section, "time_budget_s") else None


def summarise(results: Path) -> None:
    """The ceilings, the operators, the checklist, and where the files are."""
    try:
        run = report(read(Roofline, results / "roofline.json"))
        times = read(Manifest, results / "manifest.json").times
    except (OSError, UserError):
        return
    width = shutil.get_terminal_size((screen.WIDTH, 0)).columns
    print(
        screen.summary(run, times.span_s, times.cost_usd, os.environ.get(ARGUMENTS, ""), width),
        f"Report {results}/report.html, to be opened in a browser",
        f"Picture {results}/roofline.png · in words {results}/interpretation.md · numbers {results}/roofline.json",
        f"On a rented machine: {make('archive')}, fetch the file from results/archive/, then terminate the machine.",
        sep="\n",
        flush=True,
    )


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
    if not _interrupted:
        print(
            "\nThe run did not finish. A job that failed is named above with its error and its log. "
            f"Every finished result is kept: {make()} measures only what is missing.",
            flush=True,
        )
