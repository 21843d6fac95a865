"""Which modules of this library a script uses: what makes its results stale when edited."""

import ast
from functools import cache
from pathlib import Path

PACKAGE = "roofline"


def library_files(script: Path, kind: str | None = None) -> list[str]:
    """Files of the library that a script imports, directly or through others.

    For a script that measures, the kind of its device adds that kind's module, which is imported by name at run
    time, and, for a GPU, the kernels. Sorted, so that the list is the same at every run.
    """
    root = Path(script).parent
    found = _imported(Path(script), root, set())
    if kind:
        module = root / PACKAGE / "devices" / f"{kind}.py"
        found = _imported(module, root, found | {module})
        if kind == "gpu":
            found |= set((root / PACKAGE / "kernels").glob("*.cu*"))
    if root / PACKAGE / "summary.py" in found:
        found |= set((root / PACKAGE / "templates").glob("*.j2"))
    return sorted(str(path) for path in found)


def _imported(source: Path, root: Path, found: set[Path]) -> set[Path]:
    for path in _direct_imports(source, root) - found:
        found = _imported(path, root, found | {path})
    return found


@cache  # every job of a workflow asks for the same files
def _direct_imports(source: Path, root: Path) -> frozenset[Path]:
    names = set()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    parts = [name.split(".") for name in names if name.split(".")[0] == PACKAGE]
    candidates = {root.joinpath(*name[:-1], f"{name[-1]}.py") for name in parts}
    candidates |= {root.joinpath(*name, "__init__.py") for name in parts}
    return frozenset(path for path in candidates if path.is_file())
