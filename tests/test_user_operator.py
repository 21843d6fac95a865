"""An operator of the user's own: one file, named in the config, measured and judged like the library's."""

import filecmp
import shutil
import sys
import tarfile
from collections import Counter
from pathlib import Path

import pytest
from test_kernels import ARCHITECTURES, compiled
from workflow_run import CHECKOUT, TINY, Run, changed, made_once, measured, sha256

from roofline.core.terms import UserError
from roofline.devices.base import Identity
from roofline.devices.cpu import identity as cpu
from roofline.operators import registry
from roofline.run import machine_checks, settings, targets
from roofline.table.load import Asked, load
from roofline.table.run_records import Results

# As a user would write it. Its import leaves a file behind, so that a test can tell whether it was imported.
SAXPY = """
from pathlib import Path
from roofline.operators.base import Case, Implementation, Job, Operator
from roofline.operators.settings import OperatorSettings, Whole

if Path.cwd() != Path("{CHECKOUT}"):
    Path("saxpy-was-imported").touch()

class SaxpySettings(OperatorSettings):
    sizes: list[Whole] = [1000, 3000]

class ByNumpy(Implementation):
    name, kind = "numpy", "cpu"
    def compute(self, inputs):
        return 2 * inputs["x"] + inputs["y"]

class Saxpy(Operator):
    name, title, Settings, implementations = "saxpy", "SAXPY", SaxpySettings, (ByNumpy,)
    def jobs(self, config):
        return [Job(f"n{size}", (Case({"n": size}, "fp32"),)) for size in config.saxpy.sizes]
    def flops(self, case, scope=None):
        return 2 * case.shape["n"]
    def bytes(self, case, scope=None):
        return 12 * case.shape["n"]
    def inputs(self, device, case, seed):
        x, y = device.normal((2, case.shape["n"]), case.dtype, seed)
        return {"x": x, "y": y}
    def reference(self, case, inputs):
        return 2.0 * inputs["x"].astype(float) + inputs["y"]
""".replace("{CHECKOUT}", str(Path(__file__).parents[1]))
WAS_IMPORTED = "saxpy-was-imported"
GELU = "examples/gelu.py"
BUDGET = {"iterations": 10, "time_budget_s": 0.05}
SECTIONS = {"saxpy": {"sizes": [1000, 3000], **BUDGET}, "gelu": {"sizes": [2000], **BUDGET}}
SAXPY_RECORDS = ("cpu/saxpy/n1000.json", "cpu/saxpy/n3000.json")
FOLLOWS = ("roofline.json", "roofline.png", "manifest.json")


def written(folder: Path, text: str = SAXPY) -> str:
    """The path of a file of the user's."""
    folder.mkdir(exist_ok=True)
    (folder / "saxpy.py").write_text(text)
    return str(folder / "saxpy.py")


@pytest.fixture(scope="session")
def extended_run(finished_run, tmp_path_factory) -> Run:
    """The finished run with two operators more: a file outside the checkout, and the example. Leave it as it is."""

    def make(folder: Path) -> None:
        run = Run(Path(shutil.copytree(finished_run.root, folder, symlinks=True)))
        run.edit_config(operators=[written(folder.with_name("files-of-the-user")), GELU], **SECTIONS)
        told = run.finish()
        assert measured(told) == ["gelu cpu n2000", "saxpy cpu n1000", "saxpy cpu n3000"]

    return Run(made_once(tmp_path_factory, "extended-run", make))


@pytest.fixture
def extended(extended_run, tmp_path) -> Run:
    """A copy to change."""
    return Run(Path(shutil.copytree(extended_run.root, tmp_path / "extended", symlinks=True)))


def test_its_record_says_what_was_measured_with_what(extended_run):
    record = extended_run.read("cpu/saxpy/n3000.json")
    (cell,) = record["measurements"]
    assert (cell["operator"], cell["shape"], cell["flops"], cell["bytes"]) == ("saxpy", {"n": 3000}, 6000, 36_000)
    assert cell["check"]["error"] <= cell["check"]["tolerance"] == 1e-5
    assert set(record["seals"]) == {"cpu/prediction.json", "cpu/calibration.json", "cpu/saxpy/prediction.json"}
    (path,) = extended_run.root.with_name("files-of-the-user").glob("*.py")
    assert record["sources"] == {str(path): sha256(path)}


def test_every_result_tells_of_it(extended_run):
    roofline = extended_run.read("roofline.json")
    placed = [(one["operator"], one["shape"]) for one in roofline["operators"]]
    assert all(one in placed for one in [("saxpy", {"n": 1000}), ("saxpy", {"n": 3000}), ("gelu", {"n": 2000})])
    for page in ("verification.md", "report.html"):
        assert "SAXPY" in (extended_run.results / page).read_text(encoding="utf-8")
    assert (extended_run.results / "saxpy.png").read_bytes().startswith(b"\x89PNG")
    sealed = [one["operator"] for one in roofline["operators"] if one["sealed"]]
    assert (sealed.count("saxpy"), sealed.count("gelu")) == (2, 1)
    manifest = extended_run.read("manifest.json")
    (own,) = extended_run.root.with_name("files-of-the-user").glob("*.py")
    assert manifest["operators"] == {str(own): sha256(own), GELU: sha256(extended_run.root / GELU)}
    assert {f"results/{name}" for name in (*SAXPY_RECORDS, "saxpy.png", "cpu/gelu/n2000.json")} <= {
        output["path"] for output in manifest["outputs"]
    }


