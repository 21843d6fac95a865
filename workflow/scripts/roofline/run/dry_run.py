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
NOTHING = "nothing to be done: every result is up to date"
JOB = re.compile(r"^rule (\w+):\n((?: +.*\n)*)", re.MULTILINE)
FIELD = re.compile(r"^ +(output|reason): (.*)$", re.MULTILINE)
SNAKEMAKES_OWN = ("Using workflow specific profile", "Config file ")
LONGEST_VALUES = 120
MOST_FILES = 2  # that a reason names


class Planned(NamedTuple):
    rule: str
    outputs: list[str]
    reason: str


def plan(options: Sequence[str]) -> tuple[list[Planned], list[str]]:
    """The jobs of a run with these options, in order, and our own lines next to them. Raises UserError."""
    command = [sys.executable, "-P", "-m", "snakemake", "--cores", "1", "--dry-run", "--quiet", "host", *options]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", errors="replace", check=False)
    notes = _ours(done.stderr)
    if done.returncode:
        raise UserError("\n".join([*_ours(done.stdout), *notes]))
    jobs = [(rule, dict(FIELD.findall(body))) for rule, body in JOB.findall(done.stdout)]
    return [_planned(rule, job["output"], job["reason"]) for rule, job in jobs if "output" in job], notes


def _planned(rule: str, outputs: str, reasons: str) -> Planned:
    return Planned(rule, outputs.split(", "), "; ".join(map(_reason, reasons.split("; "))))


def lines(jobs: Sequence[Planned]) -> list[str]:
    """A line for each job with its reason, then how many there are of each rule."""
    if not jobs:
        return [NOTHING]
    rules = [job.rule for job in jobs]
    totals = ", ".join(f"{rules.count(rule)} {rule}" for rule in dict.fromkeys(rules))
    shown = [f"{job.outputs[0].removeprefix(f'{RESULTS}/')}: {job.reason}" for job in jobs]
    return [*shown, f"{count_words(len(jobs), 'job')}: {totals}"]


def _ours(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith(SNAKEMAKES_OWN)]


def _reason(reason: str) -> str:
    """A reason of Snakemake's, with few of its files and without their folders."""
    if reason.startswith("Params have changed"):
        values = reason[reason.find("before: ") :].strip()
        return f"settings, device or software have changed{f': {values}' if len(values) <= LONGEST_VALUES else ''}"
    what, colon, files = reason.partition(": ")
    names = [name.rpartition("/roofline/")[2].removeprefix(f"{RESULTS}/") for name in files.split(", ")]
    more = f" and {len(names) - MOST_FILES} more" if len(names) > MOST_FILES else ""
    return f"{what[:1].lower()}{what[1:]}{colon}{', '.join(names[:MOST_FILES])}{more}"
