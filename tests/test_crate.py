"""Archives as run crates: valid by the profile's own validator, true to the run, and silent about what is not known."""

import gzip
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from commands import COMMANDS, load
from reference_runs import H200
from requests_cache import CachedRequest, CachedResponse, CachedSession
from rocrate_validator.models import Severity, ValidationSettings
from rocrate_validator.services import validate
from small_run import SOURCES, SmallRun
from test_archive_workflow import unpacked
from test_user_operator import extended_run  # noqa: F401, a fixture
from workflow_run import CHECKOUT, Run, sha256

from roofline.records.base import read
from roofline.records.manifest import Manifest
from roofline.run import checkout, crate, settings
from roofline.run.archive import Refused, contents, located, manifest_of, pack
from roofline.run.config import AuthorSettings
from roofline.run.crate_facts import COMMIT, METADATA, gather

# Of a library that the validator uses.
pytestmark = pytest.mark.filterwarnings("ignore:ConjunctiveGraph is deprecated")
CONTEXT = gzip.decompress((Path(__file__).parent / "contexts/ro-crate-1.1.jsonld.gz").read_bytes())
TERMS = """ParameterConnection ContainerImage DockerImage SIFImage connection sourceParameter targetParameter
    md5 sha1 sha256 sha512 environment registry tag containerImage resourceUsage"""
TERM = "https://w3id.org/ro/terms/workflow-run#"
WFRUN = json.dumps({"@context": {term: TERM + term for term in TERMS.split()}}).encode()
# Of the Snakefile, by its two types: its @id is a path, as it must be.
FALSE_REMARKS = ["The SoftwareApplication id SHOULD be an absolute URI"] * 2
ADA = {
    "name": "Ada Lovelace",
    "orcid": "0000-0002-1825-0097",
    "affiliation": "A University",
    "affiliation_url": "https://ror.org/03yrm5c26",
}


@pytest.fixture(scope="session")
def contexts(tmp_path_factory) -> Path:
    """The validator's cache, with the two contexts that it would fetch."""
    path = tmp_path_factory.mktemp("contexts") / "cache"
    with CachedSession(str(path)) as session:
        for url, content in zip(crate.CONTEXT, (CONTEXT, WFRUN), strict=False):
            request = CachedRequest(method="GET", url=url)
            response = CachedResponse(
                status_code=200,
                url=url,
                content=content,
                headers={"Content-Type": "application/ld+json"},
                request=request,
            )
            session.cache.save_response(response, session.cache.create_key(request))
    return path


@pytest.fixture
def remarks(contexts):
    """What the validator says of a crate, at the levels REQUIRED and RECOMMENDED."""

    def told(path: Path) -> list[str]:
        found = validate(
            ValidationSettings(
                rocrate_uri=str(path),
                profile_identifier="provenance-run-crate-0.5",
                requirement_severity=Severity.RECOMMENDED,
                offline=True,
                cache_path=contexts,
            )
        )
        return sorted(issue.message for issue in found.get_issues())

    return told


def entities(text: bytes | str) -> dict[str, dict]:
    return {one["@id"]: one for one in json.loads(text)["@graph"]}


def ids(value) -> list[str]:
    """Of references, one or many."""
    return [one["@id"] for one in (value if isinstance(value, list) else [value] if value else [])]


def of_type(found: dict[str, dict], kind: str) -> dict[str, dict]:
    return {id_: one for id_, one in found.items() if kind in one["@type"]}


# ---------------------------------------------------------------- valid


def archived(run: Run) -> tuple[Path, str]:
    """A copy of a run, archived by Ada; what that printed."""
    done = run.command("archive", "--config", f"author={json.dumps(ADA)}")
    assert done.returncode == 0, done.stderr
    return run.root / next(line for line in done.stdout.splitlines() if line.endswith(".tar.gz")), done.stdout


