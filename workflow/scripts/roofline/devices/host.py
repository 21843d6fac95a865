"""The host: which cores and how much memory this process may use, whatever the machine has."""

import math
import os
import platform
from pathlib import Path

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
CPUS = Path("/sys/devices/system/cpu")
CGROUP = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Cores of this process: its affinity mask, and no more than its container's CPU quota."""
    cores, quota = len(usable_cpus()), _cpu_quota()
    return max(1, min(cores, math.ceil(quota))) if quota else cores


def usable_cpus() -> set[int]:
    """The numbers of the CPUs (threads of cores) that this process may run on."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def physical_cores() -> int:
    """The same with the threads of one core counted once, as far as the system tells which they are."""
    return min(usable_cores(), len({_siblings(cpu) for cpu in usable_cpus()}))


def use_all_cores() -> int:
    """Tell the BLAS to use every usable core. Call before NumPy is imported; returns the number.

    Workflow engines hand a job OMP_NUM_THREADS = its declared threads, 1 on a one-core run; a CPU roofline
    from one of many cores would be wrong.
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
    cached = _cgroup_statistic("memory.stat", "inactive_file")
    if limit is None:  # version 1 of control groups
        limit, used = (_cgroup_number(f"memory/memory.{name}_in_bytes") for name in ("limit", "usage"))
        cached = _cgroup_statistic("memory/memory.stat", "total_inactive_file")
    # Files that were read and not used since count as used, and are let go where memory is wanted.
    return int(min(available, limit - (used or 0) + cached) if limit else available)


def cpu_name() -> str:
    """The processor's model name as the kernel tells it."""
    return proc_cpuinfo().get("model name") or platform.processor() or platform.machine() or "unknown CPU"


def proc_cpuinfo() -> dict[str, str]:
    """What /proc/cpuinfo says of the first processor; nothing where there is no such file."""
    try:
        first = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}


def _siblings(cpu: int) -> str:
    try:
        return (CPUS / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text().strip()
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


def _cgroup_statistic(file: str, name: str) -> int:
    try:
        return int(dict(line.split() for line in (CGROUP / file).read_text().splitlines())[name])
    except (OSError, ValueError, KeyError):
        return 0


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
