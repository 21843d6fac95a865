"""`make health`, whole: by Snakemake on a stand-in of known rates, and on the card itself."""

import contextlib
import json
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from commands import load
from fake_gpu import is_open
from test_gpu_workflow import GpuRun
from workflow_run import CHECKOUT, TINY, new_checkout

from roofline.analysis.checks.conditions import ALONE, QUIET, UNUSED
from roofline.run.jobs import job

RATES = {"read": 4600, "write": 4600, "copy": 4300, "triad": 4300, "link": 55, "fma": 65.5, "bfloat16": 800}
SETTINGS = """
peak_flops: {size: 256, iterations: 7, time_budget_s: 0.02, sustained_s: 0}
bandwidth: {transfer_size_mib: 1, iterations: 7, time_budget_s: 0.01}
health: {repeat_s: 0.05}
"""
HEALTH = load("health")
BUSY = """
import cupy
a = cupy.ones((8192, 8192), "float32")
while True:
    cupy.matmul(a, a)
    cupy.cuda.Device().synchronize()
"""


@pytest.fixture
def checkout(tmp_path) -> GpuRun:
    run = GpuRun(new_checkout(tmp_path / "checkout", "devices: [cpu]\n"))
    (run.root / "tiny.yaml").write_text(SETTINGS)
    run.environment = run.environment | {"FAKE_RATES": json.dumps(RATES), "FAKE_LINK": "5,16"}
    run.environment |= {"FAKE_FREE_BYTES": "1300000000"}  # an L2 is taken for the largest there is: less is refused
    return run


def health(run, *arguments, **environment):
    command = ("workflow/commands/health.py", *arguments, "--configfile", "tiny.yaml")
    return run.python(*command, env=environment)


def test_without_a_gpu_it_cannot_tell(tmp_path):
    run = GpuRun(new_checkout(tmp_path / "checkout", str(TINY)))
    done = run.python("workflow/commands/health.py", env={"FAKE_GPUS": "", "CUDA_VISIBLE_DEVICES": ""})
    assert (done.returncode, done.stdout) == (2, "no NVIDIA GPU is visible on this machine\n")


@pytest.mark.parametrize("heat", ["much", "1", "1e9"])
def test_heat_is_a_number_of_seconds_and_else_told_in_a_line(checkout, heat):
    done = health(checkout, "--heat", heat)
    assert done.returncode == 2 and done.stdout.startswith("HEAT: ") and len(done.stdout.splitlines()) == 1


def test_a_device_that_is_not_there_is_told_in_a_line(checkout):
    done = health(checkout, "--devices", "gpu7")
    assert (done.returncode, done.stdout) == (2, "DEVICES: gpu7 is no GPU of this machine; allowed: gpu0\n")


def test_of_the_config_file_its_own_section_is_taken(checkout):
    (checkout.root / "config/config.yaml").write_text("devices: [gpu9]\nhealth: {repeat_s: -1}\n")
    (checkout.root / "tiny.yaml").write_text("effort: quick\n")
    done = health(checkout)
    assert done.returncode == 2 and done.stdout.startswith("health.repeat_s: -1; allowed:")
    assert len(done.stdout.splitlines()) == 1


def test_a_card_without_fault_is_healthy(checkout):
    done = health(checkout)
    assert done.returncode == 0, done.stdout + done.stderr
    (card,) = checkout.read("health.json")["cards"]
    untold = [one["check"] for one in card["checks"] if one["result"] == "not_applicable"]
    assert card["status"] == "healthy" and QUIET in untold  # of the tests' host nothing is known
    assert {"hbm_read", "bf16", "fp32_fma", "h2d", "d2h"} <= {one["name"] for one in card["figures"]}
    assert not (checkout.results / "gpu0").exists()  # a run's own results are left alone


class CUDARuntimeError(RuntimeError):
    """As CuPy's is named."""


@pytest.mark.parametrize(
    ("error", "of_card"),
    [
        (CUDARuntimeError("cudaErrorECCUncorrectable: uncorrectable ECC error encountered"), True),
        (ArithmeticError("the copy differs from its source"), True),
        (OSError("No space left on device"), False),
    ],
)
def test_of_a_job_that_failed_it_is_told_whether_the_card_is_at_fault(monkeypatch, tmp_path, capsys, error, of_card):
    """Each is made in a process of its own: what an error leaves of a CUDA context is nobody else's."""
    monkeypatch.chdir(tmp_path)
    (HEALTH.FOLDER / "logs").mkdir(parents=True)
    paths = HEALTH.paths_of("gpu0", "bf16")
    outputs = [*(HEALTH.RESULTS / "gpu0" / f"{name}.json" for name in HEALTH.BEFORE), *paths]
    with contextlib.chdir(HEALTH.FOLDER):
        for output in outputs:
            output.parent.mkdir(parents=True, exist_ok=True)
            output.touch()
        paths[0].unlink()
        given = SimpleNamespace(rule="peak_flops", log=["logs/bf16.log"], output=[str(paths[0])])
        with pytest.raises(SystemExit), job("peak_flops gpu0 bf16", given):
            raise error
    assert "Traceback" not in capsys.readouterr().err
    told = {"peak_flops/bf16": str(error)}
    assert HEALTH.lacking("gpu0", paths, in_time=True) == ((told, {}) if of_card else ({}, told))


@pytest.mark.parametrize(("in_time", "words"), [(False, "there was no time for it"), (True, "its process died")])
def test_what_is_not_over_in_time_or_died_leaves_it_open(monkeypatch, tmp_path, in_time, words):
    monkeypatch.chdir(tmp_path)
    failed, not_measured = HEALTH.lacking("gpu0", HEALTH.paths_of("gpu0", "bf16"), in_time)
    assert failed == {} and list(not_measured) == ["device_query"] and not_measured["device_query"].startswith(words)


@pytest.mark.gpu
def test_on_the_card_alone_and_beside_a_process_that_multiplies(tmp_path):
    """An earlier test's context in this process is another process too: then alone is as much as that."""
    status, card, elapsed_s = on_the_card(tmp_path)
    assert elapsed_s < 60
    assert (status, failed(card)) == (0, {}) or (is_open() and failed(card).keys() <= {UNUSED, ALONE}), failed(card)
    with subprocess.Popen([sys.executable, "-c", BUSY]) as other:
        try:
            time.sleep(5)  # until it multiplies
            status, card, _ = on_the_card(tmp_path)
        finally:
            other.kill()
    assert (status, card["status"]) == (1, "not healthy")
    assert "of the time" in failed(card)[UNUSED]


def on_the_card(folder):
    command = [sys.executable, CHECKOUT / "workflow/commands/health.py", "--devices", "gpu0"]
    command += ["--configfile", CHECKOUT / "config/config.yaml"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=200)
    found = json.loads((folder / "results/health.json").read_text())
    return done.returncode, found["cards"][0], found["elapsed_s"]


def failed(card) -> dict[str, str]:
    return {one["check"]: one["reason"] for one in card["checks"] if one["result"] == "fail"}