def test_a_run_on_the_cpu(run, remarks, tmp_path):
    path, _ = archived(run)
    root = unpacked(path, tmp_path / "elsewhere").root
    assert remarks(root) == FALSE_REMARKS

    *told, packed, _ = load("crate").make(path, tmp_path / "made")
    assert remarks(Path(packed)) == FALSE_REMARKS
    assert told == []
    with zipfile.ZipFile(packed) as opened:
        assert opened.read(METADATA) == (root / METADATA).read_bytes()

    found = entities((root / METADATA).read_text())
    manifest = read(Manifest, root / "results/manifest.json")
    jobs = [one for one in of_type(found, "CreateAction").values() if one["@id"] != "#run"]
    assert {path for job in jobs for path in ids(job["result"])} == {
        *(output.path for output in manifest.outputs),
        "results/manifest.json",
    }
    assert len(of_type(found, "ControlAction")) == len(jobs)
    measured = found["#job/cpu/peak_flops/fp32"]
    assert found[measured["instrument"]["@id"]]["url"] == {"@id": "workflow/scripts/peak_flops.py"}
    assert "results/cpu/prediction.json" in ids(measured["object"])
    assert measured["agent"] == found["./"]["author"] == {"@id": f"https://orcid.org/{ADA['orcid']}"}
    (output,) = (one for one in manifest.outputs if one.path == "results/cpu/peak_flops/fp32.json")
    assert (measured["startTime"], measured["endTime"]) == tuple(
        moment[:23] + "+00:00" for moment in (output.started_at, output.ended_at)
    )
    assert found["Snakefile"]["version"] == manifest.sources.commit


def test_a_changed_author_makes_nothing_stale(run):
    run.edit_config(author=ADA)
    assert not run.planned()


def test_a_partial_rerun_with_operators_of_the_users_own(extended_run, remarks, tmp_path):  # noqa: F811
    run = Run(Path(shutil.copytree(extended_run.root, tmp_path / "run", symlinks=True)))
    path, told = archived(run)
    assert told.startswith("the sources differ from commit ")
    root = unpacked(path, tmp_path / "elsewhere").root
    assert remarks(root) == FALSE_REMARKS

    found = entities((root / METADATA).read_text())
    assert {"operators/saxpy.py", "operators/gelu.py"} <= set(ids(found["#run"]["object"]))
    commit = run.read("manifest.json")["sources"]["commit"]
    assert found["Snakefile"]["version"] == f"{commit}-dirty"
    assert "provenance/uncommitted.diff" in found["Snakefile"]["description"]
    assert b"+operators:" in (root / "provenance/uncommitted.diff").read_bytes()
    # What the first run measured was given to the second, which did no more than its own jobs.
    before = "results/cpu/peak_flops/fp32.json"
    assert before in ids(found["#run"]["object"]) and before not in ids(found["#run"]["result"])
    done = {ids(one["object"])[0] for one in of_type(found, "ControlAction").values()}
    assert "#job/cpu/saxpy/n1000" in done and "#job/cpu/peak_flops/fp32" not in done
    assert found["#job/cpu/peak_flops/fp32"]["endTime"] < found["#run"]["startTime"]


def h200(root: Path) -> Manifest:
    """What is committed of the H200's run in the places that its archive had, with the sources of this checkout."""
    for path in checkout.files(CHECKOUT):
        if not path.startswith("reference/"):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CHECKOUT / path, root / path)
    shutil.copytree(H200, root / "results", ignore=shutil.ignore_patterns("*.tar.gz"))
    return read(Manifest, H200 / "manifest.json")


def written(root: Path, manifest: Manifest, author: AuthorSettings | None = None) -> dict[str, dict]:
    """The crate of all files of a folder."""
    paths = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    text = crate.metadata(gather({path: root / path for path in paths}, manifest, {}, author))
    (root / METADATA).write_bytes(text)
    return entities(text)


