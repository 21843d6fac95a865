"""Pack the locked packages and this checkout into one file, for machines without a network.

    python workflow/commands/bundle.py 12       (or 13; or none: the CPU's packages alone)

It serves every Python that envs/install.sh takes, on this architecture. Two packages have no wheel for some of them and
go along as source, so that the lock's hashes hold for them too. install.sh builds them, without a compiler.
"""

import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from roofline.records.files import file_sha256
from roofline.run import checkout
from roofline.run.jobs import print_what_can_be_printed

LOCKS = {"12": "cuda12", "13": "cuda13", "none": "cpu"}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
GLIBC = 28  # of 2.28: `make lock` makes sure that there are wheels for it
ENTRY = re.compile(r"^([a-z0-9][^\\]*?) *\\\n((?: +--hash=.*\n)+)", re.MULTILINE)
NO_NETWORK = re.compile("establish a new connection|name resolution|ConnectTimeout|timed out|unreachable|ProxyError")


class Refused(Exception):
    """No bundle is made; the message is the reason, in one line."""


def requirements(lock: str, python: str, machine: str) -> Iterator[str]:
    """A lock's requirements for one Python, with their hashes; pip would judge the markers by the Python it runs on."""
    target = {"python_version": python, "python_full_version": f"{python}.0", "platform_machine": machine}
    for line, hashes in ENTRY.findall(lock):
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate(target):
            yield f"{requirement.name}{requirement.specifier} \\\n{hashes}"


def download(lock: str, python: str, machine: str, wheels: Path) -> None:
    """Put the files of a lock's packages for one Python into wheels."""
    run(
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"),
        *("--no-deps", "--require-hashes", "--no-build-isolation", "--python-version", python),
        *(f"--platform=manylinux_2_{minor}_{machine}" for minor in range(GLIBC, 4, -1)),
        f"--platform=manylinux2014_{machine}",  # and what came before it
        *("--dest", str(wheels), "--requirement", "/dev/stdin"),
        text="".join(requirements(lock, python, machine)),
        TMPDIR=str(wheels.absolute().parent),
    )


def clone(root: Path, to: Path) -> None:
    """The commit of a checkout, so that runs name it; no history, and no trace of where and by whom it was cloned."""
    options = ("-c", "core.logAllRefUpdates=false", "clone", "--quiet", "--depth=1", "--template=")
    run("git", *options, root.absolute().as_uri(), str(to))
    run("git", "-C", str(to), "remote", "remove", "origin")


def run(*command: str, text: str = "", **environment: str) -> None:
    """Raises Refused."""
    done = subprocess.run(command, input=text, text=True, env=os.environ | environment, capture_output=True)
    if NO_NETWORK.search(done.stderr) and done.returncode:
        raise Refused("the packages cannot be fetched: is there a network?")
    if done.returncode:
        lines = done.stderr.splitlines() or [f"{command[0]} gave no reason"]
        raise Refused(([line for line in lines if re.search("error|fatal", line, re.IGNORECASE)] or lines)[-1])


def pack(folder: Path, path: Path) -> None:
    """Write a folder to a tar. Nothing is compressed, since wheels are."""

    def by_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = "root"
        return member

    with tarfile.open(path, "w") as tar:
        tar.add(folder, folder.name, filter=by_root)


def bundle(root: Path, lock: str, machine: str) -> Path:
    """Make the file. Raises Refused."""
    name = f"roofline-{lock}-{machine}"
    part = root / "bundle" / f"{name}.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        folder = part / name
        clone(root, folder)
        wheels = folder / "wheels"
        wheels.mkdir()
        for python in PYTHONS:
            for one in ("build", lock, "fleet", "reports"):
                download((folder / "envs" / f"{one}.txt").read_text(), python, machine, wheels)
        (wheels / "bundle").write_text(f"{lock} {machine} 2.{GLIBC}\n")
        sums = [f"{file_sha256(path)}  {path.name}\n" for path in sorted(wheels.iterdir())]
        (wheels / "SHA256SUMS").write_text("".join(sums))
        pack(folder, part / "tar")
        return (part / "tar").replace(root / "bundle" / f"{name}.tar")
    finally:
        shutil.rmtree(part)


def main(root: Path, cuda: str) -> None:
    if cuda not in LOCKS:
        raise Refused(f"CUDA={cuda} is no choice: CUDA=12, CUDA=13 or CUDA=none")
    sources = checkout.describe(root)
    if sources.known_from != "git":
        raise Refused(f"the checkout has no commit ({sources.reason})")
    if changed := sources.changed_files:
        print(f"Left out, since not committed: {changed[0]}{f' and {len(changed) - 1} more' if changed[1:] else ''}")
    print("Fetching the locked packages for Python 3.11 to 3.14...", flush=True)
    path = bundle(root, LOCKS[cuda], platform.machine())
    print(f"{path}: {path.stat().st_size / 1e9:.1f} GB, commit {sources.commit[:12]}, for glibc 2.{GLIBC} or newer")
    print("Copy it to a machine with Python 3.11 to 3.14; there, without a network:")
    print(f"  tar xf {path.name} && cd {path.stem} && make")


if __name__ == "__main__":
    print_what_can_be_printed()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        main(Path(), *sys.argv[1:])
    except (Refused, OSError) as error:
        sys.exit(f"No bundle was made: {error}")
    except KeyboardInterrupt:
        sys.exit("Stopped: no bundle was made.")
