"""What a job leaves: its log, and an entry of logs/jobs.jsonl: when it ran, its lines for users, why it failed."""

import contextlib
import faulthandler
import gc
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from roofline.devices import host
from roofline.measure import undisturbed
from roofline.records.base import read, write
from roofline.records.device_record import DeviceRecord
from roofline.records.files import RESULTS, file_sha256, write_text
from roofline.records.operator_record import JobRecord
from roofline.run import run_lock

COPIES = RESULTS / "previous" / "again"  # of records that are measured again
JOBS, JOB_KEYS = Path("logs/jobs.jsonl"), ("rule", "log", "started_at", "ended_at")
WAITING = Path("logs/.waiting")  # what a job says that waits for another run
RUN_STARTED = "ROOFLINE_RUN_STARTED"  # the variable with the time, for the manifest
RUN_CLOCK = "ROOFLINE_RUN_CLOCK"  # the variable with time.monotonic() at that time, and the boot since which it counts
BOOT = Path("/proc/sys/kernel/random/boot_id")
CONSOLE = "ROOFLINE_CONSOLE"  # the variable that is set where the run shows the lines of its jobs
AGAIN = "ROOFLINE_AGAIN"  # the variable that is set in a run that measures disturbed records again
_lines: list[str] = []  # of this process, which is one job
_terminals: list[int] = []  # where lines are shown if the run does not, as in a module of another workflow


@contextlib.contextmanager
def job(name: str, snakemake: Any, modules: Iterable[str] = ()) -> Iterator[None]:
    """Run the body of a job in its turn. All that it prints goes into its log; what it says, to the terminal too.

    `snakemake` is the object that Snakemake gives to a script; its class can be imported only in Snakemake itself.
    `modules` are imported before, on a GPU. The start and end are noted in logs/jobs.jsonl, except of an interrupted
    job, which ends with status 130. A failure ends the process with status 1.
    """
    path = Path(snakemake.log[0])
    _redirect_output(path)
    run_lock.end_with_run()
    entry = {"rule": snakemake.rule, "log": str(path), "name": name, "outputs": list(snakemake.output)}
    entry |= {"started_at": now(), "lines": _lines}
    try:
        run_lock.take_turn(snakemake.resources.get("locks", "").split(), modules, say_waiting)
        WAITING.unlink(missing_ok=True)
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # until here it ends what only imports
        entry["started_at"] = now()
        print(f"{name}, started {entry['started_at']}")
        yield
        _keep_less_disturbed(snakemake.output)
    except KeyboardInterrupt:
        print("interrupted")
        sys.exit(130)
    except Exception as error:
        traceback.print_exc()
        reason = next((line for line in str(error).splitlines() if line.strip("= ")), type(error).__name__)
        _append_entry(**entry, ended_at=now(), failed=reason, error=type(error).__name__)
        _show(f"{name} failed: {reason} (log: {path})")
        sys.exit(1)
    print(f"{name}, ended {now()}")
    _append_entry(**entry, ended_at=now())
    gc.freeze()  # looking for cycles at the end would take 40 ms


