"""Make a Provenance Run Crate 0.5 of an archive, for Zenodo and WorkflowHub: NAME.crate.zip next to it."""

import argparse
import base64
import hashlib
import json
import mimetypes
import os
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).parents[2] / "workflow" / "scripts"))
sys.path.append(str(Path(sys.prefix, "tools", "crate")))  # where envs/install.sh puts ro-crate-py

from rocrate.model.contextentity import ContextEntity
from rocrate.rocrate import ROCrate

from roofline.api import Manifest, UserError, newest_archive, open_archive

WORKFLOW, LICENSE, README, METADATA = "Snakefile", "LICENSE", "README.md", "ro-crate-metadata.json"
COMMIT, DIFFERENCE, REMEMBERED = "provenance/commit.txt", "provenance/uncommitted.diff", ".snakemake/metadata/"
LISTED = ("results/", "logs/", "provenance/", "config/", "operators/")  # other sources are packed without an entity
TERMS = "https://w3id.org/ro/terms/workflow-run/context"
PROFILES = [f"https://w3id.org/ro/wfrun/{kind}/0.5" for kind in ("process", "workflow", "provenance")]
PROFILES += ["https://w3id.org/workflowhub/workflow-ro-crate/1.0"]
BIOSCHEMAS = "https://bioschemas.org/profiles/ComputationalWorkflow/1.0-RELEASE"
MIT, DONE = "https://spdx.org/licenses/MIT", "http://schema.org/CompletedActionStatus"


class RunCrate(ROCrate):
    """The crate of an unpacked archive. What is not known of the run is left out."""

    def __init__(self, root: Path, manifest: Manifest, author: argparse.Namespace):
        super().__init__(version="1.1")
        self.source, self.manifest = root, manifest  # all files below the source are packed
        self.metadata.extra_contexts.append(TERMS)
        self.paths = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
        if missing := [path for path in (WORKFLOW, LICENSE) if path not in self.paths]:
            raise UserError(f"{missing[0]} is not in it")
        # A second line in COMMIT names another commit, or a changed file.
        more = COMMIT in self.paths and len((root / COMMIT).read_bytes().splitlines()) > 1
        self.changed, commit = bool(manifest.sources.dirty) or more, manifest.sources.commit
        self.commit = f"{commit}-dirty" if commit and self.changed else commit
        self.jobs: dict[str, list] = {}
        for one in manifest.outputs:
            if one.rule:
                name = one.log.removeprefix("logs/").removesuffix(".log") if one.log else one.path
                self.jobs.setdefault(name, []).append(one)
        scripts = {made[0].rule: f"workflow/scripts/{made[0].rule}.py" for made in self.jobs.values()}
        self.scripts = {rule: path if path in self.paths else WORKFLOW for rule, path in scripts.items()}
        for path in self.paths:
            listed = path.startswith(LISTED) or "/" not in path or path in scripts.values()
            if listed and path != METADATA:  # older archives hold one
                self.add_file(root / path, path, properties=self.content(path))
        self.describe_whole(author)
        self.describe_workflow()
        self.describe_actions()

    def entity(self, id_: str, type_: str, **known) -> ContextEntity:
        return self.add(ContextEntity(self, id_, {"@type": type_, **clean(known)}))

    def content(self, path: str) -> dict:
        content, format_ = (self.source / path).read_bytes(), mimetypes.guess_type(path)[0] or "text/plain"
        known = {"name": path, "encodingFormat": format_, "contentSize": str(len(content))}
        about = {"about": self.root_dataset} if path == README else {}
        return known | about | {"sha256": hashlib.sha256(content).hexdigest()}

    def describe_whole(self, author: argparse.Namespace) -> None:
        title = (self.source / LICENSE).read_text(errors="replace").strip().partition("\n")[0]
        self.license = self.entity(MIT if title == "MIT License" else "#license", "CreativeWork", name=title)
        known = {"name": author.affiliation, "url": author.affiliation_url}
        by = self.entity(author.affiliation_url or "#affiliation", "Organization", **known) if known["name"] else None
        id_, known = f"https://orcid.org/{author.orcid}" if author.orcid else "#author", {"affiliation": by}
        self.agent = self.entity(id_, "Person", name=author.author, **known) if author.author else None
        devices = [(f"#{one.device}", one.name, one.uuid) for one in self.manifest.devices]
        names = " and ".join(dict.fromkeys(name for _, name, _ in devices))
        devices = [self.entity(id_, "IndividualProduct", name=name, identifier=uuid) for id_, name, uuid in devices]
        profiles = [self.entity(url, "CreativeWork", name=url, version=url[-3:]) for url in PROFILES]
        known = {"author": self.agent, "publisher": by, "conformsTo": profiles, "about": devices}
        known |= {"name": f"Measured roofline of {names}", "datePublished": self.manifest.created_at[:10]}
        known |= {"description": f"Compute and memory ceilings of {names}, operators under them, and their records."}
        for key, value in clean(known).items():
            self.root_dataset[key] = value

    def describe_workflow(self) -> None:
        """The Snakefile; its tools and steps are the rules that made something."""
        self.tools, steps, engine = {}, [], self.manifest.environment.snakemake
        for rule, script in self.scripts.items():
            content = (self.source / script).read_bytes()
            blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
            id_ = f"https://identifiers.org/swh:1:cnt:{blob}#{rule}"  # a SWHID: the URI of these bytes
            known = {"name": rule, "url": {"@id": script}, "softwareVersion": self.commit}
            self.tools[rule] = self.entity(id_, "SoftwareApplication", **known)
            steps.append(self.entity(f"#step/{rule}", "HowToStep", name=rule, workExample=self.tools[rule]))
        known = {"description": f"Measured with commit {self.manifest.sources.commit or 'unknown'}."}
        known |= {"@type": ["File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"], "version": self.commit}
        known |= {"url": {"@id": WORKFLOW}, "license": self.license, "conformsTo": {"@id": BIOSCHEMAS}}
        known = clean(self.content(WORKFLOW) | known | {"hasPart": list(self.tools.values()), "step": steps})
        self.add_workflow(self.source / WORKFLOW, properties=known, main=True, lang="snakemake", lang_version=engine)

    def describe_actions(self) -> None:
        """The run, and each job behind its results."""
        manifest, inputs = self.manifest, {}
        for path in self.paths:
            if path.startswith(REMEMBERED):  # a file named by the path of an output in base64
                output = base64.urlsafe_b64decode(re.sub("[/@]", "", path.removeprefix(REMEMBERED))).decode()
                inputs[output] = json.loads((self.source / path).read_bytes()).get("input") or []
        given = [path for path in self.paths if path.startswith(("config/", "operators/"))]
        given += [one.path for one in manifest.outputs if one.of_this_run is False]
        paths = [one.path for one in manifest.outputs if one.of_this_run is not False] + ["results/manifest.json"]
        times = manifest.times.first_start_at, manifest.created_at
        actions = [self.action("run", self.mainEntity, *times, given, paths)]
        for name, made in self.jobs.items():
            first, given = made[0], [path for one in made for path in inputs.get(one.path, [])]
            paths, times = [one.path for one in made], (first.started_at, first.ended_at)
            actions.append(self.action(f"job/{name}", self.tools[first.rule], *times, given, paths))
        self.root_dataset["mentions"] = actions

    def action(self, name: str, tool, start: str | None, end: str | None, given: list, made: list) -> ContextEntity:
        known = {"name": name, "description": f"Files made: {len(made)}.", "instrument": tool, "agent": self.agent}
        listed = [path for path in dict.fromkeys(given) if path in self.paths and path.startswith(LISTED)]
        known |= {"object": [*map(self.get, map(quote, listed))], "result": [*map(self.get, map(quote, made))]}
        known |= {"actionStatus": DONE, "startTime": utc(start), "endTime": utc(end)}
        return self.entity(f"#{quote(name)}", "CreateAction", **known)


