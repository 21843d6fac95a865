"""What a run would do, and why: Snakemake's dry run in a line per job."""

import ast
import contextlib
import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from roofline.core.formatting import counted
from roofline.run.paths import RESULTS

DRY = {"--dry-run", "--dryrun", "-n"}
NOTHING = "nothing to be done: every result is up to date"
JOB = re.compile(r"^rule (\w+):\n((?: +.*\n)*)", re.MULTILINE)
TOLD = re.compile(r"^ +(output|reason): (.*)$", re.MULTILINE)
SNAKEMAKES_OWN = ("Using workflow specific profile", "Config file ")
# Snakemake tells values of `params` that were there before or are there now alone, without their names.
CHANGED = re.compile(r"Params have changed since last execution: .*?before: (.*?) +now: (.*)")
NO_VALUE, LONGEST_VALUE = "<nothing exclusive>", 60
MOST_FILES = 2  # that a reason names


class Failed(Exception):
    """What Snakemake said, where it could not plan."""


class Planned(NamedTuple):
    rule: str
    output: str
    reason: str


def plan(options: Sequence[str]) -> tuple[list[Planned], list[str]]:
    """The jobs that a run with these options of Snakemake's would do, in its order, and our own lines beside them.

    Raises Failed.
    """
    command = [sys.executable, "-P", "-m", "snakemake", "--cores", "1", "--dry-run", "--quiet", "host", *options]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", errors="replace", check=False)
    notes = _ours(done.stderr)
    if done.returncode:
        raise Failed("\n".join([*_ours(done.stdout), *notes]))
    jobs = [(rule, dict(TOLD.findall(body))) for rule, body in JOB.findall(done.stdout)]
    with_output = [(rule, job["output"].split(", ")[0], job["reason"]) for rule, job in jobs if "output" in job]
    planned = [Planned(rule, output, _short(reason)) for rule, output, reason in with_output]
    return planned, notes


def lines(jobs: Sequence[Planned]) -> list[str]:
    """A line for each job with its reason, then how many there are of each rule."""
    if not jobs:
        return [NOTHING]
    rules = [job.rule for job in jobs]
    totals = ", ".join(f"{rules.count(rule)} {rule}" for rule in dict.fromkeys(rules))
    shown = [f"{job.output.removeprefix(f'{RESULTS}/')}: {job.reason}" for job in jobs]
    return [*shown, f"{counted(len(jobs), 'job')}: {totals}"]


def _ours(said: str) -> list[str]:
    return [line for line in said.splitlines() if line and not line.startswith(SNAKEMAKES_OWN)]


def _short(reasons: str) -> str:
    """Reasons as Snakemake gives them, each with few of its files and without their folders."""
    said = []
    for reason in reasons.split("; "):
        if changed := CHANGED.match(reason):
            said.append(_changed(*changed.groups()))
            continue
        what, colon, files = reason.partition(": ")
        names = [name.rpartition("/roofline/")[2].removeprefix(f"{RESULTS}/") for name in files.split(", ")]
        more = f" and {len(names) - MOST_FILES} more" if len(names) > MOST_FILES else ""
        said.append(f"{what[:1].lower()}{what[1:]}{colon}{', '.join(names[:MOST_FILES])}{more}")
    return "; ".join(said)


def _changed(before: str, now: str) -> str:
    """That settings have changed or, of the machine, what they were measured with; of settings by keys, those alone."""
    values = {when: value.strip() for when, value in (("before", before), ("now", now)) if value.strip() != NO_VALUE}
    by_key = [_settings(value) for value in values.values()]
    told = [f"{when} {textwrap.shorten(value, LONGEST_VALUE)}" for when, value in values.items()]
    if len(by_key) == 2 and all(by_key):
        old, new = by_key
        values = {key: (old.get(key), new.get(key)) for key in old | new}
        told = [f"{key} {_text(a)}, now {_text(b)}" for key, (a, b) in values.items() if a != b]
    return ": ".join(["settings, device or software have changed", *([", ".join(told)] if told else [])])


def _settings(value: str) -> dict:
    """A parameter that is an object in JSON, as Snakemake shows text; empty where it is not."""
    with contextlib.suppress(ValueError, SyntaxError):
        found = json.loads(str(ast.literal_eval(value)))
        return found if isinstance(found, dict) else {}
    return {}


def _text(value) -> str:
    return textwrap.shorten(json.dumps(value), LONGEST_VALUE)
