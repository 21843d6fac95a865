"""The user's own predictions: the file, the names of cells, the seal, and the score next to the model's."""

import json
from pathlib import Path

import pytest
from pictures import reference
from records_factory import DAY, QUERIED, STARTED, US, bandwidth_record, cell, operator_record, peak_record, results
from test_settings import CPU, GPU
from workflow_run import CHECKOUT

from roofline.core.terms import UserError
from roofline.core.units import GIB
from roofline.measure.sealing import seal_own_prediction
from roofline.operators.registry import collect_operators
from roofline.plan import machine_checks
from roofline.plan.own_predictions import name_cells
from roofline.plan.settings import complete
from roofline.records.base import shared_fields
from roofline.records.operator_record import CellKey, OwnPrediction, OwnPredictionsRecord, SealedOwnPrediction
from roofline.report import screen
from roofline.report.pages import build_pages
from roofline.report.report_model import build_report
from roofline.table.load import build_table
from roofline.table.own_scores import LATE, NOT_MEASURED


@pytest.fixture(autouse=True)
def roomy(monkeypatch):
    monkeypatch.setattr("roofline.devices.host.memory_available_bytes", lambda: 64 * GIB)


def planned(config: dict):
    return machine_checks.plan_run(complete({"counters": "off"} | config), {"gpu0": GPU, "cpu": CPU})


# ---------------------------------------------------------------- the file


def test_cells_have_the_names_of_the_table(newest):
    config = json.loads((newest / "manifest.json").read_text())["config"]
    later = {rule: {"enabled": False} for rule in collect_operators() if rule not in config}
    table = reference()
    shown = {f"{row.device} {table.full_name(row)}" for row in table.measured_cells}
    assert name_cells(planned(config | later | {"devices": "auto"})).keys() == shown


def test_the_example_names_cells_of_the_default_config():
    predictions = planned({"predictions": str(CHECKOUT / "examples/predictions.yaml")}).own_predictions
    assert predictions.keys() == {"gpu0"} and len(predictions["gpu0"]) == 6
    product = predictions["gpu0"][0]
    assert product["record"] == "gpu0/peak_flops/fp16"
    figures = [product["prediction"][name] for name in ("regime", "cpu_time_s", "fraction_of_compute_peak")]
    assert figures == pytest.approx(["compute", 200 * US, 0.7])


PRODUCT = "cpu GEMM numpy.matmul fp32 4096³"
WRONG = {
    "an unknown cell": ("cpu GEMM fp32 4096: {regime: compute}", ["'cpu GEMM fp32 4096'", PRODUCT]),
    "an unknown device": (f"gpu7{PRODUCT[3:]}: {{time_us: 1}}", ["'gpu7 GEMM", "begin with cpu"]),
    "an unknown regime": (f"{PRODUCT}: {{regime: bandwidth}}", [f"{PRODUCT}: regime: ", "'overhead'", "'bandwidth'"]),
    "an unknown unit": (f"{PRODUCT}: {{time_ns: 1}}", [f"{PRODUCT}: time_ns: ", "time_us"]),
    "a time as text": (f"{PRODUCT}: {{time_us: 12 us}}", [f"{PRODUCT}: time_us: ", "'12 us'"]),
    "two times": (f"{PRODUCT}: {{time_us: 1, time_ms: 1}}", ["time_us", "time_ms"]),
    "a share above 100 %": (f"{PRODUCT}: {{percent_of_peak: 101}}", [f"{PRODUCT}: percent_of_peak: ", "101"]),
    "nothing": (f"{PRODUCT}: {{}}", [f"{PRODUCT}: ", "regime, time_us, time_ms, percent_of_peak"]),
    "no keys": (f"{PRODUCT}: compute", [f"{PRODUCT}: ", "'compute'"]),
    "a list": (f"- {PRODUCT}", ["mapping"]),
    "a cell twice": (f"{PRODUCT}: {{time_us: 1}}\n{PRODUCT}: {{time_us: 1}}", ["line 2", PRODUCT]),
}


def faults(path: Path) -> list[str]:
    with pytest.raises(UserError) as error:
        planned({"devices": "cpu", "predictions": str(path)})
    return error.value.lines


@pytest.mark.parametrize(("text", "named"), WRONG.values(), ids=WRONG)
def test_an_error_is_one_line_with_what_is_allowed(tmp_path, text, named):
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    (line,) = faults(path)
    assert line.startswith(str(path)) and all(part in line for part in named), line


def test_all_errors_come_at_once_and_an_empty_file_lists_the_cells(tmp_path):
    path = tmp_path / "mine.yaml"
    assert [str(path) in line for line in faults(path)] == [True]  # missing
    path.write_text(f"elsewhere: {{time_us: 1}}\n{PRODUCT}: {{regime: fast, time_ms: 0}}")
    assert len(faults(path)) == 3
    path.write_text("# nothing yet\n")
    assert f"  {PRODUCT}" in faults(path)


# ---------------------------------------------------------------- the seal and the score

BEFORE, AFTER = QUERIED, f"{DAY}23:00:00+00:00"


