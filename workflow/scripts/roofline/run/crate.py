"""ro-crate-metadata.json: a run as a Provenance Run Crate 0.5, which WorkflowHub, Zenodo and other repositories read.

https://www.researchobject.org/workflow-run-crate/profiles/0.5/provenance_run_crate. Pure functions of what is known of
the run (crate_facts.py); what is not known is left out.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC
from itertools import chain
from pathlib import PurePosixPath
from urllib.parse import quote

from roofline.analysis.seals import moment
from roofline.records.manifest import Device
from roofline.run.config import AuthorSettings
from roofline.run.crate_facts import COMMIT, DIFFERENCE, LICENSE, MANIFEST, METADATA, WORKFLOW, Facts, Job
from roofline.run.paths import RESULTS

README = "README.md"
INPUTS = ("config/", "operators/")
# Folders whose files are listed one by one; of the others those alone that something in the crate refers to.
LISTED = (f"{RESULTS}/", "logs/", "provenance/", *INPUTS)

CONTEXT = [
    "https://w3id.org/ro/crate/1.1/context",
    "https://w3id.org/ro/terms/workflow-run/context",
    {"buildInstructions": "https://codemeta.github.io/terms/buildInstructions"},
]
WORKFLOW_CRATE = "https://w3id.org/workflowhub/workflow-ro-crate/1.0"
DESCRIPTOR = ["https://w3id.org/ro/crate/1.1", WORKFLOW_CRATE]
PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": ("Process Run Crate", "0.5"),
    "https://w3id.org/ro/wfrun/workflow/0.5": ("Workflow Run Crate", "0.5"),
    "https://w3id.org/ro/wfrun/provenance/0.5": ("Provenance Run Crate", "0.5"),
    WORKFLOW_CRATE: ("Workflow RO-Crate", "1.0"),
}
BIOSCHEMAS = "https://bioschemas.org/profiles/ComputationalWorkflow/1.0-RELEASE"
LANGUAGE = "https://w3id.org/workflowhub/workflow-ro-crate#snakemake"
SNAKEMAKE, SNAKEMAKES_PAPER = "https://snakemake.readthedocs.io", "https://doi.org/10.1093/bioinformatics/bts480"
REQUIREMENTS = "https://pip.pypa.io/en/stable/reference/requirements-file-format/"
LICENSES = {"MIT License": "https://spdx.org/licenses/MIT"}  # by the first line of the text
LOCKS = {"cupy-cuda12x": "envs/cuda12.txt", "cupy-cuda13x": "envs/cuda13.txt"}  # by a package that no other lock has
CPU_LOCK = "envs/cpu.txt"
COMPLETED = "http://schema.org/CompletedActionStatus"
FORMATS = {
    "": "text/plain",
    ".cff": "application/yaml",
    ".diff": "text/x-diff",
    ".html": "text/html",
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".log": "text/plain",
    ".md": "text/markdown",
    ".png": "image/png",
    ".py": "text/x-python",
    ".svg": "image/svg+xml",
    ".toml": "application/toml",
    ".txt": "text/plain",
    ".yaml": "application/yaml",
}
ANY_FORMAT = "application/octet-stream"


def metadata(facts: Facts) -> bytes:
    """The text of ro-crate-metadata.json."""
    parts = (descriptor, dataset, workflow, tools_and_steps, actions, organized, people, things, listed_files, folders)
    graph = {entity["@id"]: _known(entity) for part in parts for entity in part(facts)}
    return (json.dumps({"@context": CONTEXT, "@graph": list(graph.values())}, indent=1) + "\n").encode()


def remarks(facts: Facts) -> list[str]:
    """For the screen: that the sources are not those of the commit."""
    if not facts.changed:
        return []
    where = " and ".join(path for path in (DIFFERENCE, COMMIT) if path in facts.files) or MANIFEST
    return [f"the sources differ from commit {facts.manifest.sources.commit}, and the crate says so: {where}"]


def tops(paths: Iterable[str]) -> list[str]:
    """The top folders of some paths."""
    return list(dict.fromkeys(path.partition("/")[0] + "/" for path in paths if "/" in path))


# ---------------------------------------------------------------- the whole


def descriptor(facts: Facts) -> Iterator[dict]:
    yield {"@id": METADATA, "@type": "CreativeWork", "about": _ref("./"), "conformsTo": _refs(DESCRIPTOR)}


def dataset(facts: Facts) -> Iterator[dict]:
    devices, author = facts.manifest.devices, facts.author
    names = " and ".join(dict.fromkeys(device.name for device in devices))
    yield {
        "@id": "./",
        "@type": "Dataset",
        "name": f"Measured roofline of {names}",
        "description": f"Compute and memory ceilings of {names} as measured, operators timed and placed under them, "
        "predictions written before that, and the records, sources and jobs that they come from.",
        "keywords": "roofline model, benchmark, performance",
        "datePublished": facts.manifest.created_at[:10],
        "license": _ref(_license(facts)["@id"]),
        "author": _refs([_person(author)["@id"]] if author else [one["@id"] for one in facts.cited]),
        "publisher": _ref(_organization(author)["@id"]) if author and author.affiliation else None,
        "conformsTo": _refs(PROFILES),
        "about": _refs(_device_id(device) for device in devices),
        "mainEntity": _ref(WORKFLOW),
        "mentions": _refs(["#run", *(["#engine"] if _here(facts) else []), *map(_action_id, facts.jobs)]),
        "hasPart": _refs(
            [*(_file_id(path) for path in facts.files if "/" not in path), *map(quote, tops(facts.files))]
        ),
    }
    for profile, (name, version) in PROFILES.items():
        yield {"@id": profile, "@type": "CreativeWork", "name": name, "version": version}


def listed_files(facts: Facts) -> Iterator[dict]:
    about = {job.log: _action_id(job) for job in facts.jobs} | {README: "./"}
    for path in _listed(facts):
        if path != WORKFLOW:
            yield {
                "@id": _file_id(path),
                "@type": "File",
                **_content(facts, path),
                "about": _ref(about[path]) if path in about else None,
                "conformsTo": _ref(REQUIREMENTS) if path == _lock(facts) else None,
            }


def _listed(facts: Facts) -> list[str]:
    """Files that are entities of their own, in the order in which they are packed."""
    used = {WORKFLOW, _lock(facts), *(_script(facts, rule) for rule in _rules(facts)), *chain(*facts.inputs.values())}
    return [path for path in facts.files if path.startswith(LISTED) or "/" not in path or path in used]


def _content(facts: Facts, path: str) -> dict:
    one = facts.files[path]
    return {
        "name": path,
        "encodingFormat": FORMATS.get(PurePosixPath(path).suffix, ANY_FORMAT),
        "contentSize": str(one.bytes),
        "sha256": one.sha256,
    }


def folders(facts: Facts) -> Iterator[dict]:
    """Each with those of its files that are listed."""
    for folder in tops(facts.files):
        within = [_file_id(path) for path in _listed(facts) if path.startswith(folder)]
        yield {"@id": _file_id(folder), "@type": "Dataset", "name": folder, "hasPart": _refs(within)}


# ---------------------------------------------------------------- the workflow


def workflow(facts: Facts) -> Iterator[dict]:
    """The Snakefile; its tools and steps are the rules that made something."""
    rules = _rules(facts)
    yield {
        "@id": WORKFLOW,
        "@type": ["File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"],
        **_content(facts, WORKFLOW),
        "name": "Roofline workflow",
        "description": _sources(facts),
        "version": _version(facts),
        "url": _ref(WORKFLOW),
        "author": _refs(one["@id"] for one in facts.cited),
        "license": _ref(_license(facts)["@id"]),
        "programmingLanguage": _ref(LANGUAGE),
        "conformsTo": _ref(BIOSCHEMAS),
        "buildInstructions": _ref(_lock(facts)) if _lock(facts) in facts.files else None,
        "hasPart": _refs(_tool_id(facts, rule) for rule in rules),
        "step": _refs(map(_step_id, rules)),
    }
    yield {
        "@id": LANGUAGE,
        "@type": "ComputerLanguage",
        "name": "Snakemake",
        "url": _ref(SNAKEMAKE),
        "identifier": _ref(SNAKEMAKES_PAPER),
    }


def tools_and_steps(facts: Facts) -> Iterator[dict]:
    for rule in _rules(facts):
        yield {
            "@id": _tool_id(facts, rule),
            "@type": "SoftwareApplication",
            "name": rule,
            "url": _ref(_file_id(_script(facts, rule))),
            "softwareVersion": _version(facts),
        }
        yield {
            "@id": _step_id(rule),
            "@type": "HowToStep",
            "name": rule,
            "workExample": _ref(_tool_id(facts, rule)),
        }


def _version(facts: Facts) -> str | None:
    commit = facts.manifest.sources.commit
    return f"{commit}-dirty" if commit and facts.changed else commit


def _sources(facts: Facts) -> str:
    """What is known of the sources that are packed."""
    known = facts.manifest.sources
    state = {True: "with uncommitted changes", False: "without changes", None: "whether changed is not known"}
    commit = f"commit {known.commit}, {state[known.dirty]}" if known.commit else "a commit that is not known"
    told = [f"Measured with {commit}"]
    if known.changed_files:
        told.append(f"changed: {', '.join(known.changed_files)}")
    if DIFFERENCE in facts.files and facts.files[DIFFERENCE].bytes:
        told.append(f"{DIFFERENCE} holds the changes to the commit that {COMMIT} names")
    return "; ".join(told) + "."


def _rules(facts: Facts) -> list[str]:
    return list(dict.fromkeys(job.rule for job in facts.jobs))


def _script(facts: Facts, rule: str) -> str:
    """The script that a rule runs: its own, or that of all operators, or that which makes what these need."""
    timed = {path.split("/")[1] for device in facts.manifest.seals for path in device.seals if path.count("/") > 1}
    names = (rule, "measure_operator" if rule in timed else "prerequisite")
    paths = (f"workflow/scripts/{name}.py" for name in names)
    return next((path for path in paths if path in facts.files), WORKFLOW)


def _tool_id(facts: Facts, rule: str) -> str:
    """A URI that follows from the bytes of the rule's script, committed or not: its SWHID (ISO/IEC 18670)."""
    content = facts.read(_script(facts, rule))
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    return f"https://identifiers.org/swh:1:cnt:{blob}#{rule}"


