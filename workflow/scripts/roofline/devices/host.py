"""The host: which cores and how much memory this process may use, whatever the machine has."""

import contextlib
import math
import os
import platform
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from roofline.core.disturbance import RUN_PROCESS

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
CGROUP = Path("/sys/fs/cgroup")
ROOT = "ROOFLINE_HOST"  # names a folder that is read for load (`usage`) and caches in place of the system's /


def usable_cores() -> int:
    """Cores of this process: its affinity mask, and no more than its container's CPU quota."""
    cores, quota = len(usable_cpus()), _cpu_quota()
    return max(1, min(cores, math.ceil(quota))) if quota else cores


def usable_cpus() -> set[int]:
    """The numbers of the CPUs (threads of cores) that this process may run on."""
    return os.sched_getaffinity(0)


@contextlib.contextmanager
def on_cpu(number: int) -> Iterator[None]:
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


def physical_cores() -> int:
    """The same with the threads of one core counted once, if the system lists which they are."""
    return min(usable_cores(), len({_siblings(cpu) for cpu in usable_cpus()}))


def use_all_cores() -> int:
    """Set the BLAS to every usable core, before NumPy is imported; returns the number.

    Snakemake hands a job OMP_NUM_THREADS = its declared threads, 1 on a one-core run.
    """
    cores = usable_cores()
    for variable in THREAD_VARIABLES:
        os.environ[variable] = str(cores)
    return cores


def memory_available_bytes() -> int:
    """Memory that can be allocated now: what the system has available, within the container's limit."""
    import psutil

    available = psutil.virtual_memory().available
    limit, used = _cgroup_number("memory.max"), _cgroup_number("memory.current")
    cached = _named_numbers(CGROUP / "memory.stat").get("inactive_file", 0)
    if limit is None:  # version 1 of control groups
        limit, used = (_cgroup_number(f"memory/memory.{name}_in_bytes") for name in ("limit", "usage"))
        cached = _named_numbers(CGROUP / "memory" / "memory.stat").get("total_inactive_file", 0)
    # Files that were read and not used since count as used, and are let go where memory is wanted.
    return int(min(available, limit - (used or 0) + cached) if limit else available)


def cpu_name() -> str:
    """The model of the processor; the architecture of an ARM host, whose kernel lists none."""
    return proc_cpuinfo().get("model name", platform.machine())


def proc_cpuinfo() -> dict[str, str]:
    """What /proc/cpuinfo lists of the first processor."""
    first = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}


@dataclass(frozen=True)
class Usage:
    """Seconds so far, of this process and of the CPUs that it may run on; None where the system does not tell."""

    at: float  # by a monotonic clock
    own: float  # CPU time of all threads of this process
    busy: float | None = None  # CPU time of all processes, and of interrupts
    idle: float | None = None
    stolen: float | None = None  # by the hypervisor, for other machines
    waited: float | None = None  # that threads of this process could have run and had no CPU
    throttled: float | None = None  # by the container's CPU quota
    run: float | None = None  # CPU time of this run's other processes: Snakemake and the jobs that it starts
    others: "Others | None" = None  # exact, by task; None where the kernel does not count so


@dataclass(frozen=True)
class Others:
    """CPU seconds of the tasks of every visible process outside this run, and of children that these waited for."""

    tasks: Mapping[tuple[str, str], float]  # by process and thread
    ended: float

    def since(self, before: "Others") -> float:
        """Seconds used since an earlier reading, by tasks that began or ended in between too.

        What an ended task had used by the earlier reading is in its parent's count, and is taken off; of tasks that
        have no waiting parent what they used in between is missed.
        """
        used = sum(max(0.0, now - before.tasks.get(task, 0.0)) for task, now in self.tasks.items())
        gone = sum(then for task, then in before.tasks.items() if task not in self.tasks)
        return used + max(0.0, self.ended - before.ended - gone)


