"""Nsight Compute's command line, `ncu`: where it is, what it counts of a script of ours, and what its reports hold."""

import contextlib
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT, Popen, TimeoutExpired
from typing import Any

from roofline.core.formatting import join_words
from roofline.core.terms import UnsupportedError, UserError, make_printable

NCU_VARIABLE = "NCU"
INSTALL_PATTERNS = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")
TIMEOUT_S = 600  # for one profile and for its turn: a program that hangs under the profiler must not stop a run
DRIVER_PARAMETERS = Path("/proc/driver/nvidia/params")
NOT_FOUND_REASON = f"Nsight Compute (ncu) is not on this machine, and {NCU_VARIABLE} names none"
# Clocks are left as they are. Caches are emptied before each kernel, so that its reads are cold.
OPTIONS = ("--clock-control", "none", "--replay-mode", "kernel", "--cache-control", "all")

ERROR = re.compile(r"^==ERROR== (.+)$", re.MULTILINE)
PERMISSION = re.compile(r"ERR_NVGPUCTRPERM|permission to access NVIDIA GPU Performance Counters")
UNKNOWN_METRIC = re.compile(r"Failed to find metric (?:regex:\^)?([a-z0-9_]+)")

NO_READER = "ncu-report, the Python package that reads Nsight Compute's reports, is not installed"
UNIT_PREFIXES = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
UNIT = re.compile(r"(n|u|m|K|k|M|G|T)?(byte|second|s|hz|cycle|inst|sector)s?", re.IGNORECASE)
MAGIC = b"NVR\0"  # the first bytes of a report
CODE_METRIC = "launch__function_pcs"  # its first instance: where the function's code begins
Capability = tuple[int, int]
Action = Any  # a launch, of ncu_report, which has no types
Metric = Any  # one of its metrics
Value = Callable[[str], float | None]  # gives a metric by its name, in bytes, seconds, hertz or counts
ExtractCounts = Callable[[Value, Capability], Any]


def find_ncu() -> Path | None:
    """Return the program that NCU names, else that of the PATH, else the newest where installers put it; None if there
    is none.

    Raises UserError if NCU names no program.
    """
    named_program = os.environ.get(NCU_VARIABLE)
    on_path = shutil.which(named_program or "ncu")
    if named_program and not on_path:
        raise UserError(
            f"{NCU_VARIABLE}: {named_program!r} is not a program; allowed: the path of Nsight Compute's ncu, or unset"
        )
    if on_path:
        return Path(on_path)
    installed = [path for pattern in INSTALL_PATTERNS for path in Path("/").glob(pattern[1:])]
    installed = [path for path in installed if os.access(path, os.X_OK)]
    return max(installed, key=_version_in_path, default=None)


def _version_in_path(program: Path) -> list[int]:
    """Return the version in the name of an installation's folder, as numbers."""
    return [int(digits) for digits in re.findall(r"\d+", program.parent.name)]


def installation_key(program: Path | None) -> str:
    """Return a text that changes with the installation and with our rights to read counters: a param of Snakemake.

    The rights follow from whether the driver keeps the counters to administrators, and whether we are root.
    """
    if program is None:
        return "none"
    stat = program.resolve().stat()
    parameters = ""
    with contextlib.suppress(OSError):
        parameters = DRIVER_PARAMETERS.read_text(encoding="utf-8")
    match = re.search(r"^RmProfilingAdminOnly: *(\S+)", parameters, re.MULTILINE)
    admin_only = match.group(1) if match else "unknown"
    return f"{program} {stat.st_size} {stat.st_mtime_ns} admin only: {admin_only}, root: {os.geteuid() == 0}"


def read_version(program: Path) -> str | None:
    """Return the version that ncu prints; None if it prints none. Raises UnsupportedError if it does not start."""
    _, output = _run_program([str(program), "--version"])
    match = re.search(r"^Version ([\d.]+)", output, re.MULTILINE)
    return match.group(1) if match else None


def profile(program: Path, script: Path, argument: str, metrics: Sequence[str], report: Path) -> str:
    """Profile what a script of ours runs between cudaProfilerStart and cudaProfilerStop, as its own process.

    Return the last line that the script printed. Metrics that this version of ncu does not know are left out. Raises
    UnsupportedError with the reason if nothing was counted.
    """
    known_metrics, asked_metrics = list(metrics), None
    while known_metrics != asked_metrics:
        asked_metrics = known_metrics
        options = [*OPTIONS, "--profile-from-start", "off", "--metrics", ",".join(asked_metrics)]
        options += ["--force-overwrite", "--export", str(report)]
        status, output = _run_program([str(program), *options, sys.executable, str(script), argument])
        refused = set(UNKNOWN_METRIC.findall(output))
        known_metrics = [name for name in asked_metrics if name.split(".")[0] not in refused]
    errors, lines = ERROR.findall(output), output.strip().splitlines() or ["it printed nothing"]
    last_line = next((line for line in reversed(lines) if not line.startswith("==")), lines[-1]).strip()
    if permission := next((line for line in errors if PERMISSION.search(line)), None):
        raise UnsupportedError(permission.split(". ")[0].rstrip("."))
    if status is None:
        raise UnsupportedError(f"ncu did not end within {TIMEOUT_S} s")
    if not report.is_file():
        raise UnsupportedError(f"ncu wrote no report (exit status {status}): {' '.join(errors) or last_line}")
    return last_line


