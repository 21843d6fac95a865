"""The cores, caches and memory that this process may use, also within a container."""

import os
from types import SimpleNamespace

import psutil
import pytest

from roofline.devices import host

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
