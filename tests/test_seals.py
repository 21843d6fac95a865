"""Whether records follow from their seals and from their own samples: every figure that was changed is found."""

import pytest
from edited_records import write_edited
from records_factory import (
    US,
    bandwidth_record,
    cell,
    faults_of,
    hashes_of,
    operator_record,
    operator_seal,
    peak_record,
    results,
    timing,
)

from roofline.analysis.results import read_any, read_results
from roofline.analysis.seals import moment, violations
from roofline.records.base import CorruptRecord, write
from roofline.records.memory import FoundLevel, Sweep, SweepPoint
from roofline.records.operator import OperatorRecord
from roofline.records.timing import Check, Timing

DAY = "2026-11-05T"


@pytest.fixture
def run():
    return results(
        peak_record("gpu0", "fp16", 780, sustained=640, reasons=["sw_power_cap"], clock=(1755, 950)),
        bandwidth_record("gpu0", hbm_read=4000, hbm_write=4100, hbm_copy=3900, hbm_triad=3950),
        operator_record("gpu0", cell("gpu0", 40 * US, 30 * US, overhead_s=9 * US, device_overhead_s=4 * US)),
        bandwidth_record("cpu", dram_read=100),
    )


def told(run, device="gpu0", hashes=None):
    return violations(run, device, hashes or hashes_of(run))


def record(run, path):
    return next(record for at, record in run.measured if at == path)


PEAK, HBM, SCAN = "gpu0/peak_flops/fp16.json", "gpu0/bandwidth/hbm.json", "gpu0/scan/N1024_fp32.json"
SEAL, SCAN_SEAL = "gpu0/prediction.json", "gpu0/scan/prediction.json"


def test_an_honest_run_breaks_no_seal(run):
    assert told(run) == told(run, "cpu") == []


# ---------------------------------------------------------------- seals


@pytest.mark.parametrize("sealed_at", [f"{DAY}12:00:20+00:00", f"{DAY}13:00:20+01:00", f"{DAY}23:59:59", "yesterday"])
def test_a_measurement_that_started_before_its_seal(run, sealed_at):
    run.seals[SCAN_SEAL].sealed_at = sealed_at
    assert told(run) == [f"{SCAN} started at {DAY}12:00:20+00:00, and {SCAN_SEAL} was sealed at {sealed_at}"]


def test_a_seal_from_a_little_before_in_another_zone_holds(run):
    run.seals[SCAN_SEAL].sealed_at = f"{DAY}13:00:19+01:00"
    assert told(run) == []


def test_a_seal_that_was_changed_after_the_measurements(run):
    changed = hashes_of(run) | {SEAL: "of another"}
    assert [line.partition(" was measured")[0] for line in told(run, hashes=changed)] == [PEAK, HBM, SCAN]
    assert told(run, "cpu", changed) == []


def test_a_seal_of_other_sources_than_the_manifests(run):
    sources = {path: seal.source_sha256 for path, seal in run.seals.items()}
    assert violations(run, "gpu0", hashes_of(run), sources) == []
    sources[SCAN_SEAL] = "of another"
    assert violations(run, "gpu0", hashes_of(run), sources) == [
        f"{SCAN_SEAL} was sealed by other sources than the manifest's"
    ]


def test_a_record_without_its_seals(run):
    record(run, SCAN).seals = {}
    assert told(run) == [f"{SCAN} does not carry {SEAL}", f"{SCAN} does not carry {SCAN_SEAL}"]


def test_a_device_without_a_seal(run):
    del run.seals["cpu/prediction.json"]
    assert "cpu has no sealed prediction" in told(run, "cpu")


def test_a_device_record_that_was_changed_after_it_was_sealed(run):
    changed = hashes_of(run) | {"gpu0/device_query.json": "of another"}
    sealed = [f"{path} was sealed for another gpu0/device_query.json" for path in run.seals if path.startswith("gpu0")]
    assert told(run, hashes=changed) == sealed and len(sealed) == 3


