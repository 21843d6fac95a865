"""What is known of a run that becomes a crate: its files, jobs, what each was made from, and whose it is."""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import quote

import yaml

from roofline.records.files import file_sha256
from roofline.records.manifest import Manifest
from roofline.run.config import AuthorSettings
from roofline.run.jobs import JOBS, job_times
from roofline.run.paths import RESULTS

METADATA, MANIFEST = "ro-crate-metadata.json", f"{RESULTS}/manifest.json"
WORKFLOW, LICENSE, CITATION = "Snakefile", "LICENSE", "CITATION.cff"
COMMIT, DIFFERENCE = "provenance/commit.txt", "provenance/uncommitted.diff"
REMEMBERED = ".snakemake/metadata/"  # what Snakemake knows of each output, in a file named by its path in base64


class NoCrate(Exception):
    """Why there is no crate, in one line."""


class Packed(NamedTuple):
    bytes: int
    sha256: str


class Job(NamedTuple):
    name: str
    rule: str
    log: str | None
    started_at: str | None
    ended_at: str | None
    of_this_run: bool
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Facts:
    manifest: Manifest
    files: Mapping[str, Packed]  # by their paths below the crate's root
    read: Callable[[str], bytes]  # the content of one
    author: AuthorSettings | None  # who ran the workflow
    jobs: list[Job]
    inputs: Mapping[str, list[str]]  # packed files, code aside, that an output was made from
    cited: list[dict]  # the workflow's authors
    changed: bool  # the sources differ from the manifest's commit


def gather(
    there: Mapping[str, Path],
    manifest: Manifest,
    notes: Mapping[str, bytes] = MappingProxyType({}),
    author: AuthorSettings | None = None,
) -> Facts:
    """What is known of files, by their paths in the crate, and of texts that are no files. Raises NoCrate."""
    files = {path: Packed(file.stat().st_size, file_sha256(file)) for path, file in there.items()}
    files |= {path: Packed(len(text), hashlib.sha256(text).hexdigest()) for path, text in notes.items()}
    for path in (WORKFLOW, LICENSE, MANIFEST):
        if path not in files:
            raise NoCrate(f"{path} is not in it")

    def read(path: str) -> bytes:
        return notes[path] if path in notes else there[path].read_bytes()

    return Facts(
        manifest=manifest,
        files=files,
        read=read,
        author=author if author and author.name else None,
        jobs=jobs_behind(manifest, job_times(there.get(str(JOBS), Path())), files),
        inputs=remembered(files, read),
        cited=cited(files, read),
        changed=differs_from_commit(manifest, files, read),
    )


def differs_from_commit(manifest: Manifest, files: Mapping[str, Packed], read: Callable[[str], bytes]) -> bool:
    """Whether the packed sources are known to differ from the commit that the manifest names."""
    # A line beyond the first tells of another commit or of changed files.
    told = read(COMMIT).splitlines() if COMMIT in files else []
    return bool(manifest.sources.dirty) or len(told) > 1


def jobs_behind(manifest: Manifest, known: Mapping[str, Mapping], files: Mapping[str, Packed]) -> list[Job]:
    """The jobs behind the packed outputs, and the manifest's own, in the order in which they began."""
    made = [one.model_dump() for one in manifest.outputs if one.rule and one.path in files]
    own = known.get(MANIFEST)
    if own:
        made.append({**own, "path": MANIFEST, "of_this_run": True})
    found: dict[str, list[dict]] = {}
    for one in made:
        name = one["log"].removeprefix("logs/").removesuffix(".log") if one["log"] else one["path"]
        found.setdefault(name, []).append(one)
    jobs = [
        Job(
            name,
            *(outputs[0][key] for key in ("rule", "log", "started_at", "ended_at")),
            of_this_run=outputs[0]["of_this_run"] is not False,
            outputs=tuple(one["path"] for one in outputs),
        )
        for name, outputs in found.items()
    ]
    return sorted(jobs, key=lambda job: (job.started_at or "", job.name))


def remembered(files: Mapping[str, Packed], read: Callable[[str], bytes]) -> dict[str, list[str]]:
    """The packed files that each output was made from, code aside, as Snakemake remembers them."""
    found = {}
    for path in files:
        if path.startswith(REMEMBERED):
            output = base64.urlsafe_b64decode(re.sub("[/@]", "", path.removeprefix(REMEMBERED))).decode()
            inputs = json.loads(read(path)).get("input") or []
            found[output] = [one for one in inputs if one in files and not one.startswith("workflow/")]
    return found


def cited(files: Mapping[str, Packed], read: Callable[[str], bytes]) -> list[dict]:
    """The authors in CITATION.cff: the workflow's, who need not have run it. Raises NoCrate."""
    if CITATION not in files:
        return []
    try:
        return [_cited(author) for author in yaml.safe_load(read(CITATION))["authors"]]
    except (yaml.YAMLError, UnicodeError, LookupError, TypeError, AttributeError):
        raise NoCrate(f"{CITATION} is no citation file with authors (https://citation-file-format.github.io)") from None


def _cited(author: Mapping) -> dict:
    parts = (author.get(key) for key in ("given-names", "name-particle", "family-names", "name-suffix"))
    name = author.get("name") or " ".join(filter(None, parts))
    return {
        "@id": author.get("orcid") or author.get("website") or f"#author/{quote(name)}",
        "@type": "Organization" if "name" in author else "Person",
        "name": name,
        "affiliation": author.get("affiliation"),
        "url": author.get("website"),
    }
