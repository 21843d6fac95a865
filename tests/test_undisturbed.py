"""What ran next to a timed block, and the limits of a container, by readings that the tests make up."""

import itertools
import math
import os
import shutil
from dataclasses import replace
from types import SimpleNamespace

import psutil
import pytest
from factories import FakeDevice
from records_factory import load_next_to

from roofline.core.disturbance import DISTURBANCE_LIMITS, find_disturbances
from roofline.devices import host
from roofline.devices.host import HostUsage
from roofline.measure import undisturbed as module
from roofline.measure.undisturbed import contention_between, repeat_until_undisturbed

CORES, GB = 8, 10**9
START = HostUsage(monotonic_s=100.0, own_s=1.0, busy_s=50.0, idle_s=200.0, stolen_s=1.0, waited_s=0.5, throttled_s=0.0)


def after(**seconds) -> HostUsage:
    """Two seconds later, of which this process worked one, unless said otherwise."""
    spent = {"monotonic_s": 2.0, "own_s": 1.0, "busy_s": 1.0, "idle_s": 15.0, "stolen_s": 0.0, "waited_s": 0.0}
    spent |= {"throttled_s": 0.0} | seconds
    return HostUsage(**{name: getattr(START, name) + value for name, value in spent.items()})


def test_shares_of_the_time_between_two_readings():
    later = after(busy_s=5.0, stolen_s=1.6, waited_s=1.0, throttled_s=0.5)
    contention = contention_between(START, later, CORES, [0, 2, None])
    assert (contention.wall_s, contention.own_cores, contention.other_cores) == (2.0, 0.5, 2.0)
    assert (contention.stolen_share, contention.waiting_share) == pytest.approx((0.1, 0.5))
    assert contention.quota_throttled_share == pytest.approx(0.25)
    assert contention.other_processes == 2
    shorter_than_a_tick = contention_between(START, after(monotonic_s=0.002, own_s=0.002, stolen_s=0.5), CORES, [])
    assert shorter_than_a_tick.stolen_share == 1.0


def test_what_the_system_does_not_tell_is_null_and_disturbs_nothing():
    earlier, later = HostUsage(monotonic_s=1.0, own_s=0.0), HostUsage(monotonic_s=3.0, own_s=1.0)
    contention = contention_between(earlier, later, CORES, [None, None])
    unknown = ("other_cores", "waiting_share", "stolen_share", "quota_throttled_share", "other_processes")
    assert [getattr(contention, name) for name in unknown] == [None] * 5
    assert [find_disturbances(contention, sensitivity) for sensitivity in DISTURBANCE_LIMITS] == [[], [], []]
    zeros = {"busy_s": 0.0, "idle_s": 0.0, "stolen_s": 0.0}  # a file of zeros, as some containers have it
    contention = contention_between(
        HostUsage(monotonic_s=1.0, own_s=0.0, **zeros), HostUsage(monotonic_s=2.0, own_s=0.9, **zeros), CORES, []
    )
    assert (contention.other_cores, contention.stolen_share) == (None, None)


@pytest.mark.parametrize(
    ("fields", "disturbed"),
    [
        ({}, []),
        ({"other_cores": 1}, ["cpu"]),
        ({"other_cores": 7}, ["cpu", "caller"]),
        ({"waiting_share": 0.5}, ["cpu", "caller"]),
        ({"other_processes": 1}, ["cpu", "caller", "device"]),
    ],
)
def test_each_kind_of_block_is_disturbed_by_what_it_is_sensitive_to(fields, disturbed):
    assert [kind for kind in DISTURBANCE_LIMITS if find_disturbances(load_next_to(**fields), kind)] == disturbed


