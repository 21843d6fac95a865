"""A user's operator: one file, named in the config, measured and judged like the library's."""

import filecmp
import shutil
import sys
import tarfile
from collections import Counter
from pathlib import Path

import pytest
from test_kernels import ARCHITECTURES, compiled
from workflow_run import CHECKOUT, Run, made_once, measured, sha256

from roofline.devices import discovery
from roofline.operators import registry
from roofline.operators.base import Case

GELU = "examples/gelu.py"
WAS_IMPORTED = "mine-was-imported"
# The example under another name. Its import leaves a file behind, so that a test can see whether it was imported.
MINE = (CHECKOUT / GELU).read_text(encoding="utf-8").replace('"gelu", "GELU"', '"mine", "MINE"')
IN_A_RUN = f'if Path.cwd() != Path("{CHECKOUT}"):\n    Path("{WAS_IMPORTED}").touch()\n'
MINE = MINE.replace("config.gelu", "config.mine")
MINE = MINE.replace("import numpy\n", f"from pathlib import Path\nimport numpy\n\n{IN_A_RUN}")
BUDGET = {"iterations": 10, "time_budget_s": 0.05}
SECTIONS = {"mine": {"sizes": [1000, 3000], **BUDGET}, "gelu": {"sizes": [2000], **BUDGET}}
FOLLOWS = {"cpu/predictions.json", "roofline.json", "manifest.json"}


@pytest.fixture(scope="session")
def extended_run(finished_run, tmp_path_factory) -> Run:
    """The finished run with two operators more: a file outside the checkout, and the example. Leave it as it is."""

    def make(folder: Path) -> None:
        run = Run(Path(shutil.copytree(finished_run.root, folder, symlinks=True)))
        mine = folder.with_name("files-of-the-user") / "mine.py"
        mine.parent.mkdir()
        mine.write_text(MINE)
        run.edit_config(operators=[str(mine), GELU], **SECTIONS)
        assert measured(run.finish()) == ["gelu cpu n2000", "mine cpu n1000", "mine cpu n3000"]

    return Run(made_once(tmp_path_factory, "extended-run", make))


@pytest.fixture
def extended(extended_run, tmp_path) -> Run:
    """A copy to change."""
    return Run(Path(shutil.copytree(extended_run.root, tmp_path / "extended", symlinks=True)))


def test_its_record_and_every_result_hold_what_was_measured_with_what(extended_run):
    record = extended_run.read("cpu/mine/n3000.json")
    (cell,) = record["measurements"]
    assert (cell["operator"], cell["shape"], cell["flops"], cell["bytes"]) == ("mine", {"n": 3000}, 27_000, 24_000)
    assert cell["check"]["relative_error"] <= cell["check"]["tolerance"] == 1e-5
    assert set(record["seals"]) == {"cpu/prediction.json", "cpu/calibration.json", "cpu/mine/prediction.json"}
    (path,) = extended_run.root.with_name("files-of-the-user").glob("*.py")
    assert record["sources"] == {str(path): sha256(path)}
    placed = Counter(one["operator"] for one in extended_run.read("roofline.json")["operators"] if one["sealed"])
    assert (placed["mine"], placed["gelu"]) == (2, 1)
    own = extended_run.read("roofline.json")["own_operators"]
    assert all(way["generic"] for operator in own for way in operator["ways"].values())
    for page in ("verification.md", "report.html"):
        assert "MINE" in (extended_run.results / page).read_text(encoding="utf-8")
    manifest = extended_run.read("manifest.json")
    assert manifest["operators"] == {str(path): sha256(path), GELU: sha256(extended_run.root / GELU)}
    assert {f"results/{name}" for name in ("cpu/mine/n1000.json", "mine.png", "cpu/gelu/n2000.json")} <= {
        output["path"] for output in manifest["outputs"]
    }


def test_an_edited_one_is_sealed_and_measured_again_alone(extended):
    extended.append(GELU)
    measures = {"cpu/gelu/prediction.json", "cpu/gelu/n2000.json", "operators/gelu.json"}
    assert extended.planned() == measures | FOLLOWS


def test_its_archive_holds_its_source_and_is_verified_and_drawn_without_running_it(extended):
    path = extended.archive()
    with tarfile.open(path) as tar:
        names = {name.partition("/")[2]: name for name in tar.getnames()}
        difference = tar.extractfile(names["provenance/uncommitted.diff"]).read()
    assert {"operators/mine.py", "operators/gelu.py"} <= set(names) and b"+operators:" in difference
    (extended.root / WAS_IMPORTED).unlink()
    done = extended.command("verify", path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (extended.root / WAS_IMPORTED).exists()
    rendered = extended.results / "rendered" / path.name.removesuffix(".tar.gz")
    for name in ("roofline.json", "mine.png", "interpretation.md", "verification.md"):
        assert filecmp.cmp(rendered / name, extended.results / name, shallow=False), name


@pytest.fixture(scope="module")
def gelu():
    return registry.load_operator_file(str(CHECKOUT / GELU))


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_examples_kernel_compiles_without_a_remark(gelu, architecture):
    code, remarks = compiled(sys.modules[type(gelu).__module__].CUDA, "gelu.cu", architecture)
    assert b".text.gelu\0" in code and remarks == ""


@pytest.mark.gpu
@pytest.mark.parametrize("size", [1, 255, 1_000_003])
def test_the_example_is_right_on_a_gpu(gelu, size):
    device, case = discovery.open_device("gpu0"), Case({"n": size}, "fp32")
    for implementation in gelu.implementations_on("gpu"):
        cell = implementation.make_prepared(gelu, device, case, {}, [gelu.inputs(device, case, seed=1)])
        found, _ = gelu.check(cell, None)
        assert found.relative_error <= found.tolerance