def _lock(facts: Facts) -> str:
    packages = facts.manifest.environment.packages
    return next((lock for package, lock in LOCKS.items() if package in packages), CPU_LOCK)


# ---------------------------------------------------------------- what ran


def actions(facts: Facts) -> Iterator[dict]:
    """The run, and each job behind its results."""
    yield _run(facts)
    for job in facts.jobs:
        given = dict.fromkeys(path for output in job.outputs for path in facts.inputs.get(output, ()))
        yield {
            "@id": _action_id(job),
            "@type": "CreateAction",
            "name": f"{job.rule}: {job.name}",
            "description": f"Made {', '.join(job.outputs)}{'' if job.of_this_run else ', in an earlier run'}.",
            "instrument": _ref(_tool_id(facts, job.rule)),
            "object": _refs(map(_file_id, given)),
            "result": _refs(map(_file_id, job.outputs)),
            **_took(facts, job.started_at, job.ended_at),
        }


def _run(facts: Facts) -> dict:
    """The workflow's own action. What earlier runs made is given to it."""
    manifest = facts.manifest
    there = [one for one in manifest.outputs if one.path in facts.files]
    given = [path for path in facts.files if path.startswith(INPUTS)]
    earlier = [one.path for one in there if one.of_this_run is False]
    made = [one.path for one in there if one.of_this_run is not False] + [MANIFEST]
    names = ", ".join(dict.fromkeys(device.name for device in manifest.devices))
    ended_at = next((job.ended_at for job in facts.jobs if MANIFEST in job.outputs), manifest.created_at)
    return {
        "@id": "#run",
        "@type": "CreateAction",
        "name": f"Run of the roofline workflow on {names}",
        "description": f"All settings, those of the command line too, stand in {MANIFEST} under config.",
        "instrument": _ref(WORKFLOW),
        "object": _refs([*map(_file_id, given + earlier), *(one["@id"] for one in _absent_data(facts))]),
        "result": _refs(map(_file_id, made)),
        "environment": _refs(one["@id"] for one in _environment(facts)),
        **_took(facts, manifest.times.first_start_at, ended_at),
    }


