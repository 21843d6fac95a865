"""Two lists of runs compared: what with what, verdicts, the page, the picture and the exit status."""

import dataclasses
import json
from collections import defaultdict
from pathlib import Path

import compare as command
import compare_page
import pytest
import t_test
from compare import compare_runs
from known_variation import Spread
from workflow_run import documented_fields

from roofline.api import UserError, exit_with, open_run

SMALL = {"fp32", "fp16", "fp16/sustained", "hbm_read", "l2", "h2d_pageable"}


@pytest.fixture(scope="module")
def run(reference):
    """The GPU of the reference run and a few of its figures."""
    whole = open_run(reference)
    figures = [
        quantity
        for quantity in whole.quantities
        if quantity.device == "gpu0" and (quantity.key in SMALL or "gemm" in quantity.key)
    ]
    roofline = whole.roofline.model_copy(update={"checks": []})
    return dataclasses.replace(whole, devices={"gpu0": whole.devices["gpu0"]}, roofline=roofline, quantities=figures)


def another(run, source="another", factor=1.0, only=None, doubtful=None):
    """A run like this one, its figures times a factor."""
    figures = [
        quantity._replace(value=quantity.value * (factor if only in (None, quantity.key) else 1.0))
        for quantity in run.quantities
    ]
    figures = [quantity._replace(doubt="disturbed") if quantity.key == doubtful else quantity for quantity in figures]
    return dataclasses.replace(run, source=source, fingerprint=source, quantities=figures)


@pytest.fixture
def variation(monkeypatch):
    """Stores one variation for every figure; without a call, none is known."""

    def store(runs=None):
        stored = defaultdict(lambda: runs and Spread(runs, 20)), defaultdict(lambda: None)
        monkeypatch.setattr(t_test, "load_variations", lambda models, quantities, dates: stored)

    store()
    return store


def verdicts(comparison):
    return {figure.key: figure.verdict for figure in comparison.figures}


def figure_of(comparison, key):
    return next(figure for figure in comparison.figures if figure.key == key)


# ---------------------------------------------------------------- verdicts


def test_one_run_twice_is_the_same_throughout(run, variation):
    comparison = compare_runs([run], [dataclasses.replace(run, source="a copy")])
    assert comparison.identical and set(verdicts(comparison).values()) == {"SAME"}
    assert "the same runs" in compare_page.format_summary(comparison)


def test_single_runs_without_a_stored_variation_are_unclear_and_lists_are_judged(run, variation):
    single = compare_runs([run], [another(run, factor=0.5)])
    assert set(verdicts(single).values()) == {"UNCLEAR"} and "two or more per side" in figure_of(single, "fp16").reason
    sides = [
        [another(run, f"{factor}{place}", factor=factor * (1 + 1e-5 * place)) for place in range(2)]
        for factor in (1.0, 0.5)
    ]
    lists = compare_runs(*sides)
    assert figure_of(lists, "fp16").verdict == "SLOWER"


def test_slower_faster_and_the_same_with_a_stored_variation(run, variation):
    variation(runs=0.001)
    assert set(verdicts(compare_runs([run], [another(run)])).values()) <= {"SAME", "UNCLEAR"}
    slower = compare_runs([run], [another(run, factor=0.95, only="fp16")])
    assert verdicts(slower)["fp16"] == "SLOWER" and verdicts(slower)["hbm_read"] == "SAME"
    low, high = figure_of(slower, "fp16").ci95
    assert low < 0.95 < high < 1
    time = next(quantity.key for quantity in run.quantities if quantity.kind == "gpu_time")
    longer = figure_of(compare_runs([run], [another(run, factor=1.1, only=time)]), time)
    assert longer.verdict == "SLOWER" and longer.ratio == pytest.approx(1.1)
    assert figure_of(compare_runs([run], [another(run, factor=0.9, only=time)]), time).verdict == "FASTER"


def test_other_operands_and_disturbed_records_are_not_judged(run, variation):
    variation(runs=0.001)
    disturbed = compare_runs([run], [another(run, factor=0.5, doubtful="fp16")])
    assert figure_of(disturbed, "fp16").verdict == "UNCLEAR" and "disturbed" in figure_of(disturbed, "fp16").reason
    assert figure_of(disturbed, "fp32").verdict == "SLOWER"
    helped = compare_runs([run], [another(run, "sound"), another(run, factor=0.5, doubtful="fp16")])
    assert figure_of(helped, "fp16").verdict == "SAME" and len(figure_of(helped, "fp16").b) == 1
    figures = [quantity._replace(inputs="zeros") if quantity.key == "fp16" else quantity for quantity in run.quantities]
    zeros = dataclasses.replace(another(run, factor=1.1), quantities=figures)
    assert figure_of(compare_runs([run], [zeros]), "fp16").reason == "other operands"


# ---------------------------------------------------------------- picture and command


