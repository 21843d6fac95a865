"""One finished run of the real workflow on the CPU and one on a stand-in for a GPU, for all tests of a session."""

import os
import shutil
from pathlib import Path

import pytest
import yaml
from small_run import SmallRun
from workflow_run import CACHE_MIB, NEWEST, TINY, GpuRun, Run, committed, made_once, new_checkout, new_gpu_run

from roofline.devices import host
from roofline.run.archive import unpacked

SLOW = "archive calibration crate experiments health health_command install layers module_use outliers pictures"
SLOW += " reference report_page staleness two_cards"
RUNS = {"finished_run", "gpu_run", "cluster"}


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items):
    """Mark slow tests. One of two workers starts with the run on the CPU, the other with Slurm, which mostly waits, and
    the run on a stand-in GPU: neither waits for the other. Fast tests come last, so that both end at about once."""
    for item in items:
        if RUNS & {*item.fixturenames} or item.module.__name__.removeprefix("test_") in SLOW.split():
            item.add_marker("slow")
    yield  # pytest deselects
    of_cpu = [item for item in items if "finished_run" in item.fixturenames]
    of_gpu = [item for name in ("cluster", "gpu_run") for item in items if name in item.fixturenames]
    others = [item for item in items if item not in of_cpu and item not in of_gpu]
    slow = [item for item in others if {"slow", "browser"} & {*item.keywords}]
    fast = [item for item in others if item not in slow]
    half = max(0, len(items) // 2 - len(of_cpu) - len(slow) // 2)
    first, second = slow[: len(slow) // 2], slow[len(slow) // 2 :]
    items[:] = [*of_cpu, *first, *fast[:half], *of_gpu, *second, *fast[half:]]


@pytest.fixture(scope="session", autouse=True)
def small_quiet_host(tmp_path_factory) -> None:
    """The host that tests and the jobs they start see: nothing is known of its load, and its cache is small. With one
    of hundreds of MiB, most of a tiny run would be the first touch of gigabytes."""
    root = tmp_path_factory.mktemp("host")
    for number in host.usable_cpus():
        cache = root / f"sys/devices/system/cpu/cpu{number}/cache/index3"
        cache.mkdir(parents=True)
        for name, text in ("level", "3"), ("type", "Unified"), ("size", f"{CACHE_MIB}M"), ("shared_cpu_list", "all"):
            (cache / name).write_text(text)
    (root / "tmp").mkdir()  # for locks: workers do not wait for one another
    os.environ[host.HOST_ROOT_VARIABLE] = str(root)
    os.environ["CUPY_CACHE_DIR"] = str(root / "kernels")


@pytest.fixture(scope="session")
def newest():
    """The results folder of the newest reference run, its records unpacked. Leave it as it is."""
    with unpacked(NEWEST) as root:
        yield root / "results"


@pytest.fixture(scope="session")
def small_run(tmp_path_factory) -> SmallRun:
    """Made-up records with what follows from them. Leave it as it is."""
    made = SmallRun(tmp_path_factory.mktemp("small"))
    made.write_manifest()
    return made


@pytest.fixture(scope="session")
def finished_run(small_quiet_host, tmp_path_factory) -> Run:
    """A finished run of a tiny configuration in a clean repository. Leave it as it is: `run` is a copy to change."""

    def make(folder: Path) -> None:
        Run(committed(new_checkout(folder, yaml.safe_dump(TINY, sort_keys=False)))).finish()

    return Run(made_once(tmp_path_factory, "finished-run", make))


@pytest.fixture
def run(finished_run, tmp_path) -> Run:
    """A copy of the finished run, .snakemake and the times of all files included."""
    return Run(Path(shutil.copytree(finished_run.root, tmp_path / "checkout", symlinks=True)))


@pytest.fixture(scope="session")
def gpu_run(small_quiet_host, tmp_path_factory) -> GpuRun:
    """A finished run on a stand-in for a GPU, counters included. Leave it as it is."""
    return GpuRun(made_once(tmp_path_factory, "gpu-run", lambda folder: new_gpu_run(folder).make().check_returncode()))
