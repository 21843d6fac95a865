"""Whether measurements follow from their seals, and how records are read."""

import hashlib
import json
from dataclasses import replace

import pytest
from records_factory import SEALED, US, bandwidth_record, cell, hashes_of, operator_record, peak_record, results

from roofline.core.terms import UserError
from roofline.measure.sealing import MEASURED_SOURCE
from roofline.operators.drawing import draw_shapes
from roofline.operators.registry import builtin_operators
from roofline.records.base import write
from roofline.records.calibration_record import CalibrationRecord, HostCost
from roofline.records.operator_record import CellRecord, PredictedCell, PredictionsRecord
from roofline.records.seal_records import CostTerms, SealedEntry
from roofline.table.run_records import read_results
from roofline.table.seals import count_redrawn, find_violations

DAY = "2026-11-05T"


@pytest.fixture
def run():
    return results(
        peak_record("gpu0", "fp16", 780, sustained=640, reasons=["sw_power_cap"], clock=(1755, 950)),
        bandwidth_record("gpu0", hbm_read=4000, hbm_write=4100, hbm_copy=3900, hbm_triad=3950),
        operator_record("gpu0", cell("gpu0", 40 * US, 30 * US, overhead_s=9 * US, start_s=4 * US)),
        bandwidth_record("cpu", dram_read=100),
    )


def lines(run, device="gpu0", hashes=None):
    return find_violations(run, device, hashes or hashes_of(run))


def record(run, path):
    return next(record for at, record in run.measured if at == path)


PEAK, HBM, SCAN = "gpu0/peak_flops/fp16.json", "gpu0/bandwidth/hbm.json", "gpu0/scan/N1024_fp32.json"
SEAL, SCAN_SEAL = "gpu0/prediction.json", "gpu0/scan/prediction.json"


def test_an_honest_run_breaks_no_seal(run):
    assert lines(run) == lines(run, "cpu") == []


# ---------------------------------------------------------------- seals


@pytest.mark.parametrize("sealed_at", [f"{DAY}12:00:20+00:00", f"{DAY}13:00:20+01:00"])
def test_a_clock_that_was_ahead_when_the_seal_was_made_breaks_nothing(run, sealed_at):
    run.seals[SCAN_SEAL].sealed_at = sealed_at  # whose hash the record carries
    assert lines(run) == [] and lines(run, hashes=hashes_of(run) | {SCAN_SEAL: "later"}) != []


def test_a_seal_that_was_changed_after_the_measurements(run):
    changed = hashes_of(run) | {SEAL: "of another"}
    assert [line.partition(" was measured")[0] for line in lines(run, hashes=changed)] == [PEAK, HBM, SCAN]
    assert lines(run, "cpu", changed) == []


def test_a_record_without_its_seals(run):
    record(run, SCAN).seals = {}
    assert lines(run) == [f"{SCAN} does not carry {SEAL}", f"{SCAN} does not carry {SCAN_SEAL}"]


def test_a_seal_with_other_costs_than_the_calibration_measured(run):
    cost, path = HostCost(constant="launch_s", count=1, amount=1, samples_s=[1e-6], median_s=1e-6), SCAN_SEAL
    calibration = CalibrationRecord(
        device="gpu0", device_kind="gpu", sealed_at=SEALED, elapsed_s=1, host_costs=[cost], constants={"launch_s": 1e-6}
    )
    run.seals["gpu0/calibration.json"] = calibration
    for sealed_s, broken in ((1e-6, []), (2e-6, [f"{path} does not follow from gpu0/calibration.json"])):
        run.seals[path].constants["launch_s"], run.seals[path].constant_sources["launch_s"] = sealed_s, MEASURED_SOURCE
        assert [line for line in lines(run) if line.startswith(path)] == broken


# ---------------------------------------------------------------- predictions

BEFORE, AFTER, STARTED = f"{DAY}11:00:00+00:00", f"{DAY}23:00:00+00:00", f"{DAY}12:00:20+00:00"


@pytest.mark.parametrize(
    ("predicted_at", "fields", "breaks"),
    [
        (BEFORE, {}, 0),
        (AFTER, {}, 1),
        (AFTER, {"shape": {"n": 3}}, 0),  # a cell that was not measured
        (AFTER, {"started_at": BEFORE}, 1),  # the record is another one
        (AFTER, {"started_at": STARTED}, 0),  # it was there before
        (AFTER, {"sealed": None, "reason": "needs arrays"}, 0),
    ],
)
def test_a_cell_that_was_measured_before_it_was_predicted_breaks_the_seal(run, predicted_at, fields, breaks):
    (measurement,) = record(run, SCAN).measurements
    fields_of_cell = {
        name: getattr(measurement, name) for name in PredictedCell.model_fields if hasattr(measurement, name)
    }
    row = PredictedCell(**fields_of_cell | fields)
    cells = PredictionsRecord(device="gpu0", predicted_at=predicted_at, seals={}, cells=[row])
    run.predictions["gpu0"] = cells
    assert len(lines(run)) == breaks


