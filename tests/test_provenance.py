"""The manifest: what it says of outputs, sources and times, and what it refuses to say."""

import json
import os
import subprocess
from base64 import urlsafe_b64encode

import pytest
import samples
from manifest import job_of, line
from pydantic import ValidationError
from small_run import CHECKPOINT, DAY, MEASURED, SmallRun, device_record

from roofline.core.prediction import CONSTANTS, Way
from roofline.records.base import read, write
from roofline.records.files import file_sha256
from roofline.records.operator import Measurement
from roofline.records.prediction import PredictionRecord, predict_sealed
from roofline.run import checkout
from roofline.run.manifest import (
    BrokenProvenance,
    Manifest,
    Output,
    add_up,
    config_sha256,
    describe_environment,
    moment,
)

PREDICTION = "results/cpu/prediction.json"
ATTENTION = "results/cpu/decode_attn/minigpt/S16_fp32.json"


@pytest.fixture
def run(tmp_path):
    return SmallRun(tmp_path)


# ---------------------------------------------------------------- outputs


def test_every_output_is_listed_with_size_hash_and_job(run):
    manifest = run.write_manifest()
    listed = {output.path: output for output in manifest.outputs}
    assert set(listed) == {*run.paths, CHECKPOINT}
    for path, output in listed.items():
        assert output.bytes == (run.root / path).stat().st_size
        assert output.sha256 == file_sha256(run.root / path)
    found = listed[ATTENTION]
    assert (found.rule, found.params) == ("decode_attn", ["'fp32'", "100"])
    assert found.log == "logs/cpu/decode_attn/minigpt/S16_fp32.log"
    assert (found.started_at, found.ended_at) == (f"{DAY}12:00:24+00:00", f"{DAY}12:00:28+00:00")


def test_the_manifest_can_be_read_back(run):
    assert run.write_manifest() == read(Manifest, run.root / "results/manifest.json")


def test_unknown_jobs_leave_nulls(run):
    run.jobs.clear()
    manifest = run.manifest(usd_per_hour=2.0)
    assert all((o.rule, o.params, o.started_at, o.log, o.of_this_run) == (None,) * 5 for o in manifest.outputs)
    assert (manifest.times.jobs, manifest.times.jobs_s) == (0, 0)
    assert manifest.times.jobs_without_times == len(manifest.outputs)


def test_an_output_outside_the_working_directory_is_refused():
    fields = dict.fromkeys(("rule", "params", "started_at", "ended_at", "of_this_run", "log"))
    for path in ("/etc/passwd", "results/../../x"):
        with pytest.raises(ValidationError, match="leads out"):
            Output(path=path, bytes=1, sha256="0", **fields)


def test_a_checkpoint_outside_results_is_known_by_its_hash_alone(tmp_path):
    own = tmp_path / "elsewhere" / "own.safetensors"
    manifest = SmallRun(tmp_path / "here", weights=str(own)).manifest()
    assert [(c.path, c.sha256, c.generated) for c in manifest.checkpoints] == [(str(own), file_sha256(own), False)]
    assert str(own) not in [output.path for output in manifest.outputs]


def test_weights_that_changed_since_they_were_measured_with_fail_the_manifest(run):
    (run.root / CHECKPOINT).write_bytes(b"weights of another one")
    with pytest.raises(BrokenProvenance, match=rf"{CHECKPOINT} is not the file"):
        run.manifest()


def test_settings_have_a_hash_whatever_the_order_of_their_keys(run):
    assert config_sha256({"a": 1, "b": {"c": 2, "d": 3}}) == config_sha256({"b": {"d": 3, "c": 2}, "a": 1})
    assert config_sha256({"a": 1}) != config_sha256({"a": 2})
    manifest = run.manifest()
    assert manifest.config_sha256 == config_sha256(manifest.config)


# ---------------------------------------------------------------- seals


def test_a_seal_says_when_and_over_how_many_measurements(run):
    (seal,) = run.manifest().seals
    assert (seal.device, seal.path, seal.sha256) == ("cpu", PREDICTION, run.sha256(PREDICTION))
    assert (seal.measurements, seal.first_measurement_at, seal.violations) == (3, MEASURED, [])


@pytest.mark.parametrize("sealed_at", [MEASURED, f"{DAY}13:00:00+01:00", f"{DAY}23:59:59+00:00", "yesterday"])
def test_a_seal_made_after_a_measurement_began_fails_the_manifest(run, sealed_at):
    run.seal(sealed_at)
    run.measure(CHECKPOINT, started_at=f"{DAY}12:00:00+00:00" if "+01" in sealed_at else MEASURED)
    with pytest.raises(BrokenProvenance, match=f"{ATTENTION} began at .* was sealed at"):
        run.manifest()


