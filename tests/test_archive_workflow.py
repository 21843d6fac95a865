"""The archive of a real run: unpacked elsewhere nothing is stale, it verifies, and it draws itself again."""

import filecmp
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from roofline.records.base import read
from roofline.run.manifest import Manifest

CHECKOUT = Path(__file__).parents[1]
SOURCES = ("Snakefile", "config", "envs", "profiles", "pyproject.toml", "workflow", ".gitignore")
TINY = """\
devices: [cpu]
effort: quick
peak_flops: {size: 256, iterations: 10, dtypes: [fp32, fp64], time_budget_s: 0.1}
bandwidth: {levels: [dram, sweep], iterations: 5, time_budget_s: 0.01, sweep_points: 1}
decode_attn: {seq_lens: [16], dtypes: [fp32], batch_sizes: [1], iterations: 10}
"""
MEASURING = ("device_query", "peak_flops", "bandwidth", "decode_attn")
GIT = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]


def python(*arguments, cwd: Path) -> subprocess.CompletedProcess:
    # A commit that this test's own environment gives would be taken for that of a folder without git.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROOFLINE_")}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def snakemake(*arguments, cwd: Path) -> str:
    done = python("-m", "snakemake", *arguments, cwd=cwd)
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    return told


def is_done(folder: Path) -> bool:
    return "Nothing to be done" in snakemake("-n", cwd=folder)


def archive(folder: Path) -> Path:
    done = python("workflow/commands/archive.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / next(line for line in done.stdout.splitlines() if line.endswith(".tar.gz"))


def unpacked(path: Path, folder: Path) -> Path:
    with tarfile.open(path) as tar:
        # Python 3.11 has the filter from 3.11.4 on.
        tar.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    (root,) = folder.iterdir()
    return root


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory) -> Path:
    """A checkout with a finished run of a tiny configuration on the CPU. Copy it before changing anything."""
    root = tmp_path_factory.mktemp("finished") / "checkout"
    root.mkdir()
    for name in SOURCES:
        if (CHECKOUT / name).is_dir():
            shutil.copytree(CHECKOUT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(CHECKOUT / name, root / name)
    (root / "config/config.yaml").write_text(TINY)
    for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "a tiny run")):
        subprocess.run([*GIT, *arguments], cwd=root, check=True)
    snakemake("--cores", "1", cwd=root)
    return root


@pytest.fixture(scope="session")
def archived(finished_run) -> Path:
    return archive(finished_run)


@pytest.fixture
def copied_run(finished_run, tmp_path) -> Path:
    return Path(shutil.copytree(finished_run, tmp_path / "copy", ignore=shutil.ignore_patterns("archive")))


def test_the_manifest_lists_every_result_with_its_job(finished_run):
    manifest = read(Manifest, finished_run / "results/manifest.json")
    there = {path.relative_to(finished_run).as_posix() for path in (finished_run / "results").rglob("*.*")}
    there = {path for path in there if "/archive/" not in path and (finished_run / path).is_file()}
    assert {output.path for output in manifest.outputs} == there - {"results/manifest.json"}
    for output in manifest.outputs:
        assert output.rule and output.params is not None and output.of_this_run
        assert (finished_run / output.log).is_file()
    assert manifest.sources.known_from == "git" and manifest.sources.dirty is False
    assert manifest.times.jobs_without_times == 0
    assert 0 < manifest.times.jobs_s <= manifest.times.span_s
    assert [(seal.device, seal.violations) for seal in manifest.seals] == [("cpu", [])]


def test_unpacked_elsewhere_nothing_is_to_be_done(archived, tmp_path):
    assert is_done(unpacked(archived, tmp_path))


