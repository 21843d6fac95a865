"""envs/install.sh: what it installs and how it fails.

Nothing is installed and no network is used: PATH holds only the commands that the script needs, and stubs.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ENVS = Path(__file__).parents[1] / "envs"
COMMANDS = """
    sh awk basename cat chmod cp cut df dirname env flock grep head mkdir mktemp rm sed sha256sum tail which
"""

# An interpreter: what is run with -m is noted, and questions (-c) are answered under another version.
STUB = r"""#!/bin/sh
note() { echo "$*" >>"$CALLS"; }
case "$*" in
"-m venv "*)
    note venv @VERSION@
    rm -rf .venv && mkdir -p .venv/bin && cp "$0" .venv/bin/python
    ;;
"-m pip install "*"--no-deps --require-hashes"*)
    [ -z "${PYTHONPATH:-}${PIP_USER:-}${PIP_TARGET:-}" ] || exit 1
    lock=${*%.txt*}
    lock=${lock##*/}
    note pip "$lock"
    [ -z "${PIP_SAYS:-}" ] || { echo "$PIP_SAYS" && exit 1; }
    [ "$lock" != uv ] || { mkdir -p .uv/bin && cp "$UV_WHEEL" .uv/bin/uv; }
    ;;
"-m pip --version") [ -n "${HAS_PIP:-}" ] ;;
"-m pip config list") echo "${PIP_CONFIG:-}" ;;
"-m compileall "*) ;;
*libcuda*) [ "${DRIVER:?}" = unloadable ] || echo "$DRIVER" ;;
*) exec "@REAL@" -I -S -c '
import pathlib, sys
me, *arguments = sys.argv[1:]
question, *sys.argv[1:] = arguments[arguments.index("-c") + 1 :]
sys.version_info = (*map(int, "@VERSION@".split(".")), 0)
if me == ".venv/bin/python":
    sys.prefix = str(pathlib.Path(me).absolute().parents[1])
