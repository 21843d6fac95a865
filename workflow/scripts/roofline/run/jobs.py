"""What a job says: a line on the screen when it ends, everything else in its log; and when it ran."""

import atexit
import contextlib
import gc
import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from roofline.devices import host
from roofline.measure import undisturbed
from roofline.records.base import RunRecord
from roofline.records.device_record import DeviceRecord
from roofline.records.files import RESULTS
from roofline.run import run_lock

COPIES = RESULTS / "previous" / "again"  # of records that are measured again
JOBS, JOB_KEYS = Path("logs/jobs.jsonl"), ("rule", "log", "started_at", "ended_at")
# Variables that Snakemake's process leaves to its jobs.
JOB_COUNT, COUNTER, RUN_STARTED = "ROOFLINE_JOBS", "ROOFLINE_JOBS_ENDED", "ROOFLINE_RUN_STARTED"
CURRENT = "ROOFLINE_CURRENT_JOB"  # the file that names the job that started last; set on a terminal alone
LINE_COLUMNS = 120  # columns of a line, at most


@contextlib.contextmanager
def job(name: str, snakemake: Any, modules: Iterable[str] = ()) -> Iterator[None]:
    """Run the body of a job in its turn. What it prints goes to the screen and the log, a traceback to the log alone.

    `snakemake` is the object that Snakemake gives to a script; its class can be imported only in Snakemake itself.
    `modules` are imported before, on a GPU. The start and end are noted in logs/jobs.jsonl, except of an interrupted
    job, which ends with status 130. A failure ends the process with status 1 and one line.
    """
    print_what_can_be_printed()
    run_lock.end_with_run()
    run_lock.take_turn(snakemake.resources.get("locks", "").split(), modules)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # until here it ends what only imports
    path, started_at = Path(snakemake.log[0]), now()
    path.parent.mkdir(parents=True, exist_ok=True)
    if current := os.environ.get(CURRENT):
        _name_current(Path(current), f"{snakemake.output[0]}\n{name}")
    with open(path, "w", encoding="utf-8") as log, contextlib.redirect_stdout(_Tee(sys.stdout, log)):
        log.write(f"{name}, started {started_at}\n")
        try:
            yield
            _keep_less_disturbed(snakemake.output)
        except KeyboardInterrupt:
            log.write("interrupted\n")
            sys.exit(130)
        except Exception as error:
            traceback.print_exc(file=log)
            reason = next((line for line in str(error).splitlines() if line.strip("= ")), type(error).__name__)
            _append_entry(snakemake, started_at, failed=reason, error=type(error).__name__)
            clear()
            print(f"{name} failed: {reason} (log: {path})", file=sys.stderr, flush=True)
            sys.exit(1)
        log.write(f"{name}, ended {now()}\n")
    _append_entry(snakemake, started_at)
    gc.freeze()  # looking for cycles at the end would take 40 ms


def _keep_less_disturbed(outputs: Iterable[str]) -> None:
    """In a run that measures disturbed records again, put back what was disturbed less before, and print it."""
    if COPIES.exists():
        from roofline.run import again  # on a CPU not before the measurement has ended

        for path in again.keep_less_disturbed(RESULTS, outputs):
            say(f"{path.stem}: the earlier record is kept, since the new one is as disturbed")


def _name_current(path: Path, text: str) -> None:
    """Name this job as the one in progress, until it ends or another has started."""
    path.write_text(text, encoding="utf-8")
    atexit.register(lambda: path.unlink() if path.exists() and path.read_text(encoding="utf-8") == text else None)


def _append_entry(snakemake: Any, started_at: str, **more: str) -> None:
    entry = {"rule": snakemake.rule, "log": str(snakemake.log[0]), "started_at": started_at, "ended_at": now()}
    with open(JOBS, "a", encoding="utf-8") as jobs:  # short enough to be atomic
        jobs.write(json.dumps(entry | {"outputs": list(snakemake.output)} | more) + "\n")


def job_times(path: Path = JOBS) -> dict[str, dict]:
    """Return the last job that made each output: rule, log, started_at, ended_at."""
    finished = (entry for entry in _entries(path) if "failed" not in entry)
    return {output: {key: entry[key] for key in JOB_KEYS} for entry in finished for output in entry["outputs"]}


