"""A finished run of one device on disk, without measuring: made-up records, and all that follows from them."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path

from records_factory import DAY, SCAN, STARTED, assemble, bandwidth_record, cell, operator_record, peak_record

from roofline.records.base import Record, write
from roofline.records.files import file_sha256, write_text
from roofline.records.manifest_record import Manifest, Sources
from roofline.records.operator_record import DataFile, JobRecord
from roofline.report.derived import TABLE, derive
from roofline.run.make_manifest import RunTimes, make_manifest
from roofline.table.run_records import read_results

DATA = "results/data/weights.bin"
MADE = f"{DAY}12:01:40+00:00"
SETTINGS = {"operations": [], "plot": {"dpi": 80}}
ASKED = {"dtypes": ["fp32"], "operations": [], "without": []}
SOURCES = Sources(commit="c0ffee", dirty=False, changed_files=[], known_from="git", reason=None)
JOB_S = 2  # each, one after another from noon on


class SmallRun:
    """A working directory with the results and the logs of a run; `paths` are its outputs in their order."""

    def __init__(self, root: Path, device: str = "cpu"):
        self.root, self.device = root, device
        self.paths: list[str] = []
        self.jobs: dict[str, dict] = {}
        weights = root / DATA
        weights.parent.mkdir(parents=True, exist_ok=True)
        weights.write_bytes(b"weights of a model")
        self.job(DATA, "prerequisite")
        self.measure()
        self.derive()

    def copied_to(self, root: Path) -> SmallRun:
        twin = copy.deepcopy(self)
        twin.root = Path(shutil.copytree(self.root, root, dirs_exist_ok=True))
        return twin

    def measure(self) -> None:
        """Write the records of every job, each under the seals as they are now."""
        on_gpu = self.device != "cpu"
        used = DataFile(path=DATA, sha256=self.sha256(DATA), generated=True, description="made up")
        one = cell(self.device, 50e-3, 40e-3 if on_gpu else None, overhead_s=1e-4)
        streams = {"hbm_read" if on_gpu else "dram_read": 100.0}
        assemble(
            peak_record(self.device, "fp32", 1.0),
            bandwidth_record(self.device, **streams),
            operator_record(self.device, one, operator=SCAN, data=[used]),
            keep=lambda path, record: self.write(record, f"results/{path}"),
        )

    def derive(self) -> None:
        """Write all that follows from the records."""
        results = self.root / "results"
        found = read_results(results, [self.root / path for path in self.paths])
        sha256 = {path.removeprefix("results/"): self.sha256(path) for path in self.paths}
        table, texts = derive(found, ASKED, sha256)
        for name, content in {TABLE: table, **texts}.items():
            self.write(content, f"results/{name}")

    def write(self, content: Record | str, path: str) -> str:
        """Returns the hash of the file."""
        if path not in self.paths:
            self.paths.append(path)
            parts = Path(path).parts
            self.job(path, parts[2] if len(parts) > 3 else Path(path).stem)
            if isinstance(content, JobRecord):
                self.jobs[path] |= {"started_at": STARTED, "ended_at": STARTED.replace(":20+", f":{20 + JOB_S}+")}
            log = self.root / self.jobs[path]["log"]
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text("made by hand\n")
        (write_text if isinstance(content, str) else write)(content, self.root / path)
        return self.sha256(path)

    def job(self, path: str, rule: str) -> None:
        """One more job, which takes its time after those before."""
        start = JOB_S * len(self.jobs)
        self.jobs[path] = {
            "rule": rule,
            "started_at": f"{DAY}12:00:{start:02}+00:00",
            "ended_at": f"{DAY}12:00:{start + JOB_S:02}+00:00",
            "log": path.replace("results/", "logs/", 1).rpartition(".")[0] + ".log",
        }

    def sha256(self, path: str) -> str:
        return file_sha256(self.root / path)

    def read(self, path: str) -> dict:
        return json.loads((self.root / path).read_text(encoding="utf-8"))

    # -- its manifest

    def manifest(self, usd_per_hour: float | None = None, **times) -> Manifest:
        given = {"settings": SETTINGS | {"cost": {"usd_per_hour": usd_per_hour}}, "asked": ASKED, "sources": SOURCES}
        run = RunTimes(**{"started_at": f"{DAY}11:59:58+00:00", "created_at": MADE, "seconds": {}} | times)
        return make_manifest(self.root, self.paths, self.jobs, run, **given)

    def write_manifest(self, **fields) -> Manifest:
        manifest = self.manifest(**fields)
        write(manifest, self.root / "results/manifest.json")
        return manifest

    def edit(self, path: str, change: Callable[[dict], object]) -> None:
        """Change the content of a JSON file."""
        content = self.read(path)
        change(content)
        (self.root / path).write_text(json.dumps(content), encoding="utf-8")
