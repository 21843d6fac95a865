"""An environment that lacks packages: one line that names them, and the command that installs them."""

import subprocess
import sys

import pytest
from workflow_run import CHECKOUT

HIDE = """
import runpy
import sys
from importlib import metadata

found = metadata.version


def version(name):
    if name in {hidden}:
        raise metadata.PackageNotFoundError(name)
    return found(name)


metadata.version = version
sys.modules.update(dict.fromkeys({modules}))
sys.argv = {arguments}
{start}
"""
SNAKEMAKE = ["snakemake", "-s", str(CHECKOUT / "Snakefile"), "--cores", "1", "--dry-run"]
RUN = str(CHECKOUT / "workflow/commands/run.py")
OF_SNAKEMAKE = (SNAKEMAKE, "from snakemake.cli import main; main()")
OF_RUN = ([RUN, "--dry-run"], f"runpy.run_path({RUN!r}, run_name='__main__')")


@pytest.mark.parametrize(
    ("started", "hidden", "modules"),  # packages that are not installed, and modules that cannot be imported
    [
        (OF_SNAKEMAKE, {"llvmlite", "ml_dtypes", "safetensors"}, {}),
        (OF_SNAKEMAKE, {}, {"matplotlib": "matplotlib", "ml_dtypes": "ml_dtypes", "jinja2": "jinja2"}),
        (OF_RUN, {"snakemake", "psutil"}, {"yaml": "pyyaml", "pydantic": "pydantic", "jinja2": "jinja2"}),
    ],
)
def test_missing_packages_are_one_line_with_the_command_that_installs_them(tmp_path, started, hidden, modules):
    arguments, start = started
    program = HIDE.format(hidden=[*hidden], modules=[*modules], arguments=arguments, start=start)
    hidden = {*hidden, *modules.values()}
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    (line,) = [line for line in done.stderr.splitlines() if "missing" in line]
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert all(name in line for name in hidden) and "numpy" not in line and "envs/cpu.txt" in line
