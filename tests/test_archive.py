"""The archive: one file that holds a run whole, opens safely, and shows when a byte of it was changed."""

import io
import json
import os
import resource
import signal
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import psutil
import pytest
from records_factory import load_next_to
from small_run import DATA, SmallRun
from workflow_run import PATIENCE_S, heed_ctrl_c

from roofline.core.terms import UserError
from roofline.records.base import read
from roofline.records.files import file_sha256
from roofline.records.manifest_record import Manifest
from roofline.run.archive import list_packed_paths, opened, pack, unpack

COMMANDS = Path(__file__).parents[1] / "workflow/commands"
NAME = "a-cpu-20261105T120200Z"
FP32 = "results/cpu/peak_flops/fp32.json"


@pytest.fixture
def run(small_run, tmp_path):
    return small_run.copied_to(tmp_path / "run")


def packed(run, name=NAME, notes=None) -> Path:
    manifest = read(Manifest, run.root / "results/manifest.json")
    return run.root / pack(name, list_packed_paths(manifest, [], []), [run.root], notes or {})


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}


def command(name: str, *arguments, cwd: Path, **options):
    words = [sys.executable, COMMANDS / f"{name}.py", *arguments]
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False, **options)
    assert "Traceback" not in done.stderr
    return done


# ---------------------------------------------------------------- packing


def test_everything_lies_in_one_folder_under_relative_names(run):
    found = members(packed(run, notes={"provenance/commit.txt": b"c0ffee\n"}))
    expected = {"results/manifest.json", DATA, "provenance/commit.txt", *run.paths}
    expected |= {job["log"] for path, job in run.jobs.items() if path != DATA}
    assert set(found) == {f"{NAME}/{path}" for path in expected}
    assert found[f"{NAME}/{FP32}"] == (run.root / FP32).read_bytes()


def test_what_cannot_be_packed_leaves_nothing_behind(run):
    (run.root / FP32).write_text("{}")
    with pytest.raises(UserError, match=f"not archived: {FP32}: its checksum"):
        packed(run)
    assert list((run.root / "results/archive").iterdir()) == []


MADE_UP = "results/cpu/made_up.json"


@pytest.mark.parametrize(("path", "why"), [(FP32, "its checksum"), (DATA, "its checksum"), (MADE_UP, "not listed")])
def test_a_change_to_an_archive_is_found_and_named(run, path, why):
    """An archive made by someone else, with a file that is another or one more."""
    whole, other = members(packed(run)), run.root / "other.tar.gz"
    with tarfile.open(other, "w:gz") as tar:
        for name, content in (whole | {f"{NAME}/{path}": b"{}"}).items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    with opened(other) as (_, _, found):
        assert any(line.startswith(f"{path}: {why}") for line in found)


# ---------------------------------------------------------------- opening safely


def crafted(path: Path, *infos: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for info in infos:
            tar.addfile(info, io.BytesIO(b"x" * info.size))
    return path


def member(name: str, kind=tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, 1 if kind == tarfile.REGTYPE else 0
    return info


@pytest.mark.parametrize("wrong", [member("../outside"), member("run/link", tarfile.SYMTYPE, "/etc/passwd")])
def test_members_that_lead_outside_are_refused(tmp_path, wrong):
    (folder := tmp_path / "in" / "folder").mkdir(parents=True)
    with pytest.raises(UserError, match="not an archive"):
        unpack(crafted(tmp_path / "bad.tar.gz", member("run/x"), wrong), folder)
    assert list((tmp_path / "in").iterdir()) == [folder] and not (tmp_path / "outside").exists()


def test_what_is_damaged_or_no_archive_is_refused_in_one_line(run, tmp_path):
    whole, path = packed(run).read_bytes(), tmp_path / "x.tar.gz"
    cut = [whole[:length] for length in (0, len(whole) // 2)]
    other = crafted(tmp_path / "other.tar.gz", member("project/readme")).read_bytes()
    for content in (*cut, b"not an archive", other):
        path.write_bytes(content)
        with pytest.raises(UserError, match="not an archive") as error, opened(path):
            pass
        assert str(path) in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "headers"),
    [
        ("run/x", {"mtime": "nan"}),
        ("run/x", {"mtime": "1e300"}),
        ("run/x", {"size": "1e9"}),
        ("run/x", {"path": "run/a\0b"}),
        ("run/" + 3000 * "d/" + "x", {}),
        ("run/" + 300 * "d/" + "x", {}),
    ],
)
def test_odd_headers_are_refused_in_one_line_and_leave_nothing(tmp_path, monkeypatch, name, headers):
    (odd := member(name)).pax_headers = headers
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    with pytest.raises(UserError, match="not an archive") as error, opened(crafted(tmp_path / "odd.tar.gz", odd)):
        pass
    assert len(error.value.lines) == 1 and list((tmp_path / "temporary").iterdir()) == []


def test_an_archive_that_finds_no_room_is_not_called_damaged(run, tmp_path):
    def allow_small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))

    (line,) = command("verify", packed(run), cwd=tmp_path, preexec_fn=allow_small_files).stderr.splitlines()
    assert "damaged" not in line and "cannot be unpacked" in line


