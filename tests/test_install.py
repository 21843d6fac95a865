"""envs/install.sh: what it installs where, and what it says when it cannot.

Nothing is installed and no network is used: PATH holds only the commands that the script needs, and stubs.
"""

import os
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
    [ "$lock" != "${PIP_FAILS_AT:-}" ] || { echo "$PIP_SAYS" && exit 1; }
    [ "$lock" != uv ] || { mkdir -p .uv/bin && cp "$UV_WHEEL" .uv/bin/uv; }
    ;;
"-m pip --version") [ -n "${HAS_PIP:-}" ] ;;
"-m pip config list") echo "${PIP_CONFIG:-}" ;;
"-m compileall "*) ;;
*libcuda*) echo "${DRIVER:?}" ;;
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


def test_the_cpu_lock_is_installed_where_no_driver_answers_and_only_once(machine):
    status, said, calls = machine.install()
    assert status == 0
    assert len(said) == 1 and said[0].startswith("Installing the locked packages for the CPU into .venv")
    assert calls == ["venv 3.12", "pip build", "pip cpu"]
    assert machine.install() == (0, [], [])


@pytest.mark.parametrize("driver", ["12", "13"])
def test_cuda_12_is_installed_where_a_driver_answers(machine, driver):
    status, said, calls = machine.install(DRIVER=driver)
    assert (status, len(said), calls) == (0, 1, ["venv 3.12", "pip build", "pip cuda12"])
    assert "CUDA 12" in said[0] and "about 2 GB" in said[0]


def test_nvidia_smi_is_a_driver_too_but_not_when_it_fails(machine):
    machine.command("nvidia-smi", "echo 'NVIDIA-SMI has failed'; exit 9")
    assert machine.install()[2][-1] == "pip cpu"
    machine.command("nvidia-smi", "echo 'GPU 0: NVIDIA H200'")
    assert machine.install()[2][-1] == "pip cuda12"


def test_a_driver_too_old_is_reported_before_anything_is_installed(machine):
    for environment in ({"DRIVER": "11"}, {"DRIVER": "12", "CUDA": "13"}):
        status, said, calls = machine.install(**environment)
        assert (status, len(said), calls) == (1, 1, [])
        assert f"serves CUDA {environment['DRIVER']}" in said[0] and "update it" in said[0]


def test_cuda_13_stays_until_another_choice(machine):
    _, said, calls = machine.install(CUDA="13", DRIVER="13")
    assert "about 1.4 GB" in said[0] and calls[-1] == "pip cuda13"
    assert machine.install(DRIVER="13") == (0, [], [])
    assert machine.install("any") == (0, [], [])
    assert machine.install("development")[2] == ["pip development-cuda13"]
    assert machine.install(CUDA="12", DRIVER="13")[2] == ["venv 3.12", "pip build", "pip cuda12"]


def test_cuda_none_is_the_cpu_alone_and_cuda_is_then_added_to_it(machine):
    machine.install(DRIVER="12")
    assert machine.install(DRIVER="12", CUDA="none")[2] == ["venv 3.12", "pip build", "pip cpu"]
    assert machine.install("any", DRIVER="12") == (0, [], [])
    assert machine.install(DRIVER="12")[2] == ["pip build", "pip cuda12"]


def test_a_wrong_choice_of_cuda_is_reported(machine):
    assert machine.install(CUDA="11") == (1, ["CUDA=11 is no choice: CUDA=12, CUDA=13 or CUDA=none."], [])


def test_looking_at_results_needs_the_cpu_lock_at_most(machine):
    assert machine.install("any", DRIVER="12")[2][-1] == "pip cpu"


def test_the_tools_are_installed_over_what_measures(machine):
    assert machine.install("development")[2] == ["venv 3.12", "pip build", "pip cpu", "pip development"]
    assert machine.install("development") == machine.install() == (0, [], [])


