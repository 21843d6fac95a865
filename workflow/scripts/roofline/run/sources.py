"""Which files of this library a job follows from: what makes its results stale when edited."""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from roofline.devices.gpu.kernel_compiler import CEILING_KERNELS, with_headers
from roofline.operators.base import Operator

PACKAGE = "roofline"
API = f"{PACKAGE}.api"
MEASURING = ("core", "records", "devices", "operators", "measure")  # packages of which a measurement may be made
# A parser would take ten times as long, at every start of Snakemake.
IMPORT = re.compile(r"^ *(?:from (roofline[\w.]*) import (\([^)]*\)|.+)|import (roofline[\w.]*))", re.MULTILINE)
FILE_NAME = re.compile(r"""["']([\w.-]+\.(?:cu|j2|json|js))["']""")


def derivation_files(scripts: Path) -> list[str]:
    """What tables and pages follow from: also the text of every operator, which is imported by name."""
    return library_files(scripts / "derive.py", more=(scripts / PACKAGE / "operators").glob("*/about.py"))


def library_files(
    script: Path, kind: str | None = None, operators: Iterable[Operator] = (), more: Iterable[Path] = ()
) -> list[str]:
    """Files that a script imports, directly or through others, and the kernels and templates that these name.

    For a job on a kind of device, that kind's modules too, which are imported by name at run time; for a job of
    operators, their own files. `more` are followed too. Sorted, so that the list is the same at every run.
    """
    root = Path(script).parent
    roots = {Path(script), *(_below(path, root) for path in more)}
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
    text = source.read_text(encoding="utf-8")
    modules = set()
    for package, names, module in IMPORT.findall(text):
        modules |= {module or package} | {f"{package}.{name}" for name in re.findall(r"\w+", names)}
    if API in modules:
        known, of_api = _origins(root), {module for module in modules if module.startswith(API)}
        named = {module.removeprefix(f"{API}.") for module in of_api - {API}}
        modules = modules.difference(of_api).union(*(known.get(name, ()) for name in named or known))
    parts = [module.split(".") for module in modules]
    packages = {".".join(part[:depth]) for part in parts for depth in range(1, len(part))}
    library = _modules(root)
    needed = {library[module] for module in (modules | packages) & library.keys()}
    for name in FILE_NAME.findall(text):
        beside = (source.parent / folder / name for folder in (".", "kernels", "templates"))
        needed |= {path for path in (_below(CEILING_KERNELS / name, root), *beside) if path.is_file()}
    return frozenset(needed)


@cache
def _origins(root: Path) -> dict[str, set[str]]:
    """The modules that names of the API come from, of those that a measurement may be made of."""
    text, found = (root / PACKAGE / "api.py").read_text(encoding="utf-8"), {}
    for package, names, _ in IMPORT.findall(text):
        if package.split(".")[1:2] and package.split(".")[1] in MEASURING:
            words = [one.split() for one in names.strip("()\n ").split(",") if one.strip()]
            found |= {one[-1]: {package, f"{package}.{one[0]}"} for one in words}
    return found


@cache
def _modules(root: Path) -> dict[str, Path]:
    """The library's modules by their names, a package by its `__init__.py`."""
    files = (root / PACKAGE).rglob("*.py")
    return {".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path for path in files}
