"""The archive: one file that holds a run whole, opens safely, and shows when a byte of it was changed."""

import contextlib
import io
import os
import subprocess
import sys
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from commands import COMMANDS, load
from records_factory import DAY
from small_run import DATA, SmallRun

from roofline.records.base import read, write
from roofline.records.manifest import Manifest
from roofline.run import archive
from roofline.run.archive import CHECKSUMS, Refused, contents, name_of, newest, opened, pack, unpack

NAME = "a-cpu-20261105T120200Z"
FP32 = "results/cpu/peak_flops/fp32.json"


@pytest.fixture(scope="module")
def made_once(tmp_path_factory):
    run = SmallRun(tmp_path_factory.mktemp("made"))
    run.write_manifest()
    return run


@pytest.fixture
def run(made_once, tmp_path):
    return made_once.copied_to(tmp_path / "run")


def packed(run, name=NAME, notes=None) -> Path:
    manifest = read(Manifest, run.root / "results/manifest.json")
    return run.root / pack(run.root, name, contents(manifest, [], []), notes or {})


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}


def repacked(path: Path, change) -> Path:
    """An archive made by someone else: its members by name, changed."""
    found = members(path)
    change(found)
    path.unlink()
    with tarfile.open(path, "w:gz") as tar:
        for name, content in found.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def problems(path: Path) -> list[str]:
    with opened(path) as (_, _, found):
        return found


def command(name: str, *arguments, cwd: Path):
    done = subprocess.run(
        [sys.executable, COMMANDS / f"{name}.py", *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr
    return done


# ---------------------------------------------------------------- packing


def test_everything_lies_in_one_folder_under_relative_names(run):
    found = members(packed(run, notes={"provenance/commit.txt": b"c0ffee\n"}))
    expected = {"results/manifest.json", DATA, "provenance/commit.txt", CHECKSUMS, *run.paths}
    expected |= {job["log"] for path, job in run.jobs.items() if path != DATA}
    assert set(found) == {f"{NAME}/{path}" for path in expected}
    assert found[f"{NAME}/{FP32}"] == (run.root / FP32).read_bytes()


def test_times_survive_to_less_than_a_microsecond(run, tmp_path):
    os.utime(run.root / FP32, ns=(1_794_000_000_123_456_789,) * 2)
    root = unpack(packed(run), tmp_path / "elsewhere")
    assert abs((root / FP32).stat().st_mtime_ns - 1_794_000_000_123_456_789) < 500


def test_an_archive_of_an_honest_run_has_no_problems(run):
    assert problems(packed(run)) == []


def test_earlier_archives_other_cards_and_results_that_are_not_listed_stay_out(run):
    first = packed(run)
    for path in ("results/previous/gpu0/x.json", "results/rendered/x/roofline.png", "results/cpu/old.json"):
        (run.root / path).parent.mkdir(parents=True, exist_ok=True)
        (run.root / path).write_text("{}")
    assert set(members(packed(run))) == set(members(first))


def test_a_data_file_of_the_users_own_stays_where_it_is(tmp_path):
    (tmp_path / "run").mkdir()
    for own in (str(tmp_path / "own.bin"), "models/own.bin"):
        run = SmallRun(tmp_path / "run", data=own)
        manifest = run.write_manifest()
        paths = contents(manifest, [own, "Snakefile"], [])
        assert own not in paths and "Snakefile" in paths


def test_links_are_packed_as_the_files_that_they_lead_to(run, tmp_path):
    elsewhere = tmp_path / "elsewhere.json"
    (run.root / FP32).rename(elsewhere)
    (run.root / FP32).symlink_to(elsewhere)
    (run.root / "logs/roofline.log").unlink()
    os.link(run.root / "results/roofline.json", run.root / "logs/roofline.log")
    path = packed(run)
    assert problems(path) == []
    with tarfile.open(path) as tar:
        assert all(member.isreg() for member in tar)


def test_no_owner_is_told(run):
    with tarfile.open(packed(run)) as tar:
        assert {(member.uname, member.gname, member.uid) for member in tar} == {("", "", 0)}


def test_paths_that_lead_out_are_not_packed(run):
    for path in ("../secret", "/etc/hostname"):
        (run.root / "../secret").write_text("x")
        with pytest.raises(Refused, match="leads out"):
            pack(run.root, NAME, ["results/manifest.json", path], {})


def test_what_cannot_be_packed_leaves_nothing_behind(run):
    (run.root / FP32).write_text("{}")
    with pytest.raises(Refused, match=f"not archived: {FP32}: its checksum"):
        packed(run)
    assert list((run.root / "results/archive").iterdir()) == []


def test_the_name_tells_card_and_moment(run, tmp_path):
    when = datetime(2026, 11, 5, 9, 30, tzinfo=UTC)
    cpu, gpu = run.manifest().devices, SmallRun(tmp_path / "gpu", device="gpu0").manifest().devices
    assert name_of(cpu + gpu, when) == "nvidia-h200-20261105T093000Z"
    assert name_of(cpu, when) == "a-cpu-8-cores-20261105T093000Z"


def test_the_newest_archive_is_the_default(run):
    with pytest.raises(Refused, match="no archive"):
        newest(run.root)
    old, new = packed(run, "z-old"), packed(run, "a-new")
    os.utime(old, (1, 1))
    assert newest(run.root) == new


# ---------------------------------------------------------------- tampering


@pytest.mark.parametrize("output", [FP32, "results/roofline.json", "results/interpretation.md", DATA])
def test_one_changed_byte_is_found_and_named(run, output):
    def change(found):
        content = bytearray(found[f"{NAME}/{output}"])
        content[len(content) // 2] ^= 1
        found[f"{NAME}/{output}"] = bytes(content)

    assert f"{output}: its checksum is not the one in the manifest" in problems(repacked(packed(run), change))


LOG = "logs/cpu/peak_flops/fp32.log"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            lambda found: found.update({f"{NAME}/{LOG}": b"nothing was skipped"}),
            f"{LOG}: its checksum is not the one in",
        ),
        (lambda found: found.pop(f"{NAME}/{LOG}"), f"{LOG}: missing, and"),
        (lambda found: found.update({f"{NAME}/config/more.yaml": b"{}"}), "config/more.yaml: not listed in"),
    ],
)
def test_what_lies_outside_the_results_is_held_against_the_archives_own_checksums(run, change, problem):
    (told,) = problems(repacked(packed(run), change))
    assert told.startswith(f"{problem} {CHECKSUMS}")


