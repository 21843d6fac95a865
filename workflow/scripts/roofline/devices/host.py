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
from roofline.core.formatting import join_words
from roofline.core.terms import make_printable
from roofline.records.files import read_yaml

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
SYSTEM_ROOT = Path("/")
ARM_CORES = Path(__file__).with_name("arm_cores.yaml")
MODEL_KEYS = ("model name", "Model Name", "cpu", "cpu model", "uarch")  # x86, LoongArch, POWER, MIPS, RISC-V
# By version of control groups: the files of the memory limit and of the memory used, and the statistic of the memory
# that can be dropped.
MEMORY_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
THROTTLED_UNITS = {"throttled_usec": 1e6, "throttled_time": 1e9}  # statistics by version, and their units per second
HOST_ROOT_VARIABLE = "ROOFLINE_HOST"  # the environment variable with a folder for load, caches and locks instead of /


def usable_core_count() -> int:
    """Return the number of threads that use all the CPU time that this process may have."""
    return math.ceil(core_allowance())


def core_allowance() -> float:
    """Return the cores that this process may use, by its affinity mask and the CPU quotas of its control groups.

    A quota may be a fraction of a core.
    """
    return min([len(usable_cpus()), *_read_cpu_quotas()])


def usable_cpus() -> set[int]:
    """Return the numbers of the CPUs (threads of cores) that this process may run on."""
    return os.sched_getaffinity(0)


@contextlib.contextmanager
def pin_to_cpu(number: int) -> Iterator[None]:
    """Let the calling thread run on this CPU alone until the block ends."""
    usual_cpus = usable_cpus()
    os.sched_setaffinity(0, {number})
    try:
        yield
    finally:
        os.sched_setaffinity(0, usual_cpus)


def cpu_folder(number: int) -> Path:
    """Return the folder in which the kernel lists the facts of a CPU."""
    return _root() / "sys" / "devices" / "system" / "cpu" / f"cpu{number}"


def physical_cores() -> float:
    """Return the cores that this process may use; threads of one core count once, if the system lists them."""
    return min(core_allowance(), len({_read_siblings(cpu) for cpu in usable_cpus()}))


def hides_threads(cpuinfo: Mapping[str, str]) -> bool:
    """Return whether cores may be threads of fewer cores, as in a virtual machine that lists no siblings."""
    is_virtual = "hypervisor" in cpuinfo.get("flags", "").split()
    return is_virtual and all(_read_siblings(cpu) == str(cpu) for cpu in usable_cpus())


def use_all_cores() -> int:
    """Set the BLAS to every usable core, before NumPy is imported, and return their number.

    Snakemake hands a job OMP_NUM_THREADS = its declared threads, 1 on a one-core run.
    """
    cores = usable_core_count()
    for variable in THREAD_VARIABLES:
        os.environ[variable] = str(cores)
    return cores


def memory_available_bytes() -> int:
    """Return the memory that can be allocated now, by the system and within the limits of the control groups."""
    import psutil

    available = psutil.virtual_memory().available
    for group in _control_groups("memory", SYSTEM_ROOT):
        for limit_file, used_file, droppable in MEMORY_FILES:
            limit = _read_number(group / limit_file)
            if limit is not None:
                used = _read_number(group / used_file) or 0
                # Cached files count as used memory, and the kernel drops them when memory is needed.
                dropped = _read_named_numbers(group / "memory.stat").get(droppable, 0)
                available = min(available, limit - used + dropped)
    return available


def count_oom_kills() -> int:
    """Return how many processes the kernel has killed because the system or a control group was out of memory."""
    return _read_named_numbers(SYSTEM_ROOT / "proc" / "vmstat").get("oom_kill", 0)


def cpu_name() -> str:
    """Return the model of the processor, on ARM the kinds of its cores; that it is unknown if the kernel lists neither.

    Kernels of ARM list numbers alone, those of other architectures the model under another key.
    """
    processors = _read_processors() or [{}]
    cores = dict.fromkeys(_arm_core_name(listed) for listed in processors if "CPU part" in listed)
    models = [processors[0][key] for key in MODEL_KEYS if processors[0].get(key)]
    return make_printable(join_words(cores) if cores else [*models, f"unknown {platform.machine()} CPU"][0])


def _arm_core_name(listed: Mapping[str, str]) -> str:
    implementer, part = listed.get("CPU implementer", ""), listed["CPU part"]
    with contextlib.suppress(ValueError, KeyError):
        known = read_yaml(ARM_CORES)[int(implementer, 16)]
        return f"{known['name']} {known['parts'].get(int(part, 16), f'part {part}')}"
    return f"ARM implementer {implementer} part {part}"


