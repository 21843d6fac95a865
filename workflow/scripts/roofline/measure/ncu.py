"""Nsight Compute's command line, `ncu`: where it is, what it counts of a script of ours, and what its reports hold."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from roofline.core.formatting import join_words
from roofline.core.terms import UnsupportedError, UserError, make_printable

NCU_VARIABLE = "NCU"
INSTALL_PATTERNS = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")
TIMEOUT_S = 600  # for one profile and for its turn; a program that hangs under the profiler holds up nothing else
DRIVER_PARAMETERS = Path("/proc/driver/nvidia/params")
NOT_FOUND_REASON = f"Nsight Compute (ncu) is not on this machine, and {NCU_VARIABLE} names none"
# Clocks as they are; caches emptied before each kernel, so that its reads are cold.
OPTIONS = ("--clock-control", "none", "--replay-mode", "kernel", "--cache-control", "all")

ERROR = re.compile(r"^==ERROR== (.+)$", re.MULTILINE)
PERMISSION = re.compile(r"ERR_NVGPUCTRPERM|permission to access NVIDIA GPU Performance Counters")
UNKNOWN_METRIC = re.compile(r"Failed to find metric (?:regex:\^)?([a-z0-9_]+)")

NO_READER = "ncu-report, the Python package that reads Nsight Compute's reports, is not installed"
PREFIXES = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
UNIT = re.compile(r"(n|u|m|K|k|M|G|T)?(byte|second|s|hz|cycle|inst|sector)s?", re.IGNORECASE)
PERCENT = ("%", "percent")
MAGIC = b"NVR\0"  # a report starts with it
CODE_METRIC = "launch__function_pcs"  # its first instance: where the function's code begins
DIMENSION_METRICS = tuple([f"launch__{what}_dim_{axis}" for axis in "xyz"] for what in ("grid", "block"))
Capability = tuple[int, int]
Value = Callable[[str], float | None]  # of a metric, by its name: in bytes, seconds, hertz or counts


def find_ncu() -> Path | None:
    """The program that NCU names, else that of the PATH, else the newest where installers put it; None if there is
    none. Raises UserError if NCU names no program."""
    named = os.environ.get(NCU_VARIABLE)
    found = shutil.which(named or "ncu")
    if named and not found:
        raise UserError(
            f"{NCU_VARIABLE}: {named!r} is not a program; allowed: the path of Nsight Compute's ncu, or unset"
        )
    if found:
        return Path(found)
    there = [path for pattern in INSTALL_PATTERNS for path in Path("/").glob(pattern[1:]) if os.access(path, os.X_OK)]
    return max(there, key=lambda path: [int(one) for one in re.findall(r"\d+", path.parent.name)], default=None)


def installation_key(program: Path | None) -> str:
    """One installation and its rights: whether the driver keeps the counters to administrators, and we are root."""
    if program is None:
        return "none"
    stat = program.resolve().stat()
    try:
        admin_only = re.search(
            r"^RmProfilingAdminOnly: *(\S+)", DRIVER_PARAMETERS.read_text(encoding="utf-8"), re.MULTILINE
        )
    except OSError:
        admin_only = None
    kept = admin_only.group(1) if admin_only else "unknown"
    return f"{program} {stat.st_size} {stat.st_mtime_ns} admin only: {kept}, root: {os.geteuid() == 0}"


def read_version(program: Path) -> str | None:
    found = re.search(r"^Version ([\d.]+)", _run_program([str(program), "--version"])[1], re.MULTILINE)
    return found.group(1) if found else None


def profile(program: Path, script: Path, argument: str, metrics: Sequence[str], report: Path) -> str:
    """Profile what a script of ours runs between cudaProfilerStart and cudaProfilerStop, as its own process.

    Metrics that this version does not know are left out. Returns the last line that the script printed. Raises
    Unsupported with the reason if nothing was counted.
    """
    wanted = list(metrics)
    while True:
        options = [*OPTIONS, "--profile-from-start", "off", "--metrics", ",".join(wanted)]
        options += ["--force-overwrite", "--export", str(report)]
        status, output = _run_program([str(program), *options, sys.executable, str(script), argument])
        refused = set(UNKNOWN_METRIC.findall(output))
        known = [name for name in wanted if name.split(".")[0] not in refused]
        if known == wanted:
            break
        wanted = known
    errors, lines = ERROR.findall(output), output.strip().splitlines() or ["it printed nothing"]
    last = next((line for line in reversed(lines) if not line.startswith("==")), lines[-1]).strip()
    permission = next((line for line in errors if PERMISSION.search(line)), None)
    if permission:
        raise UnsupportedError(permission.split(". ")[0].rstrip("."))
    if status is None:
        raise UnsupportedError(f"ncu did not end within {TIMEOUT_S} s")
    if not report.is_file():
        raise UnsupportedError(f"ncu wrote no report (exit status {status}): {' '.join(errors) or last}")
    return last


def _run_program(arguments: Sequence[str]) -> tuple[int | None, str]:
    """The exit status, None if it took longer than PATIENCE_S, and the output; in its own session, so that the
    program under the profiler ends with it."""
    try:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise UnsupportedError(f"ncu does not start: {error}") from None
    try:
        output, _ = process.communicate(timeout=TIMEOUT_S)
        return process.returncode, output
    except BaseException as error:  # Ctrl-C does not reach another session
        os.killpg(process.pid, signal.SIGKILL)
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        return None, process.communicate()[0]


# ---------------------------------------------------------------- reports


@dataclass(frozen=True)
class ProfiledGpu:
    name: str
    capability: Capability
    multiprocessors: int
    memory_bytes: int


@dataclass(frozen=True)
class ProfiledKernel:
    """One launch. Kernels of one name whose `code` differs were compiled with other constants."""

    name: str
    signature: str  # with template arguments and parameters
    code: int | None
    grid: tuple[int, ...]
    block: tuple[int, ...]
    counts: Any  # what `take` made of its metrics


@dataclass(frozen=True)
class NcuReport:
    path: str
    card: ProfiledGpu
    kernels: list[ProfiledKernel]
    left_out: int  # ranges and graphs that were profiled as a whole
    failed: list[str]  # kernels that were launched and not counted, by name


def read_report(path: Path, take: Callable[[Value, Capability], Any]) -> NcuReport:
    """The kernels of a report, in order. `take` gets the metrics of each, and the compute capability of its card; it
    raises LookupError for a kernel without those that it needs.

    Needs no GPU. Raises UserError, in one line, for what is not a report of kernels of one card.
    """
    if not find_spec("ncu_report"):
        raise UserError(NO_READER)
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    if not path.read_bytes().startswith(MAGIC):
        raise UserError(f"{path}: not a report of Nsight Compute (.ncu-rep)")
    import ncu_report

    kinds, kernels, cards, left_out, failed = ncu_report.IAction, [], [], 0, {}
    terminal = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)  # where the library describes what is damaged
    try:
        for action in (one for span in ncu_report.load_report(str(path)) for one in span):
            if action.workload_type() != kinds.WorkloadType_KERNEL:
                left_out += 1
                continue
            cards.append(_profiled_gpu(action))
            try:
                kernels.append(_profiled_kernel(action, kinds.NameBase_DEMANGLED, take, cards[-1].capability))
            except LookupError as error:
                failed[make_printable(action.name())] = error.args[0]
    except (LookupError, OSError, RuntimeError, TypeError, ValueError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{path}: a damaged report ({why})") from None
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)
    if not kernels:
        damage = f"a damaged report ({next(iter(failed.values()), 'nothing can be read')})"
        why = "no kernel in it; ncu profiles kernels with --replay-mode kernel" if left_out else damage
        raise UserError(f"{path}: {why}")
    if len(set(cards)) > 1:
        names = join_words(sorted({f"{one.name} of {one.multiprocessors} multiprocessors" for one in cards}))
        raise UserError(f"{path}: of several cards, {names}; profile one at a time")
    return NcuReport(make_printable(str(path)), cards[0], kernels, left_out, list(failed))


def _require_metric(action, name: str):
    metric = action.metric_by_name(name)
    if metric is None:
        raise LookupError(f"a kernel without {name}")
    return metric


def _profiled_gpu(action) -> ProfiledGpu:
    def attribute(name: str) -> int:
        return int(_require_metric(action, f"device__attribute_{name}").as_double())

    capability = attribute("compute_capability_major"), attribute("compute_capability_minor")
    name = _require_metric(action, "device__attribute_display_name").as_string()
    return ProfiledGpu(make_printable(name), capability, attribute("multiprocessor_count"), attribute("total_memory"))


def _profiled_kernel(action, demangled: int, take: Callable, capability: Capability) -> ProfiledKernel:
    def value(name: str) -> float | None:
        metric = action.metric_by_name(name)
        return metric.as_double() * unit_scale(metric.unit()) if metric is not None and metric.has_value() else None

    code = action.metric_by_name(CODE_METRIC)
    grid, block = (
        tuple(int(_require_metric(action, name).as_double()) for name in names) for names in DIMENSION_METRICS
    )
    place = code.as_uint64(0) if code is not None and code.num_instances() else None
    names = make_printable(action.name()), make_printable(action.name(demangled))
    return ProfiledKernel(*names, place, grid, block, take(value, capability))


def unit_scale(unit: str) -> float:
    """What a value in this unit is multiplied by to be in bytes, seconds, hertz or counts."""
    above, _, below = unit.partition("/")
    return _scale(above) / _scale(below)


def _scale(unit: str) -> float:
    if unit in PERCENT:
        return 0.01
    known = UNIT.fullmatch(unit)
    return PREFIXES[known[1] or ""] if known else 1.0
