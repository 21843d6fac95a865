"""Real Snakemake on a copy of the checkout: what the tests of the workflow share."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import yaml
from safetensors.numpy import load_file

from roofline.devices import host
from roofline.operators.registry import builtin_operators

CHECKOUT = Path(__file__).parents[1]
NEWEST = CHECKOUT / "reference/nvidia-h200"  # the reference run that README.md shows
SOURCES = ("Snakefile", "README.md", "LICENSE", "workflow", "config", "envs", "profiles", "examples", "pyproject.toml")
SOURCES += (".gitignore",)
CACHE_MIB = 8  # of the host that tests run on, see conftest.py
BUDGET = {"iterations": 10, "time_budget_s": 0.1}
SHORT = {"iterations": 5, "time_budget_s": 0.02}
TINY: dict = {
    # What these settings do not name is left out.
    **{row.rule: {"enabled": False} for row in builtin_operators() if not row.measured_with_ceilings},
    "devices": ["cpu"],
    "cpu": "all",
    "drawn": 0,
    "peak_flops": {"dtypes": ["fp32"], "size": 256, "sustained_s": 0, **BUDGET},
    "bandwidth": {
        "levels": ["dram"],
        "size_mib": 2 * CACHE_MIB,  # no cache keeps them
        "warmup": 1,
        "iterations": 2,
        "time_budget_s": 0.01,
        "sweep_points": 1,
    },
    "decode_attn": {
        "seq_lens": [16, 32],
        "dtypes": ["fp32"],
        "batch_sizes": [1],
        "scopes": ["core", "block"],
        **BUDGET,
    },
    "rmsnorm_matmul": {"hidden_sizes": [64], "dtypes": ["fp16"], "batch_sizes": [3], **BUDGET},
    "row_norm": {"shapes": ["64x128", "5x64"], **BUDGET},
    "plot": {"dpi": 50},
}
GPU = TINY | {
    "devices": "auto",
    "cpu": "auto",
    "effort": "default",
    "peak_flops": TINY["peak_flops"] | {"dtypes": ["fp32", "fp16", "fp32_fma", "fp64_fma"], **SHORT},
    "bandwidth": {
        "levels": ["hbm", "d2d", "l2", "h2d", "sweep"],
        "size_mib": 2 * CACHE_MIB,
        "transfer_size_mib": 1,
        "sweep_points": 1,
        "iterations": 4,
        "time_budget_s": 0.01,
    },
    "decode_attn": TINY["decode_attn"] | {"seq_lens": [16], **SHORT},
    "rmsnorm_matmul": TINY["rmsnorm_matmul"] | SHORT,
    "row_norm": {"shapes": ["1024x128", "5x33"], **SHORT},
}
FAKES = CHECKOUT / "tests" / "fakes"
KNOWN_CARDS = "reference/cards/nvidia-h200.json"
MEASURED_LINE = re.compile(r"^\[ *\d+/\d+\] (?!prediction|operator_prediction)(\w+ cpu[^:]*): ", re.MULTILINE)
PATIENCE_S = 300
GIT = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]


class Run:
    """A checkout with the results of a run."""

    environment: dict[str, str] = {}  # noqa: RUF012

    def __init__(self, root: Path):
        self.root = root
        self.results = root / "results"

    def python(self, *arguments) -> subprocess.CompletedProcess:
        """Run Python in the folder, without a GPU and without this process's settings."""
        command = [sys.executable, *map(str, arguments)]
        environment = surroundings() | self.environment
        return subprocess.run(
            command, cwd=self.root, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )

    def snakemake(self, *arguments) -> subprocess.CompletedProcess:
        return self.python("-P", "-m", "snakemake", "--cores", "1", *arguments)

    def finish(self, *arguments) -> str:
        """Run Snakemake to its end. Returns what it printed."""
        done = self.snakemake(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def command(self, name: str, *arguments) -> subprocess.CompletedProcess:
        return self.python("-P", f"workflow/commands/{name}.py", *arguments)

    def planned(self) -> set[str]:
        """The jobs of a dry run, each by its first output below results/."""
        done = self.command("run", "--dry-run")
        *jobs, last = done.stdout.splitlines()
        assert done.returncode == 0 and (last.startswith(f"{len(jobs)} job") or not jobs), done.stdout + done.stderr
        return {line.partition(":")[0] for line in jobs}

    def make(self) -> subprocess.CompletedProcess:
        """What `make` runs once the packages are installed."""
        return self.command("run")

    def archive(self) -> Path:
        done = self.command("archive")
        assert done.returncode == 0, done.stderr
        return self.root / next(line for line in done.stdout.splitlines() if line.endswith(".tar.gz"))

    def edit_config(self, **changes) -> None:
        path = self.root / "config/config.yaml"
        config = changed(yaml.safe_load(path.read_text()), changes)
        path.write_text(yaml.safe_dump(config, sort_keys=False))

    def append(self, path: str) -> None:
        """Append a comment to a source."""
        assert (self.root / path).is_file(), path
        with open(self.root / path, "a", encoding="utf-8") as file:
            file.write("\n# A comment.\n")

    def read(self, path: str) -> dict:
        return json.loads((self.results / path).read_text(encoding="utf-8"))

    def files(self, below: str = ".") -> dict[str, tuple[int, str]]:
        """Every file under a folder of results/: when it was written, and the hash of its bytes."""
        return {
            path.relative_to(self.results).as_posix(): (path.stat().st_mtime_ns, sha256(path))
            for path in (self.results / below).rglob("*")
            if path.is_file()
        }


class GpuRun(Run):
    """A checkout on a machine with one small card, by stand-ins (tests/fakes), and a stand-in for Nsight Compute; an
    array takes an eighth of the memory."""

    environment = {  # noqa: RUF012
        "PYTHONPATH": str(FAKES),
        "FAKE_GPUS": "GPU-1111=NVIDIA H200",
        "FAKE_FREE_BYTES": "300000000",
        "FAKE_MULTIPROCESSORS": "32",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "NCU": str(FAKES / "bin" / "ncu"),
    }


class LargerGpuRun(GpuRun):
    """With memory for products of the size that is measured without settings."""

    environment = GpuRun.environment | {"FAKE_FREE_BYTES": "600000000"}


def changed(config: dict, changes: dict) -> dict:
    """A config with changes: a mapping changes those keys that it names, everything else is replaced."""
    merged = {key: config.get(key, {}) | value for key, value in changes.items() if isinstance(value, dict)}
    return config | changes | merged


def measured(printed: str) -> list[str]:
    """The measurements that a run reports, by name, sorted."""
    return sorted(MEASURED_LINE.findall(printed))


def surroundings() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ROOFLINE_", "SNAKEMAKE_"))}
    # With the second every job would compile the library again; from ARGS on they are those of `make test ARGS=...`.
    for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "ARGS", "MAKEFLAGS", "MFLAGS"):
        kept.pop(name, None)
    return kept | {"CUDA_VISIBLE_DEVICES": "", host.HOST_ROOT_VARIABLE: os.environ[host.HOST_ROOT_VARIABLE]}


