"""A run of the real workflow on the CPU: seal, records, roofline.json and verification belong together."""

from roofline.core.prediction import way_of
from roofline.records import DecodeAttnRecord
from roofline.records.base import read
from roofline.records.compute import PeakFlopsRecord
from roofline.records.files import file_sha256
from roofline.records.prediction import PredictionRecord, predict_sealed
from roofline.records.roofline import Roofline
from roofline.records.verification import Verification
from roofline.report.verification_text import cell_name, markdown
from roofline.run.manifest import moment


def measured_cells(run):
    """Every timed cell of the run with its record."""
    peaks = [read(PeakFlopsRecord, path) for path in sorted(run.results.glob("cpu/peak_flops/*.json"))]
    steps = [read(DecodeAttnRecord, path) for path in sorted(run.results.glob("cpu/decode_attn/*/*.json"))]
    return [(record, record.peak.lab) for record in peaks if record.peak.lab] + [
        (record, cell) for record in steps for cell in record.measurements
    ]


def test_every_record_holds_the_seals_prediction_and_began_after_it(finished_run):
    path = finished_run.results / "cpu/prediction.json"
    seal, cells = read(PredictionRecord, path), measured_cells(finished_run)
    assert len(cells) > 4
    for record, cell in cells:
        assert record.seal_sha256 == file_sha256(path)
        assert moment(record.started_at) > moment(seal.sealed_at)
        work = {"flops": cell.flops, "traffic_bytes": cell.bytes, "compute_ceiling": cell.compute_ceiling}
        assert cell.predicted == predict_sealed(seal, **work, way=way_of(cell))


def test_every_prediction_stands_beside_what_was_found(finished_run):
    found = read(Verification, finished_run.results / "verification.json")
    roofline = read(Roofline, finished_run.results / "roofline.json")
    assert len(found.entries) == len(roofline.operators) == len(measured_cells(finished_run))
    for entry, operator in zip(found.entries, roofline.operators, strict=True):
        assert (entry.sealed, entry.from_ceilings) == (operator.predicted.sealed, operator.predicted.from_ceilings)
        assert (entry.latency_s, entry.regime) == (operator.latency_s, operator.regime)
        assert entry.sealed_error == (entry.sealed.latency_s - entry.latency_s) / entry.latency_s
        assert entry.regime and entry.gap and entry.cause != "unexplained"
        assert abs(sum(part.seconds for part in entry.parts) - (entry.latency_s - entry.sealed.latency_s)) < 1e-9
    assert [(seal.device, seal.violations) for seal in found.seals] == [("cpu", [])]


def test_the_page_is_the_records_and_names_every_cell(finished_run):
    found = read(Verification, finished_run.results / "verification.json")
    text = (finished_run.results / "verification.md").read_text(encoding="utf-8")
    assert text == markdown(found)
    assert all(f"**{cell_name(entry)}**" in text for entry in found.entries)


def test_the_manifest_and_the_checklist_know_of_it(finished_run):
    listed = {output["path"] for output in finished_run.read("manifest.json")["outputs"]}
    assert {"results/verification.json", "results/verification.md"} <= listed
    criteria = {(c["device"], c["criterion"]): c["result"] for c in finished_run.read("acceptance.json")["criteria"]}
    assert criteria["cpu", "every prediction has its measured counterpart, sealed before it"] == "pass"
