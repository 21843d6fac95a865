"""What the terminal shows before a run, after it, and after a failure."""

import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from logging import LogRecord
from pathlib import Path
from threading import Thread
from typing import Any

from roofline.core.formatting import count_words
from roofline.core.terms import UserError, order_devices
from roofline.devices import host
from roofline.devices.discovery import kind_from_name
from roofline.measure import lock
from roofline.plan.settings import Checked
from roofline.records.base import read
from roofline.records.manifest_record import Manifest
from roofline.report import screen
from roofline.report.report_model import build_report
from roofline.run import folder
from roofline.run.jobs import CURRENT, JOBS, RUN_STARTED, clear, cut_to_width, job_times, now, number_jobs
from roofline.table.rows import Roofline

ARGUMENTS = "ROOFLINE_ARGS"  # the variable with what make was given as ARGS
COUNTER_FILE, CURRENT_FILE, FIRST_WAIT = Path("logs/.jobs-ended"), Path("logs/.job"), Path("logs/.first-wait")
# What `quiet` leaves of Snakemake's talk between the jobs' own lines, and an error that says no more than `explain`.
CHATTER: tuple[str, ...] = ("Assuming unrestricted shared filesystem", "Building DAG of jobs", "Using shell")
CHATTER += ("Conda environments: ignored", "Select jobs to execute", "Execute ", "Complete log", "Elapsed time")
CHATTER += ("WorkflowError:\nAt least one job did not complete",)
# Of a job that Ctrl-C ended, the second before its first line.
INTERRUPTED = re.compile(r"returned non-zero exit status 130\.|died with <Signals\.SIG(INT|TERM):")
REPORTED = "returned non-zero exit status 1."  # of one that failed, in a line of its own
KILLED = re.compile(r"died with <Signals\.(?!SIGINT|SIGTERM)(\w+):")
OUT_OF_MEMORY = "killed by the system: out of memory, or over the limit of its container or Slurm job"
_interrupted, _signal = False, ""
_kills_before = host.count_oom_kills()

# Estimates in seconds for jobs that have not run here before, from runs on H100 and H200.
START_UP_S, OTHER_JOB_S, ENERGY_S = {"gpu": 2.0, "cpu": 1.0}, 0.5, 65.0
FIXED_S = {"device_query": 5.0, "counters": 8.0, "peak_flops_fma": 3.0, "bandwidth_p2p": 10.0}
BUDGETS = 3  # time budgets that a measuring job spends
SEARCH_S = 0.5  # at most, of a GPU: the search runs out of candidates
LONG_JOB_S = 2.0  # a job of which progress is shown


def remember_start() -> None:
    """Put the start, and the options that chose the settings, into the environment for jobs and manifest."""
    os.environ.setdefault(RUN_STARTED, now())
    os.environ.setdefault(ARGUMENTS, shlex.join(folder.choosing(sys.argv[1:])))


def announce(jobs: Iterable[Any], checked: Checked) -> None:
    """Print how many measurements there are, about how long they take and what they cost. Start showing progress."""
    planned = [job for job in jobs if job.rule.name != "all"]
    number_jobs(len(planned), COUNTER_FILE)
    devices = [dict(job.wildcards)["device"] for job in planned if _measures(job.rule.name, checked)]
    earlier, seconds, expected, price = read_earlier_times(), 0.0, {}, checked.config.cost.usd_per_hour
    at_once = max(1, len({*devices} - {"cpu"}))  # GPUs, each measured by its own jobs
    for job in planned:
        output, device = next(iter(map(str, job.output)), ""), dict(job.wildcards).get("device", "cpu")
        expected[output] = earlier.get(output) or estimate_s(job.rule.name, checked, len(job.output), device)
        seconds += expected[output] / (1 if device == "cpu" or "/p2p_" in output else at_once)
    cost = f", about ${price * seconds / 3600:.2f} at ${price:g} per hour" if price else ""
    devices_text = f" on {', '.join(order_devices(sorted({*devices}), kind_from_name))}" if devices else ""
    about = f"{max(5, round(seconds / 5) * 5)} s" if seconds < 100 else f"{seconds / 60:.1f} minutes"
    measurements, in_all = count_words(len(devices), "measurement"), count_words(len(planned), "job")
    print(f"{measurements}{devices_text}, about {about}{cost}; {in_all} in all.", flush=True)
    FIRST_WAIT.unlink(missing_ok=True)
    os.environ[lock.FIRST_WAIT_VARIABLE] = str(FIRST_WAIT.absolute())
    if sys.stdout.isatty():
        CURRENT_FILE.unlink(missing_ok=True)
        os.environ[CURRENT] = str(CURRENT_FILE.absolute())
        Thread(target=_show_progress, args=(expected,), daemon=True).start()


