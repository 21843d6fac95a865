"""Make a Provenance Run Crate 0.5 of an archive, for Zenodo and WorkflowHub: NAME.crate.zip next to it."""

import argparse
import base64
import hashlib
import json
import mimetypes
import re
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).parents[2] / "workflow" / "scripts"))
sys.path.append(str(Path(sys.prefix, "tools", "crate")))  # where envs/install.sh puts ro-crate-py
if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # while it imports, Ctrl-C ends it without a trace

from rocrate.model import ContextEntity, Entity
from rocrate.rocrate import ROCrate

from roofline.api import Manifest, Output, UserError, exit_with, group_by, newest_archive, open_archive, write_bytes

WORKFLOW, LICENSE, README, METADATA = "Snakefile", "LICENSE", "README.md", "ro-crate-metadata.json"
COMMIT, DIFFERENCE, REMEMBERED = "provenance/commit.txt", "provenance/uncommitted.diff", ".snakemake/metadata/"
LISTED = ("results/", "logs/", "provenance/", "config/", "operators/")  # other sources are packed without an entity
TERMS = "https://w3id.org/ro/terms/workflow-run/context"
PROFILES = [f"https://w3id.org/ro/wfrun/{kind}/0.5" for kind in ("process", "workflow", "provenance")]
PROFILES += ["https://w3id.org/workflowhub/workflow-ro-crate/1.0"]
BIOSCHEMAS = "https://bioschemas.org/profiles/ComputationalWorkflow/1.0-RELEASE"
MIT, DONE = "https://spdx.org/licenses/MIT", "http://schema.org/CompletedActionStatus"

Times = tuple[str | None, str | None]  # start and end of an action


class RunCrate(ROCrate):
    """The crate of an unpacked archive. What is not known of the run is left out."""

    def __init__(self, root: Path, manifest: Manifest, author: argparse.Namespace):
        super().__init__(version="1.1")
        self.source, self.manifest = root, manifest  # all files below the source are packed
        self.metadata.extra_contexts.append(TERMS)
        self.paths = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
        # A second line in COMMIT names another commit, or a changed file.
        has_second_line = COMMIT in self.paths and len((root / COMMIT).read_bytes().splitlines()) > 1
        self.changed, commit = bool(manifest.sources.dirty) or has_second_line, manifest.sources.commit
        self.commit = f"{commit}-dirty" if commit and self.changed else commit
        self.jobs = group_by((output for output in manifest.outputs if output.rule), name_job)
        scripts = {outputs[0].rule: f"workflow/scripts/{outputs[0].rule}.py" for outputs in self.jobs.values()}
        self.scripts = {rule: path if path in self.paths else WORKFLOW for rule, path in scripts.items()}
        for path in self.paths:
            listed = path.startswith(LISTED) or "/" not in path or path in scripts.values()
            if listed and path != METADATA:  # older archives hold one
                self.add_file(root / path, path, properties=self.file_properties(path))
        self.describe_dataset(author)
        self.describe_workflow()
        self.describe_actions()

    def add_entity(self, id_: str, type_: str, **properties: Any) -> ContextEntity:
        """Add an entity with the properties that are known."""
        return self.add(ContextEntity(self, id_, {"@type": type_, **drop_unknown(properties)}))

    def file_properties(self, path: str) -> dict:
        """Return name, format, size and hash of a file of the archive."""
        content, format_ = (self.source / path).read_bytes(), mimetypes.guess_type(path)[0] or "text/plain"
        properties = {"name": path, "encodingFormat": format_, "contentSize": str(len(content))}
        about = {"about": self.root_dataset} if path == README else {}
        return properties | about | {"sha256": hashlib.sha256(content).hexdigest()}

    def describe_dataset(self, author: argparse.Namespace) -> None:
        """Describe license, author, devices and profiles: the properties of the whole crate."""
        title = (self.source / LICENSE).read_text(errors="replace").strip().partition("\n")[0]
        self.license = self.add_entity(MIT if title == "MIT License" else "#license", "CreativeWork", name=title)
        self.agent = publisher = None
        if author.affiliation:
            properties = {"name": author.affiliation, "url": author.affiliation_url}
            publisher = self.add_entity(author.affiliation_url or "#affiliation", "Organization", **properties)
        if author.author:
            id_ = f"https://orcid.org/{author.orcid}" if author.orcid else "#author"
            self.agent = self.add_entity(id_, "Person", name=author.author, affiliation=publisher)
        names = " and ".join(dict.fromkeys(device.name for device in self.manifest.devices))
        devices = [
            self.add_entity(f"#{device.device}", "IndividualProduct", name=device.name, identifier=device.uuid)
            for device in self.manifest.devices
        ]
        profiles = [self.add_entity(url, "CreativeWork", name=url, version=url[-3:]) for url in PROFILES]
        properties = {"author": self.agent, "publisher": publisher, "conformsTo": profiles, "about": devices}
        properties |= {"name": f"Measured roofline of {names}", "datePublished": self.manifest.created_at[:10]}
        properties["description"] = f"Compute and memory ceilings of {names}, operators under them, and their records."
        for key, value in drop_unknown(properties).items():
            self.root_dataset[key] = value

    def describe_workflow(self) -> None:
        """Describe the Snakefile; its tools and steps are the rules that made something."""
        self.tools, steps = {}, []
        for rule, script in self.scripts.items():
            content = (self.source / script).read_bytes()
            blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
            id_ = f"https://identifiers.org/swh:1:cnt:{blob}#{rule}"  # a SWHID: the URI of these bytes
            properties = {"name": rule, "url": {"@id": script}, "softwareVersion": self.commit}
            self.tools[rule] = self.add_entity(id_, "SoftwareApplication", **properties)
            steps.append(self.add_entity(f"#step/{rule}", "HowToStep", name=rule, workExample=self.tools[rule]))
        properties = self.file_properties(WORKFLOW)
        properties["description"] = f"Measured with commit {self.manifest.sources.commit or 'unknown'}."
        properties["@type"] = ["File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"]
        properties |= {"version": self.commit, "url": {"@id": WORKFLOW}, "license": self.license}
        properties |= {"conformsTo": {"@id": BIOSCHEMAS}, "hasPart": list(self.tools.values()), "step": steps}
        language = {"lang": "snakemake", "lang_version": self.manifest.environment.snakemake}
        self.add_workflow(self.source / WORKFLOW, properties=drop_unknown(properties), main=True, **language)

    def describe_actions(self) -> None:
        """Describe the run, and each job behind its results."""
        manifest, inputs_by_output = self.manifest, {}
        for path in self.paths:
            if path.startswith(REMEMBERED):  # a file named by the path of an output in base64
                output = base64.urlsafe_b64decode(re.sub("[/@]", "", path.removeprefix(REMEMBERED))).decode()
                inputs_by_output[output] = json.loads((self.source / path).read_bytes()).get("input") or []
        inputs = [path for path in self.paths if path.startswith(("config/", "operators/"))]
        inputs += [output.path for output in manifest.outputs if output.of_this_run is False]
        outputs = [output.path for output in manifest.outputs if output.of_this_run is not False]
        outputs.append("results/manifest.json")
        self.add_action("run", self.mainEntity, (manifest.times.first_start_at, manifest.created_at), inputs, outputs)
        for name, job_outputs in self.jobs.items():
            first, outputs = job_outputs[0], [output.path for output in job_outputs]
            inputs = [path for output in outputs for path in inputs_by_output.get(output, [])]
            self.add_action(f"job/{name}", self.tools[first.rule], (first.started_at, first.ended_at), inputs, outputs)

    def add_action(self, name: str, tool: Entity, times: Times, inputs: list[str], outputs: list[str]) -> None:
        """Add what a tool did: the files that it made, and those of its inputs that have an entity."""
        listed = [path for path in dict.fromkeys(inputs) if path in self.paths and path.startswith(LISTED)]
        start, end = (format_utc(time) for time in times)
        properties = {"name": name, "description": f"Files made: {len(outputs)}.", "instrument": tool}
        properties |= {"agent": self.agent, "object": [self.get(quote(path)) for path in listed]}
        properties |= {"result": [self.get(quote(path)) for path in outputs], "actionStatus": DONE}
        action = self.add_entity(f"#{quote(name)}", "CreateAction", **properties, startTime=start, endTime=end)
        self.root_dataset.append_to("mentions", action)


