"""The committed results of real cards: whole, valid, and just as their runs wrote them."""

import hashlib
import json
import re
from pathlib import Path

import pytest

from roofline import records
from roofline.analysis.consistency import contradictions

CARDS = sorted(path.parent for path in (Path(__file__).parents[1] / "reference").glob("*/manifest.json"))
LEFT_OUT = "results/checkpoints/"  # 25 MB of seeded numbers


@pytest.fixture(params=CARDS, ids=lambda card: card.name)
def card(request) -> Path:
    return request.param


def listed(card: Path) -> dict[Path, dict]:
    outputs = json.loads((card / "manifest.json").read_text())["outputs"]
    kept = [output for output in outputs if not output["path"].startswith(LEFT_OUT)]
    return {card / output["path"].removeprefix("results/"): output for output in kept}


def test_there_is_one():
    assert CARDS


def test_no_file_was_edited_by_hand(card):
    for path, output in listed(card).items():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == output["sha256"], path


def test_its_records_are_valid_and_follow_from_their_samples(card):
    kinds = {
        "peak_flops": records.PeakFlopsRecord,
        "bandwidth": records.BandwidthRecord,
        "decode_attn": records.DecodeAttnRecord,
    }
    measured = [path for path in listed(card) if path.parent.name in kinds or path.parent.parent.name in kinds]
    assert len(measured) > 20
    for path in measured:
        kind = kinds.get(path.parent.name) or kinds[path.parent.parent.name]
        assert contradictions(records.read(kind, path)) == []
    records.read(records.Roofline, card / "roofline.json")


def test_every_criterion_that_applies_to_the_gpu_passes(card):
    acceptance = records.read(records.Acceptance, card / "acceptance.json")
    assert {c.result for c in acceptance.criteria if c.device in ("gpu0", None)} == {"pass"}


def test_every_cell_has_its_samples_or_spent_its_budget(card):
    for path in card.glob("gpu0/decode_attn/*/*.json"):
        for cell in records.read(records.DecodeAttnRecord, path).measurements:
            assert len(cell.latency.samples_s) == 1000 or cell.latency.stopped_by == "time_budget"


def test_the_table_of_ceilings_is_that_of_the_records(card):
    readme = (card / "README.md").read_text()
    for ceiling in records.read(records.Roofline, card / "roofline.json").ceilings:
        if ceiling.device == "gpu0" and ceiling.kind == "compute":
            row = next(line for line in readme.splitlines() if line.startswith(f"| {ceiling.name} "))
            measured, share = re.search(r"\| ([\d.]+) T(?:FL)?OPS \| [\d.]+ \| (\d+) %", row).groups()
            assert float(measured) == pytest.approx(ceiling.tflops, rel=5e-3)
            assert int(share) == pytest.approx(100 * ceiling.fraction_of_vendor, abs=0.51)


def test_the_table_of_runs_is_that_of_the_records(card):
    """This run and those of spread.json, how far apart all of them lie, and the words under it."""
    readme = (card / "README.md").read_text()
    this = {}
    for ceiling in records.read(records.Roofline, card / "roofline.json").ceilings:
        if ceiling.device == "gpu0":
            this[ceiling.name, "ceiling"] = ceiling.tflops if ceiling.kind == "compute" else ceiling.gb_per_s
        if ceiling.device == "gpu0" and ceiling.kind == "compute":
            peak = records.read(records.PeakFlopsRecord, card / ceiling.record).peak
            this |= {(ceiling.name, "burst"): peak.burst_tflops, (ceiling.name, "sustained"): peak.sustained_tflops}
    worst = {}
    for row in json.loads((card / "spread.json").read_text())["ceilings"]:
        name, figure = row["name"], row["figure"]
        runs = [this[name, figure], *row["runs"]]
        spread = (max(runs) - min(runs)) / sorted(runs)[1]
        told = name if figure == "ceiling" else f"{name}, {figure}"
        cells = re.search(
            rf"^\| {told} \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| \S+ \| ([\d.e-]+) % \|", readme, re.MULTILINE
        )
        assert [float(cell) for cell in cells.groups()[:3]] == pytest.approx(runs, rel=1e-3)
        assert float(cells[4]) == pytest.approx(100 * spread, rel=0.05)
        worst[name, figure] = spread
    assert max(spread for (_, figure), spread in worst.items() if figure == "burst") < 0.012


def test_the_table_beside_pytorch_is_the_documentations():
    """docs/decode_attention.md ends with the table of the H200, as the comparing script wrote it."""
    root = CARDS[0].parents[1]
    table = (root / "reference" / "nvidia-h200" / "attention_pytorch.md").read_text()
    assert (root / "docs" / "decode_attention.md").read_text().endswith(table)
    rows = json.loads((root / "reference" / "nvidia-h200" / "attention_pytorch.json").read_text())["rows"]
    assert len(rows) == len(re.findall(r"^\| (?:fp|bf)", table, re.MULTILINE)) == 90