class Failure(NamedTuple):
    """Why a job failed."""

    why: str  # in a line
    error: str  # the exception's name


def failures(path: Path = JOBS) -> dict[str, Failure]:
    """Return the failure of every output whose last job failed."""
    last = {output: entry for entry in _entries(path) for output in entry["outputs"]}
    return {output: Failure(job["failed"], job["error"]) for output, job in last.items() if "failed" in job}


def _entries(path: Path) -> Iterator[dict]:
    with contextlib.suppress(OSError):
        for line in path.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError, LookupError, TypeError):
                entry = json.loads(line)
                yield {**entry, **{key: entry[key] for key in JOB_KEYS}, "outputs": list(entry["outputs"])}


def say(line: str) -> None:
    """Print the line of a job, with its number in the run, cut to the width of the terminal."""
    clear()
    print(cut_to_width(f"{_next_place()}{line}"), flush=True)


def cut_to_width(line: str) -> str:
    """Return a line cut to the width of the terminal, or to 120 columns."""
    width = min(shutil.get_terminal_size().columns, LINE_COLUMNS) if os.isatty(1) else LINE_COLUMNS
    return line if len(line) <= width else f"{line[: width - 1]}…"


def clear() -> None:
    """Take the line of the job in progress off the terminal."""
    if CURRENT in os.environ:
        print("\r\x1b[K", end="", file=sys.__stdout__, flush=True)


def print_what_can_be_printed() -> None:
    """Have this process and those that it starts print '?' for what the terminal's encoding lacks, such as ASCII.

    Where an output is closed, as by >&-, this process prints nothing.
    """
    for name in ("stdout", "stderr"):
        setattr(sys, name, getattr(sys, name) or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
        getattr(sys, name).reconfigure(errors="replace")
    os.environ["PYTHONIOENCODING"] = f"{sys.stdout.encoding}:replace"


def report(record: RunRecord | list[RunRecord], name: str, device: DeviceRecord | None = None) -> None:
    """Print the line of a measuring job, with its results."""
    from roofline.report import job_lines  # on a CPU not before the measurement has ended

    say(job_lines.format_job_line(record, name, device))


def number_jobs(total: int, counter: Path) -> None:
    """Have the jobs of this run, which inherit the environment, print their number out of this total."""
    counter.parent.mkdir(parents=True, exist_ok=True)
    counter.write_bytes(b"")
    os.environ |= {JOB_COUNT: str(total), COUNTER: str(counter.absolute())}


@cache  # this process is one job
def _next_place() -> str:
    counter, total = os.environ.get(COUNTER), os.environ.get(JOB_COUNT)
    if not counter or not total:
        return ""
    with contextlib.suppress(OSError), open(counter, "ab") as ended:
        ended.write(b".")  # appending one byte is atomic, so that jobs at once do not miscount
        ended.flush()
        return f"[{ended.tell():>{len(total)}}/{total}] "
    return ""


def now() -> str:
    """Return the time in UTC, ISO 8601, to the microsecond: it decides the order of seals and measurements."""
    return datetime.now(UTC).isoformat()


def seals_of(inputs: Any) -> dict[str, str]:
    """Return the paths of the seals among a job's named inputs: of the device, the operator, the calibration."""
    return {"device": inputs.prediction, "operator": inputs.constants, "calibration": inputs.calibration}


class Stopwatch:
    """The time that a measuring job takes, and the load of other processes meanwhile."""

    def __init__(self) -> None:
        self.started_at = now()
        self._start = time.monotonic()
        self._usage = host.read_usage()
        undisturbed.spent_on_repeats_s = 0.0

    def taken(self) -> dict:
        """Return the fields of a record that say when its job ran, how long, and under which load."""
        load = undisturbed.contention_between(self._usage, host.read_usage(), len(host.usable_cpus()), [])
        return {"started_at": self.started_at, "elapsed_s": self.elapsed_s, "whole_job": load}

    @property
    def elapsed_s(self) -> float:
        return round(time.monotonic() - self._start, 3)


class _Tee:
    def __init__(self, *files: TextIO):
        self._files = files

    def write(self, text: str) -> int:
        """Write a text to all files."""
        for file in self._files:
            file.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush all files."""
        for file in self._files:
            file.flush()