def test_an_archive_without_its_checksums_is_told(run):
    assert problems(repacked(packed(run), lambda found: found.pop(f"{NAME}/{CHECKSUMS}"))) == [f"{CHECKSUMS}: missing"]


def test_a_missing_file_is_named(run):
    path = repacked(packed(run), lambda found: found.pop(f"{NAME}/{FP32}"))
    assert problems(path) == [f"{FP32}: missing, and the manifest lists it"]


def test_a_result_that_the_manifest_does_not_list_is_named(run):
    path = repacked(packed(run), lambda found: found.update({f"{NAME}/results/gpu0/fp8.json": b"{}"}))
    assert problems(path) == ["results/gpu0/fp8.json: not listed in the manifest"]


def test_a_record_that_was_changed_with_its_checksum_is_not_packed(run):
    run.edit(FP32, lambda record: record.update(started_at=f"{DAY}11:00:00+00:00"))
    manifest = read(Manifest, run.root / "results/manifest.json")
    write(run.list_again(manifest), run.root / "results/manifest.json")
    with pytest.raises(Refused, match=rf"cpu/peak_flops/fp32.json started at {DAY}11:00"):
        packed(run)


def test_settings_that_were_changed_in_the_manifest_are_found(run):
    path = packed(run)

    def change(found):
        name = f"{NAME}/results/manifest.json"
        found[name] = found[name].replace(b'"dpi": 80', b'"dpi": 81')

    assert problems(repacked(path, change)) == ["the manifest's settings do not have the hash that it gives"]


def test_a_manifest_that_lists_files_outside_is_refused(run):
    def change(found):
        name = f"{NAME}/results/manifest.json"
        found[name] = found[name].replace(b'"results/roofline.json"', b'"../../etc/passwd"')

    with pytest.raises(Refused, match="cannot be read"):
        problems(repacked(packed(run), change))


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


@pytest.mark.parametrize(
    "wrong",
    [
        member("../outside"),
        member("run/../../outside"),
        member("/tmp/outside"),
        member("run/link", tarfile.SYMTYPE, "/etc/passwd"),
        member("run/link", tarfile.LNKTYPE, "run/x"),
        member("run/device", tarfile.CHRTYPE),
        member("run/pipe", tarfile.FIFOTYPE),
        member("run/x"),
    ],
    ids=lambda info: f"{info.name} type {info.type.decode()}",
)
def test_members_that_are_no_plain_files_inside_are_refused_before_anything_is_written(tmp_path, wrong):
    folder = tmp_path / "in" / "folder"
    folder.mkdir(parents=True)
    with pytest.raises(Refused, match="refused, its member"):
        unpack(crafted(tmp_path / "bad.tar.gz", member("run/x"), wrong), folder)
    assert [path for path in (tmp_path / "in").rglob("*") if path != folder] == []


