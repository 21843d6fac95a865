"""Ceilings of several runs side by side: the arithmetic, and the command on a real run."""

import json
import math
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from workflow_run import new_checkout

from roofline.analysis.spread import (
    Figure,
    SpreadRecord,
    compare,
    figures,
    relative_half_width,
    relative_spread,
    table,
    verdict,
    widest,
)
from roofline.records.base import read

TINY = """\
devices: [cpu]
effort: quick
peak_flops: {dtypes: [fp32], size: 256, iterations: 10, time_budget_s: 0.2, sustained_s: 0}
bandwidth: {levels: [dram], warmup: 1, iterations: 5, time_budget_s: 0.1}
"""
COMMAND = "workflow/commands/spread.py"
PATIENCE_S = 240
positive = st.floats(1e-3, 1e6)


def figure(name, value, ci95=None, kind="ceiling", device="gpu0", unit="TFLOPS"):
    return Figure(device, name, kind, unit, value, ci95)


# ---------------------------------------------------------------------------------------------- arithmetic


@given(st.lists(positive, min_size=2, max_size=9), st.floats(1e-3, 1e3))
def test_the_spread_knows_neither_order_nor_unit(values, factor):
    spread = relative_spread(values)
    assert spread >= 0 and (spread == 0) == (min(values) == max(values))
    assert relative_spread(values[::-1]) == spread
    assert relative_spread([factor * value for value in values]) == pytest.approx(spread, rel=1e-9, abs=1e-9)


@given(positive, positive)
def test_the_spread_of_two(one, other):
    assert relative_spread([one, other]) == pytest.approx(abs(one - other) / ((one + other) / 2))


def test_one_run_has_no_spread():
    assert relative_spread([3.0]) is None and relative_spread([]) is None


@given(positive, st.floats(0, 0.5))
def test_half_the_width_of_an_interval(value, half):
    interval = (value * (1 - half), value * (1 + half))
    assert math.isclose(relative_half_width(value, interval), half, rel_tol=1e-9, abs_tol=1e-12)


@given(st.lists(st.lists(positive, min_size=3, max_size=3), min_size=2, max_size=5))
def test_every_figure_of_every_run_is_compared(runs):
    names = ("fp32", "fp16", "d2d")
    compared = compare([[figure(name, value) for name, value in zip(names, run, strict=True)] for run in runs])
    assert [c.name for c in compared] == list(names)
    for column, ceiling in enumerate(compared):
        values = [run[column] for run in runs]
        assert ceiling.runs == values
        assert min(values) <= ceiling.median <= max(values)
        assert ceiling.spread == relative_spread(values)
    assert widest(compared).spread == max(c.spread for c in compared)


def test_the_widest_interval_of_the_runs_is_told():
    runs = [[figure("fp16", 100.0, (99, 101))], [figure("fp16", 102.0)], [figure("fp16", 104.0, (98.8, 104))]]
    (found,) = compare(runs)
    assert (found.median, found.spread) == (102.0, pytest.approx(4 / 102))
    assert found.ci95_relative == pytest.approx(2.6 / 104)
    assert compare([run[:] for run in runs[1:2]])[0].ci95_relative is None


def test_a_figure_that_a_run_lacks_leaves_a_gap():
    """A device's, a name's and a kind's figures are each their own."""
    compared = compare(
        [
            [figure("fp32", 10.0), figure("fp32", 9.0, kind="sustained")],
            [figure("fp32", 11.0), figure("fp32", 1.0, device="cpu")],
        ]
    )
    assert [(c.device, c.figure, c.runs, c.spread is None) for c in compared] == [
        ("gpu0", "ceiling", [10.0, 11.0], False),
        ("gpu0", "sustained", [9.0, None], True),
        ("cpu", "ceiling", [None, 1.0], True),
    ]


def peak(dtype, burst, sustained):
    return SimpleNamespace(
        kind="peak_flops",
        dtype=dtype,
        peak=SimpleNamespace(
            tflops=max(burst, sustained or 0),
            ci95=(1, 2),
            burst_tflops=burst,
            burst=SimpleNamespace(ci95=(3, 4)),
            sustained_tflops=sustained,
            sustained=SimpleNamespace(ci95=(5, 6)) if sustained else None,
        ),
    )


def test_figures_are_read_from_the_collections():
    """A stand-in for records: only what is read of them."""
    skipped = SimpleNamespace(kind="peak_flops", dtype="int8", peak=None)
    streams = [SimpleNamespace(name=name, gb_per_s=4000.0, ci95=None) for name in ("hbm_read", "hbm_copy")]
    found = figures(
        [
            SimpleNamespace(device="gpu0", records=[peak("fp16", 700.0, 600.0), peak("fp32", 50.0, None), skipped]),
            SimpleNamespace(device="gpu0", records=[SimpleNamespace(kind="bandwidth", bandwidths=streams)]),
        ]
    )
    assert found == [
        figure("fp16", 700.0, (1, 2)),
        figure("fp16", 700.0, (3, 4), "burst"),
        figure("fp16", 600.0, (5, 6), "sustained"),
        figure("fp32", 50.0, (1, 2)),
        figure("fp32", 50.0, (3, 4), "burst"),
        figure("hbm_read", 4000.0, unit="GB/s"),
        figure("hbm_copy", 4000.0, unit="GB/s"),
    ]


