"""The host: which cores and how much memory this process may use, whatever the machine has."""

import contextlib
import math
import os
import platform
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from roofline.core.disturbance import RUN_PROCESS_VARIABLE
from roofline.core.terms import make_printable

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
SYSTEM_ROOT = Path("/")
# Of a control group, by version: its limit of memory, what is used, and in its statistics what can be dropped.
MEMORY_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
THROTTLED_UNITS = {"throttled_usec": 1e6, "throttled_time": 1e9}  # by version: what makes seconds of it
HOST_ROOT_VARIABLE = "ROOFLINE_HOST"  # names a folder for load, caches and locks instead of /


def usable_core_count() -> int:
    """Cores of this process: so many threads use all that it may."""
    return math.ceil(core_allowance())


def core_allowance() -> float:
    """By the affinity mask, and no more than the CPU quotas of the control groups, which may be fractions."""
    return min(len(usable_cpus()), *_read_cpu_quotas(), math.inf)


def usable_cpus() -> set[int]:
    """The numbers of the CPUs (threads of cores) that this process may run on."""
    return os.sched_getaffinity(0)


@contextlib.contextmanager
def pin_to_cpu(number: int) -> Iterator[None]:
    """The calling thread runs there alone."""
    usual = usable_cpus()
    os.sched_setaffinity(0, {number})
    try:
        yield
    finally:
        os.sched_setaffinity(0, usual)


def cpu_folder(number: int) -> Path:
    """What the kernel lists of a CPU."""
    return _root() / "sys" / "devices" / "system" / "cpu" / f"cpu{number}"


def physical_cores() -> float:
    """The same with the threads of one core counted once, if the system lists which they are."""
    return min(core_allowance(), len({_read_siblings(cpu) for cpu in usable_cpus()}))


def use_all_cores() -> int:
    """Set the BLAS to every usable core, before NumPy is imported; returns the number.

    Snakemake hands a job OMP_NUM_THREADS = its declared threads, 1 on a one-core run.
    """
    cores = usable_core_count()
    for variable in THREAD_VARIABLES:
        os.environ[variable] = str(cores)
    return cores


def memory_available_bytes() -> int:
    """Memory that can be allocated now: what the system has available, within the limits of the control groups."""
    import psutil

    available = psutil.virtual_memory().available
    for group in _control_groups("memory", SYSTEM_ROOT):
        for limit, used, cached in MEMORY_FILES:
            if (most := _read_number(group / limit)) is not None:
                # Files that were read and not used since count as used, and are let go where memory is wanted.
                dropped = _read_named_numbers(group / "memory.stat").get(cached, 0)
                available = min(available, most - (_read_number(group / used) or 0) + dropped)
    return available


def count_oom_kills() -> int:
    """Processes that the kernel has killed for want of memory, of the system or of a control group."""
    return _read_named_numbers(SYSTEM_ROOT / "proc" / "vmstat").get("oom_kill", 0)


def cpu_name() -> str:
    """The model of the processor; the architecture of an ARM host, whose kernel lists none."""
    return make_printable(read_cpuinfo().get("model name", platform.machine()))


def read_cpuinfo() -> dict[str, str]:
    """What /proc/cpuinfo lists of the first processor."""
    first = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}


@dataclass(frozen=True)
class HostUsage:
    """Seconds so far, of this process and of the CPUs that it may run on; None where the system does not tell."""

    at: float  # by a monotonic clock
    own: float  # CPU time of all threads of this process
    busy: float | None = None  # CPU time of all processes, and of interrupts
    idle: float | None = None
    stolen: float | None = None  # by the hypervisor, for other machines
    waited: float | None = None  # that threads of this process could have run and had no CPU
    throttled: float | None = None  # by the CPU quotas of its control groups
    run: float | None = None  # CPU time of this run's other processes: Snakemake and the jobs that it starts
    others: "OtherProcesses | None" = None  # exact, by task; None where the kernel does not count so


@dataclass(frozen=True)
class OtherProcesses:
    """CPU seconds of the tasks of every visible process outside this run, and of children that these waited for."""

    tasks: Mapping[tuple[str, str], float]  # by process and thread
    ended: float

    def since(self, before: "OtherProcesses") -> float:
        """Seconds used since an earlier reading, by tasks that began or ended in between too.

        What an ended task had used by the earlier reading is in its parent's count, and is taken off; of tasks that
        have no waiting parent what they used in between is missed.
        """
        used = sum(max(0.0, now - before.tasks.get(task, 0.0)) for task, now in self.tasks.items())
        gone = sum(then for task, then in before.tasks.items() if task not in self.tasks)
        return used + max(0.0, self.ended - before.ended - gone)


def read_usage(others: bool = True) -> HostUsage:
    """Now. Without `others` those are not looked for one by one, which takes milliseconds."""
    root = _root()
    cpus = _read_cpu_seconds(root / "proc" / "stat")
    waits = [int(numbers.split()[1]) / 1e9 for numbers in _read_thread_files(f"{root}/proc/self", "schedstat")]
    statistics = [_read_named_numbers(group / "cpu.stat") for group in _control_groups("cpu", root)]
    throttled = [one[name] / unit for one in statistics for name, unit in THROTTLED_UNITS.items() if name in one]
    return HostUsage(
        at=time.monotonic(),
        own=time.process_time(),
        waited=sum(waits) if waits else None,
        throttled=sum(throttled) if throttled else None,
        run=_run_seconds(root / "proc"),
        others=_read_other_processes(root / "proc") if others else None,
        **cpus,
    )