def test_what_a_tool_needs_is_installed_over_the_lock_that_is_there(machine):
    pretty = ["pip requirements"]
    assert machine.install("tool", "pretty", DRIVER="12")[2] == ["venv 3.12", "pip build", "pip cpu", *pretty]
    assert machine.install("tool", "pretty") == machine.install("any") == (0, [], [])
    assert machine.install(DRIVER="12")[2] == ["pip build", "pip cuda12"]
    assert machine.install("tool", "pretty")[2] == pretty


def test_the_interpreter_is_one_that_runs_and_fits(machine):
    machine.command("python3.12", "echo 'pyenv: python3.12: command not found' >&2; exit 127")
    machine.python("python3", "3.10")
    machine.python("python3.13", "3.13", lacks="ensurepip")
    machine.python("python3.14", "3.14")
    assert machine.install()[2][0] == "venv 3.14"


def test_the_second_of_one_name_on_path_is_tried_too(machine, tmp_path):
    shims = tmp_path / "shims"
    shims.mkdir()
    (shims / "python3.12").write_text("#!/bin/sh\nexit 127\n")
    (shims / "python3.12").chmod(0o755)
    assert machine.install(PATH=f"{shims}:{machine.commands}")[2][0] == "venv 3.12"


def test_an_interpreter_of_choice(machine):
    machine.python("python3.13", "3.13")
    assert machine.install(PYTHON="python3.13")[2][0] == "venv 3.13"
    shutil.rmtree(machine.clone / ".venv")
    status, said, _ = machine.install(PYTHON="python2.7")
    assert status == 1 and "there is none (PYTHON=python2.7)" in said[0]


def test_a_python_too_old_is_reported_in_one_line(machine):
    machine.python("python3", "3.10")
    (machine.commands / "python3.12").unlink()
    status, said, calls = machine.install()
    assert (status, len(said), calls) == (1, 1, [])
    assert said[0].startswith("Python 3.11 to 3.14 is needed, and there is 3.10")
    assert "sudo apt install" in said[0]


def test_no_python_is_reported_in_one_line(machine):
    (machine.commands / "python3.12").unlink()
    status, said, _ = machine.install()
    assert (status, len(said)) == (1, 1)
    assert "there is none:" in said[0]


def test_a_python_without_venv_is_reported_in_one_line(machine):
    machine.python("python3.12", "3.12", lacks="ensurepip")
    status, said, calls = machine.install()
    assert (status, calls) == (1, [])
    assert said == ["Python 3.12 lacks its venv module: sudo apt install python3.12-venv, then make again."]


