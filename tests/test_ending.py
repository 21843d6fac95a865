"""A run that is ended from outside, at any moment: nothing of it goes on, and nobody sees a traceback."""

import base64
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml
from workflow_run import CHECKOUT, TINY, heed_ctrl_c, new_checkout, surroundings

PATIENCE_S = 60
RANDOM_MOMENTS, LONGEST_S = 3, 4.0
STATUS = {  # a signal that comes while Snakemake is imported ends the process as it ends any
    "Ctrl-C": {130},
    "SIGTERM": {130, -signal.SIGTERM},
    "kill -9 of make": {-signal.SIGKILL},
    "kill -9": {-signal.SIGKILL},
}
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


def finished(root: Path) -> dict[Path, int]:
    """The records of jobs that Snakemake knows as complete, and when each was written."""
    begun = {base64.urlsafe_b64decode(path.name).decode() for path in (root / ".snakemake/incomplete").glob("*")}
    records = (path for path in (root / "results").rglob("*.json") if str(path.relative_to(root)) not in begun)
    return {path: path.stat().st_mtime_ns for path in records}


def start(root: Path, *words: str) -> subprocess.Popen:
    return subprocess.Popen(
        [*words, *RUN],
        cwd=root,
        env=surroundings() | {"MAKELEVEL": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=heed_ctrl_c,
    )


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
@pytest.mark.parametrize("way", ["Ctrl-C", "kill -9 of make", "SIGTERM", "kill -9"])
def test_nothing_goes_on_and_nothing_is_traced(tmp_path, way, moment):
    root = new_checkout(tmp_path / "run", yaml.safe_dump(TINY, sort_keys=False))
    by_make = [sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])"]
    started = start(root, *(by_make if way == "kill -9 of make" else []))
    wait_until((root / moment).exists)
    time.sleep(0.2)
    if way == "Ctrl-C":
        os.killpg(started.pid, signal.SIGINT)
    else:
        started.send_signal(signal.SIGTERM if way == "SIGTERM" else signal.SIGKILL)
    said = started.communicate(timeout=PATIENCE_S)[0]
    assert "Traceback" not in said and started.returncode in STATUS[way], said
    wait_until(lambda: not processes(root))
    assert not (root / "results/cpu/peak_flops/fp32.json").exists()


@pytest.mark.slow
def test_a_run_that_a_tool_has_started_ends_with_the_tool(tmp_path):
    code = "import json, sys; from pathlib import Path; from roofline.run import folder; "
    code += f"folder.measure({RUN[-1:]}, json.loads(sys.argv[1]), Path('run'))"
    environment = surroundings() | {"PYTHONPATH": str(CHECKOUT / "workflow/scripts")}
    tool = subprocess.Popen([sys.executable, "-c", code, json.dumps(TINY)], cwd=tmp_path, env=environment)
    wait_until((tmp_path / "run/logs/cpu/device_query.log").exists)
    tool.kill()
    tool.wait()
    wait_until(lambda: not processes(tmp_path / "run"))
    assert not (tmp_path / "run" / RUN[-1]).exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_again_and_again_is_gone_on_with(tmp_path, number):
    """At random moments: no process, no lock and no trace is left, and nothing that was finished is lost."""
    root = new_checkout(tmp_path / "run", yaml.safe_dump(TINY, sort_keys=False))
    moments = random.Random(int(number))
    for _ in range(RANDOM_MOMENTS):
        before = finished(root)
        started = start(root)
        with contextlib.suppress(subprocess.TimeoutExpired):
            started.wait(moments.uniform(0, LONGEST_S))
        started.send_signal(number)
        said = started.communicate(timeout=PATIENCE_S)[0]
        assert "Traceback" not in said
        wait_until(lambda: not processes(root))
        assert before.items() <= finished(root).items()
    assert start(root).wait(PATIENCE_S) == 0
    assert (root / "results/cpu/peak_flops/fp32.json").exists() and not list((root / "results").rglob("*.tmp"))
