"""Predictions of all planned cells: written before anything is timed, the same that measurements hold."""

from datetime import datetime

import pytest
from records_factory import cell, hashes_of, operator_record, results

from roofline.records.operator import PredictedCell, PredictionsRecord
from roofline.table.run_records import read_results
from roofline.table.seals import violations

BEFORE, AFTER = "2026-11-05T11:00:00+00:00", "2026-11-05T23:00:00+00:00"
TOLD = ["cpu/predictions.json", "cpu/predictions.md"]
PAGE = "predictions.md"


def read(run):
    paths = sorted(run.results.glob("cpu/**/*.json"))
    return read_results(run.results, paths)


def test_every_measured_cell_was_listed_with_the_values_that_its_record_holds(finished_run):
    found = read(finished_run)
    _, predictions = found.predictions["cpu"]
    listed = {one.identity: one for one in predictions.cells}
    measured = {one.identity: one for _, record in found.measured for one in record.measurements}
    assert listed.keys() == measured.keys() and len(listed) >= 8
    assert all(listed[key].predicted == one.predicted for key, one in measured.items())
    assert {one.measured_at for one in predictions.cells} == {None}


def test_they_are_written_before_anything_is_measured(finished_run):
    found = read(finished_run)
    written = datetime.fromisoformat(found.predictions["cpu"][1].predicted_at)
    starts = [datetime.fromisoformat(record.started_at) for _, record in found.measured]
    assert len(starts) >= 6 and written < min(starts)
    seals = [datetime.fromisoformat(seal.sealed_at) for seal in found.seals.values()]
    assert max(seals) < written


def test_the_page_has_a_line_per_cell_and_the_manifest_its_hash_and_time(finished_run):
    page = (finished_run.results / "cpu" / PAGE).read_text()
    assert page.count("\n| ") == 1 + len(finished_run.read("cpu/predictions.json")["cells"])
    outputs = {one["path"]: one for one in finished_run.read("manifest.json")["outputs"]}
    for name in TOLD:
        assert outputs[f"results/{name}"]["sha256"] and outputs[f"results/{name}"]["started_at"]


def test_an_edited_page_is_found(run):
    path = run.results / "cpu" / PAGE
    path.write_text(path.read_text().replace("memory", "compute", 1))
    done = run.command("verify", ".")
    assert done.returncode == 1 and "results/cpu/predictions.md" in done.stdout


def planned(run) -> set[str]:
    return {path for path in run.planned(predictions=True) if path.startswith("cpu/")}


def test_what_a_change_plans(run):
    """An S alone; an S and another operator's iterations in one edit; a file that is gone."""
    run.edit_config(decode_attn={"seq_lens": [16, 32, 48]})
    new = "cpu/decode_attn/minigpt/S48_fp32.json"
    assert planned(run) == {"cpu/predictions.json", new}
    run.edit_config(decode_attn={"seq_lens": [16, 32, 48]}, row_norm={"iterations": 11})
    assert planned(run) == {"cpu/predictions.json", new, "cpu/row_norm/fp32.json"}
    run.edit_config(decode_attn={"seq_lens": [16, 32]}, row_norm={"iterations": 10})
    assert planned(run) == set()
    (run.results / "cpu" / PAGE).unlink()
    assert set(run.planned(predictions=True)) == {"cpu/predictions.json", "manifest.json"}


def test_cells_that_were_measured_before_are_told_apart_from_new_ones(run):
    run.edit_config(decode_attn={"seq_lens": [16, 32, 48]})
    run.finish()
    found = read(run)
    _, predictions = found.predictions["cpu"]
    new = [one for one in predictions.cells if one.measured_at is None]
    assert {one.shape["seq_len"] for one in new} == {48} and len(predictions.cells) > len(new)
    sha256 = {path: seal for _, record in found.measured for path, seal in record.seals.items()}
    assert violations(found, "cpu", sha256) == []


# ---------------------------------------------------------------- the check


def run_with(predicted_at, **fields):
    made = results(operator_record("cpu", cell("cpu", 1.0)))
    record = made.measured[0][1]
    one = record.measurements[0]
    known = {name: getattr(one, name) for name in PredictedCell.model_fields if hasattr(one, name)}
    row = PredictedCell(**known | fields)
    cells = PredictionsRecord(device="cpu", predicted_at=predicted_at, seals={}, cells=[row])
    made.predictions["cpu"] = ("cpu/predictions.json", cells)
    return made, record.started_at


@pytest.mark.parametrize(
    ("predicted_at", "fields", "told"),
    [
        (BEFORE, {}, 0),
        (AFTER, {}, 1),
        (AFTER, {"shape": {"n": 3}}, 0),  # a cell that was not measured
        (AFTER, {"measured_at": BEFORE}, 1),  # the record is another one
        (AFTER, {"predicted": None, "reason": "needs arrays"}, 0),
    ],
)
def test_a_cell_that_was_measured_before_it_was_predicted_breaks_the_seal(predicted_at, fields, told):
    made, _ = run_with(predicted_at, **fields)
    assert len(violations(made, "cpu", hashes_of(made))) == told


def test_a_cell_whose_record_was_there_before_breaks_none():
    _, started_at = run_with(AFTER)
    made, _ = run_with(AFTER, measured_at=started_at)
    assert violations(made, "cpu", hashes_of(made)) == []
