"""`make health`, whole: by Snakemake on a stand-in of known rates, and on the card itself."""

import json

import pytest
from workflow_run import CHECKOUT, GpuRun

COMMAND = CHECKOUT / "tools" / "health" / "health.py"
RATES = {"read": 4617, "write": 4700, "copy": 4321, "triad": 4420, "link": 55.4, "fma": 65.8, "bfloat16": 811}
# The command with measurements that take no time.
QUICK = f"""
import sys
sys.path.insert(0, {str(COMMAND.parent)!r})
import health
health.SIZE, health.HEAT_S, health.REPEAT_S, health.LIMIT_S = 256, 0, 0.05, 200  # others may hold the locks
health.SETTINGS["peak_flops"] = {{"size": 256, "iterations": 7, "time_budget_s": 0.02}}
health.SETTINGS["bandwidth"] |= {{"transfer_size_mib": 1, "iterations": 7, "time_budget_s": 0.01}}
sys.exit(health.main(["--heat", "0"]))
"""


@pytest.fixture
def machine(tmp_path) -> GpuRun:
    """A folder on a machine with a card."""
    (tmp_path / "quick.py").write_text(QUICK)
    run = GpuRun(tmp_path)
    run.environment = run.environment | {"FAKE_RATES": json.dumps(RATES), "FAKE_LINK": "5,16"}
    run.environment |= {"FAKE_MULTIPROCESSORS": "132"}
    return run


def test_a_sound_card_is_healthy_one_that_is_lost_is_not_and_results_are_left_alone(machine):
    machine.environment |= {"FAKE_GPUS": "GPU-1111=NVIDIA H200,GPU-2222=NVIDIA H200", "FAKE_LOST": "1"}
    mine = machine.results / "gpu0" / "device_query.json"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    done = machine.python("quick.py")
    written = machine.read("health.json")
    (card,) = written["cards"]
    assert (done.returncode, written["status"], card["status"]) == (1, "not healthy", "healthy"), done.stdout
    assert "GPU 1 " in written["lost"][0] and written["lost"][0] in done.stdout
    assert "fp32_fma" in {ceiling["key"] for ceiling in card["ceilings"]}
    assert mine.read_text() == "mine"
    assert {path.name for path in machine.results.iterdir()} == {"gpu0", "health", "health.json"}
