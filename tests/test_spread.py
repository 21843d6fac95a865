"""Ceilings of several runs side by side: the arithmetic, and the command on a real run."""

import json

import pytest
from commands import load
from hypothesis import given
from hypothesis import strategies as st
from records_factory import bandwidth_record, beside, device_record, peak_record, skipped_peak, stream
from workflow_run import Run, new_checkout

from roofline.analysis.spread import (
    Figure,
    SpreadRecord,
    compare,
    figures,
    relative_spread,
    widest,
)
from roofline.core.statistics import half_width
from roofline.records.base import read
from roofline.report.spread_page import left_out, markdown, verdict

TINY = """\
devices: [cpu]
effort: quick
cpu: all
peak_flops: {dtypes: [fp32], size: 256, iterations: 10, time_budget_s: 0.2, sustained_s: 0}
bandwidth: {levels: [dram], warmup: 1, iterations: 2, time_budget_s: 0.01}
"""
positive = st.floats(1e-3, 1e6)


def figure(name, value, ci95=None, kind="ceiling", device="gpu0", unit="TFLOPS"):
    return Figure(device, name, kind, unit, value, ci95)


# ---------------------------------------------------------------- arithmetic


@given(st.lists(positive, min_size=2, max_size=9), st.floats(1e-3, 1e3))
def test_the_spread_knows_neither_order_nor_unit(values, factor):
    spread = relative_spread(values)
    assert spread >= 0 and (spread == 0) == (min(values) == max(values))
    assert relative_spread(values[::-1]) == spread
    assert relative_spread([factor * value for value in values]) == pytest.approx(spread, rel=1e-9, abs=1e-9)


@given(positive, positive, st.floats(0, 0.5))
def test_the_spread_of_two_and_half_the_width_of_an_interval(one, other, half):
    assert relative_spread([one, other]) == pytest.approx(abs(one - other) / ((one + other) / 2))
    assert half_width(one, (one * (1 - half), one * (1 + half))) == pytest.approx(half, abs=1e-12)
    assert relative_spread([one]) is None and relative_spread([]) is None


@given(st.lists(st.lists(positive, min_size=3, max_size=3), min_size=2, max_size=5))
def test_every_figure_of_every_run_is_compared(runs):
    names = ("fp32", "fp16", "d2d")
    compared = compare([[figure(name, value) for name, value in zip(names, run, strict=True)] for run in runs])
    assert [c.name for c in compared] == list(names)
    for column, ceiling in enumerate(compared):
        values = [run[column] for run in runs]
        assert ceiling.runs == values and min(values) <= ceiling.median <= max(values)
        assert ceiling.spread == relative_spread(values)
    assert widest(compared).spread == max(c.spread for c in compared)


def test_the_widest_interval_of_the_runs_is_told():
    runs = [[figure("fp16", 100.0, (99, 101))], [figure("fp16", 102.0)], [figure("fp16", 104.0, (98.8, 104))]]
    (found,) = compare(runs)
    assert (found.median, found.spread, found.ci95_relative) == pytest.approx((102.0, 4 / 102, 5.2 / 104))
    assert compare(runs[1:2])[0].ci95_relative is None


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


def test_figures_are_read_from_the_records():
    peaks = [peak_record("gpu0", "fp16", 700.0, sustained=600.0), peak_record("gpu0", "int8", 50.0)]
    streams = [stream(name, 4000.0) for name in ("hbm_read", "hbm_copy")]
    memory = bandwidth_record("gpu0", **{one.name: one for one in streams})
    found = figures([*peaks, skipped_peak("gpu0", "fp8_e4m3", "made up"), memory])
    assert [(one.name, one.figure, one.unit, pytest.approx(one.value)) for one in found] == [
        ("fp16", "ceiling", "TFLOPS", 700.0),
        ("fp16", "burst", "TFLOPS", 700.0),
        ("fp16", "sustained", "TFLOPS", 600.0),
        ("int8", "ceiling", "TOPS", 50.0),
        ("int8", "burst", "TOPS", 50.0),
        ("hbm_read", "ceiling", "GB/s", 4000.0),
        ("hbm_copy", "ceiling", "GB/s", 4000.0),
    ]
    assert found[0].ci95 == peaks[0].peak.ci95 and found[-1].ci95 == streams[-1].ci95