@pytest.mark.parametrize(
    "change",
    [
        {"predicted": {"regime": "overhead", "latency_s": 1.0, "fraction_of_compute_peak": None}},
        {"flops": 10**12},
        {"bytes": 4 * 10**9},
        {"compute_ceiling": "fp16"},
        {"memory_ceilings": ["l2"], "costs": {"start": {}}},
        {"costs": {"calls": {"call_s": 6}}},
        {"costs": {"calls": {"unheard_of_s": 1}}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_cell_of_another_prediction_than_its_seals_make(run, change):
    one = record(run, SCAN)
    one.measurements = [type(one.measurements[0]).model_validate(one.measurements[0].model_dump() | change)]
    (line,) = told(run)
    assert line.startswith(f"{SCAN} holds another prediction of scan plain fp32 n 1024 than its seals make")


def test_the_prediction_of_an_operator_whose_seal_is_missing(run):
    del run.seals[SCAN_SEAL]
    assert [line for line in told(run) if "another prediction" in line]


def test_a_vendors_figure_that_is_not_that_of_the_device_record(run):
    changed = record(run, PEAK)
    changed.peak = changed.peak.model_copy(update={"vendor_tflops": 800.0, "fraction_of_vendor": 780 / 800})
    assert told(run) == [f"{PEAK}: vendor_tflops is not the None of the device record"]


def test_moments_without_a_zone_are_utc():
    assert moment(f"{DAY}12:00:00") == moment(f"{DAY}12:00:00+00:00") == moment(f"{DAY}13:00:00+01:00")
    assert moment("noon") is moment(None) is None


# ---------------------------------------------------------------- samples

SLOWER = timing(1.0)
OF_PEAK = {
    "tflops": {"tflops": 800},
    "burst_tflops": {"burst_tflops": 800, "tflops": 800},
    "ci95": {"ci95": (779, 781)},
    "fraction_of_vendor": {"fraction_of_vendor": 0.99},
    "fraction_of_clock": {"fraction_of_clock": 0.99},
    "clock_mhz": {"clock_mhz": 1980},
    "reference_tflops": {"reference_tflops": 779},
    "sustained_tflops": {"sustained_tflops": 700},
}


@pytest.mark.parametrize("change", OF_PEAK.values(), ids=OF_PEAK)
def test_a_figure_of_a_compute_ceiling_that_its_samples_do_not_give(run, change):
    changed = record(run, PEAK)
    changed.peak = changed.peak.model_copy(update=change)
    assert any(next(iter(change)) in line for line in faults_of(changed))


def test_the_samples_of_a_compute_ceiling_and_its_load(run):
    changed = record(run, PEAK)
    taken = changed.peak.burst.latency
    kept, taken.samples_s = taken.samples_s, [0.5 * sample for sample in taken.samples_s]
    assert any("median_s is" in line for line in faults_of(changed))
    taken.samples_s = kept
    assert faults_of(changed) == []
    changed.peak.burst.tflops = 800
    assert any("tflops is 800 and its samples give 780" in line for line in faults_of(changed))
    changed.peak.burst.tflops = 780
    for point in changed.peak.sustained.curve:
        point.tflops = 700
    assert any("sustained" in line for line in faults_of(changed))


@pytest.mark.parametrize(
    "change",
    [{"gb_per_s": 4500}, {"latency": SLOWER}, {"ci95": None}, {"bytes": 1 << 31}, {"blocks_gb_per_s": [4000, 4500]}],
    ids=lambda change: next(iter(change)),
)
def test_a_figure_of_a_memory_ceiling_that_its_samples_do_not_give(run, change):
    changed = record(run, HBM)
    changed.bandwidths[0] = changed.bandwidths[0].model_copy(update=change)
    assert faults_of(changed)


@pytest.mark.parametrize("timed", ["latency", "device_latency"])
@pytest.mark.parametrize(
    "change", [{"median_s": 1e-6}, {"samples_s": [1e-6] * 9}, {"ci95_s": None}, {"ci95_s": (9.0, 9.1)}], ids=str
)
def test_a_time_that_its_samples_do_not_give(run, timed, change):
    changed = record(run, SCAN).measurements[0]
    setattr(changed, timed, getattr(changed, timed).model_copy(update=change))
    assert any("its samples give" in line for line in faults_of(record(run, SCAN)))


def test_a_result_beyond_its_tolerance_is_no_record():
    with pytest.raises(ValueError, match="error is 5, above the tolerance 1e-05"):
        Check(compared="made up", error=5.0, tolerance=1e-5)


def test_a_level_lies_within_the_points_of_its_sweep():
    points = [SweepPoint(size_bytes=size, gb_per_s=rate) for size, rate in ((1, 90.0), (2, 110.0), (4, 30.0))]
    level = {"name": "l2", "first_bytes": 1, "last_bytes": 2, "knee_bytes": None, "reported_bytes": None}
    sweep = {"series": "made up", "reader": "made up", "counted": "made up", "points": points, "states": []}
    assert Sweep(**sweep, levels=[FoundLevel(**level, gb_per_s=100)]).levels
    for wrong in ({"gb_per_s": 300}, {"gb_per_s": 30}, {"gb_per_s": 100, "first_bytes": 4, "last_bytes": 4}):
        with pytest.raises(ValueError, match="is not what its points give"):
            Sweep(**sweep, levels=[FoundLevel(**level | wrong)])


def test_times_without_samples_are_no_record():
    with pytest.raises(ValueError, match="samples_s"):
        Timing.model_validate(timing(1.0).model_dump() | {"samples_s": []})


# ---------------------------------------------------------------- reading


def contents(measured):
    return {path: record.model_dump() for path, record in measured}


def test_records_are_read_by_their_kind(tmp_path, run):
    for path, one in [*run.measured, *run.devices.values(), *run.seals.items()]:
        write(one, tmp_path / path)
    (tmp_path / "roofline.json").write_text("{}")  # of all devices: none of a device's records
    (tmp_path / "gpu0/words.md").write_text("# Words")
    found = read_results(tmp_path, [path for path in tmp_path.rglob("*") if path.is_file()])
    assert contents(found.measured) == contents(run.measured) and found.seals == run.seals
    assert found.device_records() == run.device_records()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"kind": "decode_attn"}', "'decode_attn' is no kind of record; allowed: device_query, "),
        ('{"device": "gpu0"}', "None is no kind of record"),
        ("[]", "None is no kind of record"),
        ('{"kind": "ope', "Unterminated string"),
        ('{"kind": "prediction", "schema_version": 1, "more": 1}', "schema_version: Input should be 5"),
    ],
)
def test_what_is_no_record_of_a_known_kind_is_an_error_and_never_skipped(tmp_path, text, why):
    path = tmp_path / "gpu0" / "x.json"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(CorruptRecord) as error:
        read_results(tmp_path, [path])
    assert why in str(error.value) and str(path) in str(error.value) and "\n" not in str(error.value)


def test_a_field_that_no_record_has_is_an_error(tmp_path):
    record = operator_record("cpu", cell("cpu", 1.0))
    write_edited(tmp_path / "x.json", record.model_dump() | {"unheard_of": 1})
    with pytest.raises(CorruptRecord, match="unheard_of"):
        read_any(tmp_path / "x.json")
    write(record, tmp_path / "x.json")
    assert isinstance(read_any(tmp_path / "x.json"), OperatorRecord)


def test_seals_are_found_by_device_and_operator():
    constants = {"call_s": 2.0, "share": 1.0}
    run = results(operator_record("cpu", cell("cpu", 1.0)), operator_seal("cpu", "scan", constants))
    assert run.device_seal("cpu").kind == "prediction" and run.device_seal("gpu0") is None
    assert run.constants("cpu", "scan") == constants and run.constants("cpu", "gemm") is None