def test_a_record_under_another_seal_fails_the_manifest(run):
    run.change(ATTENTION, seal_sha256="0" * 64)
    with pytest.raises(BrokenProvenance, match=f"{ATTENTION} was measured under another seal"):
        run.manifest()


def test_a_seal_that_was_changed_after_the_measurements_is_found(run):
    run.change(PREDICTION, constants={"gpu_gemm_call_s": 1.0})
    with pytest.raises(BrokenProvenance, match="under another seal"):
        run.manifest()


@pytest.fixture
def run_with_a_step(run):
    """With a step of attention as if computed in graphs of six layers, predicted as the seal does."""
    of_a_layer = {"flops": 10**6, "bytes": 10**6, "compute_ceiling": "fp32"}
    seal = read(PredictionRecord, run.root / PREDICTION).model_copy(update={"constants": CONSTANTS})
    write(seal, run.root / PREDICTION)
    run.measure(CHECKPOINT)
    predicted = predict_sealed(
        seal,
        flops=10**6,
        traffic_bytes=10**6,
        compute_ceiling="fp32",
        way=Way("numpy", "core", "fp32", layers=6),
    )
    step = samples.lab_block("cpu", "fp32", 1.0) | of_a_layer | {"operator": "decode_attention", "scope": "core"}
    step |= {"implementation": "numpy", "shape": {"batch": 1}, "predicted": predicted.model_dump(), "layers": 6}
    run.change(ATTENTION, measurements=[Measurement.model_validate(step).model_dump(mode="json")])
    return run


SLOWER = {"regime": "overhead", "latency_s": 1.0, "device_latency_s": None, "fraction_of_compute_peak": None}


def test_a_step_that_is_predicted_as_the_seal_does_passes(run_with_a_step):
    (seal,) = run_with_a_step.manifest().seals
    assert seal.violations == []


@pytest.mark.parametrize(
    "changes",
    [{"layers": 1}, {"scope": "block"}, {"predicted": SLOWER}, {"implementation": "of another program"}],
    ids=str,
)
def test_a_step_of_another_prediction_than_the_seals_fails_the_manifest(run_with_a_step, changes):
    """The calls of a graph are shared by its layers: the prediction is of the way, and not of the work alone."""
    (step,) = json.loads((run_with_a_step.root / ATTENTION).read_text())["measurements"]
    run_with_a_step.change(ATTENTION, measurements=[step | changes])
    with pytest.raises(BrokenProvenance, match=f"{ATTENTION} holds another prediction of decode_attention"):
        run_with_a_step.manifest()


def test_a_measurement_without_a_seal_fails_the_manifest(run):
    run.paths.remove(PREDICTION)
    with pytest.raises(BrokenProvenance, match=f"{ATTENTION} has no sealed prediction"):
        run.manifest()


def test_a_seal_of_another_device_record_fails_the_manifest(run):
    run.change("results/cpu/device_query.json", name="Another CPU")
    with pytest.raises(BrokenProvenance, match=f"{PREDICTION} was sealed for another"):
        run.manifest()


def test_all_faults_stand_in_one_line(run):
    for path in run.paths:
        if "seal_sha256" in (run.root / path).read_text():
            run.change(path, seal_sha256="0" * 64)
    with pytest.raises(BrokenProvenance) as error:
        run.manifest()
    assert str(error.value).count("another seal") == 3
    assert "\n" not in str(error.value)


# ---------------------------------------------------------------- times and cost


def test_span_and_cost_of_a_whole_run(run):
    times = run.manifest(usd_per_hour=3.6).times
    # Jobs: checkpoint 2, device_query 6, prediction 2, three measurements 2 + 2 + 4, roofline 1, interpretation 1.
    assert (times.jobs, times.jobs_of_this_run) == (8, 8)
    assert times.jobs_s == times.jobs_of_this_run_s == 20
    assert times.first_start_at == f"{DAY}12:00:00+00:00"
    assert times.span_s == 100
    assert times.cost_usd == pytest.approx(0.10)


def test_a_partial_rerun_does_not_count_the_jobs_that_were_kept(run):
    times = run.manifest(usd_per_hour=3.6, run_started_at=f"{DAY}12:00:23+00:00").times
    assert (times.jobs, times.jobs_s) == (8, 20)
    assert (times.jobs_of_this_run, times.jobs_of_this_run_s) == (3, 6)
    assert times.first_start_at == f"{DAY}12:00:24+00:00"
    assert times.span_s == 76
    assert times.cost_usd == pytest.approx(0.076)