# ---------------------------------------------------------------- reading the host


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A host of four CPUs, of which this process may use two; the files that it reads, to be changed."""
    monkeypatch.setenv(host.HOST_ROOT_VARIABLE, str(tmp_path))
    monkeypatch.setattr(host, "usable_cpus", lambda: {0, 2})

    def write(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    return write


def test_the_host_is_read_for_the_cpus_that_this_process_may_use(system, monkeypatch):
    monkeypatch.setattr(host.os, "sysconf", lambda name: 100)
    lines = [f"cpu{number} {number + 1}00 0 50 800 20 0 30 40 90 0" for number in range(4)]
    system("proc/stat", "\n".join(["cpu 1 2 3 4 5 6 7 8 9 10", *lines, "intr 5", ""]))
    system("proc/self/task/1/schedstat", "123 2000000000 5\n")
    system("proc/self/task/2/schedstat", "123 500000000 5\n")
    system("sys/fs/cgroup/cpu.stat", "usage_usec 5\nthrottled_usec 250000\n")
    usage = host.read_usage()
    assert (usage.busy_s, usage.idle_s, usage.stolen_s) == (1 + 3 + 2 * 0.5 + 2 * 0.3, 2 * 8.2, 2 * 0.4)
    assert (usage.waited_s, usage.throttled_s) == (2.5, 0.25)


def test_throttling_is_read_of_both_versions_and_of_groups_around(system):
    system("proc/self/cgroup", "2:cpu,cpuacct:/a/b\n0::/c\n")
    system("sys/fs/cgroup/cpu/a/b/cpu.stat", "nr_periods 3\nthrottled_time 500000000\n")
    system("sys/fs/cgroup/cpu/a/cpu.stat", "throttled_time 250000000\n")
    system("sys/fs/cgroup/c/cpu.stat", "throttled_usec 1000000\n")
    assert host.read_usage().throttled_s == 1.75


def other(system, number: int, nanoseconds: tuple, ended_ticks: int = 0) -> None:
    """A process that is not of this run: what each of its threads used, and its children that have ended."""
    system(f"proc/{number}/stat", f"{number} (a) b) S 1 {'0 ' * 9}0 0 {ended_ticks} 0 20 0 2 0")
    for thread, used in enumerate(nanoseconds, start=number):
        system(f"proc/{number}/task/{thread}/children", "")
        system(f"proc/{number}/task/{thread}/schedstat", f"{used} 0 1\n")


def test_what_others_use_is_summed_by_task_and_not_by_ticks(system, tmp_path, monkeypatch):
    """Threads that begin in between, and children that begin and end; not what a child used before."""
    monkeypatch.setattr(host.os, "sysconf", lambda name: 100)
    system("proc/self/task/1/schedstat", "0 0 1\n")
    other(system, 50, (3 * 10**9,))
    other(system, 60, (8 * 10**9,))
    before = replace(START, other_processes=host.read_usage().other_processes)
    other(system, 50, (4 * 10**9, 10**9 // 2), ended_ticks=950)  # it waited for 60, which used 9.5 s in all
    shutil.rmtree(tmp_path / "proc/60")
    after_all = replace(after(busy_s=16.0), other_processes=host.read_usage().other_processes)
    assert contention_between(before, after_all, CORES, []).other_cores == pytest.approx((1 + 0.5 + 1.5) / 2)
    quiet = replace(after(busy_s=16.0), other_processes=before.other_processes)
    assert contention_between(before, quiet, CORES, []).other_cores == 0


@pytest.mark.parametrize(
    ("files", "cores", "available"),  # files below /sys/fs/cgroup; "own": the group's path
    [
        ({}, 8, 64),
        ({"cpu.max": "max 100000", "memory.max": "max", "memory.current": 9 * GB}, 8, 64),
        ({"cpu.max": "400000 100000", "memory.max": 16 * GB, "memory.current": 9 * GB}, 4, 7),
        ({"cpu.max": "250000 100000"}, 2.5, 64),
        # Groups of a Slurm job or of systemd-run, and those around them; a container's own is the outermost in sight.
        ({"own": "0::/a.slice/b", "a.slice/b/cpu.max": "50000 100000", "a.slice/cpu.max": "200000 100000"}, 0.5, 64),
        ({"own": "0::/a/b", "a/cpu.max": "200000 100000", "a/b/memory.max": 5 * GB, "a/b/memory.current": GB}, 2, 4),
        (
            {"own": "4:cpuacct,cpu:/job\n0::/", "cpu/job/cpu.cfs_quota_us": 150, "cpu/job/cpu.cfs_period_us": 100},
            1.5,
            64,
        ),
        ({"own": "3:cpu:/docker/1", "cpu/cpu.cfs_quota_us": 300, "cpu/cpu.cfs_period_us": 100}, 3, 64),
        # Files that its processes once read count as used but can be dropped: an installation reads gigabytes.
        ({"memory.max": 16 * GB, "memory.current": 9 * GB, "memory.stat": f"anon 5\ninactive_file {4 * GB}"}, 8, 11),
        # Version 1
        ({"cpu/cpu.cfs_quota_us": 300_000, "cpu/cpu.cfs_period_us": 100_000}, 3, 64),
        ({"cpu/cpu.cfs_quota_us": -1, "cpu/cpu.cfs_period_us": 100_000}, 8, 64),
        ({"memory/memory.limit_in_bytes": 16 * GB, "memory/memory.usage_in_bytes": 9 * GB}, 8, 7),
        ({"memory/memory.limit_in_bytes": 2**63 - 4096, "memory/memory.usage_in_bytes": 9 * GB}, 8, 64),
    ],
)
def test_cores_and_memory_within_the_limits_of_the_container(tmp_path, monkeypatch, files, cores, available):
    """Of eight cores and 64 GB, by what the files of its control group say."""
    for name, text in files.items():
        path = tmp_path / ("proc/self/cgroup" if name == "own" else f"sys/fs/cgroup/{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    monkeypatch.setattr(host, "SYSTEM_ROOT", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=64 * GB))
    assert (host.core_allowance(), host.memory_available_bytes()) == (cores, available * GB)
    assert host.usable_core_count() == math.ceil(cores)


@pytest.mark.parametrize("siblings", [2, 1])
def test_a_virtual_machine_says_whether_its_cores_are_threads_whatever_the_quota(tmp_path, monkeypatch, siblings):
    monkeypatch.setenv(host.HOST_ROOT_VARIABLE, str(tmp_path))
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    monkeypatch.setattr(host, "_read_cpu_quotas", lambda: [2.0])
    for cpu in range(8):
        (host.cpu_folder(cpu) / "topology").mkdir(parents=True)
        listed = f"{cpu - cpu % 2}-{cpu - cpu % 2 + 1}" if siblings == 2 else f"{cpu}"
        (host.cpu_folder(cpu) / "topology" / "thread_siblings_list").write_text(f"{listed}\n")
    assert host.hides_threads({"flags": "fpu hypervisor"}) == (siblings == 1)


# ---------------------------------------------------------------- measured again


def readings(monkeypatch, *loads: float) -> list[float]:
    """The host's readings around each block of a second, with so many cores' load of others during it; returns the
    rests between them."""
    usages, now_s, busy_s, quiet = [], 0.0, 0.0, {"idle_s": 0, "stolen_s": 0}
    for load in loads:
        usages.append(HostUsage(monotonic_s=now_s, own_s=now_s, busy_s=busy_s, **quiet))
        usages.append(HostUsage(monotonic_s=now_s + 1, own_s=now_s + 1, busy_s=busy_s + 1 + load, **quiet))
        now_s, busy_s = now_s + 1, busy_s + 1 + load
    upcoming, rests, now = iter(usages), [], itertools.count()
    fake = SimpleNamespace(read_usage=lambda list_other_processes: next(upcoming), usable_cpus=lambda: range(8))
    monkeypatch.setattr(module, "host", fake)
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=rests.append, monotonic=lambda: next(now) / 100))
    monkeypatch.setattr(module, "spent_on_repeats_s", 0.0)
    return rests


@pytest.mark.parametrize(
    ("kind", "loads", "times", "result_kept", "other_cores"),
    [
        ("cpu", [0], [5], 5, 0),
        ("cpu", [2, 0], [5, 6], 6, 0),  # undisturbed, if slower
        ("cpu", [2, 1, 2, 2], [5, 6, 4, 9], 4, 2),  # all disturbed: the fastest
        ("gpu", [2], [5], 5, 2),
        ("gpu", [7, 0], [5, 4], 4, 0),
    ],
)
def test_a_disturbed_block_is_timed_again_after_a_rest(monkeypatch, kind, loads, times, result_kept, other_cores):
    rests = readings(monkeypatch, *loads)
    upcoming = iter(times)
    result, contention = repeat_until_undisturbed(FakeDevice(kind), lambda: next(upcoming), float)
    assert (result, contention.attempts) == (result_kept, len(loads))
    assert contention.other_cores == pytest.approx(other_cores)
    assert list(upcoming) == []
    assert rests == [0.1 * 2**index for index in range(len(loads) - 1)]


def test_load_that_no_process_list_shows_is_told_by_idle_time():
    """Two seconds on eight CPUs: idle for 9 of 16, stolen 0.4; this process worked one, its run 0.2, others 0.5."""
    running = host.OtherProcesses({}, 0.0)
    ended = replace(running, ended_s=0.5)
    before = replace(START, other_processes=running, run_s=1.0)
    later = replace(after(busy_s=7.0, idle_s=9.0, stolen_s=0.4), other_processes=ended, run_s=1.2)
    contention = contention_between(before, later, CORES, [])
    assert (contention.other_cores, contention.hidden_cores) == pytest.approx((0.25, 2.45))
    assert any("not visible" in line for line in find_disturbances(contention, "cpu"))
    short = contention_between(replace(before, monotonic_s=START.monotonic_s + 1.5), later, CORES, [])
    assert short.hidden_cores is None, "hundredths of a second of each CPU are no measure of a short block"