@pytest.mark.parametrize(
    ("pip_says", "message"),
    [
        (
            "Failed to establish a new connection: [Errno -3] Temporary failure in name resolution",
            "is there a network?",
        ),
        ("ERROR: [Errno 28] No space left on device", "The disk is full"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", "not the one that was locked"),
        ("ERROR: numpy is too tired", "The install failed: ERROR: numpy is too tired"),
    ],
)
def test_what_pip_says_is_reported_in_one_line(machine, pip_says, message):
    status, said, _ = machine.install(PIP_FAILS_AT="cpu", PIP_SAYS=pip_says)
    assert (status, len(said)) == (1, 2)
    assert said[0].startswith("Installing the ") and message in said[1]


@pytest.mark.parametrize("lock", ["build", "cpu", "development"])
def test_after_a_failure_the_next_call_goes_on(machine, lock):
    assert machine.install("development", PIP_FAILS_AT=lock, PIP_SAYS="No space left on device")[0] == 1
    status, _, calls = machine.install("development")
    measures = [] if lock == "development" else ["venv 3.12", "pip build", "pip cpu"]
    assert (status, calls) == (0, [*measures, "pip development"])
    assert machine.install("development") == (0, [], [])


def test_packages_half_added_are_not_taken_for_the_cpu_lock(machine):
    machine.install()
    machine.install(DRIVER="12", PIP_FAILS_AT="cuda12", PIP_SAYS="killed")
    assert machine.install(CUDA="none")[2] == ["venv 3.12", "pip build", "pip cpu"]


def test_a_changed_lock_is_installed(machine):
    machine.install()
    (machine.clone / "envs" / "cpu.txt").open("a").write("# changed\n")
    assert machine.install()[2] == ["venv 3.12", "pip build", "pip cpu"]


def test_an_environment_that_was_moved_or_lost_its_python_is_made_again(machine):
    machine.install()
    machine.clone = machine.clone.rename(machine.clone.with_name("moved"))
    assert machine.install()[2] == ["venv 3.12", "pip build", "pip cpu"]
    (machine.clone / ".venv" / "bin" / "python").unlink()
    assert machine.install()[2] == ["venv 3.12", "pip build", "pip cpu"]
    machine.python("python3.12", "3.13")
    shutil.copy(machine.commands / "python3.12", machine.clone / ".venv" / "bin" / "python")
    assert machine.install()[2] == ["venv 3.13", "pip build", "pip cpu"]


def test_an_active_environment_is_not_made_from_itself(machine):
    machine.install()
    inside = machine.clone / ".venv" / "bin"
    shutil.copy(inside / "python", inside / "python3.12")
    (machine.clone / "envs" / "cpu.txt").open("a").write("# changed\n")
    machine.python("python3.12", "3.11")
    assert machine.install(PATH=f"{inside}:{machine.commands}")[2][0] == "venv 3.11"


def test_settings_of_the_user_do_not_reach_pip(machine):
    status, _, calls = machine.install(
        PYTHONPATH="/elsewhere", PIP_USER="1", PIP_TARGET="/elsewhere", VIRTUAL_ENV="/other"
    )
    assert (status, calls[-1]) == (0, "pip cpu")


# A uv that makes environments of the stub UV_PYTHON.
UV = """#!/bin/sh
[ "$1" != --version ] || exit 0
echo "uv $*" >>"$CALLS"
case $1 in
venv) mkdir -p .venv/bin && cp "$UV_PYTHON" .venv/bin/python ;;
python) [ -z "${DOWNLOAD_FAILS:-}" ] || { echo "error: $DOWNLOAD_FAILS" >&2 && exit 2; } ;;
esac
"""


def with_uv(machine, version: str = "3.12"):
    machine.command("uv", UV)
    machine.python("of-uv", version)
    machine.environment["UV_PYTHON"] = str(machine.commands / "of-uv")


def test_uv_installs_where_there_is_one(machine):
    with_uv(machine)
    status, said, calls = machine.install()
    assert (status, len(said), calls[0]) == (0, 1, "venv 3.12")
    assert [call.split()[0] for call in calls[1:]] == ["uv", "uv"]


def test_uv_does_not_install_where_pip_is_set_up_with_another_index(machine):
    with_uv(machine)
    assert machine.install(PIP_CONFIG="global.index-url='https://mirror.example/simple'")[2][1:] == [
        "pip build",
        "pip cpu",
    ]


def test_uv_brings_a_python_where_none_fits(machine):
    with_uv(machine)
    machine.python("python3.12", "3.10")
    assert machine.install()[2][0] == "uv venv --clear --no-project --python 3.12 .venv"


@pytest.fixture
def ubuntu_22(machine):
    """Python 3.10 with pip, no other Python and no uv; the index has the locked wheel of uv."""
    (machine.commands / "python3.12").unlink()
    machine.python("python3", "3.10")
    with_uv(machine)
    wheel = (machine.commands / "uv").rename(machine.clone / "wheel")
    machine.environment |= {"HAS_PIP": "yes", "UV_WHEEL": str(wheel)}
    return machine


def test_pip_fetches_a_uv_that_brings_a_python_where_there_is_neither(ubuntu_22):
    status, said, calls = ubuntu_22.install()
    assert (status, len(said)) == (0, 2)
    assert said[0].startswith("Fetching uv into .uv") and said[1].startswith("Installing ")
    made = ["uv python install --no-bin 3.12", "uv venv --clear --no-project --python 3.12 .venv"]
    assert calls == ["pip uv", *made, "pip build", "pip build", "pip cpu"]
    assert ubuntu_22.install() == (0, [], [])
    (ubuntu_22.clone / "envs" / "cpu.txt").open("a").write("# changed\n")
    assert ubuntu_22.install()[2] == [*made, "pip build", "pip build", "pip cpu"]


def test_the_python_without_venv_is_the_one_that_the_fetched_uv_takes(ubuntu_22):
    ubuntu_22.python("python3", "3.12", lacks="ensurepip")
    status, _, calls = ubuntu_22.install()
    assert status == 0
    assert calls[:2] == ["pip uv", f"uv venv --clear --no-project --python {ubuntu_22.commands}/python3 .venv"]


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"PIP_FAILS_AT": "uv", "PIP_SAYS": "No matching distribution"}, "Python 3.11 to 3.14 is needed"),
        ({"PIP_FAILS_AT": "uv", "PIP_SAYS": "No space left on device"}, "The disk is full"),
        ({"DOWNLOAD_FAILS": "Request failed after 3 retries"}, "Python 3.11 to 3.14 is needed"),
        ({"DOWNLOAD_FAILS": "No space left on device"}, "The disk is full"),
    ],
)
def test_a_fetch_that_fails_is_one_line_and_is_tried_again(ubuntu_22, environment, message):
    status, said, _ = ubuntu_22.install(**environment)
    assert (status, len(said)) == (1, 2)
    assert said[1].startswith(message)
    assert ubuntu_22.install()[0] == 0


