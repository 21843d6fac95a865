"""Records edited by hand: with the digest kept, every edit is named; with the digest written anew, every one that
contradicts limits, its place, job, seal or another field. What nothing contradicts is listed here and in
docs/archives.md."""

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from edited_records import write_edited
from test_gpu_workflow import GpuRun, copy_of, whole_run

from roofline.analysis.results import read_any, read_results
from roofline.records.base import CorruptRecord, read
from roofline.records.files import file_sha256
from roofline.records.manifest import Manifest
from roofline.run.manifest import against_records, hashes

SEED = 20261123
SAMPLED = 40  # edits of a file whose digest is kept
IMPOSSIBLE = (-1, 1e300, "forged")
# What stands for itself: words, names of kernels and reasons, and how an implementation divides its work.
WORDS = (
    "advice|algorithm|accumulation|compared|counted|description|doubts|entry|finding|generated|grid|how_known|inputs|"
    "kept_read_why|kernel|kernel_flops_why|kernels|layout|library|method|name|notes|output|picture|reader|reason|"
    "reference_inputs|refused|series|source|title|told|trials|unsupported|verified|what|why|not_counted|hardware|host|"
    "software|constant_sources|walls|memory_ceilings|plan|shape|preset|absent|rate_class|ncu|cases|scopes|baselines|axis|"
    "usual_share_of_peak|throttle_reasons|limited_by|level|uuid|path|temperature_c|ruled_out|not_ruled_out"
)
FREE = re.compile(rf"(^|\.)({WORDS})(\.|$)")


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> GpuRun:
    """A copy: other tests read the run itself while records are edited here."""
    return copy_of(whole_run(tmp_path_factory), tmp_path_factory.mktemp("forged"))


def records(run: GpuRun) -> list[Path]:
    manifest = read(Manifest, run.results / "manifest.json")
    paths = [run.root / one.path for one in manifest.outputs if one.path.endswith(".json")]
    return [path for path in paths if path.parent != run.results and path.name != "distribution.json"]


def leaves(content, at: tuple = ()) -> Iterator[tuple]:
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else None
    if items is None:
        yield at
        return
    for key, value in items:
        yield from leaves(value, (*at, key))


def put(content, at: tuple, value) -> None:
    for key in at[:-1]:
        content = content[key]
    content[at[-1]] = value


def test_every_edit_that_keeps_the_digest_is_named(finished, tmp_path):
    chosen = random.Random(SEED)
    for path in records(finished):
        content = json.loads(path.read_text())
        places = [at for at in leaves(content) if at != ("digest",)]
        for at in chosen.sample(places, min(SAMPLED, len(places))):
            edited = json.loads(path.read_text())
            put(edited, at, chosen.choice([1, "forged", None, 2.5, True]))
            if edited != content:
                (tmp_path / "x.json").write_text(json.dumps(edited, indent=1) + "\n")
                with pytest.raises(CorruptRecord):
                    read_any(tmp_path / "x.json")


def one_of_each_kind(run: GpuRun) -> list[Path]:
    found = {}
    for path in records(run):
        content = json.loads(path.read_text())
        found.setdefault((content["kind"], path.relative_to(run.results).parts[0][:3]), path)
    return list(found.values())


def places(content: dict) -> dict[str, tuple]:
    """One place of each field, by its path without the numbers of lists."""
    return {".".join("#" if isinstance(key, int) else key for key in at): at for at in leaves(content)}


def test_impossible_values_are_named_though_the_digest_is_written_anew(finished, monkeypatch):
    monkeypatch.chdir(finished.root)
    manifest = read(Manifest, finished.results / "manifest.json")
    sha256, every = hashes(manifest.outputs), records(finished)
    unseen = []
    for path in one_of_each_kind(finished):
        text = path.read_text()
        try:
            for key, at in places(json.loads(text)).items():
                for value in () if key == "digest" else IMPOSSIBLE:
                    content = json.loads(text)
                    put(content, at, value)
                    if content == json.loads(text):
                        continue
                    write_edited(path, content)
                    name = path.relative_to(finished.results).as_posix()
                    try:
                        read_any(path)
                        told = against_records(
                            read_results(finished.results, every), manifest, sha256 | {name: file_sha256(path)}
                        )
                    except CorruptRecord as error:
                        told = [str(error)]
                    if not told:
                        unseen.append(f"{content['kind']}.{key}={value!r}")
        finally:
            path.write_text(text)
    unseen = [one for one in unseen if not FREE.search(one.partition("=")[0])]
    assert not unseen, "\n".join(unseen)