def test_outputs_tell_which_were_kept_from_before(run):
    manifest = run.manifest(run_started_at=f"{DAY}12:00:23+00:00")
    of_this_run = {output.path for output in manifest.outputs if output.of_this_run}
    assert of_this_run == {ATTENTION, "results/roofline.json", "results/interpretation.md"}


def test_a_run_that_made_only_the_manifest_is_counted_from_its_own_start(run):
    times = run.manifest(usd_per_hour=3600, run_started_at=f"{DAY}12:01:30+00:00").times
    assert (times.jobs_of_this_run, times.jobs_of_this_run_s, times.span_s, times.cost_usd) == (0, 0, 10, 10)


def test_a_job_of_two_outputs_is_counted_once(run):
    for suffix in ("png", "svg"):
        run.text(f"results/roofline.{suffix}", "a picture", 34, 36)
        run.job(f"results/roofline.{suffix}", "plot", 34, 36, log="logs/plot.log")
    times = run.manifest().times
    assert (times.jobs, times.jobs_s) == (9, 22)


@pytest.mark.parametrize("started", [None, "", "this morning"])
def test_without_the_start_of_the_run_nothing_is_claimed_of_it(run, started):
    times = run.manifest(usd_per_hour=1.0, run_started_at=started).times
    assert (times.jobs_of_this_run, times.jobs_of_this_run_s, times.span_s, times.cost_usd) == (None,) * 4
    assert times.jobs_s == 20


def test_no_price_gives_no_cost_and_a_price_of_nothing_costs_nothing(run):
    assert run.manifest(usd_per_hour=None).times.cost_usd is None
    assert run.manifest(usd_per_hour=0).times.cost_usd == 0


def test_a_clock_that_was_set_back_gives_no_negative_time():
    fields = dict.fromkeys(("rule", "params", "of_this_run", "log"))
    late, early = f"{DAY}12:00:09+00:00", f"{DAY}12:00:01+00:00"
    output = Output(path="results/x", bytes=1, sha256="0", started_at=late, ended_at=early, **fields)
    assert add_up([output], late, early, 1.0).jobs_s == 0


def test_the_line_on_the_screen(run):
    assert line(run.manifest(usd_per_hour=3.6)) == "manifest: 8 outputs, checksums kept; 100 s, $0.10"
    assert line(run.manifest(usd_per_hour=0.01)) == "manifest: 8 outputs, checksums kept; 100 s, under $0.01"
    assert line(run.manifest()) == "manifest: 8 outputs, checksums kept; 100 s"
    assert line(run.manifest(run_started_at=None)) == "manifest: 8 outputs, checksums kept"


def test_a_moment_without_a_zone_is_utc():
    assert moment("2026-11-05T12:00:00") == moment("2026-11-05T12:00:00+00:00") == moment("2026-11-05T13:00:00+01:00")
    assert moment("noon") is moment(None) is None


# ---------------------------------------------------------------- environment and devices


def test_the_environment_has_every_package_and_the_gpus_driver():
    software = {"driver": "580.1", "cuda_runtime": "12.9", "numpy": "2.4.6"}
    found = describe_environment([device_record(), device_record("gpu0", software=software)])
    assert found.packages["pydantic"] and found.packages["snakemake"] == found.snakemake
    assert (found.driver, found.cuda_runtime, found.os) == ("580.1", "12.9", "Linux")
    assert describe_environment([device_record()]).driver is None


def test_devices_are_told_by_name_and_uuid(tmp_path):
    (device,) = SmallRun(tmp_path, device="gpu0").manifest().devices
    assert (device.device, device.kind, device.name, device.uuid) == ("gpu0", "gpu", "NVIDIA H200", "uuid-of-gpu0")


# ---------------------------------------------------------------- what Snakemake keeps


def keep(metadata, output, **fields):
    """Write metadata as Snakemake 9.27 does: a long name is cut into folders that begin with @."""
    name = urlsafe_b64encode(output.encode()).decode()
    longest = os.pathconf(metadata, "PC_NAME_MAX") - 1
    parts = [name[i : i + longest] for i in range(0, len(name), longest)]
    file = metadata.joinpath(*["@" + part for part in parts[:-1]], parts[-1])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(fields))
    return file