def _run_program(arguments: Sequence[str]) -> tuple[int | None, str]:
    """Run a program and return its exit status, None if it took longer than TIMEOUT_S, and its output.

    It has its own session, so that the program under the profiler ends with it. Raises UnsupportedError if it does not
    start.
    """
    try:
        process = Popen(
            arguments, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, text=True, errors="replace", start_new_session=True
        )
    except OSError as error:
        raise UnsupportedError(f"ncu does not start: {error}") from None
    try:
        output, _ = process.communicate(timeout=TIMEOUT_S)
        return process.returncode, output
    except BaseException as error:  # Ctrl-C does not reach another session
        os.killpg(process.pid, signal.SIGKILL)
        if not isinstance(error, TimeoutExpired):
            raise
        return None, process.communicate()[0]


# ---------------------------------------------------------------- reports


@dataclass(frozen=True)
class ProfiledGpu:
    """The GPU on which the kernels of a report ran."""

    name: str
    capability: Capability
    multiprocessors: int
    memory_bytes: int


@dataclass(frozen=True)
class ProfiledKernel:
    """One launch of a kernel. Kernels of one name whose `code` differs were compiled with other constants."""

    name: str
    signature: str  # with template arguments and parameters
    code: int | None
    grid: tuple[int, ...]
    block: tuple[int, ...]
    counts: Any  # whatever `extract_counts` returned


@dataclass
class NcuReport:
    """The kernels of a report in their order, and what it holds besides them."""

    path: str
    cards: list[ProfiledGpu] = field(default_factory=list)  # of each launch
    kernels: list[ProfiledKernel] = field(default_factory=list)
    left_out: int = 0  # number of ranges and graphs that were profiled as one unit
    failed: dict[str, str] = field(default_factory=dict)  # why kernels that were launched are not counted, by name

    @property
    def card(self) -> ProfiledGpu:
        """The one card on which all launches ran."""
        return self.cards[0]


def read_report(path: Path, extract_counts: ExtractCounts) -> NcuReport:
    """Return the kernels of a report, in order.

    `extract_counts` gets the metrics of each kernel, and the compute capability of its card. It raises LookupError for
    a kernel without the metrics that it needs. No GPU is needed. Raises UserError, in one line, for a file that is not
    a report of kernels of one card.
    """
    if not find_spec("ncu_report"):
        raise UserError(NO_READER)
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    if not path.read_bytes().startswith(MAGIC):
        raise UserError(f"{path}: not a report of Nsight Compute (.ncu-rep)")
    try:
        with _silenced_stderr():  # the library describes there what is damaged
            report = _read_launches(path, extract_counts)
    except (LookupError, OSError, RuntimeError, TypeError, ValueError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{path}: a damaged report ({why})") from None
    if not report.kernels:
        why = f"a damaged report ({next(iter(report.failed.values()), 'nothing can be read')})"
        if report.left_out:
            why = "no kernel in it; ncu profiles kernels with --replay-mode kernel"
        raise UserError(f"{path}: {why}")
    if len(set(report.cards)) > 1:
        names = {f"{card.name} of {card.multiprocessors} multiprocessors" for card in report.cards}
        raise UserError(f"{path}: of several cards, {join_words(sorted(names))}; profile one at a time")
    return report


@contextlib.contextmanager
def _silenced_stderr() -> Iterator[None]:
    """Send what libraries write to the standard error to nowhere while the block runs."""
    terminal = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)


def _read_launches(path: Path, extract_counts: ExtractCounts) -> NcuReport:
    import ncu_report

    report = NcuReport(make_printable(str(path)))
    for profiled_range in ncu_report.load_report(str(path)):
        for action in profiled_range:
            if action.workload_type() != action.WorkloadType_KERNEL:
                report.left_out += 1
                continue
            card = _profiled_gpu(action)
            report.cards.append(card)
            try:
                report.kernels.append(_profiled_kernel(action, extract_counts, card.capability))
            except LookupError as error:
                report.failed[make_printable(action.name())] = error.args[0]
    return report


def _require_metric(action: Action, name: str) -> Metric:
    """Return a metric of a launch. Raises LookupError if it lacks it."""
    metric = action.metric_by_name(name)
    if metric is None:
        raise LookupError(f"a kernel without {name}")
    return metric


def _profiled_gpu(action: Action) -> ProfiledGpu:
    def attribute(name: str) -> int:
        return int(_require_metric(action, f"device__attribute_{name}").as_double())

    capability = attribute("compute_capability_major"), attribute("compute_capability_minor")
    name = _require_metric(action, "device__attribute_display_name").as_string()
    return ProfiledGpu(make_printable(name), capability, attribute("multiprocessor_count"), attribute("total_memory"))


def _profiled_kernel(action: Action, extract_counts: ExtractCounts, capability: Capability) -> ProfiledKernel:
    """Return a launch and its counts. Raises LookupError if it lacks a metric."""

    def value(name: str) -> float | None:
        metric = action.metric_by_name(name)
        return metric.as_double() * unit_scale(metric.unit()) if metric is not None and metric.has_value() else None

    def extent(name: str) -> tuple[int, ...]:
        return tuple(int(_require_metric(action, f"launch__{name}_dim_{axis}").as_double()) for axis in "xyz")

    code = action.metric_by_name(CODE_METRIC)
    return ProfiledKernel(
        name=make_printable(action.name()),
        signature=make_printable(action.name(action.NameBase_DEMANGLED)),
        code=code.as_uint64(0) if code is not None and code.num_instances() else None,
        grid=extent("grid"),
        block=extent("block"),
        counts=extract_counts(value, capability),
    )


def unit_scale(unit: str) -> float:
    """Return the factor that turns a value in this unit into bytes, seconds, hertz, counts, or a quotient of those."""
    above, _, below = unit.partition("/")
    return _scale(above) / _scale(below)


def _scale(unit: str) -> float:
    if unit in ("%", "percent"):
        return 0.01
    match = UNIT.fullmatch(unit)
    return UNIT_PREFIXES[match[1] or ""] if match else 1.0