def test_drawn_shapes_that_do_not_follow_from_the_seals(run):
    operator = next(operator for operator in builtin_operators() if operator.rule == "row_norm")
    seals = {"gpu0/calibration.json": "c", SEAL: "d", "gpu0/row_norm/prediction.json": "o"}
    job, drawn = draw_shapes(operator, seals, 2)
    rows = operator_record("gpu0", cell("gpu0", 40 * US, 30 * US)).model_copy(update={"case": "drawn"})

    def breaks(case, forget=False, **changes):
        (measured,) = rows.measurements
        measured.operator, measured.shape, measured.dtype = "row_norm", case.shape, case.dtype
        fields = {name: getattr(measured, name) for name in CellRecord.model_fields}
        cells = [PredictedCell(**fields, sealed=None)] * (not forget)
        changed = {"row_norm": drawn.model_copy(update=changes)}
        sealed = PredictionsRecord(device="gpu0", predicted_at=BEFORE, seals=seals, cells=cells, drawn=changed)
        found = replace(run, measured=[("gpu0/row_norm/drawn.json", rows)], predictions={"gpu0": sealed})
        lines_found = find_violations(found, "gpu0", hashes_of(run) | seals)
        return [line for line in lines_found if line.startswith("gpu0/predictions.json:")]

    first, _ = job.cases
    assert breaks(first) == [] and len(breaks(first, forget=True)) == 1
    assert len(breaks(first.resized(rows=7))) == 1
    assert len(breaks(first, seed="0" * 64)) == len(breaks(first, shapes=["a", "b"])) == 1
    by_code = {"row_norm": drawn, "decode_attn": drawn}
    sets = PredictionsRecord(device="gpu0", predicted_at=BEFORE, seals=seals, cells=[], drawn=by_code)
    assert count_redrawn(replace(run, predictions={"gpu0": sets})) == (1, 1)


def test_a_field_that_the_format_gains_leaves_the_hash_of_an_entry_as_it_was():
    class LaterTerms(CostTerms):
        more: float = 0.0

    class LaterEntry(SealedEntry):
        more: str | None = None
        costs: LaterTerms

    counts = {"flops": 1, "bytes": 0.1, "compute_ceiling": "fp32", "memory_ceilings": ["hbm_read"], "constants": {}}
    fields = counts | {"memory_level": "hbm", "code_sha256": "0" * 64}
    text = SealedEntry(**fields, costs=CostTerms(calls={"call": 2})).model_dump_json()
    entry = SealedEntry.model_validate_json(text)
    assert LaterEntry.model_validate_json(text).sha256 == entry.sha256 == hashlib.sha256(text.encode()).hexdigest()


# ---------------------------------------------------------------- reading


def contents(measured):
    return {path: record.model_dump() for path, record in measured}


def test_records_are_read_by_their_kind(tmp_path, run):
    devices = [(f"{name}/device_query.json", device) for name, device in run.devices.items()]
    for path, content in [*run.measured, *devices, *run.seals.items()]:
        write(content, tmp_path / path)
    (tmp_path / "roofline.json").write_text("{}")  # of all devices: none of a device's records
    (tmp_path / "gpu0/words.md").write_text("# Words")
    read = read_results(tmp_path, [path for path in tmp_path.rglob("*") if path.is_file()])
    assert contents(read.measured) == contents(run.measured) and read.seals == run.seals
    assert read.devices == run.devices


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"kind": "decode_attn"}', "'decode_attn' is not a kind of record"),
        ('{"device": "gpu0"}', "None is not a kind of record"),
        ("[]", "None is not a kind of record"),
        ('{"kind": "ope', "Unterminated string"),
        ('{"kind": "prediction", "schema_version": 1, "more": 1}', "version 1"),
        (json.dumps(operator_record("cpu", cell("cpu", 1.0)).model_dump() | {"unheard_of": 1}), "unheard_of"),
    ],
)
def test_what_is_no_record_of_a_known_kind_is_an_error_and_never_skipped(tmp_path, text, why):
    path = tmp_path / "gpu0" / "x.json"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(UserError) as error:
        read_results(tmp_path, [path])
    assert why in str(error.value) and str(path) in str(error.value) and "\n" not in str(error.value)