# ---------------------------------------------------------------------------------------------- words


def test_the_table_and_its_sentence():
    runs = [
        [figure("fp16", 779.7, (776, 783.4)), figure("fp16", 690.0, kind="sustained")],
        [
            figure("fp16", 771.2, (770, 772.4)),
            figure("fp16", 660.0, kind="sustained"),
            figure("d2d", 4258, unit="GB/s"),
        ],
    ]
    compared = compare(runs)
    assert table(compared).splitlines() == [
        "| ceiling              | run 1 | run 2 | unit   | spread | interval within a run |",
        "| -------------------- | ----: | ----: | ------ | -----: | --------------------: |",
        "| gpu0 fp16            | 779.7 | 771.2 | TFLOPS |  1.1 % |              ± 0.475 % |".replace(
            "  ± 0.475", " ± 0.475"
        ),
        "| gpu0 fp16, sustained |   690 |   660 | TFLOPS | 4.44 % |                     - |",
        "| gpu0 d2d             |     - |  4258 | GB/s   |      - |                     - |",
    ]
    assert verdict(compared) == (
        "gpu0 fp16, sustained spreads most: 4.44 % between the runs, an interval that is not known within one."
    )
    assert verdict(compare([[figure("fp16", 100.0, (99.9, 100.1))], [figure("fp16", 110.0)]])) == (
        "gpu0 fp16 spreads most: 10 % between the runs, ± 0.1 % within one."
    )


def test_nothing_in_common_is_said():
    assert verdict(compare([[figure("fp16", 1.0)], [figure("fp32", 1.0)]])) == "No two runs found the same ceiling."
    assert verdict([]) == "No two runs found the same ceiling."


# ---------------------------------------------------------------------------------------------- the command


def spread(folder, *arguments):
    """Run the command; one that hangs is ended with all that it started, which would hold the host's lock."""
    command = [sys.executable, COMMAND, *arguments]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, cwd=folder, start_new_session=True, **streams) as process:
        try:
            told = process.communicate(timeout=PATIENCE_S)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, told)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    return new_checkout(tmp_path_factory.mktemp("spread") / "checkout", TINY)


@pytest.mark.parametrize("runs", ["1", "0", "-3", "-x", "three", "2.5", ""])
def test_a_number_of_runs_that_cannot_lie_apart(checkout, runs):
    done = spread(checkout, runs)
    assert (done.returncode, done.stdout) == (
        1,
        f"RUNS: {runs!r} is no number of runs; allowed: a whole number of 2 or more\n",
    )
    assert not (checkout / "results").exists()


def test_faults_of_the_settings_are_told_before_anything_runs(checkout, tmp_path):
    (tmp_path / "mine.yaml").write_text("peak_flops: {size: none}\n")
    done = spread(checkout, "2", "--configfile", str(tmp_path / "mine.yaml"))
    assert done.returncode == 1 and done.stdout.startswith("peak_flops.size: 'none'") and done.stdout.count("\n") == 1
    assert not (checkout / "results").exists()


def test_two_runs_on_the_cpu(checkout, tmp_path):
    """Each in a folder of its own, with settings from a file elsewhere; what lay there before is gone."""
    (checkout / "results/spread/run3").mkdir(parents=True)
    (tmp_path / "mine.yaml").write_text("peak_flops: {dtypes: [fp64]}\n")
    done = spread(checkout, "2", "--configfile", str(tmp_path / "mine.yaml"))
    assert done.returncode == 0, done.stdout
    record = read(SpreadRecord, checkout / "results/spread.json")
    assert {("cpu", "fp64", "burst"), ("cpu", "dram_read", "ceiling")} <= {
        (c.device, c.name, c.figure) for c in record.ceilings
    }
    assert all(len(c.runs) == 2 and all(c.runs) for c in record.ceilings)
    assert sorted(path.name for path in (checkout / "results/spread").iterdir()) == [
        "run1",
        "run1.log",
        "run2",
        "run2.log",
    ]
    names = ["peak_flops/fp64.json", "bandwidth/dram.json"]
    one, other = (
        [json.loads((checkout / f"results/spread/run{i}/results/cpu/{name}").read_text()) for name in names]
        for i in (1, 2)
    )
    assert all(first["started_at"] < second["started_at"] for first, second in zip(one, other, strict=True))
    shown = (checkout / "results/spread.md").read_text()
    assert table(record.ceilings) in shown and table(record.ceilings) in done.stdout
    assert verdict(record.ceilings) in shown and verdict(record.ceilings) in done.stdout
    assert not (checkout / "results/cpu").exists()


def test_a_run_that_fails_says_why(checkout):
    done = spread(checkout, "2", "--no-such-option")
    assert done.returncode == 1
    assert "unrecognized arguments: --no-such-option" in done.stdout
    assert done.stdout.rstrip().endswith("no spread was written")
