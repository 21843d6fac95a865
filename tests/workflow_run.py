"""Real Snakemake on a copy of the checkout: what the tests of the workflow share."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]
SOURCES = ("Snakefile", "workflow", "config", "envs", "profiles")


def new_checkout(folder: Path, config: str) -> Path:
    folder.mkdir()
    for name in SOURCES:
        if (CHECKOUT / name).is_dir():
            shutil.copytree(CHECKOUT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(CHECKOUT / name, folder / name)
    (folder / "config" / "config.yaml").write_text(config)
    return folder


def snakemake(folder: Path, *arguments: str, path: Path | str = "", **environment: str) -> subprocess.CompletedProcess:
    """`snakemake --cores 1 ARGUMENTS`; what it printed is in stdout, both streams together."""
    environment = os.environ | {"PYTHONPATH": str(path)} | environment
    command = [sys.executable, "-m", "snakemake", "--cores", "1", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def planned(folder: Path, *arguments: str, **options: str) -> set[str]:
    """First outputs, below results/, of the jobs that a dry run plans."""
    plan = snakemake(folder, "--dry-run", "--quiet", "host", *arguments, **options)
    assert plan.returncode == 0, plan.stdout
    return set(re.findall(r"^\s+output: results/([^\s,]+)", plan.stdout, re.MULTILINE))


def record(folder: Path, path: str) -> dict:
    return json.loads((folder / "results" / path).read_text())


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