def clean(known: dict) -> dict:
    """Without what is not known; a list of one is that one, as JSON-LD's compact form has it."""
    return {k: v[0] if isinstance(v, list) and len(v) == 1 else v for k, v in known.items() if v not in (None, [])}


def utc(time: str | None) -> str | None:
    """To the millisecond: roc-validator takes neither more digits nor Z."""
    return datetime.fromisoformat(time).astimezone(UTC).isoformat(timespec="milliseconds") if time else None


def make(archive: Path, author: argparse.Namespace) -> list[str]:
    """Write the crate next to an archive; returns what to say. Raises UserError."""
    target = archive.with_name(f"{archive.name.removesuffix('.tar.gz')}.crate.zip")
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    with open_archive(archive) as (root, manifest, problems):
        try:
            if problems:
                raise UserError(f"{problems[0]} (`make verify` lists all)")
            crate = RunCrate(root, manifest, author)
            os.replace(crate.write_zip(temporary), target)
        except UserError as reason:
            raise UserError(f"{archive}: no crate, {reason}") from None
        finally:
            temporary.unlink(missing_ok=True)
    lines = [f"the sources differ from commit {manifest.sources.commit}: {DIFFERENCE}"] if crate.changed else []
    return [*lines, *([] if author.author else ['no author is named: AUTHOR="Your Name"']), str(target)]


def main(arguments: list[str]) -> list[str]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", nargs="?", type=Path)
    for name in ("--author", "--orcid", "--affiliation", "--affiliation-url"):
        parser.add_argument(name)
    given = parser.parse_args(arguments)
    if given.orcid and not (given.author and re.fullmatch(r"(\d{4}-){3}\d{3}[\dX]", given.orcid)):
        raise UserError(f"ORCID={given.orcid}; allowed: one such as 0000-0002-1825-0097, next to AUTHOR")
    if given.affiliation_url and not (given.affiliation and re.fullmatch(r"https?://\S+", given.affiliation_url)):
        raise UserError(f"AFFILIATION_URL={given.affiliation_url}; allowed: a web address, with AFFILIATION")
    return make(given.archive or newest_archive(Path()), given)


if __name__ == "__main__":
    try:
        print("\n".join(main(sys.argv[1:])))
    except (UserError, OSError) as error:
        sys.exit(str(error))
