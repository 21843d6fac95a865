"""The archive of a real run: unpacked elsewhere nothing is stale, and it verifies."""

import shutil
import tarfile
from pathlib import Path

import pytest
from workflow_run import Run, made_once

from roofline.records.base import read
from roofline.records.manifest import Manifest

MEASURING = {"device_query", "peak_flops", "bandwidth", "decode_attn", "rmsnorm_matmul", "row_norm"}
FOLDERS = ("", "peak_flops/", "decode_attn/", "rmsnorm_matmul/", "row_norm/")


def unpacked(path: Path, folder: Path) -> Run:
    folder.mkdir(exist_ok=True)
    with tarfile.open(path) as tar:
        # Python 3.11 has the filter from 3.11.4 on.
        tar.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    (root,) = folder.iterdir()
    return Run(root)


@pytest.fixture(scope="session")
def archived(finished_run, tmp_path_factory) -> Run:
    """A copy of the finished run with its archive. Leave it as it is."""

    def make(folder: Path) -> None:
        run = Run(Path(shutil.copytree(finished_run.root, folder, symlinks=True)))
        run.archive()

    return Run(made_once(tmp_path_factory, "archived-run", make))


@pytest.fixture
def archive(archived) -> Path:
    (path,) = (archived.results / "archive").iterdir()
    return path


def test_the_manifest_lists_every_result_with_its_job(finished_run):
    manifest = read(Manifest, finished_run.results / "manifest.json")
    assert {output.path for output in manifest.outputs} == {f"results/{p}" for p in finished_run.files()} - {
        "results/manifest.json"
    }
    for output in manifest.outputs:
        assert output.rule and output.of_this_run
        assert (finished_run.root / output.log).is_file()
    assert manifest.sources.known_from == "git" and manifest.sources.dirty is False
    assert manifest.times.jobs_without_times == 0
    assert 0 < manifest.times.jobs_s <= manifest.times.span_s
    (sealed,) = manifest.seals
    assert set(sealed.seals) == {"cpu/calibration.json", *(f"cpu/{folder}prediction.json" for folder in FOLDERS)}
    assert all(moment < sealed.first_measurement_at for moment in sealed.seals.values())
    assert sealed.measurements == 6


def test_unpacked_elsewhere_nothing_is_to_be_done_and_it_verifies_itself(archive, tmp_path):
    elsewhere = unpacked(archive, tmp_path / "elsewhere")
    assert not elsewhere.planned()
    assert elsewhere.command("verify", archive).returncode == 0


def refused(run: Run) -> str:
    """The one line in which an archive is refused."""
    done = run.command("archive")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    return done.stderr


def test_a_changed_or_faulty_setting_keeps_the_run_from_being_archived(run):
    run.edit_config(decode_attn={"seq_lens": [16, 32, 48]})
    told = refused(run)
    assert "5 jobs" in told and "decode_attn" in told
    run.write_config("devicess: [cpu]\n")
    assert "devicess" in refused(run)


def test_a_partial_rerun_counts_its_own_jobs_and_the_kept_ones_apart(run):
    run.edit_config(decode_attn={"seq_lens": [16, 32, 48]}, cost={"usd_per_hour": 3600})
    run.finish()
    manifest = read(Manifest, run.results / "manifest.json")
    kept = {output.rule for output in manifest.outputs if not output.of_this_run}
    assert kept == MEASURING | {"prediction", "calibration", "operator_prediction", "checkpoint"}
    assert 0 < manifest.times.jobs_of_this_run_s < manifest.times.jobs_s
    assert manifest.times.cost_usd == pytest.approx(manifest.times.span_s)
    assert manifest.sources.changed_files == ["config/config.yaml"]


def test_a_copied_folder_without_git_is_archived_with_the_workflows_own_files(run, tmp_path):
    shutil.rmtree(run.root / ".git")
    elsewhere = unpacked(run.archive(), tmp_path / "elsewhere")
    assert "unknown" in (elsewhere.root / "provenance/commit.txt").read_text()
    assert not elsewhere.planned()
