"""Which packages this environment lacks, before any of them is imported."""

import re
from importlib import metadata, util
from pathlib import Path

CUDA_VERSIONS = ("12", "13")
MODULES = {"pyyaml": "yaml", "nvidia-ml-py": "pynvml"}  # of packages whose module has another name


def describe_missing_packages(folder: Path) -> str | None:
    """Return one line with the packages of the folder's cpu.in that are not installed or have no module, and the
    command that installs them with all others; None if none is missing."""
    lines = (folder / "cpu.in").read_text(encoding="utf-8").splitlines()
    names = [match[0] for line in lines if (match := re.match(r"[\w-]+", line))]
    missing = [name for name in names if not _is_installed(name, MODULES.get(name, name))]
    if not missing:
        return None
    cuda = [version for version in CUDA_VERSIONS if _is_installed(f"cupy-cuda{version}x", "cupy")]
    lock = folder / (f"cuda{cuda[0]}.txt" if cuda else "cpu.txt")
    return f"packages are missing: {', '.join(missing)}; install them: python -m pip install -r {lock}"


def find_nccl_version() -> str | None:
    """Return the version of the NCCL package that all-reduces are compared with; None without one."""
    for cuda in CUDA_VERSIONS:
        try:
            return metadata.version(f"nvidia-nccl-cu{cuda}")
        except metadata.PackageNotFoundError:
            continue
    return None


def _is_installed(name: str, module: str) -> bool:
    try:
        spec = util.find_spec(module)
        # A folder that a removed package left has no origin.
        return bool(metadata.version(name) and spec and spec.origin)
    except ImportError:  # metadata's PackageNotFoundError is one too
        return False