def read_cpuinfo() -> dict[str, str]:
    """Return the entries of the first processor in /proc/cpuinfo; none if that cannot be read."""
    return next(iter(_read_processors()), {})


def _read_processors() -> list[dict[str, str]]:
    try:
        text = (SYSTEM_ROOT / "proc" / "cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    blocks = [[line.partition(":") for line in block.splitlines()] for block in text.split("\n\n")]
    return [{key.strip(): value.strip() for key, _, value in block} for block in blocks]


@dataclass(frozen=True)
class HostUsage:
    """Seconds so far, of this process and of the CPUs that it may run on; None where the system does not report it."""

    monotonic_s: float
    own_s: float  # CPU time of all threads of this process
    busy_s: float | None = None  # CPU time of all processes, and of interrupts
    idle_s: float | None = None
    stolen_s: float | None = None  # taken by the hypervisor for other machines
    waited_s: float | None = None  # threads of this process were ready and had no CPU
    throttled_s: float | None = None  # held back by the CPU quotas of its control groups
    run_s: float | None = None  # CPU time of this run's other processes: Snakemake and the jobs that it starts
    other_processes: "OtherProcesses | None" = None  # exact, by task; None where the kernel does not count so


@dataclass(frozen=True)
class OtherProcesses:
    """CPU seconds of the tasks of every visible process outside this run, and of the children that they waited for."""

    tasks: Mapping[tuple[str, str], float]  # by process and thread
    ended_s: float

    def seconds_since(self, before: "OtherProcesses") -> float:
        """Return the seconds used since an earlier reading, also by tasks that began or ended in between.

        The time that an ended task had used by the earlier reading is in its parent's count, and is subtracted. For a
        task whose parent does not wait for it, the time used in between is missed.
        """
        running_s = sum(max(0.0, now - before.tasks.get(task, 0.0)) for task, now in self.tasks.items())
        counted_before_s = sum(then for task, then in before.tasks.items() if task not in self.tasks)
        return running_s + max(0.0, self.ended_s - before.ended_s - counted_before_s)


def read_usage(list_other_processes: bool = True) -> HostUsage:
    """Return the usage by now. To list the other processes one by one takes milliseconds."""
    root = _root()
    cpu_seconds = _read_cpu_seconds(root / "proc" / "stat")
    waits = [int(numbers.split()[1]) / 1e9 for numbers in _read_thread_files(f"{root}/proc/self", "schedstat")]
    throttled = _read_throttled_seconds(root)
    return HostUsage(
        monotonic_s=time.monotonic(),
        own_s=time.process_time(),
        waited_s=sum(waits) if waits else None,
        throttled_s=sum(throttled) if throttled else None,
        run_s=_run_seconds(root / "proc"),
        other_processes=_read_other_processes(root / "proc") if list_other_processes else None,
        **cpu_seconds,
    )


def _read_throttled_seconds(root: Path) -> list[float]:
    """Return the seconds by which CPU quotas held this process back, for each control group that counts them."""
    throttled = []
    for group in _control_groups("cpu", root):
        statistics = _read_named_numbers(group / "cpu.stat")
        throttled += [statistics[name] / unit for name, unit in THROTTLED_UNITS.items() if name in statistics]
    return throttled


def _read_other_processes(proc: Path) -> OtherProcesses | None:
    """Read the CPU time of other processes from schedstat, which counts nanoseconds.

    /proc/stat samples all CPUs at the same ticks: loops on all cores in step with them seem to be others' load, or hide
    it. A reading opens hundreds of files, so each is read with as few calls as possible.
    """
    processes_of_run = {str(os.getpid()), *_list_run_processes(proc)}
    if not any(_read_thread_files(f"{proc}/self", "schedstat")):
        return None
    tasks, ended_ticks, root = {}, 0, str(proc)
    vanished_files = contextlib.suppress(OSError, ValueError, IndexError)  # the process or thread has ended meanwhile
    for process in os.listdir(root):
        if process.isdigit() and process not in processes_of_run:
            with vanished_files:
                fields = _read_short_file(f"{root}/{process}/stat").rpartition(b") ")[2].split(None, 14)
                ended_ticks += int(fields[13]) + int(fields[14].split(None, 1)[0])
                for thread in os.listdir(f"{root}/{process}/task"):
                    with vanished_files:
                        schedstat = _read_short_file(f"{root}/{process}/task/{thread}/schedstat")
                        tasks[process, thread] = int(schedstat.split(None, 1)[0]) / 1e9
    return OtherProcesses(tasks, ended_ticks / os.sysconf("SC_CLK_TCK"))


def _read_short_file(path: str) -> bytes:
    """Return the content of one of the kernel's files, none of which is longer than 4096 bytes."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 4096)
    finally:
        os.close(file)


def _read_thread_files(process: str, name: str) -> Iterator[bytes]:
    """Yield a file of each thread of a process, except of threads that have ended meanwhile."""
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"{process}/task"):
            with contextlib.suppress(OSError):
                yield _read_short_file(f"{process}/task/{thread}/{name}")


def _list_run_processes(proc: Path) -> Iterator[str]:
    """Yield the ids of the processes of this run, the first one included."""
    first = os.environ.get(RUN_PROCESS_VARIABLE)
    unvisited = [first] if first else []
    while unvisited:
        process = unvisited.pop()
        yield process
        for children in _read_thread_files(f"{proc}/{process}", "children"):
            unvisited += children.decode().split()


def _root() -> Path:
    return Path(os.environ.get(HOST_ROOT_VARIABLE, "/"))


def _read_cpu_seconds(stat: Path) -> dict[str, float]:
    """Return busy, idle and stolen seconds of the CPUs of this process, by the fields of HostUsage; empty if unknown.

    In /proc/stat the guest times are also in the user times.
    """
    try:
        lines = [line.split() for line in stat.read_text().splitlines() if line.startswith("cpu")]
        ticks_by_cpu = {line[0]: [int(field) for field in line[1:9]] for line in lines}
        ticks = [ticks_by_cpu[f"cpu{number}"] for number in usable_cpus()]
        fields = [sum(values) / os.sysconf("SC_CLK_TCK") for values in zip(*ticks, strict=True)]
        user, nice, system, idle, iowait, irq, softirq, stolen = fields
    except (OSError, ValueError, KeyError):
        return {}
    return {"busy_s": user + nice + system + irq + softirq, "idle_s": idle + iowait, "stolen_s": stolen}


def _run_seconds(proc: Path) -> float | None:
    """Return the CPU time of the run's other processes, also of those that have ended; None outside a run."""
    if not os.environ.get(RUN_PROCESS_VARIABLE):
        return None
    ticks, this_process = 0, str(os.getpid())
    for process in _list_run_processes(proc):
        with contextlib.suppress(OSError):  # it has ended, and its parent counts it
            fields = _read_short_file(f"{proc}/{process}/stat").rpartition(b") ")[2].split()
            children = sum(map(int, fields[13:15]))
            ticks += children if process == this_process else sum(map(int, fields[11:13])) + children
    return ticks / os.sysconf("SC_CLK_TCK")


def _read_siblings(cpu: int) -> str:
    try:
        return (cpu_folder(cpu) / "topology" / "thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


@cache  # `read_usage` is called hundreds of times
def _control_groups(controller: str, root: Path) -> list[Path]:
    """Return the folders of this process's control group and of those around it, whose limits apply too.

    Both versions of control groups are listed. In a container the groups around it may be out of sight; its own is
    then the outermost.
    """
    path_by_controller = {controller: "", "": ""}  # version 2 has no name
    with contextlib.suppress(OSError, ValueError):
        for line in (root / "proc" / "self" / "cgroup").read_text().splitlines():
            _, names, path = line.split(":", 2)
            path_by_controller |= {name: path for name in names.split(",") if name in path_by_controller}
    groups = []
    for name, path in path_by_controller.items():
        top, parts = root / "sys" / "fs" / "cgroup" / name, Path(path.strip("/")).parts
        groups += [top.joinpath(*parts[:depth]) for depth in range(len(parts) + 1)]
    return groups


def _read_cpu_quotas() -> Iterator[float]:
    """Yield the CPU quotas of the control groups, in cores."""
    for group in _control_groups("cpu", SYSTEM_ROOT):
        with contextlib.suppress(OSError, ValueError):  # 'max' is not a number
            quota, period = map(int, (group / "cpu.max").read_text().split())
            yield quota / period
        quota_us = _read_number(group / "cpu.cfs_quota_us")  # version 1
        period_us = _read_number(group / "cpu.cfs_period_us")
        if quota_us and period_us and quota_us > 0:
            yield quota_us / period_us


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
    """Return the host facts of a device record: operating system, Python, CPU and memory."""
    import psutil

    return {
        "os": platform.platform(),
        "python": platform.python_version(),
        "cpu": cpu_name(),
        "cores_usable": usable_core_count(),
        "memory_total_bytes": psutil.virtual_memory().total,
    }