@pytest.mark.slow
def test_the_command_writes_page_numbers_and_picture(reference, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command.main([str(reference), str(reference.with_name("nvidia-h100-80gb-hbm3")), "--force"]) == 0, (
        "another question"
    )
    screen = capsys.readouterr().out
    assert "H100" in screen and max(map(len, screen.splitlines())) < 200
    folder = tmp_path / "results/comparison"
    assert {path.name for path in folder.iterdir()} == {"comparison.json", "comparison.md", "comparison.png"}
    comparison = json.loads((folder / "comparison.json").read_text())
    figures = {figure["key"]: figure for figure in comparison["figures"]}
    documented = documented_fields(Path(command.__file__).with_name("README.md"), "comparison.json")
    assert documented == {"": comparison.keys() - {"schema_version", "figures"}, "figures": figures["hbm_read"].keys()}
    assert figures["hbm_read"]["verdict"] == "SLOWER" and "| hbm_read " in (folder / "comparison.md").read_text()
    opening = (folder / "comparison.md").read_text().partition("Runs:")[0]
    assert "how many times as fast" in opening and "SLOWER" not in opening, "no verdicts on two models"
    assert "own fastest may be another" in screen
    assert "bf16, bf16 sustained" in screen and "other measuring method" in screen
    rows = {cells[1].strip(): cells for line in screen.splitlines() if (cells := line.split("|"))[1:]}
    assert rows["dram_copy"][2].strip() == "GB/s"
    assert float(rows["hbm_read"][4]) == pytest.approx(figures["hbm_read"]["ratio"], rel=1e-2)
    (attention,) = [cells for name, cells in rows.items() if name.startswith("decode attention") and "fp16" in name]
    assert "fused_graph" in attention[1] and float(attention[4]) < 1, "a time of B that is longer"


def test_the_exit_status_tells_slower(run, variation, tmp_path, monkeypatch, capsys):
    variation(runs=0.001)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "open_run", {Path("a"): run, Path("b"): another(run, factor=0.5, only="fp16")}.get)
    assert (command.main(["a", "b"]), command.main(["b", "a"]), command.main(["a", "a"])) == (1, 0, 0)
    assert "SLOWER" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        exit_with(lambda arguments: 1 // 0, command.REFUSED)
    assert ended.value.code == 2


def renamed(run, **names):
    """The run with known UUIDs, and with other names of devices, by their keys."""
    devices = {
        key: record.model_copy(update={"name": names.get(key, record.name), "uuid": f"one {key}"})
        for key, record in run.devices.items()
    }
    return dataclasses.replace(run, devices=devices)


def test_roofs_are_those_of_the_compared_devices_and_flat_without_sound_reads(run):
    other = run.devices["gpu0"].model_copy(update={"name": "another GPU", "uuid": "another"})
    compared = another(run, factor=2.0, doubtful="hbm_read")
    compared = dataclasses.replace(
        compared,
        devices={"gpu0": other, "gpu1": run.devices["gpu0"]},
        quantities=[quantity._replace(device="gpu1") for quantity in compared.quantities],
    )
    (pair,) = command.pair_devices([run], [compared])[0]
    (axes,) = command.draw_roofs(pair).axes
    roofs = [line for line in axes.lines if " fp16 " in line.get_label()]
    slope, flat = (list(line.get_ydata()) for line in roofs)
    assert slope[0] < slope[1] == slope[2] and flat == [2 * slope[2]] * 3


def test_other_cpus_next_to_gpus_of_one_model_hide_no_slower_figure(
    reference, run, variation, tmp_path, monkeypatch, capsys
):
    variation(runs=0.001)
    monkeypatch.chdir(tmp_path)
    whole = open_run(reference)
    of_cpu = [quantity for quantity in whole.quantities if quantity.device == "cpu"]
    with_cpu = renamed(dataclasses.replace(run, devices=whole.devices, quantities=[*run.quantities, *of_cpu]))
    slower = renamed(another(with_cpu, factor=0.5, only="fp16"), cpu="another CPU")
    like = renamed(another(with_cpu, factor=0.5, only="dram_copy"), cpu="another CPU")
    monkeypatch.setattr(command, "open_run", {Path("a"): with_cpu, Path("slower"): slower, Path("like"): like}.get)
    monkeypatch.setattr(command, "draw_roofs", None)  # one model of GPU has one roof
    assert command.main(["a", "slower", "--force"]) == 1
    assert "1 SLOWER" in capsys.readouterr().out.splitlines()[-2]
    assert command.main(["a", "like", "--force"]) == 0
    assert '"SLOWER"' in (tmp_path / command.FOLDER / "comparison.json").read_text(), "of the CPUs"


@pytest.mark.parametrize("a, b", [("", "x"), ("nowhere.tar.gz", "y.tar.gz")])
def test_what_cannot_be_read_is_refused_in_a_line(tmp_path, monkeypatch, a, b):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as refused:
        command.main([a, b])
    assert len(str(refused.value).splitlines()) == 1
