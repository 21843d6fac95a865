"""Which files of this library a job follows from: what makes its results stale when edited."""

import ast
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from roofline.devices.gpu.kernel_compiler import CEILING_KERNELS, with_headers
from roofline.operators.base import Operator

PACKAGE = "roofline"
KERNEL_NAME = re.compile(r"[\w.]+\.cu")


def library_files(script: Path, kind: str | None = None, operators: Iterable[Operator] = ()) -> list[str]:
    """Files that a script imports, directly or through others, and the kernels and templates that these name.

    For a job on a kind of device, that kind's modules too, which are imported by name at run time; for a job of
    operators, their own files. Sorted, so that the list is the same at every run.
    """
    root = Path(script).parent
    roots = {Path(script)}
    if kind:
        roots |= {root / PACKAGE / "devices" / kind / f"{name}.py" for name in ("identity", "device")}
    for operator in operators:
        roots |= {_below(path, root) for path in operator.source_files(kind)}
    found: set[Path] = set()
    for path in roots:
        found = _closure(path, root, found | {path})
    return sorted(str(path) for path in found - {Path(script)})


def _below(path: Path, root: Path) -> Path:
    """A file of the library relative to where it is called from; one of the user's own as it is."""
    library = root.absolute() / PACKAGE
    return root / PACKAGE / path.absolute().relative_to(library) if path.absolute().is_relative_to(library) else path


def _closure(source: Path, root: Path, found: set[Path]) -> set[Path]:
    for path in _needs(source, root) - found:
        found = _closure(path, root, found | {path})
    return found


@cache  # every job of a workflow asks for the same files
def _needs(source: Path, root: Path) -> frozenset[Path]:
    if source.suffix in (".cu", ".cuh"):
        return frozenset(_below(path, root) for path in with_headers(source))
    if source.suffix != ".py":
        return frozenset()
    names, needed = set(), set()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if KERNEL_NAME.fullmatch(node.value) and (CEILING_KERNELS / node.value).is_file():
                needed.add(_below(CEILING_KERNELS / node.value, root))
            if node.value.endswith(".j2") and (source.parent / "templates" / node.value).is_file():
                needed.add(source.parent / "templates" / node.value)
    parts = [name.split(".") for name in names if name.split(".")[0] == PACKAGE]
    candidates = {root.joinpath(*name[:-1], f"{name[-1]}.py") for name in parts}
    candidates |= {root.joinpath(*name[:depth], "__init__.py") for name in parts for depth in range(1, len(name) + 1)}
    return frozenset(path for path in candidates if path.is_file()) | frozenset(needed)
