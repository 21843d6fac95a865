"""A run that is ended from outside, at any moment: nothing of it goes on, and nobody sees a traceback."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml
from workflow_run import TINY, new_checkout, surroundings

PATIENCE_S = 60
RUN = [sys.executable, "-P", "workflow/commands/run.py", "results/cpu/peak_flops/fp32.json"]
MOMENTS = {  # the file that is there by then
    "run.py imports": "Snakefile",
    "Snakemake imports": ".snakemake",
    "a job imports": ".snakemake/roofline-run.lock",
    "a job runs": "logs/cpu/device_query.log",
}


def processes(folder: Path) -> list[int]:
    found = psutil.process_iter(["cwd", "status"])
    return [one.pid for one in found if one.info["cwd"] == str(folder) and one.info["status"] != psutil.STATUS_ZOMBIE]


def wait_until(true) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
@pytest.mark.parametrize("way", ["Ctrl-C", "kill -9 of make"])
def test_nothing_goes_on_and_nothing_is_traced(tmp_path, way, moment):
    root = new_checkout(tmp_path / "run", yaml.safe_dump(TINY, sort_keys=False))
    by_make = [sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])", *RUN]
    maker = subprocess.Popen(
        by_make if way != "Ctrl-C" else RUN,
        cwd=root,
        env=surroundings() | {"MAKELEVEL": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    wait_until((root / moment).exists)
    time.sleep(0.2)
    if way == "Ctrl-C":
        os.killpg(maker.pid, signal.SIGINT)
    else:
        maker.kill()
    said = maker.communicate(timeout=PATIENCE_S)[0]
    assert "Traceback" not in said and maker.returncode == (130 if way == "Ctrl-C" else -signal.SIGKILL)
    wait_until(lambda: not processes(root))
    assert not (root / "results/cpu/peak_flops/fp32.json").exists()