def _took(facts: Facts, started_at: str | None, ended_at: str | None) -> dict:
    return {
        "startTime": _time(started_at),
        "endTime": _time(ended_at),
        "actionStatus": COMPLETED,
        "agent": _ref(_person(facts.author)["@id"]) if facts.author else None,
    }


def organized(facts: Facts) -> Iterator[dict]:
    """The engine's action: the jobs of this run, each under its step."""
    if _here(facts):
        yield {
            "@id": "#engine",
            "@type": "OrganizeAction",
            "name": "Run of Snakemake",
            "instrument": _ref(SNAKEMAKE),
            "object": _refs(map(_control_id, _here(facts))),
            "result": _ref("#run"),
        }
        yield {
            "@id": SNAKEMAKE,
            "@type": "SoftwareApplication",
            "name": "Snakemake",
            "url": _ref(SNAKEMAKE),
            "softwareVersion": facts.manifest.environment.snakemake,
        }
    for job in _here(facts):
        yield {
            "@id": _control_id(job),
            "@type": "ControlAction",
            "name": f"Execution of step {job.rule}",
            "instrument": _ref(_step_id(job.rule)),
            "object": _ref(_action_id(job)),
        }


def _here(facts: Facts) -> list[Job]:
    return [job for job in facts.jobs if job.of_this_run]


