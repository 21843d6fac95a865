"""The real workflow on the CPU: one finished run of a tiny configuration, and a copy of it for each test to change."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml
from safetensors.numpy import load_file
from workflow_run import new_checkout

from roofline.devices.cpu import device as cpu

SMALLEST_MIB = -(-2 * cpu.discover()[0].last_level_cache_bytes >> 20)  # of arrays that no cache keeps
TINY = {
    "devices": ["cpu"],
    "peak_flops": {
        "dtypes": ["fp32", "fp64"],
        "size": 256,
        "iterations": 10,
        "time_budget_s": 0.1,
        "sustained_s": 0,
    },
    "bandwidth": {"levels": ["dram"], "size_mib": 2 * SMALLEST_MIB, "iterations": 5, "time_budget_s": 0.01},
    "decode_attn": {
        "seq_lens": [16, 32],
        "dtypes": ["fp32"],
        "batch_sizes": [1],
        "iterations": 10,
        "time_budget_s": 0.1,
    },
}
PLANNED_JOB = re.compile(r"^rule (\w+):\n((?: +.*\n)*)", re.MULTILINE)


class Run:
    """A checkout in a folder of its own, with the results of a run."""

    def __init__(self, root: Path):
        self.root = root
        self.results = root / "results"

    def python(self, *arguments, env: dict | None = None, timeout_s: float = 180) -> subprocess.CompletedProcess:
        """Run Python in the folder, without a GPU, and with nothing of this process's own environment in the way."""
        command = [sys.executable, *map(str, arguments)]
        environment = surroundings() | (env or {})
        return subprocess.run(
            command, cwd=self.root, env=environment, capture_output=True, text=True, check=False, timeout=timeout_s
        )

    def snakemake(self, *arguments, env: dict | None = None) -> subprocess.CompletedProcess:
        return self.python("-m", "snakemake", "--cores", "1", *arguments, env=env)

    def finish(self, *arguments, env: dict | None = None) -> str:
        """Run Snakemake to its end. Returns what it said."""
        done = self.snakemake(*arguments, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def planned(self, env: dict | None = None) -> Counter[str]:
        """The jobs that a dry run plans, each by its first output, relative to results/."""
        told = self.finish("--dry-run", "--quiet", "host", env=env)
        outputs = [
            re.search(r"^ +output: ([^\s,]+)", body, re.MULTILINE).group(1).removeprefix("results/")
            for rule, body in PLANNED_JOB.findall(told)
            if rule != "all"
        ]
        total = re.search(r"^total +(\d+)$", told, re.MULTILINE)
        assert len(outputs) + 1 == int(total.group(1)) if total else "Nothing to be done" in told, told
        return Counter(outputs)

    @property
    def config(self) -> dict:
        return yaml.safe_load((self.root / "config/config.yaml").read_text())

    def edit_config(self, changes: dict | None = None, **keys) -> None:
        """Change keys: a mapping changes those of its keys that it names, everything else is replaced."""
        config = self.config
        for key, value in {**(changes or {}), **keys}.items():
            config[key] = {**config.get(key, {}), **value} if isinstance(value, dict) else value
        self.write_config(yaml.safe_dump(config, sort_keys=False))

    def write_config(self, text: str) -> None:
        (self.root / "config/config.yaml").write_text(text, encoding="utf-8")

    def append(self, path: str, line: str = "# A comment.") -> None:
        """Append a line to a source."""
        with open(self.root / path, "a", encoding="utf-8") as file:
            file.write(f"\n{line}\n")

    def read(self, path: str) -> dict:
        return json.loads((self.results / path).read_text(encoding="utf-8"))

    def files(self, below: str = ".") -> dict[str, tuple[int, str]]:
        """Every file under a folder of results/: when it was written, and the hash of its bytes."""
        return {
            path.relative_to(self.results).as_posix(): (path.stat().st_mtime_ns, sha256(path))
            for path in (self.results / below).rglob("*")
            if path.is_file()
        }

    def make(self) -> subprocess.CompletedProcess:
        """What `make` runs once the packages are installed."""
        return self.python("workflow/commands/run.py")

    def locks(self) -> set[str]:
        return {path.name for path in (self.root / ".snakemake/locks").glob("*")}


def surroundings() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ROOFLINE_", "SNAKEMAKE_"))}
    kept.pop("PYTHONPATH", None)
    return kept | {"CUDA_VISIBLE_DEVICES": ""}


def tensors(run: Run) -> dict:
    """The weights of a whole model of six layers: what is generated holds the first one alone."""
    first = load_file(run.results / "checkpoints/minigpt.safetensors")
    return {name.replace(".h.0.", f".h.{layer}."): tensor for name, tensor in first.items() for layer in range(6)}


def sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory) -> Run:
    """A finished run. Leave it as it is: `run` is a copy to change."""
    root = tmp_path_factory.mktemp("finished") / "checkout"
    finished = Run(new_checkout(root, yaml.safe_dump(TINY, sort_keys=False)))
    finished.finish()
    return finished


@pytest.fixture
def run(finished_run, tmp_path) -> Run:
    """A copy of the finished run, .snakemake and the times of all files included."""
    return Run(Path(shutil.copytree(finished_run.root, tmp_path / "checkout", symlinks=True)))