def name_job(output: Output) -> str:
    """Return the name of the job that made an output: that of its log, or else of the output."""
    return output.log.removeprefix("logs/").removesuffix(".log") if output.log else output.path


def drop_unknown(properties: dict) -> dict:
    """Return the properties without None and empty lists; a list of one is that one, as in JSON-LD's compact form."""
    facts = {key: value for key, value in properties.items() if value not in (None, [])}
    return {key: value[0] if isinstance(value, list) and len(value) == 1 else value for key, value in facts.items()}


def format_utc(time: str | None) -> str | None:
    """Return a time in UTC, to the millisecond: roc-validator takes neither more digits nor Z."""
    return datetime.fromisoformat(time).astimezone(UTC).isoformat(timespec="milliseconds") if time else None


def write_crate(archive: Path, author: argparse.Namespace) -> list[str]:
    """Write the crate next to an archive and return the lines to print, its path last. Raises UserError."""
    target = archive.with_name(f"{archive.name.removesuffix('.tar.gz')}.crate.zip")
    with open_archive(archive) as (root, manifest, problems):
        reasons = [f"{problem} (`make verify` lists all)" for problem in problems]
        reasons += [f"{path} is not in it" for path in (WORKFLOW, LICENSE) if not (root / path).is_file()]
        if reasons:
            raise UserError(f"{archive}: no crate, {reasons[0]}")
        crate = RunCrate(root, manifest, author)
        write_bytes(b"".join(crate.stream_zip()), target)
    lines = [f"the sources differ from commit {manifest.sources.commit}: {DIFFERENCE}"] if crate.changed else []
    if not author.author:
        lines.append('no author is named: AUTHOR="Your Name"')
    return [*lines, str(target)]


def make_crate(arguments: list[str]) -> list[str]:
    """Make the crate that these arguments describe, and return the lines to print. Raises UserError and OSError."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", nargs="?", type=Path)
    for name in ("--author", "--orcid", "--affiliation", "--affiliation-url"):
        parser.add_argument(name)
    options = parser.parse_args(arguments)
    if options.orcid and not (options.author and re.fullmatch(r"(\d{4}-){3}\d{3}[\dX]", options.orcid)):
        raise UserError(f"ORCID={options.orcid}; allowed: one such as 0000-0002-1825-0097, next to AUTHOR")
    if options.affiliation_url and not (options.affiliation and re.fullmatch(r"https?://\S+", options.affiliation_url)):
        raise UserError(f"AFFILIATION_URL={options.affiliation_url}; allowed: a web address, with AFFILIATION")
    return write_crate(options.archive or newest_archive(Path()), options)


def main(arguments: list[str]) -> int:
    """Run the command and return its status. Raises UserError and OSError."""
    print("\n".join(make_crate(arguments)))
    return 0


if __name__ == "__main__":
    exit_with(main)
