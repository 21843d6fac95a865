"""make bundle, and what envs/install.sh makes of a bundle: small wheels, a small lock, and no network."""

import hashlib
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from commands import load
from workflow_run import CHECKOUT

ENVS = CHECKOUT / "envs"
HERE = platform.machine()
bundle = load("bundle")


def git(root: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def without_network() -> list[str]:
    """A command before which another has no network; none where the kernel does not permit it."""
    for prefix in (["unshare", "-n"], ["unshare", "-rn"]):
        if shutil.which("unshare") and not subprocess.run([*prefix, "true"], capture_output=True).returncode:
            return prefix
    return []


def wheel(folder: Path, name: str, version: str, files: dict[str, bytes]) -> str:
    """Writes a wheel, and returns its line of a lock."""
    about = f"{name}-{version}.dist-info"
    files = files | {
        f"{about}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
    }
    files[f"{about}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{about}/RECORD"]).encode()
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as packed:
        for file, content in files.items():
            packed.writestr(file, content)
    return f"{name}=={version} \\\n    --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


def installed_pip() -> dict[str, bytes]:
    return {
        str(path): path.locate().read_bytes()
        for path in metadata.files("pip")
        if path.parts[0] == "pip" and "__pycache__" not in path.parts
    }


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A repository of two commits: install.sh, and a lock of pip and of one package."""
    folder = tmp_path_factory.mktemp("made")
    index, root = folder / "index", folder / "checkout"
    index.mkdir()
    root.mkdir()
    shutil.copytree(ENVS, root / "envs")
    shutil.copy(CHECKOUT / ".gitignore", root)
    (root / "envs/build.txt").write_text(wheel(index, "pip", metadata.version("pip"), installed_pip()))
    (root / "envs/cpu.txt").write_text(wheel(index, "tiny", "1.0", {"tiny.py": b"answer = 42\n"}))
    for also in ("fleet", "reports"):
        shutil.copy(root / "envs/cpu.txt", root / f"envs/{also}.txt")
    git(root, "init", "-q")
    git(root, "commit", "-qm", "one", "--allow-empty")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "two")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_CONFIG_FILE", "/dev/null")
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(index))
        patch.setattr(bundle, "PYTHONS", bundle.PYTHONS[-1:])
        bundle.bundle(root, "cpu", HERE)
    return root


@pytest.fixture
def unpacked(checkout, tmp_path):
    (packed,) = (checkout / "bundle").iterdir()
    subprocess.run(["tar", "xf", packed], cwd=tmp_path, check=True)
    return tmp_path / packed.stem


def install(root: Path, *arguments: str, **environment: str) -> tuple[int, list[str]]:
    """Exit status and lines said, with no network, index or cache."""
    done = subprocess.run(
        [*without_network(), "sh", "envs/install.sh", *arguments],
        cwd=root,
        env={"HOME": str(root), "PATH": "/usr/bin:/bin", "PYTHON": sys.executable} | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stderr.splitlines()


def test_a_bundle_installs_with_no_network_by_a_python_that_lacks_ensurepip(unpacked, checkout, tmp_path):
    python = tmp_path / "python3"
    real = f'exec "{sys.executable}" "$@"'
    python.write_text(f'#!/bin/sh\ncase "$*" in *ensurepip*) echo "without-venv 3.12 $0" ;; *) {real} ;; esac\n')
    python.chmod(0o755)
    status, said = install(unpacked, PYTHON=str(python))
    assert (status, len(said)) == (0, 1), said
    assert "for the CPU from wheels/" in said[0]
    asked = subprocess.run(
        [unpacked / ".venv/bin/python", "-c", "import tiny, pip; print(tiny.answer)"], capture_output=True
    )
    assert asked.stdout == b"42\n"
    assert install(unpacked) == (0, [])


def test_a_bundle_names_its_commit_and_nothing_of_where_it_was_made(unpacked, checkout):
    assert git(unpacked, "rev-parse", "HEAD") == git(checkout, "rev-parse", "HEAD")
    assert git(unpacked, "status", "--porcelain") == ""
    assert git(unpacked, "rev-list", "--count", "HEAD") == "1"
    assert subprocess.run(["grep", "-r", str(checkout), unpacked / ".git"], stdout=subprocess.DEVNULL).returncode == 1


def edit_marker(old: str, new: str):
    def edit(root: Path) -> None:
        marker = root / "wheels/bundle"
        marker.write_text(marker.read_text().replace(old, new))

    return edit


def truncate(root: Path) -> None:
    path = root / "wheels/tiny-1.0-py3-none-any.whl"
    path.write_bytes(path.read_bytes()[:-1])


def lose(root: Path) -> None:
    (root / "wheels/tiny-1.0-py3-none-any.whl").unlink()


@pytest.mark.parametrize(
    ("edit", "environment", "message"),
    [
        (edit_marker(HERE, "riscv64"), {}, f"for riscv64, and this machine is {HERE}"),
        (edit_marker("2.28", "2.999"), {}, "needs glibc 2.999 or newer, and there is "),
        (truncate, {}, "wheels/tiny-1.0-py3-none-any.whl is not what was packed"),
        (lose, {}, "wheels/tiny-1.0-py3-none-any.whl is not what was packed"),
        (None, {"CUDA": "13"}, "make bundle CUDA=13"),
    ],
    ids=["architecture", "glibc", "truncated", "lost", "CUDA"],
)
def test_what_a_bundle_cannot_serve_is_one_line_before_anything_is_installed(unpacked, edit, environment, message):
    if edit:
        edit(unpacked)
    status, said = install(unpacked, **environment)
    assert (status, len(said)) == (1, 1), said
    assert message in said[0]
    assert not (unpacked / ".venv").exists()


def test_a_bundle_has_no_tools_of_tests(unpacked):
    status, said = install(unpacked, "development")
    assert (status, len(said)) == (1, 1)
    assert "make test" in said[0]


def test_a_python_that_no_bundle_serves_is_named(unpacked, tmp_path):
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\ncase "$*" in *ensurepip*) echo "unfit 3.10 $0" ;; *) exit 1 ;; esac\n')
    old.chmod(0o755)
    status, said = install(unpacked, PYTHON=str(old))
    assert (status, len(said)) == (1, 1)
    assert said[0].startswith("Python 3.11 to 3.14 is needed, and there is 3.10 ")


def test_a_gpu_is_measured_with_the_cuda_that_the_bundle_has(unpacked, tmp_path):
    edit_marker("cpu", "cuda13")(unpacked)
    driver = tmp_path / "python3"
    driver.write_text(f'#!/bin/sh\ncase "$*" in *libcuda*) echo 12 ;; *) exec "{sys.executable}" "$@" ;; esac\n')
    driver.chmod(0o755)
    sums = unpacked / "wheels/SHA256SUMS"
    sums.write_text("".join(line for line in sums.read_text().splitlines(True) if "  bundle" not in line))
    status, said = install(unpacked, PYTHON=str(driver))
    assert (status, len(said)) == (1, 1)
    assert said[0].startswith("The NVIDIA driver serves CUDA 12, not CUDA 13")


@pytest.mark.parametrize("stopped_by", [KeyboardInterrupt, bundle.Refused("no network"), OSError(28, "No space left")])
def test_a_bundling_that_stops_leaves_the_earlier_bundle_and_nothing_else(checkout, monkeypatch, stopped_by):
    def stop(*_):
        raise stopped_by

    before = {path.name: path.stat().st_mtime_ns for path in (checkout / "bundle").iterdir()}
    monkeypatch.setattr(bundle, "pack", stop)
    monkeypatch.setattr(bundle, "download", lambda *_: None)
    with pytest.raises(type(stopped_by) if isinstance(stopped_by, Exception) else stopped_by):
        bundle.bundle(checkout, "cpu", HERE)
    assert {path.name: path.stat().st_mtime_ns for path in (checkout / "bundle").iterdir()} == before


def test_what_is_not_committed_is_named_and_left_out(checkout, tmp_path, monkeypatch, capsys):
    edited = tmp_path / "edited"
    git(tmp_path, "clone", "-q", str(checkout), str(edited))
    (edited / "envs/cpu.txt").write_text("edited\n")
    (edited / "mine.py").write_text("")
    monkeypatch.setattr(bundle, "download", lambda *_: None)
    bundle.main(edited, "none")
    assert "Left out, since not committed: envs/cpu.txt and 1 more" in capsys.readouterr().out
    with tarfile.open(next((edited / "bundle").iterdir())) as tar:
        names = tar.getnames()
        assert not [name for name in names if name.endswith("mine.py")]
        assert tar.extractfile(f"{names[0]}/envs/cpu.txt").read() != b"edited\n"


def test_a_wrong_choice_and_a_folder_without_git_are_refused(tmp_path):
    with pytest.raises(bundle.Refused, match="CUDA=11 is no choice: CUDA=12, CUDA=13 or CUDA=none"):
        bundle.main(tmp_path, "11")
    with pytest.raises(bundle.Refused, match="no commit"):
        bundle.main(tmp_path, "12")


@pytest.mark.parametrize("lock", ["build", "fleet", "reports", *bundle.LOCKS.values()])
@pytest.mark.parametrize("python", bundle.PYTHONS)
def test_a_lock_gives_each_package_once_for_a_python(lock, python):
    text = (ENVS / f"{lock}.txt").read_text()
    assert len(bundle.ENTRY.findall(text)) == len(re.findall("^[a-z0-9].*==", text, re.MULTILINE))
    names = [one.split("==")[0] for one in bundle.requirements(text, python, "x86_64")]
    assert names and len(names) == len(set(names))
    assert "colorama" not in names  # Windows alone has it


def test_a_lock_gives_what_its_markers_say_of_each_python():
    text = (ENVS / "cuda12.txt").read_text()
    of = {
        key: {
            one.split(" ")[0] for one in bundle.requirements(text, *key) if one.startswith(("cupti", "cuda-bindings"))
        }
        for key in (("3.12", "x86_64"), ("3.13", "x86_64"), ("3.12", "aarch64"))
    }
    with_cupti, *without = of.values()
    assert with_cupti == {"cupti-python==12.8.0", "cuda-bindings==12.8.0"}
    assert [{name[:18] for name in names} for names in without] == [{"cuda-bindings==12."}] * 2