sys.modules |= {"venv": sys, "ensurepip": sys if "@LACKS@" != "ensurepip" else None}
exec(question)
' "$0" "$@" ;;
esac
"""


class Machine:
    """A folder of commands, a clone (its path holds a space), and what was asked of the stubs."""

    def __init__(self, folder: Path):
        self.commands = folder / "commands"
        self.commands.mkdir()
        for command in COMMANDS.split():
            if found := shutil.which(command, path="/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"):
                (self.commands / command).symlink_to(found)
        self.calls = folder / "calls"
        self.clone = folder / "a clone"
        self.clone.mkdir()
        shutil.copytree(ENVS, self.clone / "envs")
        (self.clone / "tools/pretty").mkdir(parents=True)
        (self.clone / "tools/pretty/requirements.txt").write_text("rich==14.0 --hash=sha256:0\n")
        self.environment = {"CALLS": str(self.calls), "HOME": str(folder), "PATH": str(self.commands)}

    def command(self, name: str, text: str) -> None:
        path = self.commands / name
        path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def python(self, name: str, version: str, lacks: str = "nothing") -> None:
        values = {"@VERSION@": version, "@LACKS@": lacks, "@REAL@": sys.executable}
        self.command(name, re.sub("@[A-Z]+@", lambda mark: values[mark[0]], STUB))

    def install(self, *arguments: str, **environment: str) -> tuple[int, list[str], list[str]]:
        """Exit status, lines said, and what was made and installed."""
        self.calls.write_text("")
        done = subprocess.run(
            ["sh", "envs/install.sh", *arguments],
            cwd=self.clone,
            env=self.environment | environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.stdout == ""
        return done.returncode, done.stderr.splitlines(), self.calls.read_text().splitlines()


@pytest.fixture
def machine(tmp_path):
    machine = Machine(tmp_path)
    machine.python("python3.12", "3.12")
    return machine


MADE = ["venv 3.12", "pip build"]
CPU, CUDA12 = [*MADE, "pip cpu"], [*MADE, "pip cuda12"]
NOTHING = (0, [], [])


@pytest.mark.parametrize(
    ("purpose", "environment", "smi", "expected"),
    [
        ("", {"DRIVER": "13"}, None, CUDA12),
        ("", {}, "exit 9", CPU),
        ("", {}, "echo 'GPU 0: NVIDIA H200'", CUDA12),
        ("", {"DRIVER": "unloadable"}, "echo 'GPU 0: NVIDIA H200'", CPU),
        ("", {"DRIVER": "13", "CUDA": "13"}, None, [*MADE, "pip cuda13"]),
        ("", {"DRIVER": "12", "CUDA": "none"}, None, CPU),
        ("any", {"DRIVER": "12"}, None, CPU),
        ("development", {}, None, [*CPU, "pip development"]),
        # Settings of the user do not reach pip.
        ("", {"PYTHONPATH": "/other", "PIP_USER": "1", "PIP_TARGET": "/other", "VIRTUAL_ENV": "/other"}, None, CPU),
    ],
)
def test_what_is_installed_and_only_once(machine, purpose, environment, smi, expected):
    if smi:
        machine.command("nvidia-smi", smi)
    status, _, calls = machine.install(*purpose.split(), **environment)
    assert (status, calls) == (0, expected)
    assert machine.install(*purpose.split(), **environment) == NOTHING


def test_nccl_is_installed_where_the_driver_lists_several_gpus(machine, tmp_path):
    machine.environment |= {"DRIVER": "13", "ROOFLINE_HOST": str(tmp_path)}
    assert machine.install()[2] == CUDA12
    for bus in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / "proc/driver/nvidia/gpus" / bus).mkdir(parents=True)
    assert machine.install("development")[2] == ["pip nccl-cuda12", "pip development"]
    assert machine.install() == machine.install("any") == NOTHING
    assert machine.install(CUDA="none")[2] == CPU


@pytest.mark.parametrize(
    ("environment", "python", "lacks", "word"),
    [
        ({"DRIVER": "11"}, "3.12", "nothing", "525"),
        ({"DRIVER": "12", "CUDA": "13"}, "3.12", "nothing", "580"),
        ({"CUDA": "11"}, "3.12", "nothing", "CUDA=11"),
        ({}, "3.10", "nothing", "3.10"),
        ({}, "3.12", "ensurepip", "python3.12-venv"),
        ({}, None, "nothing", "python3.11"),
    ],
)
def test_a_wrong_machine_or_choice_is_refused_in_one_line(machine, environment, python, lacks, word):
    (machine.commands / "python3.12").unlink()
    if python:
        machine.python("python3", python, lacks)
    status, said, calls = machine.install(**environment)
    assert (status, len(said), calls) == (1, 1, []) and word in said[0]


def test_the_chosen_cuda_and_the_packages_of_a_tool_stay_until_another_choice(machine):
    machine.install(CUDA="13", DRIVER="13")
    assert machine.install(DRIVER="13") == machine.install("any") == NOTHING
    assert machine.install("development")[2] == ["pip development-cuda13"]
    assert machine.install(CUDA="none", DRIVER="12")[2] == CPU
    assert machine.install("tool", "pretty")[2] == ["pip requirements"]
    assert machine.install("tool", "pretty") == machine.install("any") == NOTHING
    assert machine.install(DRIVER="12")[2] == ["pip build", "pip cuda12"], "added to the CPU"


def test_a_changed_lock_or_a_moved_or_broken_environment_is_installed_again(machine):
    machine.install()
    (machine.clone / "envs" / "cpu.txt").open("a").write("# changed\n")
    assert machine.install()[2] == CPU
    machine.clone = machine.clone.rename(machine.clone.with_name("moved"))
    assert machine.install()[2] == CPU
    machine.python("python3.12", "3.13")
    shutil.copy(machine.commands / "python3.12", machine.clone / ".venv" / "bin" / "python")
    assert machine.install()[2] == ["venv 3.13", "pip build", "pip cpu"]


# A uv that makes environments of the stub UV_PYTHON.
UV = """#!/bin/sh
[ "$1" != --version ] || exit 0
echo "uv $*" >>"$CALLS"
[ "$1" != venv ] || { mkdir -p .venv/bin && cp "$UV_PYTHON" .venv/bin/python; }
"""


def test_pip_fetches_a_uv_that_brings_a_python(machine):
    """To Python 3.10 with pip, where there is no other Python and no uv; the index has the locked wheel of uv."""
    python = (machine.commands / "python3.12").rename(machine.clone / "of-uv")
    machine.python("python3", "3.10")
    machine.command("uv", UV)
    wheel = (machine.commands / "uv").rename(machine.clone / "wheel")
    machine.environment |= {"HAS_PIP": "yes", "UV_WHEEL": str(wheel), "UV_PYTHON": str(python)}
    assert machine.install(PYTHON="python3")[::2] == (1, []), "a chosen Python is not replaced"
    status, _, calls = machine.install()
    made = ["uv python install --no-bin 3.12", "uv venv --clear --no-project --python 3.12 .venv"]
    assert (status, calls) == (0, ["pip uv", *made, "pip build", "pip build", "pip cpu"])
    assert machine.install() == NOTHING


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("Failed to establish a new connection: [Errno -3]", "HTTPS_PROXY"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES", "PIP_INDEX_URL"),
        ("ERROR: [Errno 28] No space left on device", "disk"),
    ],
)
def test_a_failure_names_its_remedy_in_the_last_line(machine, said, remedy):
    status, lines, _ = machine.install(PIP_SAYS=said)
    assert status == 1 and remedy in lines[-1]