def test_the_archive_agrees_with_its_manifest(archived, tmp_path):
    done = python(CHECKOUT / "workflow/commands/verify.py", archived, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("ok: ") and done.stdout.endswith(" files agree with the manifest\n")


def test_the_archive_carries_its_own_means_to_verify(archived, tmp_path):
    root = unpacked(archived, tmp_path)
    assert python("workflow/commands/verify.py", archived, cwd=root).returncode == 0


def test_a_rendered_archive_equals_what_was_archived_and_touches_no_results(archived, copied_run):
    before = (copied_run / "results/roofline.json").stat().st_mtime_ns
    done = python("workflow/commands/render.py", archived, cwd=copied_run)
    assert done.returncode == 0, done.stderr
    assert "equals the archived one" in done.stdout
    rendered = copied_run / "results/rendered" / archived.name.removesuffix(".tar.gz")
    for name in (
        "roofline.json",
        "roofline.svg",
        "roofline.png",
        "attention.png",
        "sweep.png",
        "load.png",
        "interpretation.md",
        "verification.json",
        "verification.md",
    ):
        assert filecmp.cmp(rendered / name, copied_run / "results" / name, shallow=False), name
    assert (copied_run / "results/roofline.json").stat().st_mtime_ns == before
    assert is_done(copied_run)


def test_a_changed_setting_keeps_the_run_from_being_archived(copied_run):
    (copied_run / "config/config.yaml").write_text(TINY.replace("[16]", "[16, 32]"))
    done = python("workflow/commands/archive.py", cwd=copied_run)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert "decode_attn" in done.stderr and "make run" in done.stderr


def test_a_faulty_configuration_is_told_in_one_line(copied_run):
    (copied_run / "config/config.yaml").write_text("devicess: [cpu]\n")
    done = python("workflow/commands/archive.py", cwd=copied_run)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "devicess: unknown key" in done.stderr


def test_a_changed_result_is_named_though_its_time_was_put_back(copied_run):
    path = copied_run / "results/interpretation.md"
    status = path.stat()
    path.write_text(path.read_text().replace("a", "e", 1))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    done = python("workflow/commands/archive.py", cwd=copied_run)
    assert done.returncode == 1
    assert "results/interpretation.md: its checksum" in done.stderr


def test_a_partial_rerun_counts_its_own_jobs_and_the_kept_ones_apart(copied_run):
    (copied_run / "config/config.yaml").write_text(TINY.replace("[16]", "[16, 32]") + "cost: {usd_per_hour: 3600}\n")
    snakemake("--cores", "1", cwd=copied_run)
    manifest = read(Manifest, copied_run / "results/manifest.json")
    kept = {output.rule for output in manifest.outputs if not output.of_this_run}
    assert kept == {*MEASURING, "prediction", "checkpoint", "gather", "plot_ceilings"}
    assert 0 < manifest.times.jobs_of_this_run_s < manifest.times.jobs_s
    assert manifest.times.cost_usd == pytest.approx(manifest.times.span_s)
    assert manifest.sources.changed_files == ["config/config.yaml"]


def test_a_checkpoint_of_the_users_own_stays_and_serves_the_unpacked_run_too(copied_run, tmp_path):
    own = tmp_path / "own.safetensors"
    shutil.copy(copied_run / "results/checkpoints/minigpt.safetensors", own)
    (copied_run / "config/config.yaml").write_text(TINY + f"model: {{checkpoint: {own}}}\n")
    snakemake("--cores", "1", cwd=copied_run)
    path = archive(copied_run)
    with tarfile.open(path) as tar:
        assert not [name for name in tar.getnames() if name.endswith(".safetensors")]
    (tmp_path / "elsewhere").mkdir()
    assert is_done(unpacked(path, tmp_path / "elsewhere"))


def test_a_copied_folder_without_git_is_archived_with_the_workflows_own_files(copied_run, tmp_path):
    shutil.rmtree(copied_run / ".git")
    (tmp_path / "elsewhere").mkdir()
    root = unpacked(archive(copied_run), tmp_path / "elsewhere")
    assert "unknown" in (root / "provenance/commit.txt").read_text()
    assert is_done(root)
