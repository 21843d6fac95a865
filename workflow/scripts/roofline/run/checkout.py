"""The sources as used: which commit, what was changed since, which files. Nothing here writes to the checkout."""

import os
import re
import subprocess
from pathlib import Path

from roofline.core.terms import UserError
from roofline.records.manifest_record import Sources

# In the top folder only these are sources. Users keep other files there too.
OWN: tuple[str, ...] = ("Snakefile", "Makefile", "LICENSE", "pyproject.toml", ".gitignore", ".ci", "*.md", "*.py")
OWN += ("*.yaml", "benchmarks", "config", "docs", "envs", "examples", "profiles", "reference", "tests", "tools")
OWN += ("workflow",)


def describe(root: Path) -> Sources:
    """Return the commit and the changed files as git knows them, or None for both with the reason."""
    try:
        commit, changed = _read_commit(root), changed_files(root)
        fields = {"commit": commit, "dirty": bool(changed), "changed_files": changed, "url": public_url(root)}
        return Sources(**fields, known_from="git", reason=None)
    except UserError as error:
        return Sources(commit=None, dirty=None, changed_files=None, known_from=None, reason=str(error))


def public_url(root: Path) -> str | None:
    """Return the URL of the remote `origin` if others can clone it, else None."""
    try:
        url = _run_git(root, "remote", "get-url", "origin").strip()
    except UserError:
        return None
    return url if re.match(r"https://[^@/]+/", url) else None


def changed_files(root: Path) -> list[str]:
    """Return the sources that differ from the commit, or are untracked and not ignored, such as a new module."""
    options = ("--porcelain", "-z", "--no-renames", "--untracked-files=all", "--", *OWN)
    return sorted(entry[3:] for entry in _run_git(root, "status", *options).split("\0") if entry)


def list_sources(root: Path) -> list[str]:
    """Return the paths of the sources, relative to root."""
    try:
        _read_commit(root)
        listed = _run_git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *OWN).split("\0")
    except UserError:
        inside = [path for name in OWN for top in root.glob(name) for path in (top, *top.rglob("*"))]
        listed = [str(path.relative_to(root)) for path in inside if "__pycache__" not in path.parts]
    return sorted({name for name in listed if name and (root / name).is_file()})


def diff_sources(root: Path) -> bytes | None:
    """Return the diff of tracked files to the commit, as `git apply` takes it; None without git."""
    try:
        _read_commit(root)
        text = _run_git(root, "diff", "--binary", "--no-ext-diff", "--relative", "HEAD", "--", ".")
        return text.encode("utf-8", "surrogateescape")
    except UserError:
        return None


def _read_commit(root: Path) -> str:
    """Return the commit of this checkout; a repository that it merely lies in does not count. Raises UserError."""
    top = _run_git(root, "rev-parse", "--show-toplevel").strip()
    if not os.path.samefile(top, root) and not _run_git(root, "ls-files", "--", "Snakefile"):
        raise UserError(f"the workflow lies in the repository {top} and does not belong to it")
    try:
        return _run_git(root, "rev-parse", "--verify", "--quiet", "HEAD^{commit}").strip()
    except UserError:
        raise UserError("the repository has no commit yet") from None


def _run_git(root: Path, *arguments: str) -> str:
    # In containers the files often belong to another user; without the setting git would refuse to read them.
    command = ["git", "-c", f"safe.directory={root.resolve()}", "-c", "core.quotePath=false", *arguments]
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_GLOB_PATHSPECS": "1", "LC_ALL": "C"}
    try:
        process = subprocess.run(command, cwd=root, env=environment, capture_output=True, check=False)
    except OSError:
        raise UserError("git is not installed") from None
    if process.returncode:
        lines = process.stderr.decode(errors="replace").strip().splitlines() or ["git gave no reason"]
        raise UserError(lines[0].removeprefix("fatal: "))
    return process.stdout.decode("utf-8", "surrogateescape")