def heed_ctrl_c() -> None:
    """For a process that the tests start: what they run in may ignore Ctrl-C, and hand that down."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


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
            shutil.copytree(CHECKOUT / name, folder / name)  # what is compiled too
        else:
            shutil.copy2(CHECKOUT / name, folder / name)
    (folder / "config" / "config.yaml").write_text(config)
    return folder


def committed(folder: Path) -> Path:
    """The folder as a clean repository."""
    for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "a tiny run")):
        subprocess.run([*GIT, *arguments], cwd=folder, check=True)
    return folder


def new_gpu_run(folder: Path) -> GpuRun:
    """In no repository, with known cards of this model."""
    run = GpuRun(new_checkout(folder, yaml.safe_dump(GPU, sort_keys=False)))
    (run.root / KNOWN_CARDS).parent.mkdir(parents=True)
    shutil.copy(CHECKOUT / KNOWN_CARDS, run.root / KNOWN_CARDS)
    return run


def documented_fields(page: Path, name: str) -> dict[str, set[str]]:
    """The fields of a JSON file that the table of a page lists, by the list that holds them, "" for the file itself."""
    table = page.read_text(encoding="utf-8").split(f"## {name}\n")[1].split("\n## ")[0]
    fields: dict[str, set[str]] = {}
    for line in table.splitlines():
        if line.startswith("| `"):
            holder, names = re.fullmatch(r"`(?:(\w+)\[\]\.)?(.*)", line.split("|")[1].strip()).groups()
            fields.setdefault(holder or "", set()).update(names.replace("`", "").split(", "))
    return fields