@pytest.mark.parametrize("other_cores", [0, 2])
def test_what_a_busy_host_disturbed_is_no_known_spread(other_cores):
    """The record goes, of this run alone; the others stay."""
    peak = peak_record("cpu", "fp32", 1.0)
    peak.peak.burst.latency.contention = beside(other_cores=other_cores)
    kept, told = load("spread").sound([peak, peak_record("cpu", "fp64", 0.5)], device_record("cpu"))
    quiet = [] if other_cores else ["fp32", "fp32"]  # ceiling and burst
    assert [one.name for one in figures(kept)] == [*quiet, "fp64", "fp64"]
    failed = "cpu fp32: a busy host: 1 of 1 timed block disturbed (fp32: other processes used 2 of 8 cores)"
    assert told == ([failed] if other_cores else [])
    said = [f"Left out, since a check failed: 1 record.\n\n- run 2, {failed}"] if other_cores else []
    assert left_out([f"run 2, {line}" for line in told]) == said


# ---------------------------------------------------------------- words


def test_the_table_and_its_sentence():
    runs = [
        [
            figure("fp16", 779.7, (776, 783.4)),  # the higher of the other two
            figure("fp16", 779.7, (776, 783.4), kind="burst"),
            figure("fp16", 690.0, kind="sustained"),
        ],
        [
            figure("fp16", 771.2, (770, 772.4)),
            figure("fp16", 771.2, (770, 772.4), kind="burst"),
            figure("fp16", 660.0, kind="sustained"),
            figure("d2d", 4258, unit="GB/s"),
        ],
    ]
    compared = compare(runs)
    lines = [line for line in markdown(compared).splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert rows[0] == ["ceiling", "unit", "run 1", "run 2", "spread", "interval within a run"]
    assert rows[2:] == [
        ["gpu0 fp16, burst", "TFLOPS", "779.7", "771.2", "1.1 %", "± 0.47 %"],
        ["gpu0 fp16, sustained", "TFLOPS", "690", "660", "4.4 %", "-"],
        ["gpu0 d2d", "GB/s", "-", "4258", "-", "-"],
    ]
    assert len(set(map(len, lines))) == 1, "in line on the screen too"
    assert verdict(compared).startswith("gpu0 fp16, sustained spreads most: 4.4 % between the runs")
    assert verdict(compare([[figure("fp16", 1.0)], [figure("fp32", 1.0)]])) == "No ceiling is left in two runs."


# ---------------------------------------------------------------- the command


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    return Run(new_checkout(tmp_path_factory.mktemp("spread") / "checkout", TINY))


@pytest.mark.parametrize("runs", ["1", "0", "-3", "-x", "three", "2.5", ""])
def test_a_number_of_runs_that_cannot_differ(capsys, runs):
    assert load("spread").main([runs]) == 1
    assert capsys.readouterr().out == f"RUNS: {runs!r} is not a number of runs; allowed: a whole number of 2 or more\n"


def test_faults_of_the_settings_are_told_before_anything_runs(checkout, tmp_path):
    (tmp_path / "mine.yaml").write_text("peak_flops: {size: none}\n")
    done = checkout.command("spread", "2", "--configfile", str(tmp_path / "mine.yaml"))
    assert done.returncode == 1 and done.stdout.startswith("peak_flops.size: 'none'") and done.stdout.count("\n") == 1
    assert not checkout.results.exists()


def test_two_runs_on_the_cpu(checkout, tmp_path):
    """Each in a folder of its own, with settings from a file elsewhere; what lay there before is gone."""
    spread = checkout.results / "spread"
    (spread / "run3").mkdir(parents=True)
    (tmp_path / "mine.yaml").write_text("peak_flops: {dtypes: [fp64]}\n")
    done = checkout.command("spread", "2", "--configfile", str(tmp_path / "mine.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr
    record = read(SpreadRecord, checkout.results / "spread.json")
    assert {("fp64", "burst"), ("dram_read", "ceiling")} <= {(c.name, c.figure) for c in record.ceilings}
    assert all(c.device == "cpu" and len(c.runs) == 2 and all(c.runs) for c in record.ceilings)
    assert sorted(path.name for path in spread.iterdir()) == ["run1", "run1.log", "run2", "run2.log"]
    for name in ("peak_flops/fp64.json", "bandwidth/dram.json"):
        starts = [json.loads((spread / f"run{i}/results/cpu/{name}").read_text())["started_at"] for i in (1, 2)]
        assert starts == sorted(set(starts)), "measured once each, one after the other"
    shown = (checkout.results / "spread.md").read_text()
    assert markdown(record.ceilings) in shown and markdown(record.ceilings) in done.stdout
    assert not (checkout.results / "cpu").exists()


def test_a_run_that_fails_says_why(checkout):
    done = checkout.command("spread", "2", "--no-such-option")
    assert done.returncode == 1
    assert "unrecognized arguments: --no-such-option" in done.stdout
    assert done.stdout.rstrip().endswith("no spread was written")