def _show_progress(expected: Mapping[str, float]) -> None:
    while True:
        time.sleep(1)
        if line := describe_running_job(expected):
            print(f"\r\x1b[K{cut_to_width(line)}", end="", flush=True)


def describe_running_job(expected: Mapping[str, float]) -> str | None:
    """Return a line with the job that started last, its elapsed and its expected seconds; None for a short one."""
    try:
        output, name = CURRENT_FILE.read_text(encoding="utf-8").split("\n")
        elapsed = time.time() - CURRENT_FILE.stat().st_mtime
    except (OSError, ValueError):
        return None
    planned = f" of about {max(1, expected[output]):.0f}" if output in expected else ""
    return f"  … {name}, {elapsed:.0f}{planned} s" if elapsed >= LONG_JOB_S else None


def read_earlier_times(path: Path = JOBS) -> dict[str, float]:
    """Return the seconds that the last job of each output took, with the start of its process."""
    seconds = {}
    for output, job in job_times(path).items():
        elapsed = datetime.fromisoformat(job["ended_at"]) - datetime.fromisoformat(job["started_at"])
        seconds[output] = OTHER_JOB_S + elapsed.total_seconds()
    return seconds


def estimate_s(rule: str, checked: Checked, records: int = 1, device: str = "gpu0") -> float:
    """Estimate the seconds of a job that has not run here before."""
    budget_s, rule = _time_budget_s(rule, checked), rule.partition("_gpu")[0]
    if budget_s is None or rule in FIXED_S:
        return FIXED_S.get(rule, OTHER_JOB_S)
    energy_s = ENERGY_S if checked.config.bandwidth.energy else 0.0
    loads_s = {"bandwidth_hbm": energy_s, "peak_flops": checked.config.peak_flops.sustained_s or 0.0}
    limit_s = SEARCH_S if rule == "peak_flops" and device != "cpu" else budget_s
    return START_UP_S[kind_from_name(device)] + records * BUDGETS * min(budget_s, limit_s) + loads_s.get(rule, 0.0)


def _measures(rule: str, checked: Checked) -> bool:
    return rule in FIXED_S or _time_budget_s(rule, checked) is not None


def _time_budget_s(rule: str, checked: Checked) -> float | None:  # None for a rule that does not measure in one
    names = {"bandwidth": "bandwidth", "instructions": "bandwidth", "peak_flops": "peak_flops"}
    section = getattr(checked.config, next((names[prefix] for prefix in names if rule.startswith(prefix)), rule), None)
    return getattr(section, "time_budget_s", None)


def print_summary(results: Path) -> None:
    """Print the summary of a run that has ended; nothing if its table or manifest cannot be read."""
    _end_progress()
    try:
        roofline = read(Roofline, results / "roofline.json")
        times = read(Manifest, results / "manifest.json").times
    except (OSError, UserError):
        return
    width = shutil.get_terminal_size((screen.MOST_COLUMNS, 24)).columns
    arguments, archive = os.environ.get(ARGUMENTS, ""), format_make_command("archive")
    print(screen.format_summary(build_report(roofline), times.span_s, times.cost_usd, arguments, width))
    print(f"Report: {results}/report.html · picture: {results}/roofline.png · in words: {results}/interpretation.md")
    print(f"Keep: {archive}, download {results}/archive/, then terminate the instance", flush=True)


def _end_progress() -> None:
    clear()
    CURRENT_FILE.unlink(missing_ok=True)


def format_make_command(*target: str) -> str:
    """Return the make command for these targets, with the arguments of this run."""
    return screen.format_make_command(os.environ.get(ARGUMENTS, ""), *target)


def should_show(record: LogRecord) -> bool:
    """Return whether the terminal shows a message of Snakemake. Remembers Ctrl-C, and reports a job that was killed."""
    global _interrupted, _signal
    message = str(record.msg)
    interrupted, killed = INTERRUPTED.search(message), KILLED.search(message)
    _interrupted |= bool(interrupted)
    if killed:
        _signal = killed[1]
    elif _signal and message.startswith("Error in rule "):  # which comes next, with the job
        why = OUT_OF_MEMORY if host.count_oom_kills() > _kills_before else f"ended by {_signal}"
        print(f"{vars(record)['output'][0]} failed: {why} (log: {vars(record)['log'][0]})", file=sys.stderr, flush=True)
        _signal = ""
    return not (killed or interrupted or message.startswith(CHATTER) or REPORTED in message)


def print_failure_help() -> None:
    """Print what a failed run leaves, unless Ctrl-C ended it."""
    _end_progress()
    if not _interrupted:
        print("\nThe run did not finish. A job that failed is named above with its error and its log.", end=" ")
        print(f"Every finished result is kept: {format_make_command()} measures only what is missing.", flush=True)
