"""Reading runs for comparison: from folders, archives and archives of records alone; and what is no run."""

import io
import json
import shutil
import tarfile
from pathlib import Path

import pytest
from commands import load
from small_run import SmallRun

from roofline.records.base import read
from roofline.records.manifest import Manifest
from roofline.run.archive import Refused, contents, located, pack
from roofline.run.runs import read_run

REFERENCE = Path(__file__).parents[1] / "reference" / "nvidia-h200"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    made = SmallRun(tmp_path_factory.mktemp("made"), device="gpu0")
    made.write_manifest()
    return made


def packed(run, name="whole") -> Path:
    manifest = read(Manifest, run.root / "results/manifest.json")
    return run.root / pack(run.root, name, located(contents(manifest, [], []), run.root), {})


def with_members(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


# ---------------------------------------------------------------- runs


def test_a_run_is_the_same_from_wherever_it_is_read(run):
    archive = packed(run)
    sources = [run.root, run.root / "results", archive]
    runs = [read_run(source) for source in sources]
    assert len({one.fingerprint for one in runs}) == 1 and all(one.quantities == runs[0].quantities for one in runs)
    assert [one.source for one in runs] == [str(source) for source in sources]


def test_figures_of_a_run(run):
    found = {one.key: one for one in read_run(run.root).quantities}
    assert found["fp32"].kind == "burst" and found["fp32"].value == pytest.approx(1.0) and found["fp32"].inputs
    assert found["hbm_read"].unit == "GB/s" and found["hbm_read"].higher_is_better
    scans = [one for key, one in found.items() if key.startswith("scan/")]
    (device,) = (one for one in scans if one.kind == "device_time")
    (caller,) = (one for one in scans if one.kind == "caller_time")
    assert (device.value, caller.value) == pytest.approx((40e3, 50e3)) and not device.higher_is_better


def test_every_figure_of_a_real_run_once_and_clocks_as_counted():
    whole = read_run(REFERENCE)
    keys = [(one.device, one.key) for one in whole.quantities]
    assert len(keys) == len(set(keys))
    of_card = whole.of_device("gpu0")
    ceilings = {one.name for one in whole.roofline.ceilings if one.device == "gpu0"}
    assert ceilings <= of_card.keys() and {f"{name}/sustained" for name in ("fp64", "fp16")} <= of_card.keys()


def test_a_run_at_another_time_is_another_run(run, tmp_path):
    twin = run.copied_to(tmp_path / "twin")
    twin.edit("results/gpu0/device_query.json", lambda record: record.update(queried_at="2026-11-06T00:00:00+00:00"))
    twin.write_manifest()
    assert read_run(twin.root).fingerprint != read_run(run.root).fingerprint


def test_of_committed_runs_an_archive_has_what_pages_are_made_with():
    others = load("archive").OF_OTHER_RUNS
    assert others.match("reference/nvidia-h200/report.html") and others.match(
        "reference/nvidia-h100/run-records.tar.gz"
    )
    assert not others.match("reference/cards/nvidia-h200.json") and not others.match("docs/limits.md")


# ---------------------------------------------------------------- no runs


def damaged(run, tmp_path, what: str) -> Path:
    """Something that is no run, for one reason."""
    path = tmp_path / f"{what}.tar.gz"
    if what == "truncated":
        whole = packed(run).read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
    elif what == "no archive":
        path.write_text("not an archive")
    elif what == "traversal":
        with_members(path, {"run/results/manifest.json": b"{}", "run/../../evil.json": b"{}"})
    elif what == "another archive":
        with_members(path, {"run/readme.txt": b"hello"})
    elif what == "a folder of something else":
        (tmp_path / what).mkdir()
        (tmp_path / what / "a.tar.gz").touch()
        return tmp_path / what
    elif what != "missing":
        folder = shutil.copytree(run.root / "results", tmp_path / what)
        change(folder, what)
        return folder
    return path


def change(folder: Path, what: str) -> None:
    def edited(name, **fields):
        content = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(content | fields))

    if what == "another schema version":
        edited("roofline.json", schema_version=1)
    elif what == "edited":
        content = (folder / "roofline.json").read_text()
        (folder / "roofline.json").write_text(f"{content} ")
    elif what == "not JSON":
        (folder / "roofline.json").write_text("{")
    elif what == "older record":
        edited("gpu0/device_query.json", schema_version=2)
    elif what == "without its device":
        (folder / "gpu0/device_query.json").unlink()
    elif what == "outside":
        devices = json.loads((folder / "roofline.json").read_text())["devices"]
        devices["gpu0"]["record"] = "../../../etc/device.json"
        edited("roofline.json", devices=devices)


NO_RUNS = {
    "truncated": "truncated, damaged or no archive",
    "no archive": "truncated, damaged or no archive",
    "missing": "no such file",
    "traversal": "truncated, damaged or no archive",
    "another archive": "no archive of this workflow",
    "a folder of something else": "a.tar.gz: truncated, damaged or no archive",
    "another schema version": "is of version 1, and this code reads version 7",
    "edited": "roofline.json is not the file that its manifest lists",
    "not JSON": "roofline.json: ",
    "older record": "device_query.json: is of version 2, and this code reads version 7",
    "without its device": "gpu0/device_query.json is not in it",
    "outside": "leads outside",
}


@pytest.mark.parametrize("what", NO_RUNS)
def test_what_is_no_run_is_named_in_one_line(run, tmp_path, what):
    path = damaged(run, tmp_path, what)
    with pytest.raises(Refused) as refused:
        read_run(path)
    (line,) = str(refused.value).splitlines()
    assert str(path) in line and NO_RUNS[what] in line
    assert not (tmp_path.parent / "evil.json").exists()