def test_an_h200(remarks, tmp_path):
    found = written(tmp_path, h200(tmp_path), AuthorSettings(**ADA))
    assert remarks(tmp_path) == FALSE_REMARKS
    assert found["#device/gpu0"]["name"] == "NVIDIA H200"
    assert found["#environment/cupy-cuda12x"]["value"] == "14.2.0"
    assert found["Snakefile"]["buildInstructions"] == {"@id": "envs/cuda12.txt"}
    assert found["#job/gpu0/counters"]["startTime"] == "2026-11-25T04:16:22.587+00:00"


# ---------------------------------------------------------------- true


@pytest.fixture(scope="module")
def made_once(tmp_path_factory) -> SmallRun:
    run = SmallRun(tmp_path_factory.mktemp("made"))
    (run.root / "Snakefile").write_text("rule all:\n")
    shutil.copy(CHECKOUT / "LICENSE", run.root)
    run.write_manifest()
    return run


@pytest.fixture
def small(made_once, tmp_path) -> SmallRun:
    return made_once.copied_to(tmp_path / "small")


def test_every_file_has_its_size_and_hash(small):
    found = written(small.root, small.manifest())
    listed = of_type(found, "File")
    assert set(small.paths) | {"Snakefile", "LICENSE", "results/manifest.json"} <= set(listed)
    for path, one in listed.items():
        file = small.root / path
        assert (one["sha256"], one["contentSize"]) == (sha256(file), str(file.stat().st_size)), path


def test_the_same_run_gives_the_same_bytes(small, tmp_path):
    texts = []
    for folder in ("one", "two"):
        root = small.copied_to(tmp_path / folder).root
        written(root, manifest_of(root))
        texts.append((root / METADATA).read_bytes())
    assert texts[0] == texts[1]


def test_what_is_not_known_is_left_out(small):
    nothing = SOURCES.model_copy(update={"commit": None, "dirty": None, "changed_files": None})
    for job in small.jobs.values():
        job |= {"started_at": None, "ended_at": None}
    manifest = small.manifest(sources=nothing, run_started_at=None)
    manifest.environment.snakemake = None
    found = written(small.root, manifest)
    keys = {key for one in found.values() for key in one}
    assert keys.isdisjoint({"agent", "author", "publisher", "startTime", "softwareVersion", "buildInstructions"})
    assert "version" not in found["Snakefile"]
    assert [id_ for id_, one in found.items() if "endTime" in one] == ["#run"]  # when its manifest was written


@pytest.mark.parametrize("state", [{"dirty": True}, {"dirty": False}, {"dirty": None}], ids=str)
def test_a_commit_with_changes_never_passes_for_the_commit(small, state):
    found = written(small.root, small.manifest(sources=SOURCES.model_copy(update=state)))
    assert found["Snakefile"]["version"] == ("c0ffee-dirty" if state["dirty"] else "c0ffee")
    assert ("without changes" in found["Snakefile"]["description"]) is (state["dirty"] is False)


def test_a_commit_after_the_run_is_not_the_commit_that_measured(small):
    (small.root / "provenance").mkdir()
    for line, version in (("", "c0ffee"), ("commit when the manifest was made: c0ffee\n", "c0ffee-dirty")):
        (small.root / COMMIT).write_text(f"commit of these sources: another\n{line}")
        assert written(small.root, small.manifest())["Snakefile"]["version"] == version


CFF = """
cff-version: 1.2.0
title: a workflow
authors:
  - {given-names: Grace, family-names: Hopper, orcid: "https://orcid.org/0000-0002-1694-233X"}
  - name: The developers
"""


def test_authors_of_the_citation_file_wrote_the_workflow_and_did_not_run_it(small):
    (small.root / "CITATION.cff").write_text(CFF)
    found = written(small.root, small.manifest())
    assert [found[id_]["name"] for id_ in ids(found["./"]["author"])] == ["Grace Hopper", "The developers"]
    assert "agent" not in found["#run"]
    found = written(small.root, small.manifest(), AuthorSettings(name="Ada Lovelace"))
    assert [found[id_]["name"] for id_ in ids(found["./"]["author"])] == ["Ada Lovelace"]
    assert found["Snakefile"]["author"] == [
        {"@id": "https://orcid.org/0000-0002-1694-233X"},
        {"@id": "#author/The%20developers"},
    ]


