"""What `make AGAIN=1` measures again, and which of two records it keeps."""

from pathlib import Path

import pytest
from records_factory import SEALED, cell, device_record, load_next_to, operator_record, operator_seal, timing, verified

from roofline.records.base import write
from roofline.records.calibration_record import CalibrationRecord, HostCost
from roofline.run import again
from roofline.table.rows import CheckResult

RESULTS, CELLS = Path("results"), 4
RECORD = RESULTS / "cpu/scan/case.json"
COST = HostCost(constant="array_operation_s", count=1, amount=1, samples_s=[1e-6], median_s=1e-6)
CALIBRATION = CalibrationRecord(
    device="cpu", device_kind="cpu", sealed_at=SEALED, elapsed_s=1.0, host_costs=[COST], constants={}
)


def record(disturbed: int = 0, latency_s: float = 1.0, **fields):
    """Of four timed blocks, so many disturbed."""
    loads = [4] * disturbed + [0] * (CELLS - disturbed)
    cells = [
        cell("cpu", latency_s, n=n, cpu_time=timing(latency_s, contention=load_next_to(other_cores=load)))
        for n, load in enumerate(loads, 1)
    ]
    return operator_record("cpu", *cells, **fields)


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(device_record("cpu"), RESULTS / "cpu/device_query.json")


def content(path: Path) -> tuple[bytes, int]:
    return path.read_bytes(), path.stat().st_mtime_ns


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [(2, 1, "new"), (1, 2, "old"), (1, 1, "old")],
    ids=["less disturbed", "more disturbed and faster", "as disturbed and faster"],
)
def test_the_new_record_is_kept_only_if_it_is_less_disturbed(results, old, new, kept):
    write(record(old), RECORD)
    earlier = content(RECORD)
    again.copy_aside(RESULTS, [str(RECORD)], stale=[])
    write(record(new, latency_s=0.5), RECORD)
    expected = earlier if kept == "old" else content(RECORD)
    assert again.keep_less_disturbed(RESULTS, [str(RECORD)]) == ([RECORD] if kept == "old" else [])
    assert content(RECORD) == expected
    assert again.restore_missing(RESULTS) == [] and content(RECORD) == expected
    assert not (RESULTS / "previous/again").exists()


def test_a_record_under_other_seals_is_not_put_back(results):
    write(record(0, seals={"cpu/prediction.json": "of before"}), RECORD)
    again.copy_aside(RESULTS, [str(RECORD)], stale=[])
    write(record(1, seals={"cpu/prediction.json": "of now"}), RECORD)
    assert again.keep_less_disturbed(RESULTS, [str(RECORD)]) == []


def test_a_record_whose_measurement_failed_is_put_back(results):
    write(record(2), RECORD)
    earlier = content(RECORD)
    again.copy_aside(RESULTS, [str(RECORD)], stale=[])
    RECORD.unlink()
    RECORD.parent.rmdir()  # as Snakemake does after a failed job
    assert again.restore_missing(RESULTS) == [RECORD] and content(RECORD) == earlier
    assert again.restore_missing(RESULTS) == []


def test_a_stale_record_is_not_kept(results):
    write(record(1), RECORD)
    again.copy_aside(RESULTS, [str(RECORD)], stale=[str(RECORD)])
    write(record(2), RECORD)
    assert again.keep_less_disturbed(RESULTS, [str(RECORD)]) == []


def test_what_the_last_run_found_disturbed_and_this_one_asks_for_is_measured_again(results):
    asked = ["cpu/a", "cpu/b"]
    assert again.list_disturbed_records(RESULTS, asked) == []
    table = verified(record())
    write(table, RESULTS / "roofline.json")
    assert again.list_disturbed_records(RESULTS, asked) == []
    known = {"device": "cpu", "check": "no other load", "reason": "made up", "doubts_figures": True}
    checks = [
        CheckResult(result="fail", records=["cpu/b.json", "cpu/calibration.json", "cpu/not_asked.json"], **known),
        CheckResult(result="fail", records=["cpu/b.json"], **known),
        CheckResult(result="pass", records=["cpu/a.json"], **known),
    ]
    write(table.model_copy(update={"checks": checks}), RESULTS / "roofline.json")
    assert again.list_disturbed_records(RESULTS, asked) == ["results/cpu/b.json"]
    both = ["results/cpu/b.json", "results/cpu/calibration.json"]
    assert again.list_disturbed_records(RESULTS, [*asked, "cpu/calibration"]) == both
    noted = CheckResult(result="note", records=["cpu/calibration.json"], **known)
    calibration_alone = table.model_copy(update={"checks": [noted]})
    assert calibration_alone.disturbed_records == []
    write(calibration_alone, RESULTS / "roofline.json")
    assert again.list_disturbed_records(RESULTS, ["cpu/calibration"]) == ["results/cpu/calibration.json"]


def test_what_another_calibration_sealed_is_not_kept(results):
    calibration, ceiling = RESULTS / "cpu/calibration.json", RESULTS / "cpu/bandwidth/dram.json"
    seal = RECORD.with_name("prediction.json")
    write(record(1, seals={"cpu/calibration.json": "0" * 64}), RECORD)
    write(record(1), ceiling)
    write(operator_seal("cpu", "scan"), seal)
    write(CALIBRATION, calibration)
    earlier = content(calibration)
    again.copy_aside(RESULTS, [str(path) for path in (RECORD, ceiling, calibration)], stale=[])
    for path in (RECORD, ceiling):
        write(record(2), path)
    write(CALIBRATION.model_copy(update={"elapsed_s": 2.0}), calibration)
    assert again.keep_less_disturbed(RESULTS, [str(path) for path in (RECORD, ceiling, calibration, seal)]) == [ceiling]
    calibration.unlink()
    assert again.restore_missing(RESULTS) == [calibration] and content(calibration) == earlier
