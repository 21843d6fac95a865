"""The manifest: what it says of outputs, sources and times, and that no change to a result goes unnoticed."""

import json
import subprocess
import time
from datetime import datetime
from types import SimpleNamespace

import pytest
from records_factory import DAY
from small_run import DATA, JOB_S, MADE
from workflow_run import committed

from roofline.core.terms import UserError
from roofline.records.base import read
from roofline.records.files import file_sha256
from roofline.records.manifest_record import Manifest
from roofline.run import checkout, jobs
from roofline.run.jobs import run_seconds
from roofline.run.make_manifest import describe_spending

SEAL, PEAK, SCAN = "results/cpu/prediction.json", "results/cpu/peak_flops/fp32.json", "results/cpu/scan/N1024_fp32.json"


@pytest.fixture
def run(small_run, tmp_path):
    return small_run.copied_to(tmp_path)


def test_every_output_is_listed_with_size_hash_and_job(run):
    manifest = run.write_manifest()
    listed = {output.path: output for output in manifest.outputs}
    assert set(listed) == {*run.paths, DATA}
    for path, output in listed.items():
        assert (output.bytes, output.sha256) == ((run.root / path).stat().st_size, file_sha256(run.root / path))
    output, job = listed[SCAN], run.jobs[SCAN]
    assert (output.rule, output.log) == ("scan", "logs/cpu/scan/N1024_fp32.log")
    assert (output.started_at, output.ended_at) == (job["started_at"], job["ended_at"])
    assert read(Manifest, run.root / "results/manifest.json") == manifest


def test_measurements_under_another_seal_make_no_manifest(run):
    run.edit(SEAL, lambda content: content["ceilings"][0].update(tflops=9.0))
    with pytest.raises(UserError, match=f"{PEAK.removeprefix('results/')} was measured under another seal"):
        run.manifest()


def test_span_and_cost_of_a_whole_run(run):
    times = run.manifest(usd_per_hour=3.6).times
    assert times.first_start_at == f"{DAY}12:00:00+00:00"
    assert (times.span_s, times.cost_usd) == (100, pytest.approx(0.10))
    assert run.manifest(usd_per_hour=None).times.cost_usd is None


def test_a_clock_that_is_set_back_in_mid_run_changes_neither_order_nor_span(run, monkeypatch):
    monkeypatch.setenv(jobs.RUN_STARTED, f"{DAY}11:59:58+00:00")
    monkeypatch.setenv(jobs.RUN_CLOCK, f"{time.monotonic() - 102} {jobs.read_boot()}")
    clock = SimpleNamespace(now=lambda zone: datetime(2020, 1, 1, tzinfo=zone), fromisoformat=datetime.fromisoformat)
    monkeypatch.setattr(jobs, "datetime", clock)
    first, second = jobs.now(), jobs.now()
    assert first < second
    times = run.manifest(usd_per_hour=3.6, created_at=second).times
    assert (times.span_s, times.cost_usd) == (pytest.approx(100, abs=1), pytest.approx(0.1, abs=1e-3))
    monkeypatch.setenv(jobs.RUN_CLOCK, "7.0 another-machine")  # of a job on another node than its run
    assert jobs.now() == "2020-01-01T00:00:00+00:00" and jobs.seconds_of_run() is None


def test_the_seconds_of_jobs_count_a_job_of_two_outputs_once(run):
    assert run.manifest().times.jobs_s == JOB_S * len(run.jobs)
    first, second = run.paths[-2:]
    run.jobs[second] = run.jobs[first]
    assert run.manifest().times.jobs_s == JOB_S * (len(run.jobs) - 1)


def test_a_partial_rerun_does_not_count_the_jobs_that_were_kept(run):
    manifest = run.manifest(usd_per_hour=3.6, started_at=f"{DAY}12:00:21+00:00")
    times = manifest.times
    assert (times.first_start_at, times.span_s) == (f"{DAY}12:00:22+00:00", 78)
    assert times.cost_usd == pytest.approx(0.078)
    assert [output.path for output in manifest.outputs if output.of_this_run] == run.paths[-5:]


# ---------------------------------------------------------------- sources


def test_all_runs_that_made_what_is_here_count_without_the_time_between_them(run, tmp_path):
    """A run whose outputs were all made again later does not, and a job that failed took its time."""
    entries = [("A", 60.0, [PEAK]), ("A", 90.0, []), ("B", 30.0, [SCAN]), ("C", 20.0, [SCAN]), ("C", 45.0, None)]
    job = {"rule": "scan", "log": "logs/scan.log", "started_at": MADE, "ended_at": MADE}
    failure = {"failed": "why", "error": "OSError"}
    lines = [
        json.dumps(
            {**job, "run": name, "run_s": seconds, "outputs": outputs or [], **({} if outputs is not None else failure)}
        )
        for name, seconds, outputs in entries
    ]
    (tmp_path / "jobs.jsonl").write_text("\n".join(lines))
    seconds = run_seconds([PEAK, SCAN], tmp_path / "jobs.jsonl")
    assert seconds == {"A": 90.0, "C": 45.0}
    times = run.manifest(usd_per_hour=36.0, seconds=seconds | {"D": 1.0}).times
    assert (times.run_count, times.total_span_s, times.total_cost_usd) == (3, 136.0, pytest.approx(1.36))
    assert describe_spending(times).startswith("3 runs, 2.3 minutes, $1.36")


def test_a_dirty_checkout_names_what_changed(tmp_path):
    for name in ("Snakefile", "old.py", "müll.py"):
        (tmp_path / name).write_text("one\n" * 10)
    (tmp_path / ".gitignore").write_text("/results/\n")
    repository = committed(tmp_path)
    (repository / "müll.py").write_text("two\n")
    (repository / "new module.py").write_text("new\n")
    subprocess.run(["git", "mv", "old.py", "moved.py"], cwd=repository, check=True)
    (repository / "results").mkdir()
    (repository / "results" / "ignored.json").write_text("{}")
    found = checkout.describe(repository)
    assert found.dirty and found.changed_files == ["moved.py", "müll.py", "new module.py", "old.py"]
    assert b"+two" in checkout.diff_sources(repository)
    assert checkout.list_sources(repository) == [".gitignore", "Snakefile", "moved.py", "müll.py", "new module.py"]
