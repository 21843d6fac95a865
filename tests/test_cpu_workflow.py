"""A finished run of the real workflow on the CPU: seals, records, table, pages and manifest belong together."""

import json
from dataclasses import replace
from datetime import datetime
from functools import reduce

import pytest

from roofline.records.base import read
from roofline.records.files import file_sha256
from roofline.table.rows import Roofline
from roofline.table.run_records import read_results
from roofline.table.seals import count_recomputed, find_violations

FOLDERS = ("", "peak_flops/", "decode_attn/", "row_norm/")
SEALS = {"cpu/calibration.json", *(f"cpu/{folder}prediction.json" for folder in FOLDERS)}


@pytest.fixture(scope="module")
def found(finished_run):
    return read_results(finished_run.results, sorted(finished_run.results.glob("cpu/**/*.json")))


def test_every_record_holds_its_seals_and_follows_from_them(finished_run, found):
    sha256 = {path: file_sha256(finished_run.results / path) for path in SEALS}
    assert find_violations(found, "cpu", sha256) == []
    for _, record in found.measured:
        assert "cpu/prediction.json" in record.seals
        assert record.seals.items() <= sha256.items()
    logs = "".join(path.read_text() for path in (finished_run.root / "logs/cpu").rglob("*.log"))
    assert all(f"sealed as {value[:12]}" in logs for value in sha256.values())


def test_every_cell_was_predicted_after_the_seals_and_before_any_measurement(found):
    predictions = found.predictions["cpu"]
    listed = {one.identity: one.sealed for one in predictions.cells}
    measured = {one.identity: one.sealed for _, record in found.measured for one in record.measurements}
    assert listed == measured and len(listed) == 9
    assert {one.started_at for one in predictions.cells} == {None}
    seals = [datetime.fromisoformat(seal.sealed_at) for seal in found.seals.values()]
    starts = [datetime.fromisoformat(record.started_at) for _, record in found.measured]
    assert max(seals) < datetime.fromisoformat(predictions.predicted_at) < min(starts)


def test_what_a_reader_may_ask_about_is_predicted_by_the_same_seals(found):
    seal, predictions = found.seals["cpu/prediction.json"], found.predictions["cpu"]
    asked = {(cell.dtype, cell.shape["batch"], cell.shape["seq_len"]): cell for cell in predictions.what_if}
    assert {("fp32", 1, 16), ("fp32", 512, 8192), ("fp16", 1, 8192)} <= asked.keys() and len(asked) == 120
    assert all(cell.entry.predict(seal) == cell.sealed for cell in asked.values())


# What is changed of a record, of predictions.json or of the table: everything but its hash in the manifest stays.
CPU_TIME = ["sealed", "cpu_time_s"]
TAMPERED = {
    "a record's prediction": ("cpu/row_norm/fp32.json", ["measurements", 0, *CPU_TIME], "another prediction than in"),
    "a sealed prediction": ("cpu/predictions.json", ["cells", 0, *CPU_TIME], "does not follow from its entry"),
    "the FLOPs of an entry": ("cpu/predictions.json", ["cells", 0, "entry", "flops"], "another entry than in"),
    "a rate of the table": ("roofline.json", ["ceilings", 0, "burst_tflops"], "by the records"),
    "a time of the table": ("roofline.json", ["operators", 0, "cpu_time_s"], "by the records"),
    "a prediction of the table": ("roofline.json", ["operators", 0, *CPU_TIME], "another prediction than sealed"),
}


def test_every_prediction_is_recomputed_from_what_was_sealed(found):
    cells = found.predictions["cpu"].cells
    assert all(cell.entry for cell in cells) and count_recomputed(found) == (len(cells), 0)
    (gemm,) = [cell for cell in cells if cell.operator == "gemm"]
    other_code = gemm.entry.model_copy(update={"code_sha256": "0" * 64})
    changed = found.predictions["cpu"].model_copy(update={"cells": [gemm.model_copy(update={"entry": other_code})]})
    assert count_recomputed(replace(found, predictions={"cpu": changed})) == (0, 1)


@pytest.mark.parametrize(("name", "keys", "why"), TAMPERED.values(), ids=TAMPERED.keys())
def test_a_figure_that_is_changed_together_with_its_hash_is_refused(run, name, keys, why):
    path, manifest = run.results / name, run.results / "manifest.json"
    content, old = json.loads(path.read_text()), file_sha256(path)
    *leading, last = keys
    reduce(lambda part, key: part[key], leading, content)[last] *= 2
    size = path.stat().st_size
    path.write_text(json.dumps(content))
    listed = (
        manifest.read_text()
        .replace(old, file_sha256(path))
        .replace(f'"bytes": {size},', f'"bytes": {path.stat().st_size},')
    )
    manifest.write_text(listed)
    done = run.command("verify", "results")
    assert done.returncode == 1 and why in done.stdout, done.stdout


def test_the_table_and_the_pages_have_every_cell(finished_run):
    table = read(Roofline, finished_run.results / "roofline.json")
    assert len(table.measured_cells) == len(table.operators) == 9
    for entry in table.measured_cells:
        assert entry.sealed_cpu_time_error == (entry.sealed.cpu_time_s - entry.cpu_time_s) / entry.cpu_time_s
    assert table.devices["cpu"].violations == [] and table.devices["cpu"].seals
    checks = {one.check: one.result for one in table.checks if one.device == "cpu"}
    assert checks["every prediction has its measured counterpart, sealed before it"] == "pass"
    page = (finished_run.results / "verification.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| cpu ") and " CPU time " not in line]
    assert len(rows) == 9 and all(any(table.full_name(entry) in row for row in rows) for entry in table.measured_cells)
    assert (finished_run.results / "cpu/predictions.md").read_text().count("\n| ") == 1 + 9
    words = {
        name: len((finished_run.results / name).read_text().split()) for name in ("ROOFLINE.md", "verification.md")
    }
    assert 400 < words["ROOFLINE.md"] < 2500 and words["verification.md"] < 600
    assert (finished_run.results / "report.html").stat().st_size < 3_000_000
