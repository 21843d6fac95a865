"""An environment that lacks packages: one line that names them, and the command that installs them."""

import subprocess
import sys

from workflow_run import CHECKOUT

HIDE = """
import sys
from importlib import metadata

found = metadata.version


def version(name):
    if name in {hidden}:
        raise metadata.PackageNotFoundError(name)
    return found(name)


metadata.version = version
sys.argv = ["snakemake", "-s", {snakefile!r}, "--cores", "1", "--dry-run"]
from snakemake.cli import main

main()
"""


def test_missing_packages_are_one_line_with_the_command_that_installs_them(tmp_path):
    hidden, snakefile = {"llvmlite", "ml_dtypes", "safetensors"}, str(CHECKOUT / "Snakefile")
    program = HIDE.format(hidden=hidden, snakefile=snakefile)
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    (line,) = [line for line in done.stderr.splitlines() if "missing" in line]
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert all(name in line for name in hidden) and "numpy" not in line and "envs/cpu.txt" in line