def _redirect_output(path: Path) -> None:
    """Write into a log all that this process and those that it starts print, a crash included."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if CONSOLE not in os.environ:
        _terminals.append(os.dup(2))
    sys.stdout = sys.stderr = log = open(path, "w", encoding="utf-8", buffering=1)  # noqa: SIM115 until the job ends
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    faulthandler.enable(log)


def _keep_less_disturbed(outputs: Iterable[str]) -> None:
    """In a run that measures disturbed records again, put back what was disturbed less before, and say so."""
    if AGAIN in os.environ:
        from roofline.run import again  # on a CPU not before the measurement has ended

        for path in again.keep_less_disturbed(RESULTS, outputs):
            say(f"{path.stem}: the earlier record is kept, since the new one is as disturbed")


def _append_entry(**entry: Any) -> None:
    entry |= {"run": os.environ.get(RUN_STARTED), "run_s": seconds_of_run()}
    file = os.open(JOBS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(file, f"{json.dumps(entry)}\n".encode())  # at once: another job may end at the same moment
    os.close(file)


def seconds_of_run() -> float | None:
    """Return the seconds since this run was started; None in a job that no run of this machine has started."""
    start, _, boot = os.environ.get(RUN_CLOCK, "").partition(" ")
    return round(time.monotonic() - float(start), 6) if start and boot == read_boot() else None


def read_boot() -> str:
    """Return what names the time since which this machine counts its monotonic clock."""
    try:
        return BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def say(line: str) -> None:
    """Have the terminal show a line of this job when it ends, with its number in the run."""
    print(line)
    _lines.append(line)
    _show(line)


def say_sealed(line: str, path: str) -> None:
    """Say the line of a job that has written a seal, with the first digits of its hash."""
    say(f"{line}, sealed as {file_sha256(path)[:12]}")


def say_waiting(line: str) -> None:
    """Have the terminal show soon that a job waits; where several of a run wait, the last line is shown."""
    print(line)
    write_text(line, WAITING)
    _show(line)


def _show(line: str) -> None:
    for terminal in _terminals:
        with contextlib.suppress(OSError):  # closed
            os.write(terminal, f"{line}\n".encode())


def write_and_say(record: JobRecord | DeviceRecord, path: str | Path, name: str) -> None:
    """Write a record of a measuring job, and say its line."""
    write(record, path)
    say(format_line(record, name))


def format_line(record: Any, name: str) -> str:
    """Return the line of a measuring job, with its results. Raises UserError and OSError."""
    from roofline.report import job_lines  # on a CPU not before the measurement has ended

    device = read(DeviceRecord, RESULTS / record.device / "device_query.json")
    return job_lines.format_job_line(record, name, device)


# ---------------------------------------------------------------- what jobs have left


def job_times(path: Path = JOBS) -> dict[str, dict]:
    """Return the last job that made each output: rule, log, started_at, ended_at."""
    finished = (entry for entry in _entries(path) if "failed" not in entry)
    return {output: {key: entry[key] for key in JOB_KEYS} for entry in finished for output in entry["outputs"]}


def run_seconds(outputs: Iterable[str], path: Path = JOBS) -> dict[str, float]:
    """Return the seconds of each run that made any of these outputs last, to its last job, by when it was started."""
    seconds: dict[str, float] = {}
    last_run: dict[str, str] = {}
    for entry in _entries(path):
        run, run_s = entry.get("run"), entry.get("run_s")
        if run and run_s:
            seconds[run] = max(run_s, seconds.get(run, 0.0))
            last_run |= dict.fromkeys(entry["outputs"], run) if "failed" not in entry else {}
    made = {last_run[output] for output in outputs if output in last_run}
    return {run: spent for run, spent in seconds.items() if run in made}


class Failure(NamedTuple):
    """Why a job failed."""

    why: str  # in a line
    error: str  # the exception's name


def failures(path: Path = JOBS) -> dict[str, Failure]:
    """Return the failure of every output whose last job failed."""
    last = {output: entry for entry in _entries(path) for output in entry["outputs"]}
    return {output: Failure(job["failed"], job["error"]) for output, job in last.items() if "failed" in job}


def _entries(path: Path, offset: int = 0) -> Iterator[dict]:
    """Yield what jobs have noted in a file after so many bytes, but for lines that cannot be read."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        file.seek(offset)
        for line in file:
            with contextlib.suppress(ValueError, LookupError, TypeError):
                entry = json.loads(line)
                yield {**entry, **{key: entry[key] for key in JOB_KEYS}, "outputs": list(entry["outputs"])}


def count_bytes() -> int:
    """Return the size of the file of entries, to find those of a run that starts now."""
    return JOBS.stat().st_size if JOBS.exists() else 0


def find_entry(output: str, offset: int) -> dict:
    """Return the last entry of a job of this output after so many bytes; {} if it has noted none."""
    return next((entry for entry in reversed([*_entries(JOBS, offset)]) if output in entry["outputs"]), {})


def print_what_can_be_printed() -> None:
    """Have this process and those that it starts print '?' for what the terminal's encoding lacks, such as ASCII.

    Where an output is closed, as by >&-, this process prints nothing.
    """
    for name in ("stdout", "stderr"):
        setattr(sys, name, getattr(sys, name) or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
        getattr(sys, name).reconfigure(errors="replace")
    os.environ["PYTHONIOENCODING"] = f"{sys.stdout.encoding}:replace"


def now() -> str:
    """Return the time in UTC, ISO 8601, to the microsecond: it decides the order of seals and measurements.

    Within a run it goes on from the start of the run, whatever becomes of the clock of the host.
    """
    start, run_s = os.environ.get(RUN_STARTED), seconds_of_run()
    if start and run_s is not None:
        return (datetime.fromisoformat(start) + timedelta(seconds=run_s)).isoformat()
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
