"""The committed results of real cards: whole, sealed, and all that is derived follows from the records exactly."""

import json
import runpy
import shutil
import subprocess
import sys
from collections.abc import Mapping

import pytest
from workflow_run import CHECKOUT, NEWEST

from roofline.records.base import read
from roofline.records.files import file_sha256
from roofline.records.manifest_record import Manifest
from roofline.report.derived import TABLE, derive
from roofline.report.report_model import Source
from roofline.run.archive import opened, unpacked
from roofline.run.make_manifest import describe_amendments, first_hash, hashes
from roofline.table.known_cards import find_known_cards
from roofline.table.run_records import Results, read_results
from roofline.table.seals import find_violations

AMENDED = NEWEST.parent / "nvidia-h100-80gb-hbm3"
RECORDS = ("gpu*/**/*.json", "cpu/**/*.json")


@pytest.fixture(scope="module")
def results(newest) -> Results:
    return read_results(newest, sorted(path for pattern in RECORDS for path in newest.glob(pattern)))


@pytest.fixture(scope="module")
def sha256(newest) -> Mapping[str, str]:
    return {path.relative_to(newest).as_posix(): file_sha256(path) for path in newest.rglob("*.json")}


@pytest.fixture(scope="module")
def manifest(newest) -> Manifest:
    return read(Manifest, newest / "manifest.json")


@pytest.fixture(scope="module")
def derived(newest, manifest) -> dict:
    """The table, with the cards that were known then, and the pages, with those that are known now, from the records
    in the order of the run."""
    listed = read_results(newest, [newest.parent / output.path for output in manifest.outputs])
    source = Source(
        manifest.sources.commit,
        manifest.sources.url,
        describe_amendments(manifest),
        manifest.sources.changed_files or (),
    )
    table, _ = derive(listed, manifest.asked, hashes(manifest.outputs), source)
    listed.known_cards = find_known_cards(listed)
    _, texts = derive(listed, manifest.asked, hashes(manifest.outputs), source)
    return {TABLE: table, **texts}


@pytest.mark.parametrize("card", [AMENDED, NEWEST, NEWEST / "thorough", NEWEST / "two-cards"])
def test_what_is_packed_agrees_with_its_manifest_and_with_what_is_shown(card):
    with opened(card) as (root, _, problems):
        assert problems == []
        assert all(
            file_sha256(root / "results" / path.name) == file_sha256(path) for path in card.glob("roofline.json")
        )


def test_a_file_that_was_replaced_after_its_run_is_listed_with_what_it_was():
    """Each entry begins where the one before it of the same file ended; the last one has the present hash."""
    with opened(AMENDED) as (_, manifest, _):
        sha256 = {output.path: output.sha256 for output in manifest.outputs}
        amended: dict[str, str] = {}
        for entry in manifest.amended:
            assert amended.get(entry.path, entry.old_sha256) == entry.old_sha256 != entry.new_sha256
            amended[entry.path] = entry.new_sha256
        assert amended and amended.items() <= sha256.items()


def test_every_record_reads_and_follows_from_its_seals_and_samples(results, sha256):
    assert results.measured and results.seals
    for device in results.devices:
        assert find_violations(results, device, sha256) == []


def test_everything_derived_follows_from_the_records(derived):
    def parse(text: str) -> dict:
        """Versions of Python add up in different orders."""
        return json.loads(text, parse_float=lambda digits: f"{float(digits):.12g}")

    assert parse(derived[TABLE].model_dump_json()) == parse((NEWEST / TABLE).read_text(encoding="utf-8"))
    name_missing_pages = runpy.run_path(str(CHECKOUT / "reference/redraw.py"))["name_missing_pages"]
    for name in (name for name in derived if name.endswith((".md", ".html"))):
        text = name_missing_pages(derived[name], NEWEST) if name == "ROOFLINE.md" else derived[name]
        assert (NEWEST / name).read_text(encoding="utf-8") == text, name


def test_every_check_that_applies_to_the_gpu_passes(derived):
    results = {c.result for c in derived["roofline.json"].checks if c.device != "cpu"}
    assert "pass" in results and "fail" not in results


def first_hashes() -> dict[str, str]:
    """Committed apart from the archives."""
    return json.loads((NEWEST.parent / "first_hashes.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", sorted(first_hashes()))
def test_each_archive_is_the_one_that_was_first_committed_or_says_what_was_amended(name):
    with opened(NEWEST.parent / name) as (_, manifest, _):
        assert first_hash(manifest) == first_hashes()[name]


def test_every_archive_is_listed():
    assert {path.parent.relative_to(NEWEST.parent).as_posix() for path in NEWEST.parent.rglob("*.tar.gz")} == {
        *first_hashes()
    }


def test_a_record_that_was_replaced_together_with_its_hash_is_refused(tmp_path):
    card = tmp_path / "reference" / NEWEST.name
    card.mkdir(parents=True)
    shutil.copy(NEWEST.parent / "first_hashes.json", card.parent)
    with unpacked(NEWEST) as root:
        shutil.copytree(root / "results", card / "results")
    program = CHECKOUT / "workflow/commands/verify.py"
    record, manifest = card / "results/gpu0/peak_flops/fp16.json", card / "results/manifest.json"
    old = file_sha256(record)
    record.write_text(record.read_text().replace('"burst_tflops": 8', '"burst_tflops": 9'))
    hashes = {"old_sha256": old, "new_sha256": file_sha256(record)}
    assert len({*hashes.values()}) == 2
    manifest.write_text(manifest.read_text().replace(old, hashes["new_sha256"]))
    done = subprocess.run([sys.executable, "-P", program, card], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and f"{NEWEST.name}: not the files" in done.stdout
    amendment = {"path": "results/gpu0/peak_flops/fp16.json", **hashes, "commit": "1" * 40, "reason": "said"}
    content = json.loads(manifest.read_text())
    content["amended"] += [amendment | {"amended_at": "2026-11-30T00:00:00+00:00"}]
    manifest.write_text(json.dumps(content))
    assert first_hash(read(Manifest, manifest)) == first_hashes()[NEWEST.name]