# ---------------------------------------------------------------- who, and with what


def people(facts: Facts) -> Iterator[dict]:
    yield _license(facts)
    if facts.author:
        yield _person(facts.author)
        if facts.author.affiliation:
            yield _organization(facts.author)
    yield from facts.cited


def things(facts: Facts) -> Iterator[dict]:
    """Devices, packages, and data that was measured with and is not packed."""
    for device in facts.manifest.devices:
        values = list(_values(_device_id(device), {"memory_total_bytes": device.memory_total_bytes, **device.software}))
        yield {
            "@id": _device_id(device),
            "@type": "IndividualProduct",
            "name": device.name,
            "identifier": device.uuid,
            "additionalProperty": _refs(one["@id"] for one in values),
        }
        yield from values
    yield from _environment(facts)
    yield from _absent_data(facts)


def _environment(facts: Facts) -> Iterator[dict]:
    known = facts.manifest.environment.model_dump(exclude={"packages", "snakemake"})
    return _values("#environment", known | facts.manifest.environment.packages)


def _absent_data(facts: Facts) -> Iterator[dict]:
    """The user's own files, such as a checkpoint, by their hashes."""
    return _values("#data", {one.path: one.sha256 for one in facts.manifest.data if one.path not in facts.files})


def _values(parent: str, values: Mapping) -> Iterator[dict]:
    for name, value in values.items():
        if value is not None:
            yield {"@id": f"{parent}/{quote(name)}", "@type": "PropertyValue", "name": name, "value": str(value)}


def _license(facts: Facts) -> dict:
    name = facts.read(LICENSE).decode(errors="replace").strip().partition("\n")[0].strip()
    return {
        "@id": LICENSES.get(name, "#license"),
        "@type": "CreativeWork",
        "name": name,
        "description": f"The whole text is in {LICENSE}.",
    }


def _person(author: AuthorSettings) -> dict:
    return {
        "@id": f"https://orcid.org/{author.orcid}" if author.orcid else f"#person/{quote(author.name)}",
        "@type": "Person",
        "name": author.name,
        "affiliation": _ref(_organization(author)["@id"]) if author.affiliation else None,
    }


def _organization(author: AuthorSettings) -> dict:
    id_ = author.affiliation_url or f"#organization/{quote(author.affiliation)}"
    return {"@id": id_, "@type": "Organization", "name": author.affiliation, "url": author.affiliation_url}


# ---------------------------------------------------------------- JSON-LD


def _device_id(device: Device) -> str:
    return f"#device/{device.device}"


def _step_id(rule: str) -> str:
    return f"#step/{rule}"


def _action_id(job: Job) -> str:
    return f"#job/{quote(job.name)}"


def _control_id(job: Job) -> str:
    return f"#control/{quote(job.name)}"


def _file_id(path: str) -> str:
    return quote(path, errors="surrogateescape")


def _time(told: str | None) -> str | None:
    """ISO 8601 in UTC, to the millisecond: the profile's validator takes neither more digits nor Z."""
    found = moment(told)
    return found.astimezone(UTC).isoformat(timespec="milliseconds") if found else None


def _ref(id_: str) -> dict:
    return {"@id": id_}


def _refs(ids: Iterable[str]) -> list[dict] | dict:
    """References; a single one is no list in JSON-LD's compact form."""
    found = [_ref(one) for one in ids]
    return found[0] if len(found) == 1 else found


def _known(entity: dict) -> dict:
    """Without what is not known."""
    return {key: value for key, value in entity.items() if value not in (None, "", [])}
