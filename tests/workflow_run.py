"""Real Snakemake on a copy of the checkout: what the tests of the workflow share."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import yaml
from safetensors.numpy import load_file

from roofline.devices import host

CHECKOUT = Path(__file__).parents[1]
SOURCES = ("Snakefile", "README.md", "LICENSE", "workflow", "config", "envs", "profiles", "examples", "pyproject.toml")
SOURCES += (".gitignore",)
CACHE_MIB = 8  # of the host that tests run on, see conftest.py
SMALLEST_MIB = 2 * CACHE_MIB  # of arrays that no cache keeps
TINY = {
    "devices": ["cpu"],
    "peak_flops": {
        "dtypes": ["fp32"],
        "size": 256,
        "iterations": 10,
        "time_budget_s": 0.1,
        "sustained_s": 0,
    },
    "bandwidth": {
        "levels": ["dram"],
        "size_mib": SMALLEST_MIB,
        "warmup": 1,
        "iterations": 2,
        "time_budget_s": 0.01,
        "sweep_points": 1,
    },
    "decode_attn": {
        "seq_lens": [16, 32],
        "dtypes": ["fp32"],
        "batch_sizes": [1],
        "iterations": 10,
        "time_budget_s": 0.1,
    },
    "rmsnorm_matmul": {
        "hidden_sizes": [64],
        "dtypes": ["fp16"],
        "batch_sizes": [3],
        "iterations": 10,
        "time_budget_s": 0.1,
    },
    "row_norm": {"shapes": ["64x128", "5x64"], "iterations": 10, "time_budget_s": 0.1},
    "plot": {"dpi": 50},
}
PLANNED_JOB = re.compile(r"^rule (\w+):\n((?: +.*\n)*)", re.MULTILINE)
MEASURED_LINE = re.compile(r"^\[ *\d+/\d+\] (?!prediction|operator_prediction)(\w+ cpu[^:]*): ", re.MULTILINE)
PATIENCE_S = 300
GIT = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]


class Run:
    """A checkout in a folder of its own, with the results of a run."""

    environment: dict[str, str] = {}  # noqa: RUF012, beside surroundings()

    def __init__(self, root: Path):
        self.root = root
        self.results = root / "results"

    def python(self, *arguments, env: dict | None = None) -> subprocess.CompletedProcess:
        """Run Python in the folder, without a GPU, and with nothing of this process's own environment in the way."""
        command = [sys.executable, *map(str, arguments)]
        environment = surroundings() | self.environment | (env or {})
        return subprocess.run(
            command, cwd=self.root, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )

    def snakemake(self, *arguments, env: dict | None = None) -> subprocess.CompletedProcess:
        """`python -m snakemake` in the same way."""
        command = ["--cores", "1", *map(str, arguments)]
        with tempfile.NamedTemporaryFile("r") as stdout, tempfile.NamedTemporaryFile("r") as stderr:
            request = {
                "folder": str(self.root),
                "arguments": command,
                "environment": surroundings() | self.environment | (env or {}),
                "outputs": [stdout.name, stderr.name],
                "patience_s": PATIENCE_S,
            }
            server = snakemake_server()
            print(json.dumps(request), file=server.stdin, flush=True)
            status = int(server.stdout.readline())
            return subprocess.CompletedProcess(command, status, stdout.read(), stderr.read())

    def finish(self, *arguments, env: dict | None = None) -> str:
        """Run Snakemake to its end. Returns what it said."""
        done = self.snakemake(*arguments, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def planned(self, *arguments, env: dict | None = None, predictions: bool = False) -> Counter[str]:
        """The jobs that a dry run plans, each by its first output, relative to results/; predictions if asked for."""
        told = self.finish("--dry-run", "--quiet", "host", *arguments, env=env)
        outputs = [
            re.search(r"^ +output: ([^\s,]+)", body, re.MULTILINE).group(1).removeprefix("results/")
            for rule, body in PLANNED_JOB.findall(told)
            if rule != "all"
        ]
        total = re.search(r"^total +(\d+)$", told, re.MULTILINE)
        assert len(outputs) + 1 == int(total.group(1)) if total else "Nothing to be done" in told, told
        return Counter(one for one in outputs if predictions or not one.endswith("/predictions.json"))

    def make(self) -> subprocess.CompletedProcess:
        """What `make` runs once the packages are installed."""
        return self.python("workflow/commands/run.py")

    def command(self, name: str, *arguments) -> subprocess.CompletedProcess:
        return self.python(f"workflow/commands/{name}.py", *arguments)

    def archive(self) -> Path:
        done = self.command("archive")
        assert done.returncode == 0, done.stderr
        return self.root / next(line for line in done.stdout.splitlines() if line.endswith(".tar.gz"))

    @property
    def config(self) -> dict:
        return yaml.safe_load((self.root / "config/config.yaml").read_text())

    def edit_config(self, changes: dict | None = None, **keys) -> None:
        self.write_config(yaml.safe_dump(changed(self.config, {**(changes or {}), **keys}), sort_keys=False))

    def write_config(self, text: str) -> None:
        (self.root / "config/config.yaml").write_text(text, encoding="utf-8")

    def append(self, path: str, line: str = "# A comment.") -> None:
        """Append a line to a source."""
        assert (self.root / path).is_file(), path
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


@cache
def snakemake_server() -> subprocess.Popen:
    """One for this process, which ends with it."""
    command = [sys.executable, "-P", Path(__file__).with_name("snakemake_server.py")]
    environment = surroundings() | {"OPENBLAS_NUM_THREADS": "1"}  # a process with threads should not fork
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def changed(config: dict, changes: dict) -> dict:
    """A config with changes: a mapping changes those keys that it names, everything else is replaced."""
    merged = {key: config.get(key, {}) | value for key, value in changes.items() if isinstance(value, dict)}
    return config | changes | merged


def measured(told: str) -> list[str]:
    """The measurements that a run says it finished, by name, sorted."""
    return sorted(MEASURED_LINE.findall(told))


def surroundings() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ROOFLINE_", "SNAKEMAKE_"))}
    # With the second every job would compile the library again; from ARGS on they are those of `make test ARGS=...`.
    for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "ARGS", "MAKEFLAGS", "MFLAGS"):
        kept.pop(name, None)
    return kept | {"CUDA_VISIBLE_DEVICES": "", host.ROOT: os.environ[host.ROOT]}


def tensors(run: Run) -> dict:
    """The weights of a whole model of six layers: what is generated holds the first one alone."""
    first = load_file(run.results / "checkpoints/minigpt.safetensors")
    return {name.replace(".h.0.", f".h.{layer}."): tensor for name, tensor in first.items() for layer in range(6)}


def sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def made_once(tmp_path_factory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder that `make` fills once for a whole session of tests, however many processes share it."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    folder, whole = base / name, base / f"{name}.whole"
    with open(base / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # dropped when it is closed
        if not whole.exists():
            shutil.rmtree(folder, ignore_errors=True)
            make(folder)
            whole.touch()
    return folder


def new_checkout(folder: Path, config: str) -> Path:
    folder.mkdir()
    for name in SOURCES:
        if (CHECKOUT / name).is_dir():
            shutil.copytree(CHECKOUT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(CHECKOUT / name, folder / name)
    (folder / "config" / "config.yaml").write_text(config)
    return folder


def committed(folder: Path) -> Path:
    """The folder as a clean repository of its own."""
    for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "a tiny run")):
        subprocess.run([*GIT, *arguments], cwd=folder, check=True)
    return folder
