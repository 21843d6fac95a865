"""Two lists of runs compared: what with what, verdicts, the page, the picture and the exit status."""

import dataclasses
import json
from pathlib import Path

import compare as command
import compare_page
import pytest
import t_test
from compare import compare
from known_variation import Spread, Variation

from roofline.api import exit_with, open_run

SMALL = {"fp32", "fp16", "fp16/sustained", "hbm_read", "l2", "h2d_pageable"}


@pytest.fixture(scope="module")
def run(reference):
    """The GPU of the reference run and a few of its figures."""
    whole = open_run(reference)
    figures = [one for one in whole.quantities if one.device == "gpu0" and (one.key in SMALL or "gemm" in one.key)]
    roofline = whole.roofline.model_copy(update={"checks": []})
    return dataclasses.replace(whole, devices={"gpu0": whole.devices["gpu0"]}, roofline=roofline, quantities=figures)


def another(run, source="another", factor=1.0, only=None, doubtful=None):
    """A run like this one, its figures times a factor."""
    figures = [one._replace(value=one.value * (factor if only in (None, one.key) else 1.0)) for one in run.quantities]
    figures = [one._replace(doubt="disturbed") if one.key == doubtful else one for one in figures]
    return dataclasses.replace(run, source=source, fingerprint=source, quantities=figures)


@pytest.fixture
def known(monkeypatch):
    """Stores one variation for every figure; without a call, none is known."""

    def store(runs=None):
        stored = Variation(runs and Spread(runs, 20), None)
        monkeypatch.setattr(t_test, "variations", lambda models, figures, dates: {one.key: stored for one in figures})

    store()
    return store


def verdicts(comparison):
    return {one.key: one.verdict for one in comparison.figures}


def of(comparison, key):
    return next(one for one in comparison.figures if one.key == key)


# ---------------------------------------------------------------- verdicts


def test_one_run_twice_is_the_same_throughout(run, known):
    found = compare([run], [dataclasses.replace(run, source="a copy")])
    assert found.identical and set(verdicts(found).values()) == {"SAME"}
    assert "the same runs" in compare_page.summary(found)


def test_single_runs_without_a_stored_variation_are_unclear_and_lists_are_judged(run, known):
    single = compare([run], [another(run, factor=0.5)])
    assert set(verdicts(single).values()) == {"UNCLEAR"} and "two or more per side" in of(single, "fp16").reason
    sides = [
        [another(run, f"{factor}{place}", factor=factor * (1 + 1e-5 * place)) for place in range(2)]
        for factor in (1.0, 0.5)
    ]
    lists = compare(*sides)
    assert of(lists, "fp16").verdict == "SLOWER"


def test_slower_faster_and_the_same_with_a_stored_variation(run, known):
    known(runs=0.001)
    assert set(verdicts(compare([run], [another(run)])).values()) <= {"SAME", "UNCLEAR"}
    slower = compare([run], [another(run, factor=0.95, only="fp16")])
    assert verdicts(slower)["fp16"] == "SLOWER" and verdicts(slower)["hbm_read"] == "SAME"
    low, high = of(slower, "fp16").ci95
    assert low < 0.95 < high < 1
    time = next(one.key for one in run.quantities if one.kind == "gpu_time")
    longer = of(compare([run], [another(run, factor=1.1, only=time)]), time)
    assert longer.verdict == "SLOWER" and longer.ratio == pytest.approx(1.1)
    assert of(compare([run], [another(run, factor=0.9, only=time)]), time).verdict == "FASTER"


def test_other_operands_and_disturbed_records_are_not_judged(run, known):
    known(runs=0.001)
    disturbed = compare([run], [another(run, factor=0.5, doubtful="fp16")])
    assert of(disturbed, "fp16").verdict == "UNCLEAR" and "disturbed" in of(disturbed, "fp16").reason
    assert of(disturbed, "fp32").verdict == "SLOWER"
    helped = compare([run], [another(run, "sound"), another(run, factor=0.5, doubtful="fp16")])
    assert of(helped, "fp16").verdict == "SAME" and len(of(helped, "fp16").b) == 1
    figures = [one._replace(inputs="zeros") if one.key == "fp16" else one for one in run.quantities]
    zeros = dataclasses.replace(another(run, factor=1.1), quantities=figures)
    assert of(compare([run], [zeros]), "fp16").reason == "other operands"


# ---------------------------------------------------------------- picture and command


@pytest.mark.slow
def test_the_command_writes_page_numbers_and_picture(reference, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command.main([str(reference), str(reference.with_name("nvidia-h100-80gb-hbm3")), "--force"]) == 1
    screen = capsys.readouterr().out
    assert "H100" in screen and max(map(len, screen.splitlines())) < 200
    where = tmp_path / "results/comparison"
    assert {path.name for path in where.iterdir()} == {"comparison.json", "comparison.md", "comparison.png"}
    figures = {one["key"]: one for one in json.loads((where / "comparison.json").read_text())["figures"]}
    assert figures["hbm_read"]["verdict"] == "SLOWER" and "| fp16 " in (where / "comparison.md").read_text()


def test_the_exit_status_tells_slower(run, known, tmp_path, monkeypatch, capsys):
    known(runs=0.001)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "open_run", {Path("a"): run, Path("b"): another(run, factor=0.5, only="fp16")}.get)
    assert (command.main(["a", "b"]), command.main(["b", "a"]), command.main(["a", "a"])) == (1, 0, 0)
    assert "SLOWER" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        exit_with(lambda arguments: 1 // 0, command.REFUSED)
    assert ended.value.code == 2


@pytest.mark.parametrize("a, b", [("", "x"), ("nowhere.tar.gz", "y.tar.gz")])
def test_what_cannot_be_read_is_status_2_and_a_line(tmp_path, monkeypatch, capsys, a, b):
    monkeypatch.chdir(tmp_path)
    assert command.main([a, b]) == 2
    lines = capsys.readouterr()
    assert not lines.out and len(lines.err.splitlines()) == 1
