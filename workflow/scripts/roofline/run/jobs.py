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
from typing import NamedTuple

from roofline.devices import host
from roofline.measure import undisturbed
from roofline.run import run_lock

JOBS, JOB_KEYS = Path("logs/jobs.jsonl"), ("rule", "log", "started_at", "ended_at")
# Variables that Snakemake's process leaves to its jobs.
TOTAL, COUNTER, RUN_STARTED = "ROOFLINE_JOBS", "ROOFLINE_JOBS_ENDED", "ROOFLINE_RUN_STARTED"
CURRENT = "ROOFLINE_CURRENT_JOB"  # the file that names the job that started last; set on a terminal alone
WIDTH = 120  # columns of a line, at most


@contextlib.contextmanager
def job(name: str, snakemake, modules: Iterable[str] = ()) -> Iterator[None]:
    """Run the body of a job in its turn. What it prints goes to the screen and the log, a traceback to the log alone.

    `modules` are imported before, on a GPU. A failure ends the process with status 1 and one line.
    """
    run_lock.end_with_run()
    run_lock.take_turn(snakemake.resources.get("uses", "").split(), modules)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # until here it ends what only imports
    path, started_at = Path(snakemake.log[0]), now()
    path.parent.mkdir(parents=True, exist_ok=True)
    if current := os.environ.get(CURRENT):
        _name_current(Path(current), f"{snakemake.output[0]}\n{name}")
    with open(path, "w", encoding="utf-8") as log, contextlib.redirect_stdout(_Tee(sys.stdout, log)):
        log.write(f"{name}, started {started_at}\n")
        try:
            yield
        except KeyboardInterrupt:
            log.write("interrupted\n")
            sys.exit(130)
        except Exception as error:
            traceback.print_exc(file=log)
            what = next((line for line in str(error).splitlines() if line.strip("= ")), type(error).__name__)
            _note(snakemake, started_at, failed=what, error=type(error).__name__)
            clear()
            print(f"{name} failed: {what} (log: {path})", file=sys.stderr, flush=True)
            sys.exit(1)
        log.write(f"{name}, ended {now()}\n")
    _note(snakemake, started_at)
    gc.freeze()  # looking for cycles at the end would take 40 ms


def _name_current(path: Path, text: str) -> None:
    """Name this job as the one in progress, until it ends or another has started."""
    path.write_text(text, encoding="utf-8")
    atexit.register(lambda: path.exists() and path.read_text(encoding="utf-8") == text and path.unlink())


def _note(snakemake, started_at: str, **more: str) -> None:
    entry = {"rule": snakemake.rule, "log": str(snakemake.log[0]), "started_at": started_at, "ended_at": now()}
    with open(JOBS, "a", encoding="utf-8") as jobs:  # short enough to be atomic
        jobs.write(json.dumps(entry | {"outputs": list(snakemake.output)} | more) + "\n")


def job_times(path: Path = JOBS) -> dict[str, dict]:
    """The last job that made each output: rule, log, started_at, ended_at."""
    made = (entry for entry in _entries(path) if "failed" not in entry)
    return {output: {key: entry[key] for key in JOB_KEYS} for entry in made for output in entry["outputs"]}


class Failure(NamedTuple):
    why: str  # in a line
    error: str  # the exception's name


def failures(path: Path = JOBS) -> dict[str, Failure]:
    """Of every output whose last job failed."""
    last = {output: entry for entry in _entries(path) for output in entry["outputs"]}
    return {output: Failure(one["failed"], one["error"]) for output, one in last.items() if "failed" in one}


def _entries(path: Path) -> Iterator[dict]:
    with contextlib.suppress(OSError):
        for line in path.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError, LookupError, TypeError):
                entry = json.loads(line)
                yield {**entry, **{key: entry[key] for key in JOB_KEYS}, "outputs": list(entry["outputs"])}


def say(line: str) -> None:
    """One line for each record when it is written, with the place of its job, cut to the width of the terminal."""
    clear()
    print(cut(f"{_place()}{line}"), flush=True)


def cut(line: str) -> str:
    width = min(shutil.get_terminal_size().columns, WIDTH) if sys.__stdout__.isatty() else WIDTH
    return line if len(line) <= width else f"{line[: width - 1]}…"


def clear() -> None:
    """Take the line of the job in progress off the terminal."""
    if CURRENT in os.environ:
        print("\r\x1b[K", end="", file=sys.__stdout__, flush=True)


def print_what_can_be_printed() -> None:
    """Have this process and those that it starts print '?' for what the terminal's encoding lacks, such as ASCII."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")
    os.environ["PYTHONIOENCODING"] = f"{sys.stdout.encoding}:replace"


def report(record, name: str, device=None) -> None:
    """The line of a measuring job, with its figures."""
    from roofline.report import job_lines  # on a CPU not before the measurement has ended

    say(job_lines.format_job_line(record, name, device))


def count_jobs(total: int, counter: Path) -> None:
    """Have the jobs of this run, which inherit the environment, tell their place among so many."""
    counter.parent.mkdir(parents=True, exist_ok=True)
    counter.write_bytes(b"")
    os.environ |= {TOTAL: str(total), COUNTER: str(counter.absolute())}


@cache  # this process is one job
def _place() -> str:
    counter, total = os.environ.get(COUNTER), os.environ.get(TOTAL)
    if not counter or not total:
        return ""
    with contextlib.suppress(OSError), open(counter, "ab") as ended:
        ended.write(b".")  # appending one byte is atomic, so that jobs at once do not miscount
        ended.flush()
        return f"[{ended.tell():>{len(total)}}/{total}] "
    return ""


def now() -> str:
    """The moment in UTC, ISO 8601, to the microsecond: the order of seal and measurements is read from it."""
    return datetime.now(UTC).isoformat()


def seals_of(inputs) -> dict[str, str]:
    """Paths of the seals among a measuring job's inputs: the device's, the operator's, and the host's calibration."""
    return {"device": inputs.prediction, "operator": inputs.constants, "calibration": inputs.calibration}


class Stopwatch:
    def __init__(self):
        self.started_at = now()
        self._start = time.monotonic()
        self._usage = host.read_usage()
        undisturbed.spent_on_repeats_s = 0.0

    def taken(self) -> dict:
        """What a measuring job's record says of its time."""
        load = undisturbed.contention_between(self._usage, host.read_usage(), len(host.usable_cpus()), [])
        return {"started_at": self.started_at, "elapsed_s": self.elapsed_s, "whole_job": load}

    @property
    def elapsed_s(self) -> float:
        return round(time.monotonic() - self._start, 3)


class _Tee:
    def __init__(self, *files):
        self._files = files

    def write(self, text: str) -> int:
        for file in self._files:
            file.write(text)
        return len(text)

    def flush(self) -> None:
        for file in self._files:
            file.flush()