def test_an_edited_one_is_sealed_and_measured_again_alone(extended):
    extended.append(GELU)
    assert extended.planned() == Counter(
        ["cpu/gelu/prediction.json", "cpu/gelu/n2000.json", "operators/gelu.json", *FOLLOWS]
    )


def test_its_archive_holds_its_source_and_is_verified_and_drawn_without_running_it(extended):
    path = extended.archive()
    with tarfile.open(path) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    assert {"operators/saxpy.py", "operators/gelu.py"} <= names
    assert (extended.root / WAS_IMPORTED).exists(), "importing it leaves this file behind"
    (extended.root / WAS_IMPORTED).unlink()
    done = extended.command("verify", path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (extended.root / WAS_IMPORTED).exists()
    rendered = extended.results / "rendered" / path.name.removesuffix(".tar.gz")
    for name in ("roofline.json", "saxpy.png", "interpretation.md", "verification.md"):
        assert filecmp.cmp(rendered / name, extended.results / name, shallow=False), name


def test_a_wrong_result_fails_its_job_alone(run, tmp_path):
    wrong = SAXPY.replace('return 2 * inputs["x"] + ', 'return (2 + (inputs["x"].size == 3000)) * inputs["x"] + ')
    before = run.files()
    run.edit_config(operators=[written(tmp_path, wrong)], saxpy=SECTIONS["saxpy"])
    done = run.snakemake()
    told = done.stdout + done.stderr
    assert done.returncode != 0 and "Traceback" not in told
    assert measured(told) == ["saxpy cpu n1000"]
    (line,) = (line for line in told.splitlines() if line.startswith("saxpy cpu n3000 failed: "))
    assert "allowed 1e-05" in line and "logs/cpu/saxpy/n3000.log" in line
    after = run.files()
    assert set(after) - set(before) == {"cpu/saxpy/prediction.json", "operators/saxpy.json", SAXPY_RECORDS[0]}
    kept = [path for path in before if Path(path).stem != "predictions"]  # they list the new cells too
    assert {path: after[path] for path in kept} == {path: before[path] for path in kept}


CARD = Identity("gpu0", "gpu", "A card", "GPU-1", "580", 80 << 30, 80 << 30, 50 << 20, multiprocessors=132)


def lines_of(path: str, *gpus: Identity, **keys) -> list[str]:
    """The faults of a config that names the file."""
    chosen = ["cpu", *(identity.device for identity in gpus)]
    ceilings = {"peak_flops": {"size": 4096}, "bandwidth": {"levels": ["sweep"]}}
    config = changed(TINY, {**ceilings, "operators": [path], "devices": chosen, **keys})
    present = {identity.device: identity for identity in [cpu.discover()[0], *gpus]}
    try:
        machine_checks.choose_devices(settings.complete(config), present)
    except UserError as faults:
        return faults.lines
    return []


DECLARED = {  # what stands in the file, what takes its place, the fault
    "two jobs of one path": ('f"n{size}"', '"all"', "jobs: 'all' is the path of two"),
    "an unknown dtype": ('"fp32"', '"fp31"', "no tolerance for dtype 'fp31'; "),
    "FLOPs that are no whole number": ("return 2 * case", "return 2.0 * case", "flops: 2000.0 "),
}


@pytest.mark.parametrize(("text", "instead", "expected"), DECLARED.values(), ids=DECLARED.keys())
def test_a_declaration_that_cannot_be_measured_is_a_fault_before_anything_is(tmp_path, text, instead, expected):
    assert text in SAXPY
    path = written(tmp_path, SAXPY.replace(text, instead))
    found = lines_of(path)
    assert any(line.startswith(f"operators: {path}: {expected}") for line in found), found


def test_one_for_gpus_alone_is_skipped_on_the_cpu_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, SAXPY.replace('"cpu"', '"gpu"'))
    assert lines_of(path) == ["operators: saxpy has no implementation for cpu"]
    assert lines_of(path, CARD) == []
    asked = targets.asked(settings.complete({"operators": [path]}), ["gpu0", "cpu"])
    (skipped,) = (one for one in load(Results(), Asked(**asked)).skipped if one.name == "saxpy")
    assert (skipped.device, skipped.what) == ("cpu", "operator")
    assert skipped.reason == "no implementation for cpu"


@pytest.fixture(scope="module")
def gelu():
    return registry.load(str(CHECKOUT / GELU))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_examples_kernel_compiles_without_a_remark(gelu, architecture):
    code, remarks = compiled(sys.modules[type(gelu).__module__].CUDA, "gelu.cu", architecture)
    assert b".text.gelu\0" in code and remarks == ""


@pytest.mark.gpu
@pytest.mark.parametrize("size", [1, 255, 1_000_003])
def test_the_example_is_right_on_a_gpu(gelu, size):
    from roofline.devices import discovery
    from roofline.operators.base import Case

    device, case = discovery.open_device("gpu0"), Case({"n": size}, "fp32")
    for implementation in gelu.implementations_on("gpu"):
        cell = implementation.prepared(gelu, device, case, {}, [gelu.inputs(device, case, seed=1)])
        found, _ = gelu.check(cell, None)
        assert found.error <= found.tolerance
