"""The committed results of real cards: whole, sealed, and all that is derived follows from the records exactly."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from roofline.core import model
from roofline.records.base import read
from roofline.records.files import file_sha256
from roofline.records.manifest import Manifest
from roofline.records.operator import OperatorRecord
from roofline.run.derived import derive
from roofline.run.manifest import hashes
from roofline.table.rows import Roofline
from roofline.table.run_records import Results, read_results
from roofline.table.seals import violations

NEWEST = Path(__file__).parents[1] / "reference/nvidia-h200"
RECORDS = ("gpu*/**/*.json", "cpu/**/*.json")


@pytest.fixture(scope="module")
def found() -> Results:
    return read_results(NEWEST, sorted(path for pattern in RECORDS for path in NEWEST.glob(pattern)))


@pytest.fixture(scope="module")
def sha256() -> Mapping[str, str]:
    return {path.relative_to(NEWEST).as_posix(): file_sha256(path) for path in NEWEST.rglob("*.json")}


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    return read(Manifest, NEWEST / "manifest.json")


@pytest.fixture(scope="module")
def in_order(manifest) -> Results:
    """The records in the order of the run."""
    listed = [NEWEST / output.path.removeprefix("results/") for output in manifest.outputs]
    return read_results(NEWEST, [path for path in listed if path.suffix == ".json"])


@pytest.fixture(scope="module")
def derived(in_order, manifest):
    return derive(in_order, manifest.asked, hashes(manifest.outputs))["roofline.json"]


def test_every_record_reads_and_follows_from_its_seals_and_samples(found, sha256):
    assert found.measured and found.seals
    for device in found.devices:
        assert violations(found, device, sha256) == []


def test_every_prediction_was_sealed_of_the_ceilings_that_were_promised(found):
    """No prediction is faster than the promised roofline of its declared ceilings."""
    cells = [(record.device, cell) for _, record in found.measured for cell in record.measurements]
    measured = {cell.operator for _, cell in cells}
    assert "gemm" in measured and measured & {"decode_attention", "rmsnorm_matmul"}
    for device, cell in cells:
        promised = found.device_seal(device).ceilings
        compute = {c.name: c.tflops for c in promised if c.kind == "compute"}
        memory = {c.name: c.gb_per_s for c in promised if c.kind == "memory"}
        gb_per_s = next((memory[name] for name in cell.memory_ceilings if name in memory), max(memory.values()))
        roof_s = model.roofline_time(cell.flops, cell.bytes, compute[cell.compute_ceiling] * 1e12, gb_per_s * 1e9)
        assert cell.predicted.latency_s >= roof_s * (1 - 1e-9), cell.shape


def test_every_cell_has_its_samples_or_spent_its_budget(found):
    for _, record in found.of_kind(OperatorRecord):
        for cell in record.measurements:
            assert len(cell.latency.samples_s) == cell.latency.requested or cell.latency.stopped_by == "time_budget"


def test_everything_derived_follows_from_the_records(derived):
    assert read(Roofline, NEWEST / "roofline.json").model_dump() == derived.model_dump()


def test_every_check_that_applies_to_the_gpu_passes(derived):
    results = {c.result for c in derived.checks if c.device != "cpu"}
    assert "pass" in results and "fail" not in results