def test_a_checkpoint_of_the_users_own_is_named_by_its_hash(tmp_path):
    run = SmallRun(tmp_path / "run", data=str(tmp_path / "own.bin"))
    (run.root / "Snakefile").write_text("rule all:\n")
    shutil.copy(CHECKOUT / "LICENSE", run.root)
    run.write_manifest()
    found = written(run.root, manifest_of(run.root))
    assert sha256(tmp_path / "own.bin") in [found[id_].get("value") for id_ in ids(found["#run"]["object"])]


# ---------------------------------------------------------------- refused

FAULTS = {
    "nobody": ({"orcid": ADA["orcid"]}, "orcid is given without name; allowed: both, or orcid: null"),
    "url": (
        {**ADA, "affiliation_url": "ror"},
        "author.affiliation_url: 'ror' is no web address; allowed: one such as ",
    ),
    "key": ({"nme": "A"}, "author.nme: unknown key; did you mean name?"),
    "text": ("Ada Lovelace", "author: 'Ada Lovelace'; allowed: a mapping of keys to values"),
}


@pytest.mark.parametrize(("author", "line"), FAULTS.values(), ids=FAULTS)
def test_a_faulty_author_is_one_line(author, line):
    with pytest.raises(settings.Faults) as faults:
        settings.complete({"author": author})
    assert len(faults.value.lines) == 1 and line in faults.value.lines[0]


def old_archive(run: SmallRun, name: str = "a-cpu") -> Path:
    """As they were before they held a crate's metadata."""
    there = (path.relative_to(run.root).as_posix() for path in run.root.iterdir() if path.is_file())
    return run.root / pack(run.root, name, located(contents(manifest_of(run.root), there, []), run.root), {})


def test_an_archive_that_was_made_before_crates_becomes_one(small, tmp_path):
    command = [sys.executable, COMMANDS / "crate.py", old_archive(small)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("no agent recorded")
    with zipfile.ZipFile(tmp_path / "results/archive/a-cpu.crate.zip") as opened:
        assert "results/manifest.json" in opened.namelist()
        assert "#job/cpu/peak_flops/fp32" in entities(opened.read(METADATA))


def test_what_cannot_be_a_crate_is_refused_in_one_line(small, tmp_path):
    (small.root / "a note").write_text("x")
    refused = {"'a note' has a space in its name": old_archive(small)}
    (small.root / "a note").unlink()
    (small.root / "CITATION.cff").write_text("authors: 3\n")
    refused["CITATION.cff is no citation file with authors"] = old_archive(small, "cited")
    (small.root / "LICENSE").unlink()
    refused["LICENSE is not in it"] = old_archive(small, "unlicensed")
    refused["records alone"] = next((CHECKOUT / "reference/runs").glob("nvidia*.tar.gz"))
    for reason, path in refused.items():
        with pytest.raises(Refused) as error:
            load("crate").make(path, tmp_path / "made")
        line = str(error.value)
        assert line.startswith(f"{path}: no crate, ") and reason in line and "\n" not in line
    assert not (tmp_path / "made").exists()


def test_an_archive_is_made_where_a_crate_cannot_be(small, monkeypatch, capsys, tmp_path):
    command = load("archive")
    monkeypatch.setattr(command, "what_is_stale", lambda options: None)
    (small.root / "LICENSE").unlink()
    path = small.root / command.archive(small.root, [])
    assert capsys.readouterr().out == "the archive is no run crate: LICENSE is not in it\n"
    monkeypatch.chdir(tmp_path)
    assert load("verify").verify(path) == 0