def predict(measured, sealed_at=BEFORE, started_at=None, **fields) -> SealedOwnPrediction:
    key = shared_fields(measured, CellKey) | {"cache": None}
    return SealedOwnPrediction(**key | fields, sealed_at=sealed_at, started_at=started_at)


def test_a_prediction_keeps_its_seal_until_it_changes():
    earlier = predict(cell("gpu0", 1e-3, 1e-3), cpu_time_s=1e-3)
    same = OwnPrediction(**shared_fields(earlier, OwnPrediction))
    assert seal_own_prediction(same, [earlier], AFTER, STARTED) == earlier
    changed = seal_own_prediction(same.model_copy(update={"cpu_time_s": 2e-3}), [earlier], AFTER, STARTED)
    assert (changed.sealed_at, changed.started_at, changed.cpu_time_s) == (AFTER, STARTED, 2e-3)


MEASURED = cell("gpu0", 100 * US, 90 * US, flops=10**8, bytes=10**8)
ROOFS = peak_record("gpu0", "fp32", 55.0), bandwidth_record("gpu0", hbm_read=4000.0)


def table_of(*predictions: SealedOwnPrediction, measured=MEASURED):
    found = results(*ROOFS, operator_record("gpu0", measured))
    found.own_predictions["gpu0"] = OwnPredictionsRecord(device="gpu0", cells=list(predictions))
    return found, build_table(found)


def test_a_prediction_is_scored_next_to_the_model_in_what_it_says():
    _, table = table_of(predict(MEASURED, cpu_time_s=300 * US, regime="compute"))
    (row,) = table.own_predictions
    measured = table.find_cell(row)
    assert row.not_scored_reason is None and row.errors.cpu_time_error == pytest.approx(2.0)
    assert row.errors.fraction_of_compute_peak_error is row.model_errors.fraction_of_compute_peak_error is None
    assert row.model_errors.cpu_time_error == measured.sealed_cpu_time_error
    assert row.model_errors.regime_right == measured.sealed_regime_right
    score = table.own_scores["gpu0"]
    assert (score.cell_count, score.regime_count, score.time_count, score.share_count) == (1, 1, 1, 0)
    assert (score.own.times_right, score.own.median_cpu_time_error) == (0, pytest.approx(2.0))
    assert score.own.regimes_right == 0 and measured.regime != "compute"
    assert score.model.regimes_right == int(measured.sealed_regime_right)
    assert score.model.median_cpu_time_error == pytest.approx(abs(measured.sealed_cpu_time_error))


def test_a_share_of_the_peak_is_right_within_a_factor_of_two():
    _, table = table_of(predict(MEASURED, cpu_time_s=1.0))
    share = table.find_cell(table.own_predictions[0]).fraction_of_compute_peak
    for factor, right in ((0.4, 0), (0.6, 1), (1.9, 1), (2.1, 0)):
        score = table_of(predict(MEASURED, fraction_of_compute_peak=factor * share))[1].own_scores["gpu0"]
        assert (score.share_count, score.own.shares_right) == (1, right)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"sealed_at": AFTER}, LATE),
        ({"started_at": BEFORE}, LATE),  # of an earlier record: the cell was measured again
        ({"shape": {"n": 3}}, NOT_MEASURED),
    ],
)
def test_what_was_not_sealed_before_is_shown_and_not_scored(fields, reason):
    _, table = table_of(predict(MEASURED, **{"cpu_time_s": 100 * US} | fields))
    (row,) = table.own_predictions
    assert (row.not_scored_reason, row.errors, row.model_errors) == (reason, None, None)
    assert (table.own_scores["gpu0"].cell_count, table.own_scores["gpu0"].not_scored_count) == (0, 1)
    assert reason in build_pages(build_report(table))["verification.md"]


def test_a_doubtful_cell_is_not_scored():
    doubtful = cell("gpu0", 100 * US, 90 * US, flops=10**9, bytes=10**9)  # faster than its roof
    assert table_of(predict(doubtful, regime="memory"), measured=doubtful)[1].own_scores["gpu0"].cell_count == 0


def test_pages_and_terminal_have_the_score():
    _, table = table_of(predict(MEASURED, cpu_time_s=300 * US))
    report = build_report(table)
    pages = build_pages(report)
    for text in (pages["verification.md"], pages["report.html"], screen.format_summary(report)):
        assert "300 us" in text or "median error 200 %" in text.replace("\u00a0", " ")
    assert "300 us" in pages["verification.md"] and "+200 %" in pages["verification.md"]


def test_a_table_has_the_predictions_that_were_sealed(monkeypatch):
    monkeypatch.syspath_prepend(CHECKOUT / "workflow/commands")
    import verify

    _, table = table_of(predict(MEASURED, cpu_time_s=300 * US))
    assert verify.list_changed_figures(table, table) == []
    changed = [row.model_copy(update={"cpu_time_s": 100 * US}) for row in table.own_predictions]
    for rows in (changed, []):
        assert len(verify.list_changed_figures(table.model_copy(update={"own_predictions": rows}), table)) == 1
