"""What a run would do, and why: Snakemake's dry run in a line per job."""

import re
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

from roofline.core.formatting import count_words
from roofline.core.terms import UserError
from roofline.records.files import RESULTS

DRY = {"--dry-run", "--dryrun", "-n"}
UP_TO_DATE = "nothing to be done: every result is up to date"
JOB = re.compile(r"^rule (\w+):\n((?: +.*\n)*)", re.MULTILINE)
FIELD = re.compile(r"^ +(output|reason): (.*)$", re.MULTILINE)
SNAKEMAKE_LINES = ("Using workflow specific profile", "Config file ")
LONGEST_VALUES = 120
MOST_FILES = 2  # that a reason names


class Planned(NamedTuple):
    """A job that a run would do: its rule, its outputs, and why."""

    rule: str
    outputs: list[str]
    reason: str


def plan_jobs(options: Sequence[str]) -> tuple[list[Planned], list[str]]:
    """Return the jobs of a run with these options, in order, and the lines of the workflow itself. Raises UserError."""
    command = [sys.executable, "-P", "-m", "snakemake", "--cores", "1", "--dry-run", "--quiet", "host", *options]
    process = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", errors="replace", check=False)
    notes = _drop_snakemake_lines(process.stderr)
    if process.returncode:
        raise UserError("\n".join([*_drop_snakemake_lines(process.stdout), *notes]))
    jobs = [(rule, dict(FIELD.findall(body))) for rule, body in JOB.findall(process.stdout)]
    return [_planned(rule, job["output"], job["reason"]) for rule, job in jobs if "output" in job], notes


def _planned(rule: str, outputs: str, reasons: str) -> Planned:
    return Planned(rule, outputs.split(", "), "; ".join(map(_shorten_reason, reasons.split("; "))))


def format_plan(jobs: Sequence[Planned]) -> list[str]:
    """Return a line for each job with its reason, then one with the count of each rule."""
    if not jobs:
        return [UP_TO_DATE]
    rules = [job.rule for job in jobs]
    totals = ", ".join(f"{rules.count(rule)} {rule}" for rule in dict.fromkeys(rules))
    shown = [f"{job.outputs[0].removeprefix(f'{RESULTS}/')}: {job.reason}" for job in jobs]
    return [*shown, f"{count_words(len(jobs), 'job')}: {totals}"]


def _drop_snakemake_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith(SNAKEMAKE_LINES)]


def _shorten_reason(reason: str) -> str:
    """Return a reason of Snakemake with the names of at most two of its files, without their folders."""
    if reason.startswith("Params have changed"):
        values = reason[reason.find("before: ") :].strip()
        return f"settings, device or software have changed{f': {values}' if len(values) <= LONGEST_VALUES else ''}"
    cause, colon, files = reason.partition(": ")
    names = [name.rpartition("/roofline/")[2].removeprefix(f"{RESULTS}/") for name in files.split(", ")]
    more = f" and {len(names) - MOST_FILES} more" if len(names) > MOST_FILES else ""
    return f"{cause[:1].lower()}{cause[1:]}{colon}{', '.join(names[:MOST_FILES])}{more}"
