"""Reading runs for comparison: from folders, archives and archives of records alone; and what is not a run."""

import json
import shutil
from pathlib import Path

import pytest
from small_run import SmallRun
from workflow_run import NEWEST

from roofline.api import open_run
from roofline.core.terms import UserError
from roofline.records.base import read
from roofline.records.manifest_record import Manifest
from roofline.run.archive import list_packed_paths, pack


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    made = SmallRun(tmp_path_factory.mktemp("made"), device="gpu0")
    made.write_manifest()
    return made


def packed(run, name="whole") -> Path:
    manifest = read(Manifest, run.root / "results/manifest.json")
    return run.root / pack(name, list_packed_paths(manifest, [], []), [run.root], {})


def test_a_run_is_the_same_from_wherever_it_is_read(run):
    archive = packed(run)
    sources = [run.root, run.root / "results", archive]
    runs = [open_run(source) for source in sources]
    assert len({one.fingerprint for one in runs}) == 1 and all(one.quantities == runs[0].quantities for one in runs)
    assert [one.source for one in runs] == [str(source) for source in sources]


def test_every_figure_of_a_real_run_once_and_clocks_as_counted():
    whole = open_run(NEWEST)
    keys = [(one.device, one.key) for one in whole.quantities]
    assert len(keys) == len(set(keys))
    of_card = whole.of_device("gpu0")
    ceilings = {one.name for one in whole.roofline.ceilings if one.device == "gpu0"}
    assert ceilings <= of_card.keys() and {f"{name}/sustained" for name in ("fp32", "fp16")} <= of_card.keys()


# ---------------------------------------------------------------- no runs (damaged archives: test_archive.py)


def edited(name: str, **fields):
    def change(results: Path) -> None:
        content = json.loads((results / name).read_text())
        (results / name).write_text(json.dumps(content | fields))

    return change


NO_RUNS = {  # what is changed in a results folder, and what the refusal names
    "another schema version": (edited("roofline.json", schema_version=1), "roofline.json"),
    "edited": (lambda results: (results / "roofline.json").open("a").write(" "), "roofline.json"),
    "unfinished": (lambda results: (results / "manifest.json").unlink(), "manifest.json"),
    "gone": (shutil.rmtree, "no such file"),
}


@pytest.mark.parametrize(("change", "named"), NO_RUNS.values(), ids=NO_RUNS)
def test_what_is_no_run_is_named_in_one_line(run, tmp_path, change, named):
    path = shutil.copytree(run.root / "results", tmp_path / "copy")
    change(path)
    with pytest.raises(UserError) as refused:
        open_run(path)
    (line,) = str(refused.value).splitlines()
    assert line.startswith(f"{path}: ") and named in line
