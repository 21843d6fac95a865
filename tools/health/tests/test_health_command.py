"""`make health`, whole: by Snakemake on a stand-in of known rates, and on the card itself."""

import json
import subprocess
import sys
import time

import health
import pytest
from fake_gpu import is_open
from test_gpu_workflow import GpuRun
from workflow_run import CHECKOUT

from roofline import api
from roofline.analysis.checks.conditions import ALONE

COMMAND = CHECKOUT / "tools" / "health" / "health.py"
RATES = {"read": 4617, "write": 4700, "copy": 4321, "triad": 4420, "link": 55.4, "fma": 65.8, "bfloat16": 811}
# The command with measurements that take no time.
QUICK = f"""
import sys
sys.path.insert(0, {str(COMMAND.parent)!r})
import health
health.SIZE, health.USUAL_HEAT_S, health.LIMIT_S = 256, 0, 200  # others may hold the locks
health.SETTINGS["peak_flops"] = {{"size": 256, "iterations": 7, "time_budget_s": 0.02}}
health.SETTINGS["bandwidth"] |= {{"transfer_size_mib": 1, "iterations": 7, "time_budget_s": 0.01}}
sys.exit(health.main(sys.argv[1:]))
"""
BUSY = """
import cupy
a = cupy.ones((8192, 8192), "float32")
while True:
    cupy.matmul(a, a)
    cupy.cuda.Device().synchronize()
"""


@pytest.fixture
def machine(tmp_path) -> GpuRun:
    """A folder on a machine with a card; an L2 is taken for the largest there is, and needs this much memory."""
    (tmp_path / "quick.py").write_text(QUICK)
    run = GpuRun(tmp_path)
    run.environment = run.environment | {"FAKE_RATES": json.dumps(RATES), "FAKE_LINK": "5,16"}
    run.environment |= {"FAKE_FREE_BYTES": "1300000000"}
    return run


def quick(run, **environment):
    return run.python("quick.py", "--heat", "0", "--repeat", "0.05", env=environment)


def test_a_sound_card_is_healthy_and_results_are_left_alone(machine):
    mine = machine.results / "gpu0" / "device_query.json"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    done = quick(machine)
    assert done.returncode == 0, done.stdout + done.stderr
    found = machine.read("health.json")
    (card,) = found["cards"]
    assert (found["status"], card["status"], card["name"]) == ("healthy", "healthy", "NVIDIA H200")
    assert set(card["checks"][0]) == {"name", "result", "value", "limit", "reason", "action"}
    assert {"fp32_fma"} <= {one["key"] for one in card["ceilings"]}
    assert mine.read_text() == "mine"
    assert {path.name for path in machine.results.iterdir()} == {"gpu0", "health", "health.json"}


def test_a_card_that_is_not_sound_ends_with_1(machine):
    done = quick(machine, FAKE_XIDS="79", FAKE_FLIPS="20")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAIL  no Xid errors of the hardware: Xid 79 during the measurements" in done.stdout
    assert "silent corruption in" in done.stdout


def test_what_keeps_one_card_from_being_measured_is_shown(machine):
    done = quick(machine, FAKE_FREE_BYTES="1000")
    assert done.returncode == 2, done.stdout + done.stderr
    assert machine.read("health.json")["cards"][0]["status"] == "cannot tell"


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        ([], {"FAKE_GPUS": "", "CUDA_VISIBLE_DEVICES": ""}, "no NVIDIA GPU is visible on this machine"),
        (["--devices", "gpu7"], {}, "DEVICES: gpu7 is not a GPU of this machine; allowed: gpu0"),
        (["--add", "nothing"], {}, "nothing"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(machine, arguments, environment, words):
    done = machine.python(COMMAND, *arguments, env=environment)
    assert done.returncode == 2 and done.stdout.startswith(words) and len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize("arguments", [["--heat", "much"], ["--heat", "1"], ["--repeat", "1e9"]])
def test_of_times_that_are_none_the_allowed_ones_are_shown(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        health.main(arguments)
    assert stopped.value.code == 2 and "make health: error: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [(["healthy", "cannot tell", "not healthy"], 1), (["healthy", "cannot tell"], 2), (["healthy"], 0)],
)
def test_one_card_that_is_not_healthy_decides_for_all(monkeypatch, tmp_path, statuses, expected):
    monkeypatch.chdir(tmp_path)
    cards = [{"device": "", "name": "", "uuid": "", "status": one, "checks": [], "ceilings": []} for one in statuses]
    monkeypatch.setattr(health, "chosen", lambda named: {})
    monkeypatch.setattr(health, "examine", lambda *given: cards)
    assert health.main([]) == expected


def test_a_job_that_all_need_hides_what_waits_for_it():
    paths = health.targets("gpu0", "bf16")
    fatal, died = api.Failure("cudaErrorECCUncorrectable", "CUDARuntimeError"), api.Failure("its process died", "")
    failed = dict.fromkeys(paths.values(), died) | {paths["device_query"]: fatal}
    assert health.lacking("gpu0", "bf16", failed) == {"device_query": fatal}
    assert health.lacking("gpu0", "bf16", {paths["bandwidth/hbm"]: died}) == {"bandwidth/hbm": died}


@pytest.mark.gpu
def test_on_the_card_alone_and_next_to_a_process_that_multiplies(tmp_path):
    """The context of an earlier test in this process is another process too."""
    status, card, elapsed_s = on_the_card(tmp_path)
    assert elapsed_s < 75
    mine = {health.verdict.UNUSED, ALONE}
    assert (status, failed(card)) == (0, {}) or (is_open() and failed(card).keys() <= mine), failed(card)
    with subprocess.Popen([sys.executable, "-c", BUSY]) as other:
        try:
            time.sleep(5)  # until it multiplies
            status, card, _ = on_the_card(tmp_path)
        finally:
            other.kill()
    assert (status, card["status"]) == (1, "not healthy")
    assert "of the time" in failed(card)[health.verdict.UNUSED]


def on_the_card(folder):
    command = [sys.executable, COMMAND, "--devices", "gpu0"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=200)
    found = json.loads((folder / "results/health.json").read_text())
    return done.returncode, found["cards"][0], found["elapsed_s"]


def failed(card) -> dict[str, str]:
    return {one["name"]: one["reason"] for one in card["checks"] if one["result"] == "fail"}
