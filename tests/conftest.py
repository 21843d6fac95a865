"""One finished run of the real workflow on the CPU, and a copy of it for each test to change."""

import os
import shutil
from pathlib import Path

import pytest
import yaml
from workflow_run import TINY, UNKNOWN_HOST, Run, committed, made_once, new_checkout

from roofline.devices import host

# What else runs on this machine is no concern of a test: jobs that tests start inherit it.
os.environ[host.LOAD] = str(UNKNOWN_HOST)


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory) -> Run:
    """A finished run of a tiny configuration in a clean repository. Leave it as it is: `run` is a copy to change."""

    def make(folder: Path) -> None:
        Run(committed(new_checkout(folder, yaml.safe_dump(TINY, sort_keys=False)))).finish()

    return Run(made_once(tmp_path_factory, "finished-run", make))


@pytest.fixture
def run(finished_run, tmp_path) -> Run:
    """A copy of the finished run, .snakemake and the times of all files included."""
    return Run(Path(shutil.copytree(finished_run.root, tmp_path / "checkout", symlinks=True)))
