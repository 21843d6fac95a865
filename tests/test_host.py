"""The cores, caches and memory that this process may use, also within a container."""

import os
from types import SimpleNamespace

import psutil
import pytest

from roofline.devices import host
from roofline.devices.cpu import topology

GB = 10**9


@pytest.fixture
def container(tmp_path, monkeypatch):
    """Eight cores and 64 GB of memory, and what a container's control group says of them, by file."""

    def limited(files):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(f"{text}\n")

    monkeypatch.setattr(host, "CGROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=64 * GB))
    return limited


@pytest.mark.parametrize(
    ("files", "cores", "available"),
    [
        ({}, 8, 64),
        ({"cpu.max": "max 100000", "memory.max": "max", "memory.current": 9 * GB}, 8, 64),
        ({"cpu.max": "400000 100000", "memory.max": 16 * GB, "memory.current": 9 * GB}, 4, 7),
        ({"cpu.max": "250000 100000"}, 3, 64),
        # Files that its processes once read count as used but can be dropped: an installation reads gigabytes.
        ({"memory.max": 16 * GB, "memory.current": 9 * GB, "memory.stat": f"anon 5\ninactive_file {4 * GB}"}, 8, 11),
        # Version 1
        ({"cpu/cpu.cfs_quota_us": 300_000, "cpu/cpu.cfs_period_us": 100_000}, 3, 64),
        ({"cpu/cpu.cfs_quota_us": -1, "cpu/cpu.cfs_period_us": 100_000}, 8, 64),
        ({"memory/memory.limit_in_bytes": 16 * GB, "memory/memory.usage_in_bytes": 9 * GB}, 8, 7),
        ({"memory/memory.limit_in_bytes": 2**63 - 4096, "memory/memory.usage_in_bytes": 9 * GB}, 8, 64),
    ],
)
def test_cores_and_memory_within_the_limits_of_the_container(container, files, cores, available):
    container(files)
    assert (host.usable_cores(), host.memory_available_bytes()) == (cores, available * GB)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine of two sockets, each of two cores of two threads and with one L3, as the kernel lists it."""
    for number in range(8):
        socket, sibling = number % 2, (number + 4) % 8
        both = f"{min(number, sibling)},{max(number, sibling)}"
        files = {"topology/thread_siblings_list": both}
        caches = [("1", "Data", "48K", both), ("1", "Instruction", "32K", both), ("2", "Unified", "1024K", both)]
        for index, values in enumerate([*caches, ("3", "Unified", "32M", f"of {socket}")]):
            names = ("level", "type", "size", "shared_cpu_list")
            files |= {f"cache/index{index}/{name}": value for name, value in zip(names, values, strict=True)}
        for name, text in files.items():
            path = tmp_path / f"sys/devices/system/cpu/cpu{number}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
    monkeypatch.setenv(host.ROOT, str(tmp_path))
    return lambda *numbers: monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(numbers))


@pytest.mark.parametrize(
    ("numbers", "physical", "cache_mib", "order"),
    [
        (range(8), 4, 64, [0, 2, 1, 3, 4, 6, 5, 7]),  # 4 to 7 are the second threads of 0 to 3
        ((1, 5), 1, 32, [1, 5]),
        ((0, 1, 4, 5, 6), 3, 64, [0, 6, 1, 4, 5]),
    ],
)
def test_threads_of_one_core_and_its_caches_count_once(machine, numbers, physical, cache_mib, order):
    machine(*numbers)
    assert host.physical_cores() == physical
    assert topology.last_level_cache_bytes() == cache_mib << 20
    assert topology.cache_bytes() == {"l1": 48 << 10, "l2": 1 << 20, "l3": 32 << 20}
    assert topology.spread_out(host.usable_cpus()) == order


def test_where_the_kernel_lists_no_cache_a_large_one_is_assumed(tmp_path, monkeypatch):
    monkeypatch.setenv(host.ROOT, str(tmp_path))
    assert topology.last_level_cache_bytes() >= 64 << 20
    assert topology.cache_bytes() == {}
    assert host.physical_cores() == host.usable_cores()
    assert topology.spread_out(set(range(6))) == [0, 4, 2, 1, 5, 3]