def test_truncated_archives_are_refused_in_one_line(run, tmp_path):
    whole = packed(run).read_bytes()
    cut = tmp_path / "cut.tar.gz"
    for length in (0, 1, 10, 100, len(whole) // 2, len(whole) - 9, len(whole) - 1):
        cut.write_bytes(whole[:length])
        with pytest.raises(Refused) as error, opened(cut):
            pass
        assert str(cut) in str(error.value) and "\n" not in str(error.value)


def test_a_damaged_byte_is_noticed_wherever_it_is(run, tmp_path):
    whole = bytearray(packed(run).read_bytes())
    damaged = tmp_path / "damaged.tar.gz"
    for place in (0, len(whole) // 3, len(whole) // 2, len(whole) - 6):
        copy = bytearray(whole)
        copy[place] ^= 0x10
        damaged.write_bytes(copy)
        found = None
        with contextlib.suppress(Refused):
            found = problems(damaged)
        assert found != []


@pytest.mark.parametrize("content", [b"", b"not an archive", b"PK\x03\x04zip", os.urandom(5000)])
def test_what_is_no_archive_is_refused_in_one_line(tmp_path, content):
    path = tmp_path / "x.tar.gz"
    path.write_bytes(content)
    with pytest.raises(Refused, match=r"truncated, damaged or no archive|no archive of this workflow"), opened(path):
        pass


def test_an_archive_of_something_else_is_refused(tmp_path):
    path = crafted(tmp_path / "other.tar.gz", member("project/readme"))
    with pytest.raises(Refused, match=r"results/manifest.json is not in it"), opened(path):
        pass


# ---------------------------------------------------------------- the commands

OK = "ok: 16 files agree with the manifest\n"


def test_verify_says_ok_on_any_machine_without_a_gpu(run, tmp_path):
    done = command("verify", packed(run), cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, OK, "")


def test_verify_takes_the_newest_archive_by_itself(run):
    packed(run)
    assert command("verify", cwd=run.root).stdout == OK


def test_verify_prints_a_line_a_problem_and_fails(run, tmp_path):
    def change(found):
        found[f"{NAME}/{FP32}"] += b" "
        del found[f"{NAME}/results/interpretation.md"]

    done = command("verify", repacked(packed(run), change), cwd=tmp_path)
    assert done.returncode == 1
    assert [line.split(":")[0] for line in done.stdout.splitlines()[:-1]] == [FP32, "results/interpretation.md"]
    assert done.stdout.splitlines()[-1].startswith("2 problems in ")


def test_commands_tell_in_one_line_what_is_wrong_with_the_file(tmp_path):
    (tmp_path / "x.tar.gz").write_bytes(b"not an archive")
    for name, path in (("verify", "x.tar.gz"), ("verify", "."), ("render", "missing.tar.gz")):
        done = command(name, path, cwd=tmp_path)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
        assert done.stderr.startswith(f"{path}: ")
    assert "no archive is in results/archive/" in command("verify", cwd=tmp_path).stderr


def test_render_refuses_an_archive_that_was_tampered_with(run, tmp_path):
    path = repacked(packed(run), lambda found: found.update({f"{NAME}/{FP32}": b"{}"}))
    done = command("render", path, cwd=tmp_path)
    assert done.returncode == 1
    assert FP32 in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "results").exists()


def test_archive_asks_for_a_run_where_there_is_none(tmp_path):
    done = command("archive", cwd=tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "results/manifest.json is missing" in done.stderr and "make run" in done.stderr


def test_archive_refuses_what_is_stale_and_says_what_to_run(run, monkeypatch):
    command = load("archive")
    told = "Job stats:\njob      count\n-----  -------\nplot         1\npeak_flops   2\nall  1\ntotal        4\n"
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, "", told))
    with pytest.raises(Refused, match=r"3 jobs are to be done \(plot, peak_flops\); run .*make run"):
        command.archive(run.root, [])


def test_archive_names_a_file_whose_checksum_is_not_the_manifests(run, monkeypatch):
    command = load("archive")
    monkeypatch.setattr(command, "what_is_stale", lambda options: None)
    (run.root / FP32).write_text("{}")
    (run.root / "results/interpretation.md").unlink()
    with pytest.raises(Refused, match=f"not archived: {FP32}: its checksum .*, and 1 more; run "):
        command.archive(run.root, [])
    assert not (run.root / archive.ARCHIVES).exists()


def test_archive_holds_the_commit_and_what_differs_from_it(run, monkeypatch):
    command = load("archive")
    monkeypatch.setattr(command, "what_is_stale", lambda options: None)
    (run.root / ".gitignore").write_text("/results/\n/logs/\n")
    (run.root / "Snakefile").write_text("rule all:\n")
    for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "x")):
        identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *identity, *arguments], cwd=run.root, check=True)
    (run.root / "Snakefile").write_text("rule none:\n")
    (run.root / "new.py").write_text("new\n")
    path = run.root / command.archive(run.root, [])
    found = {name.partition("/")[2]: content for name, content in members(path).items()}
    assert b"+rule none:" in found["provenance/uncommitted.diff"]
    assert b"changed since: new.py" in found["provenance/commit.txt"]
    assert (found["Snakefile"], found["new.py"]) == (b"rule none:\n", b"new\n")


def test_archive_says_where_size_and_what_to_do_before_the_machine_ends(run, capsys):
    path = packed(run)
    (run.root / "results/cpu/old.json").write_text("{}")
    load("archive").report(run.root, path)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "left out, since the manifest does not list it: results/cpu/old.json"
    assert lines[1] == str(path) and "MB, SHA-256" in lines[2]
    assert "before you terminate it" in lines[3] and "scp" in lines[4]
