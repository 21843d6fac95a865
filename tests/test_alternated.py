"""Two checkouts compared by measuring them in turns: real Snakemake on the CPU."""

import shutil

import pytest
from workflow_run import Run, new_checkout

from roofline.records.base import read
from roofline.records.comparison import Comparison

TINY = """\
devices: [cpu]
effort: quick
peak_flops: {dtypes: [fp32], size: 256, iterations: 10, time_budget_s: 0.1, sustained_s: 0}
"""
TARGET = "results/cpu/peak_flops/fp32.json"
JOB = "workflow/scripts/peak_flops.py"


@pytest.fixture
def checkout(tmp_path):
    made = Run(new_checkout(tmp_path / "checkout", TINY))
    (made.root / "reference").mkdir()
    return made


@pytest.fixture
def other(checkout):
    return shutil.copytree(checkout.root, checkout.root.with_name("the other"))


def test_each_checkout_runs_its_own_workflow_in_turns(checkout, other):
    (other / JOB).write_text("print('of the other')\n" + (other / JOB).read_text())
    mine = checkout.results / "cpu/peak_flops/fp32.json"
    mine.parent.mkdir(parents=True)
    mine.write_text("measured before")
    done = checkout.command("compare", "--run", other, TARGET)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    begun = [line.split(" is ")[0] for line in done.stdout.splitlines() if line.startswith("run ") and " is " in line]
    assert begun == [f"run {number} of 4: {side}" for number, side in enumerate("ABBA", 1)]
    (runs,) = (checkout.results / "checkouts").iterdir()
    of_other = {log.stem: "of the other" in log.read_text() for log in runs.glob("*.log")}
    assert of_other == {"a1": False, "b1": True, "b2": True, "a2": False}
    found = read(Comparison, checkout.results / "comparison/comparison.json")
    assert "fp32" in {one.key for one in found.quantities}
    assert all((len(one.a), len(one.b)) == (2, 2) for one in found.quantities)
    assert mine.read_text() == "measured before" and not (other / "results").exists()


def test_a_run_that_fails_is_a_line(checkout, other):
    (other / "Snakefile").write_text("raise ValueError('broken')\n")
    done = checkout.command("compare", "--run", other, "results/cpu/device_query.json")
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2 and "b1 failed with status 1 (log: results/checkouts/" in line


@pytest.mark.parametrize("where", ["nowhere", "."])
def test_a_folder_that_is_no_checkout_is_a_line(checkout, where, tmp_path):
    done = checkout.command("compare", "--run", tmp_path / where)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2 and "is no checkout of this project" in line and not checkout.results.exists()