# ---------------------------------------------------------------- the commands


def test_a_folder_may_hold_more_files_than_its_manifest_lists(run, tmp_path):
    (run.root / "results/notes.txt").write_text("mine")
    done = command("verify", run.root / "results", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    (run.root / FP32).unlink()
    done = command("verify", run.root, cwd=tmp_path)
    assert done.returncode == 1 and FP32 in done.stdout


@pytest.mark.parametrize(
    "odd", [{"config": {"plot": {"dpi": 10**9}}}, {"created_at": "yesterday"}, {"asked": {"unheard_of": 5}}]
)
def test_an_odd_manifest_is_one_line_and_no_verdict(run, tmp_path, odd):
    """It holds the hashes of all results, and none of itself."""
    run.edit("results/manifest.json", lambda manifest: manifest.update(odd))
    done = command("verify", run.root, cwd=tmp_path)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)


def test_many_and_strange_names_are_a_few_printable_lines(run, tmp_path):
    names = [f"unlisted{number}" for number in range(300)] + ["a\nok: 99 results agree\x1b[2J", "x" * 200]
    for name in names:
        (run.root / "results" / name).touch()
    archive = run.root / "all.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(run.root / "results", f"{NAME}/results")
    done = command("verify", archive, cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert done.returncode == 1 and len(lines) < 20 and str(len(names)) in lines[-1]
    assert not any(line.startswith("ok") for line in lines) and "\x1b" not in done.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_verify_that_is_ended_while_it_draws_ends_its_processes(run, tmp_path, number):
    (temporary := tmp_path / "temporary").mkdir()
    started = subprocess.Popen(
        [sys.executable, COMMANDS / "verify.py", packed(run)],
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(temporary)},
        stderr=subprocess.PIPE,
        preexec_fn=heed_ctrl_c,
    )
    process = psutil.Process(started.pid)
    while not (drawing := process.children()):
        assert started.poll() is None
    started.send_signal(number)
    assert b"Traceback" not in started.communicate(timeout=PATIENCE_S)[1] and started.returncode != 0
    assert psutil.wait_procs(drawing, timeout=PATIENCE_S)[1] == []
    assert number == signal.SIGKILL or list(temporary.iterdir()) == []


def test_verify_draws_the_run_again_and_shows_what_failed_in_it(tmp_path):
    run = SmallRun(tmp_path / "run")
    record = run.read(FP32)
    for block in record["peak"]["repeats"]:
        block["timing"]["contention"] = load_next_to(wall_s=1000, other_cores=2).model_dump()
    (run.root / FP32).write_text(json.dumps(record))
    run.derive()
    run.write_manifest()
    done = command("verify", packed(run), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "") and "FAIL, cpu: " in done.stdout
    drawn = tmp_path / "results/rendered" / NAME / "roofline.json"
    assert drawn.read_bytes() == (run.root / "results/roofline.json").read_bytes()


def test_a_run_with_a_replaced_file_says_so_in_the_terminal_and_on_its_pages(tmp_path):
    run = SmallRun(tmp_path / "run")
    run.derive()
    run.write_manifest()
    manifest = run.root / "results/manifest.json"
    hashes = {"old_sha256": "0" * 64, "new_sha256": file_sha256(run.root / FP32), "commit": "1" * 40}
    amendment = {"path": FP32, **hashes, "amended_at": "2026-11-29T12:00:00+00:00", "reason": "Renamed for a test"}
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"amended": [amendment]}))
    done = command("verify", packed(run), cwd=tmp_path)
    pages = tmp_path / "results/rendered" / NAME
    texts = [done.stdout, *((pages / name).read_text() for name in ("ROOFLINE.md", "report.html"))]
    assert [amendment["reason"] in text for text in texts] == [True] * 3
