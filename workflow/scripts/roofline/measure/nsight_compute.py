"""Nsight Compute's command line, `ncu`: where it is, what it is asked, why it refuses, and what its reports hold."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "NCU"
ELSEWHERE = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")
PATIENCE_S = 60  # for one profile; a program that hangs under the profiler holds up nothing but itself
DRIVER = Path("/proc/driver/nvidia/params")
ADMIN_ONLY = re.compile(r"^RmProfilingAdminOnly: *(\S+)", re.MULTILINE)
MISSING = f"Nsight Compute (ncu) is not on this machine, and {VARIABLE} names none"
SCRIPTS = Path(__file__).resolve().parents[2]

ERROR = re.compile(r"^==ERROR== (.+)$", re.MULTILINE)
PERMISSION = re.compile(r"ERR_NVGPUCTRPERM|permission to access NVIDIA GPU Performance Counters")
UNKNOWN_METRIC = re.compile(
    r"Failed to find metric (?:regex:\^)?([a-z0-9_]+)|Metric ([a-z0-9_]+)\S* is not supported in range"
)
VERSION = re.compile(r"^Version ([\d.]+)", re.MULTILINE)
SCALE = {
    **{"byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12},
    **{"nsecond": 1e-9, "usecond": 1e-6, "msecond": 1e-3, "second": 1.0, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0},
}


class NoProgram(Exception):
    """NCU names no program. The message is one line."""


class Refused(Exception):
    """The profiler does not count here. The message is one line."""


class BadReport(Exception):
    """A report that cannot be read. The message is one line."""


def find() -> Path | None:
    """The program that NCU names, else that of the PATH, else the newest where installers put it; None where there is
    none. Raises NoProgram."""
    named = os.environ.get(VARIABLE)
    if named:
        found = shutil.which(named)
        if not found:
            raise NoProgram(f"{VARIABLE}: {named!r} is no program; allowed: the path of Nsight Compute's ncu, or unset")
        return Path(found)
    if found := shutil.which("ncu"):
        return Path(found)
    there = [path for pattern in ELSEWHERE for path in Path("/").glob(pattern[1:]) if os.access(path, os.X_OK)]
    return max(there, key=_release, default=None)


def _release(path: Path) -> list[int]:
    """The numbers of a folder such as 2025.3.1, which is newer than 2025.3 and 2024.10."""
    return [int(number) for number in re.findall(r"\d+", path.parent.name)]


def fingerprint(program: Path | None) -> str:
    """What tells one installation and its rights from another, without starting it: whether the driver keeps the
    counters to administrators, and whether we are root."""
    if program is None:
        return "none"
    stat = program.resolve().stat()
    try:
        admin_only = ADMIN_ONLY.search(DRIVER.read_text(encoding="utf-8"))
    except OSError:
        admin_only = None
    kept = admin_only.group(1) if admin_only else "unknown"
    return f"{program} {stat.st_size} {stat.st_mtime_ns} admin only: {kept}, root: {os.geteuid() == 0}"


def version(program: Path) -> str | None:
    told = _run([str(program), "--version"]).output
    found = VERSION.search(told)
    return found.group(1) if found else None


@dataclass(frozen=True)
class Told:
    status: int | None  # None where it took longer than PATIENCE_S
    output: str


def profile(
    program: Path, module: str, arguments: Sequence[str], metrics: Sequence[str], report: Path, replay: str
) -> str:
    """Profile what a module of ours runs between cudaProfilerStart and cudaProfilerStop, as its own process.

    Metrics that this version does not know, or not of a range, are left out. Returns the last line that it printed.
    Raises Refused.
    """
    wanted = list(metrics)
    while True:
        told = _run([*command(program, wanted, report, replay), *_python(module), *arguments])
        refused = {name for names in UNKNOWN_METRIC.findall(told.output) for name in names}
        missing = [name for name in wanted if name.split(".")[0] in refused]
        if not missing:
            break
        wanted = [name for name in wanted if name not in missing]
    refuse_where_told(told, report)
    return last_line(told)


def command(program: Path, metrics: Sequence[str], report: Path, replay: str) -> list[str]:
    """Options of ncu. Of a range the caches are left alone, so that what the range before left in them is written in
    this one as this one's is in the next; before a single kernel they are emptied, so that its reads are cold."""
    of_range = ["--replay-mode", "range", "--cache-control", "none"]  # ranges begin at cudaProfilerStart by themselves
    of_kernel = ["--replay-mode", "kernel", "--cache-control", "all", "--profile-from-start", "off"]
    options = ["--clock-control", "none", *(of_range if replay == "range" else of_kernel)]
    return [str(program), *options, "--metrics", ",".join(metrics), "--force-overwrite", "--export", str(report)]


def refuse_where_told(told: Told, report: Path) -> None:
    """Raises Refused for a profiler that said so, took too long, or left no report."""
    errors = ERROR.findall(told.output)
    permission = next((line for line in errors if PERMISSION.search(line)), None)
    if permission:
        raise Refused(permission.split(". ")[0].rstrip("."))
    if told.status is None:
        raise Refused(f"ncu did not end within {PATIENCE_S} s")
    if not report.is_file():
        raise Refused(f"ncu wrote no report (exit status {told.status}): {errors[0] if errors else last_line(told)}")


def last_line(told: Told) -> str:
    """Of the program's own, where there is one."""
    lines = told.output.strip().splitlines() or ["it printed nothing"]
    return next((line for line in reversed(lines) if not line.startswith("==")), lines[-1]).strip()


def _python(module: str) -> list[str]:
    return [sys.executable, "-P", "-m", module]


def _run(arguments: Sequence[str]) -> Told:
    """In a session of its own, so that the program under the profiler ends with it."""
    paths = [str(SCRIPTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    try:
        process = subprocess.Popen(
            arguments,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise Refused(f"ncu does not start: {error}") from None
    try:
        output, _ = process.communicate(timeout=PATIENCE_S)
        return Told(process.returncode, output)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return Told(None, process.communicate()[0])
    except BaseException:  # Ctrl-C does not reach another session
        os.killpg(process.pid, signal.SIGKILL)
        raise


# ---------------------------------------------------------------- reports


@dataclass(frozen=True)
class Counted:
    """A range or a kernel of a report: its name, and values by metric."""

    name: str
    values: dict[str, float]


def read_report(path: Path, metrics: Sequence[str]) -> list[list[Counted]]:
    """What a report holds of these metrics, by range and in it by kernel, in order. Raises BadReport."""
    import ncu_report

    try:
        context = ncu_report.load_report(str(path))
        found = [
            [_counted(spans.action_by_idx(place), metrics) for place in range(spans.num_actions())]
            for spans in (context.range_by_idx(place) for place in range(context.num_ranges()))
        ]
    except Exception as error:  # the library raises what its parser does
        raise BadReport(
            f"{path}: not a whole report ({(str(error).splitlines() or [type(error).__name__])[0]})"
        ) from None
    if not any(found):
        raise BadReport(f"{path}: it holds nothing that was profiled")
    return found


def _counted(action, metrics: Sequence[str]) -> Counted:
    values = {}
    for name in metrics:
        metric = action.metric_by_name(name)
        if metric is not None and metric.has_value():
            values[name] = metric.as_double() * SCALE.get(metric.unit(), 1.0)
    return Counted(action.name(), values)
