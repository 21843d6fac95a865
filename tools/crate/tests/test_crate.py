"""Crates of archives: valid by the validator of the profile, true to the run, silent about what is not known."""

import base64
import gzip
import json
import shutil
import tarfile
import zipfile
from pathlib import Path

import crate
import pytest
from requests_cache import CachedRequest, CachedResponse, CachedSession
from rocrate_validator.models import Severity, ValidationSettings
from rocrate_validator.services import validate
from small_run import SmallRun
from workflow_run import CHECKOUT, sha256

from roofline.api import UserError
from roofline.run.archive import list_packed_paths, pack

# From a library that the validator uses.
pytestmark = pytest.mark.filterwarnings("ignore:ConjunctiveGraph is deprecated")
CONTEXT = gzip.decompress((Path(__file__).parent / "contexts/ro-crate-1.1.jsonld.gz").read_bytes())
TERMS = """ParameterConnection ContainerImage DockerImage SIFImage connection sourceParameter targetParameter
    md5 sha1 sha256 sha512 environment registry tag containerImage resourceUsage"""
TERM = "https://w3id.org/ro/terms/workflow-run#"
WFRUN = json.dumps({"@context": {term: TERM + term for term in TERMS.split()}}).encode()
# The Snakefile, by its two types: its @id is a path, as it must be.
FALSE_REMARKS = ["The SoftwareApplication id SHOULD be an absolute URI"] * 2
ADA = ["--author=Ada Lovelace", "--orcid=0000-0002-1825-0097", "--affiliation=A University"]
ADA += ["--affiliation-url=https://ror.org/03yrm5c26"]


@pytest.fixture(scope="session")
def contexts(tmp_path_factory) -> Path:
    """The validator's cache, with the two contexts that it would fetch."""
    path = tmp_path_factory.mktemp("contexts") / "cache"
    with CachedSession(str(path)) as session:
        for url, content in {"https://w3id.org/ro/crate/1.1/context": CONTEXT, crate.TERMS: WFRUN}.items():
            request = CachedRequest(method="GET", url=url)
            headers = {"Content-Type": "application/ld+json"}
            response = CachedResponse(status_code=200, url=url, content=content, headers=headers, request=request)
            session.cache.save_response(response, session.cache.create_key(request))
    return path


def remarks(path: str, contexts: Path) -> list[str]:
    """What the validator says of a crate, at the levels REQUIRED and RECOMMENDED."""
    settings = ValidationSettings(
        rocrate_uri=path,
        profile_identifier="provenance-run-crate-0.5",
        requirement_severity=Severity.RECOMMENDED,
        offline=True,
        cache_path=contexts,
    )
    return sorted(issue.message for issue in validate(settings).get_issues())


@pytest.fixture(scope="module")
def made_once(tmp_path_factory) -> SmallRun:
    run = SmallRun(tmp_path_factory.mktemp("made"))
    (run.root / "Snakefile").write_text("rule all:\n")
    (run.root / "README.md").write_text("# A workflow\n")
    shutil.copy(CHECKOUT / "LICENSE", run.root)
    return run


@pytest.fixture
def small(made_once, tmp_path) -> SmallRun:
    return made_once.copied_to(tmp_path / "small")


def packed(run: SmallRun, notes: dict[str, bytes] | None = None, **fields) -> str:
    """The archive of a run whose manifest has these fields."""
    manifest = run.write_manifest(**fields)
    paths = [path.relative_to(run.root) for path in [*run.root.iterdir(), *run.root.glob(".snakemake/*/*")]]
    return str(run.root / pack("a-cpu", list_packed_paths(manifest, map(str, paths), []), [run.root], notes or {}))


def entities(path: str) -> dict[str, dict]:
    with zipfile.ZipFile(path) as opened:
        return {entity["@id"]: entity for entity in json.loads(opened.read(crate.METADATA))["@graph"]}


def ids(value: dict | list[dict]) -> set[str]:
    return {entity["@id"] for entity in (value if isinstance(value, list) else [value])}


def test_a_run(small, contexts):
    """Valid, also if the archive is older and holds metadata. What earlier jobs made is given to those of this run."""
    output = "results/cpu/peak_flops/fp32.json"
    memory = small.root / ".snakemake/metadata" / base64.urlsafe_b64encode(output.encode()).decode()
    memory.parent.mkdir(parents=True)
    memory.write_text(json.dumps({"input": ["results/cpu/prediction.json", "workflow/scripts/peak_flops.py"]}))
    started_at = small.jobs["results/roofline.json"]["started_at"]
    *lines, path = crate.make_crate([packed(small, {crate.METADATA: b"{}"}, started_at=started_at), *ADA])
    assert lines == [] and remarks(path, contexts) == FALSE_REMARKS
    crate_entities = entities(path)
    jobs = [entity for id_, entity in crate_entities.items() if id_.startswith("#job/")]
    assert set().union(*(ids(job["result"]) for job in jobs)) >= set(small.paths)
    job, run = crate_entities["#job/cpu/peak_flops/fp32"], crate_entities["#run"]
    assert ids(job["object"]) == {"results/cpu/prediction.json"}
    assert job["startTime"] == small.jobs[output]["started_at"].replace("+", ".000+")
    assert job["agent"] == crate_entities["./"]["author"] == {"@id": "https://orcid.org/0000-0002-1825-0097"}
    assert "results/cpu/prediction.json" in ids(run["object"]) - ids(run["result"])
    assert "results/roofline.json" in ids(run["result"]) - ids(run["object"])


def test_all_files_are_in_it_once_and_results_have_size_and_hash(small):
    archive = packed(small)
    path = crate.make_crate([archive])[-1]
    with tarfile.open(archive) as tar, zipfile.ZipFile(path) as opened:
        paths = [name.partition("/")[2] for name in tar.getnames()]
        assert sorted(opened.namelist()) == sorted([*paths, crate.METADATA])
    crate_entities = entities(path)
    for name in [*small.paths, "Snakefile", "results/manifest.json"]:
        file, entity = small.root / name, crate_entities[name]
        assert (entity["sha256"], entity["contentSize"]) == (sha256(file), str(file.stat().st_size))


def test_what_cannot_be_a_crate_is_refused_in_one_line(small, tmp_path):
    archive = packed(small)
    (small.root / "LICENSE").unlink()
    unlicensed = packed(small)
    refused = {
        f"{unlicensed}: no crate, LICENSE is not in it": [unlicensed],
        f"{tmp_path / 'none'}: no such file": [str(tmp_path / "none")],
        "ORCID=Ada; allowed: one such as ": [archive, "--orcid=Ada"],
    }
    for line, arguments in refused.items():
        with pytest.raises(UserError) as error:
            crate.make_crate(arguments)
        assert str(error.value).startswith(line) and "\n" not in str(error.value)
    assert not list(tmp_path.rglob("*.zip*"))