def test_no_uv_is_fetched_for_a_python_of_choice(ubuntu_22):
    status, said, calls = ubuntu_22.install(PYTHON="python3")
    assert (status, len(said), calls) == (1, 1, [])


def packages(lock: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)==([^ ]+)", (ENVS / f"{lock}.txt").read_text(), re.MULTILINE))


@pytest.mark.parametrize("lock", ["cuda12", "cuda13"])
def test_a_cuda_lock_is_the_cpu_lock_and_more(lock):
    assert packages("cpu").items() < packages(lock).items()


@pytest.mark.parametrize("lock", ["cuda12", "cuda13"])
def test_a_cuda_lock_holds_only_the_parts_of_cuda_that_are_used(lock):
    parts = {name.removesuffix("-cu12") for name in packages(lock) if name.startswith("nvidia-")}
    assert parts == {f"nvidia-{part}" for part in ("cublas", "cuda-cupti", "cuda-nvrtc", "cuda-runtime", "ml-py")}


@pytest.mark.parametrize(
    ("tools", "below"), [("development", "cpu"), ("development", "cuda12"), ("development-cuda13", "cuda13")]
)
def test_the_tools_change_no_version_of_what_measures(tools, below):
    pins = [
        set(re.findall(r"^[a-z0-9-]+==.*?(?= \\$)", (ENVS / f"{lock}.txt").read_text(), re.MULTILINE))
        for lock in (tools, below)
    ]
    names = [{pin.split("==")[0] for pin in those} for those in pins]
    versions = [{pin.split(" ")[0] for pin in those} for those in pins]
    for name in names[0] & names[1]:
        mine, theirs = ({version for version in those if version.split("==")[0] == name} for those in versions)
        assert theirs <= mine, name


@pytest.mark.parametrize("file", sorted(ENVS.glob("*.txt")), ids=lambda file: file.name)
def test_no_lock_names_an_index_or_a_folder(file):
    assert not re.search(r"://|--(extra-)?index|--find-links|file:|/(home|root|tmp|opt)/", file.read_text())


def test_the_stand_in_for_a_compiler_writes_what_it_is_asked_for(tmp_path):
    subprocess.run([ENVS / "no-compiler", "-c", "a.c", "-o", tmp_path / "a.o", "-lm"], check=True)
    assert (tmp_path / "a.o").read_bytes() == b""
    assert os.access(ENVS / "no-compiler", os.X_OK)