def usage(others: bool = True) -> Usage:
    """Now. Without `others` those are not looked for one by one, which takes milliseconds."""
    root = _root()
    cpus = _cpu_seconds(root / "proc" / "stat")
    waits = [int(numbers.split()[1]) / 1e9 for numbers in _of_threads(f"{root}/proc/self", "schedstat")]
    statistics = _named_numbers(root / "sys" / "fs" / "cgroup" / "cpu.stat")
    return Usage(
        at=time.monotonic(),
        own=time.process_time(),
        waited=sum(waits) if waits else None,
        throttled=statistics["throttled_usec"] / 1e6 if "throttled_usec" in statistics else None,
        run=_run_seconds(root / "proc"),
        others=_others(root / "proc") if others else None,
        **cpus,
    )


def _others(proc: Path) -> Others | None:
    """By schedstat, which counts nanoseconds. /proc/stat samples all CPUs at the same ticks: loops on all cores in step
    with them seem to be others' load, or hide it. Hundreds of files at every reading, so read without any comfort."""
    own = {str(os.getpid()), *_run_processes(proc)}
    if not any(_of_threads(f"{proc}/self", "schedstat")):
        return None
    tasks, ended, root = {}, 0, str(proc)
    gone = contextlib.suppress(OSError, ValueError, IndexError)  # what has ended meanwhile
    for process in os.listdir(root):
        if process.isdigit() and process not in own:
            with gone:
                fields = _bytes(f"{root}/{process}/stat").rpartition(b") ")[2].split(None, 14)
                ended += int(fields[13]) + int(fields[14].split(None, 1)[0])
                for thread in os.listdir(f"{root}/{process}/task"):
                    with gone:
                        spent = _bytes(f"{root}/{process}/task/{thread}/schedstat")
                        tasks[process, thread] = int(spent.split(None, 1)[0]) / 1e9
    return Others(tasks, ended / os.sysconf("SC_CLK_TCK"))


def _bytes(path: str) -> bytes:
    """Of a file of the kernel's, which is short."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 4096)
    finally:
        os.close(file)


def _of_threads(process: str, name: str) -> Iterator[bytes]:
    """A file of each thread of a process; without those that have ended meanwhile. A job reads them hundreds of times,
    so without any comfort too."""
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"{process}/task"):
            with contextlib.suppress(OSError):
                yield _bytes(f"{process}/task/{thread}/{name}")


def _run_processes(proc: Path) -> Iterator[str]:
    """The processes of this run, the first one included, by their numbers."""
    left = [first] if (first := os.environ.get(RUN_PROCESS)) else []
    while left:
        number = left.pop()
        yield number
        for children in _of_threads(f"{proc}/{number}", "children"):
            left += children.decode().split()


def _root() -> Path:
    return Path(os.environ.get(ROOT, "/"))


def _cpu_seconds(stat: Path) -> dict[str, float]:
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
    if not os.environ.get(RUN_PROCESS):
        return None
    ticks, own = 0, str(os.getpid())
    for number in _run_processes(proc):
        with contextlib.suppress(OSError):  # it has ended, and its parent counts it
            fields = _bytes(f"{proc}/{number}/stat").rpartition(b") ")[2].split()
            ticks += sum(map(int, fields[13:15] if number == own else fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _siblings(cpu: int) -> str:
    try:
        return (cpu_folder(cpu) / "topology" / "thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def _cpu_quota() -> float | None:
    try:
        quota, period = (CGROUP / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        quota, period = (_cgroup_number(f"cpu/cpu.cfs_{name}_us") for name in ("quota", "period"))  # version 1
        return quota / period if quota and period and quota > 0 else None


def _cgroup_number(name: str) -> int | None:
    try:
        return int((CGROUP / name).read_text())
    except (OSError, ValueError):
        return None


def _named_numbers(path: Path) -> dict[str, int]:
    try:
        return {name: int(value) for name, value in (line.split() for line in path.read_text().splitlines())}
    except (OSError, ValueError):
        return {}


def describe() -> dict:
    """Host facts for a device record: operating system, Python, CPU and memory."""
    import psutil

    return {
        "os": platform.platform(),
        "python": platform.python_version(),
        "cpu": cpu_name(),
        "cores_usable": usable_cores(),
        "memory_total_bytes": psutil.virtual_memory().total,
    }