def _read_other_processes(proc: Path) -> OtherProcesses | None:
    """By schedstat, which counts nanoseconds. /proc/stat samples all CPUs at the same ticks: loops on all cores in step
    with them seem to be others' load, or hide it. Hundreds of files at every reading, so read without any comfort."""
    own = {str(os.getpid()), *_list_run_processes(proc)}
    if not any(_read_thread_files(f"{proc}/self", "schedstat")):
        return None
    tasks, ended, root = {}, 0, str(proc)
    gone = contextlib.suppress(OSError, ValueError, IndexError)  # what has ended meanwhile
    for process in os.listdir(root):
        if process.isdigit() and process not in own:
            with gone:
                fields = _read_short_file(f"{root}/{process}/stat").rpartition(b") ")[2].split(None, 14)
                ended += int(fields[13]) + int(fields[14].split(None, 1)[0])
                for thread in os.listdir(f"{root}/{process}/task"):
                    with gone:
                        spent = _read_short_file(f"{root}/{process}/task/{thread}/schedstat")
                        tasks[process, thread] = int(spent.split(None, 1)[0]) / 1e9
    return OtherProcesses(tasks, ended / os.sysconf("SC_CLK_TCK"))


def _read_short_file(path: str) -> bytes:
    """Of a file of the kernel's, which is short."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 4096)
    finally:
        os.close(file)


def _read_thread_files(process: str, name: str) -> Iterator[bytes]:
    """A file of each thread of a process; without those that have ended meanwhile. A job reads them hundreds of times,
    so without any comfort too."""
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"{process}/task"):
            with contextlib.suppress(OSError):
                yield _read_short_file(f"{process}/task/{thread}/{name}")


def _list_run_processes(proc: Path) -> Iterator[str]:
    """The processes of this run, the first one included, by their numbers."""
    left = [first] if (first := os.environ.get(RUN_PROCESS_VARIABLE)) else []
    while left:
        number = left.pop()
        yield number
        for children in _read_thread_files(f"{proc}/{number}", "children"):
            left += children.decode().split()


def _root() -> Path:
    return Path(os.environ.get(HOST_ROOT_VARIABLE, "/"))


def _read_cpu_seconds(stat: Path) -> dict[str, float]:
    """Of the CPUs of this process, by /proc/stat, whose guest times are also in its user times."""
    try:
        lines = [line.split() for line in stat.read_text().splitlines() if line.startswith("cpu")]
        of_cpu = {line[0]: [int(field) for field in line[1:9]] for line in lines}
        chosen = [of_cpu[f"cpu{number}"] for number in usable_cpus()]
        fields = [sum(values) / os.sysconf("SC_CLK_TCK") for values in zip(*chosen, strict=True)]
        user, nice, system, idle, iowait, irq, softirq, stolen = fields
    except (OSError, ValueError, KeyError):
        return {}
    return {"busy": user + nice + system + irq + softirq, "idle": idle + iowait, "stolen": stolen}


def _run_seconds(proc: Path) -> float | None:
    """CPU time of the run's processes but this one, and of those of them that have ended."""
    if not os.environ.get(RUN_PROCESS_VARIABLE):
        return None
    ticks, own = 0, str(os.getpid())
    for number in _list_run_processes(proc):
        with contextlib.suppress(OSError):  # it has ended, and its parent counts it
            fields = _read_short_file(f"{proc}/{number}/stat").rpartition(b") ")[2].split()
            ticks += sum(map(int, fields[13:15] if number == own else fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _read_siblings(cpu: int) -> str:
    try:
        return (cpu_folder(cpu) / "topology" / "thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


@cache  # `usage` is read hundreds of times
def _control_groups(controller: str, root: Path) -> list[Path]:
    """Folders of this process's control group and of those around it, whose limits hold too, of version 1 and 2.

    In a container the first may be out of sight; its own is then the outermost.
    """
    own = {controller: "", "": ""}  # version 2 has no name
    with contextlib.suppress(OSError, ValueError):
        for line in (root / "proc" / "self" / "cgroup").read_text().splitlines():
            _, names, path = line.split(":", 2)
            own |= {name: path for name in names.split(",") if name in own}
    parts = {root / "sys" / "fs" / "cgroup" / name: Path(path.strip("/")).parts for name, path in own.items()}
    return [top.joinpath(*path[:depth]) for top, path in parts.items() for depth in range(len(path) + 1)]


def _read_cpu_quotas() -> Iterator[float]:
    for group in _control_groups("cpu", SYSTEM_ROOT):
        with contextlib.suppress(OSError, ValueError):  # 'max' is no number
            quota, period = map(int, (group / "cpu.max").read_text().split())
            yield quota / period
        quota, period = (_read_number(group / f"cpu.cfs_{name}_us") for name in ("quota", "period"))  # version 1
        if quota and period and quota > 0:
            yield quota / period


def _read_number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _read_named_numbers(path: Path) -> dict[str, int]:
    try:
        return {name: int(value) for name, value in (line.split() for line in path.read_text().splitlines())}
    except (OSError, ValueError):
        return {}


def describe_host() -> dict:
    """Host facts for a device record: operating system, Python, CPU and memory."""
    import psutil

    return {
        "os": platform.platform(),
        "python": platform.python_version(),
        "cpu": cpu_name(),
        "cores_usable": usable_core_count(),
        "memory_total_bytes": psutil.virtual_memory().total,
    }
