"""A run of the real workflow on the CPU: seals, records, roofline.json and verification belong together."""

from datetime import datetime

from roofline.records.base import read
from roofline.records.files import file_sha256
from roofline.records.prediction import predict_sealed
from roofline.table.rows import Roofline
from roofline.table.run_records import read_results


def test_every_record_holds_the_seals_predictions_and_began_after_them(finished_run):
    found = read_results(finished_run.results, sorted(finished_run.results.glob("cpu/**/*.json")))
    device = found.device_seal("cpu")
    cells = [(record, cell) for _, record in found.measured for cell in getattr(record, "measurements", [])]
    assert len(cells) == 9
    for _, record in found.measured:
        assert record.seals == {path: file_sha256(finished_run.results / path) for path in record.seals}
        assert "cpu/prediction.json" in record.seals
        assert all(
            datetime.fromisoformat(record.started_at) > datetime.fromisoformat(found.seals[path].sealed_at)
            for path in record.seals
        )
    for record, cell in cells:
        assert len(record.seals) == 3
        again = predict_sealed(
            device,
            found.constants("cpu", cell.operator),
            flops=cell.flops,
            traffic_bytes=cell.bytes,
            compute_ceiling=cell.compute_ceiling,
            memory_ceilings=cell.memory_ceilings,
            memory_level=cell.memory_level,
            terms=cell.costs,
        )
        assert cell.predicted == again and again.latency_s > 0


def test_the_screen_and_the_manifest_hold_each_seal(finished_run):
    manifest = finished_run.read("manifest.json")
    seals = manifest["seals"][0]["seals"]
    logs = "".join(path.read_text() for path in (finished_run.root / "logs/cpu").rglob("*.log"))
    for path in seals:
        assert f"sealed as {file_sha256(finished_run.results / path)[:12]}" in logs


def test_every_prediction_stands_beside_what_was_found(finished_run):
    found = read(Roofline, finished_run.results / "roofline.json")
    assert len(found.entries) == len(found.operators) == 9
    for entry in found.entries:
        assert entry.sealed_error == (entry.sealed.cpu_time_s - entry.cpu_time_s) / entry.cpu_time_s
        assert (entry.cause is None) == (entry.cause_s is None)
    assert found.devices["cpu"].violations == [] and found.devices["cpu"].seals


def test_the_page_is_the_records_and_names_every_cell(finished_run):
    found = read(Roofline, finished_run.results / "roofline.json")
    lines = (finished_run.results / "verification.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| cpu ")]
    assert len(rows) == len(found.entries)
    assert all(any(found.full_name(entry) in row for row in rows) for entry in found.entries)


def test_the_checklist_knows_of_it(finished_run):
    criteria = {(c["device"], c["check"]): c for c in finished_run.read("roofline.json")["checks"]}
    found = criteria["cpu", "every prediction has its measured counterpart, sealed before it"]
    assert found["result"] == "pass", found


def test_the_pages_have_bounded_lengths(finished_run):
    words = {
        name: len((finished_run.results / name).read_text().split()) for name in ("ROOFLINE.md", "verification.md")
    }
    assert 500 < words["ROOFLINE.md"] < 2500 and words["verification.md"] < 600
    assert (finished_run.results / "report.html").stat().st_size < 3_000_000