@pytest.mark.parametrize("output", ["results/cpu/device_query.json", "results/" + "long" * 200 + "/x.json"])
def test_the_job_of_an_output_is_what_snakemake_keeps(tmp_path, output):
    kept = {"rule": "collect", "params": ["'[]'", "3"], "log": ["logs/collect.log"]}
    keep(tmp_path, output, starttime=1.5, endtime=2.0, **kept)
    assert job_of(output, tmp_path) == {
        "rule": "collect",
        "params": ["'[]'", "3"],
        "started_at": "1970-01-01T00:00:01.500000+00:00",
        "ended_at": "1970-01-01T00:00:02+00:00",
        "log": "logs/collect.log",
    }


def test_missing_metadata_is_no_fault(tmp_path):
    assert job_of("results/x.json", tmp_path / "not there") == {}
    assert job_of("results/x.json", tmp_path) == {}
    keep(tmp_path, "results/half.json").write_text('{"rule": "col')
    assert job_of("results/half.json", tmp_path) == {}
    keep(tmp_path, "results/bare.json", rule="collect", log=[], params=None, starttime=None)
    bare = {"rule": "collect", "params": [], "started_at": None, "ended_at": None, "log": None}
    assert job_of("results/bare.json", tmp_path) == bare


# ---------------------------------------------------------------- sources


@pytest.fixture
def repository(tmp_path):
    root = tmp_path / "checkout"
    root.mkdir()
    git(root, "init", "-q")
    for name in ("Snakefile", "old.py", "müll.py"):
        (root / name).write_text("one\n" * 10)
    (root / ".gitignore").write_text("/results/\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "a thin slice")
    return root


def git(root, *arguments):
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_a_clean_checkout(repository):
    found = checkout.describe(repository, {})
    assert found.commit == git(repository, "rev-parse", "HEAD")
    assert (found.dirty, found.changed_files, found.known_from, found.reason) == (False, [], "git", None)
    assert checkout.difference(repository) == b""


def test_a_dirty_checkout_names_what_changed(repository):
    (repository / "müll.py").write_text("two\n")
    (repository / "new module.py").write_text("new\n")
    git(repository, "mv", "old.py", "moved.py")
    (repository / "results").mkdir()
    (repository / "results" / "ignored.json").write_text("{}")
    found = checkout.describe(repository, {})
    assert found.dirty
    assert found.changed_files == ["moved.py", "müll.py", "new module.py"]
    assert b"+two" in checkout.difference(repository)
    assert checkout.files(repository) == [".gitignore", "Snakefile", "moved.py", "müll.py", "new module.py"]


def test_a_repository_without_a_commit_gives_the_reason(tmp_path):
    git(tmp_path, "init", "-q")
    found = checkout.describe(tmp_path, {})
    assert (found.commit, found.dirty) == (None, None)
    assert "no commit yet" in found.reason


def test_without_git_the_environment_tells(tmp_path):
    told = {"ROOFLINE_COMMIT": "c0ffee", "ROOFLINE_DIRTY": "1"}
    found = checkout.describe(tmp_path, told)
    assert (found.commit, found.dirty, found.known_from, found.reason) == ("c0ffee", True, "environment", None)
    assert checkout.describe(tmp_path, told | {"ROOFLINE_DIRTY": "0"}).dirty is False
    assert checkout.describe(tmp_path, {"ROOFLINE_COMMIT": "c0ffee"}).dirty is None


def test_without_git_and_environment_the_commit_is_null_with_a_reason(tmp_path):
    found = checkout.describe(tmp_path, {"ROOFLINE_DIRTY": "0"})
    assert (found.commit, found.dirty, found.known_from) == (None, None, None)
    assert "not a git repository" in found.reason and "ROOFLINE_COMMIT" in found.reason


def test_git_goes_before_the_environment(repository):
    assert checkout.describe(repository, {"ROOFLINE_COMMIT": "c0ffee"}).known_from == "git"


def test_a_repository_that_the_workflow_merely_lies_in_is_not_its_own(repository):
    inside = repository / "unpacked"
    inside.mkdir()
    (inside / "Snakefile").write_text("one\n")
    assert "no part of it" in checkout.describe(inside, {}).reason
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "with the workflow")
    found = checkout.describe(inside, {})
    assert (found.known_from, found.dirty) == ("git", False)
    assert checkout.files(inside) == ["Snakefile"]


def test_without_git_installed_the_workflows_own_files_are_the_sources(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    for name in ("Snakefile", "config/config.yaml", "workflow/scripts/x.py", "results/x.json", "thesis.doc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    assert "git is not installed" in checkout.describe(tmp_path, {}).reason
    assert checkout.files(tmp_path) == ["Snakefile", "config/config.yaml", "workflow/scripts/x.py"]
    assert checkout.difference(tmp_path) is None
