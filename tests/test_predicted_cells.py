"""A cell that was measured before it was predicted breaks the seal."""

import pytest
from records_factory import cell, hashes_of, operator_record, results

from roofline.records.operator import PredictedCell, PredictionsRecord
from roofline.table.seals import violations

BEFORE, AFTER = "2026-11-05T11:00:00+00:00", "2026-11-05T23:00:00+00:00"


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
    ("predicted_at", "fields", "lines"),
    [
        (BEFORE, {}, 0),
        (AFTER, {}, 1),
        (AFTER, {"shape": {"n": 3}}, 0),  # a cell that was not measured
        (AFTER, {"measured_at": BEFORE}, 1),  # the record is another one
        (AFTER, {"predicted": None, "reason": "needs arrays"}, 0),
    ],
)
def test_a_cell_that_was_measured_before_it_was_predicted_breaks_the_seal(predicted_at, fields, lines):
    made, _ = run_with(predicted_at, **fields)
    assert len(violations(made, "cpu", hashes_of(made))) == lines


def test_a_cell_whose_record_was_there_before_breaks_none():
    _, started_at = run_with(AFTER)
    made, _ = run_with(AFTER, measured_at=started_at)
    assert violations(made, "cpu", hashes_of(made)) == []
