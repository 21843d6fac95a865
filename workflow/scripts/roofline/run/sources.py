"""Which files of this library a job follows from: what makes its results stale when edited."""

import re
from functools import cache
from pathlib import Path

from roofline.core.terms import DEVICE_TRAITS, DeviceKind
from roofline.devices.gpu.kernel_compiler import CEILING_KERNEL_FOLDER, list_kernel_files
from roofline.operators.base import Operator

PACKAGE = "roofline"
API = f"{PACKAGE}.api"
MEASURING = ("core", "records", "devices", "operators", "measure")  # packages that a measurement may follow from
# A parser would take ten times as long, at every start of Snakemake.
IMPORT = re.compile(r"^ *(?:from (roofline[\w.]*) import (\([^)]*\)|.+)|import (roofline[\w.]*))", re.MULTILINE)
FILE_NAME = re.compile(r"""["']([\w.-]+\.(?:cu|ll|j2|json|js|mplstyle))["']""")
KIND = re.compile(rf"^ *from {PACKAGE}\.devices\.({'|'.join(DEVICE_TRAITS)})\b", re.MULTILINE)


def derivation_files(scripts: Path) -> list[str]:
    """Return the files that table, pages and pictures follow from, with all operators' texts, imported by name."""
    abouts = (scripts / PACKAGE / "operators").glob("*/about.py")
    return library_files(scripts / "derive.py", more=tuple(abouts), measures=False)


def library_files(
    script: Path,
    kind: DeviceKind | None = None,
    operators: tuple[Operator, ...] = (),
    more: tuple[Path, ...] = (),
    measures: bool = True,
) -> list[str]:
    """Return the sorted files of the library that a script imports, directly or not, with kernels and templates.

    A script that measures follows only packages that measure. For a kind of device the modules of that kind are added,
    which are imported by name at run time, and code for other kinds is left out. For operators their own files are
    added. `more` are followed too.
    """
    root, packages = script.parent, (*MEASURING, "__init__.py")
    roots = {script, *(_relative_to_root(path, root) for path in more)}
    if kind:
        roots |= {root / PACKAGE / "devices" / kind / f"{kind}_{name}.py" for name in ("identity", "device")}
    for operator in operators:
        roots |= {_relative_to_root(path, root) for path in operator.source_files(kind)}
    excluded = {path.resolve() for operator in operators for path in operator.source_files()}
    excluded -= {path.resolve() for path in roots}
    visited, new = set(), roots
    while new:
        visited |= new
        needed = set().union(*(_list_imported_files(path, root) for path in new)) - visited
        new = {
            path
            for path in needed
            if path.resolve() not in excluded
            if not measures or (_place(path, root)[0] in packages and not (kind and _kinds(path, root) - {kind}))
        }
    return sorted(str(path) for path in visited - {script})


@cache
def _place(path: Path, root: Path) -> tuple[str, ...]:
    """Return the packages and the name of a file within the library; files of the user count as operators."""
    library = root / PACKAGE
    return path.relative_to(library).parts if path.is_relative_to(library) else ("operators", path.name)


@cache
def _kinds(path: Path, root: Path) -> set[str]:
    """Return the kinds of device that a file is code for: by its folder, or by its imports."""
    package, *rest = _place(path, root)
    if package == "devices":
        return {*rest} & {*DEVICE_TRAITS}
    return set(KIND.findall(path.read_text(encoding="utf-8"))) if path.suffix == ".py" else set()


def _relative_to_root(path: Path, root: Path) -> Path:
    """Return the path of a library file below `root`; the path of a user's file as it is."""
    library = root.absolute() / PACKAGE
    return root / PACKAGE / path.absolute().relative_to(library) if path.absolute().is_relative_to(library) else path


@cache  # every job of a workflow asks for the same files
def _list_imported_files(source: Path, root: Path) -> frozenset[Path]:
    if source.suffix in (".cu", ".cuh"):
        return frozenset(_relative_to_root(path, root) for path in list_kernel_files(source))
    if source.suffix != ".py":
        return frozenset()
    text = source.read_text(encoding="utf-8")
    modules = set()
    for package, names, module in IMPORT.findall(text):
        modules |= {module or package} | {f"{package}.{name}" for name in re.findall(r"\w+", names)}
    if API in modules:
        origins, api_modules = _list_api_origins(root), {module for module in modules if module.startswith(API)}
        names = {module.removeprefix(f"{API}.") for module in api_modules - {API}}
        modules = modules.difference(api_modules).union(*(origins.get(name, ()) for name in names or origins))
    parts = [module.split(".") for module in modules]
    packages = {".".join(part[:depth]) for part in parts for depth in range(1, len(part))}
    library = _modules(root)
    needed = {library[module] for module in (modules | packages) & library.keys()}
    for name in FILE_NAME.findall(text):
        candidates = [source.parent / folder / name for folder in (".", "kernels", "templates")]
        candidates.append(_relative_to_root(CEILING_KERNEL_FOLDER / name, root))
        needed |= {path for path in candidates if path.is_file()}
    return frozenset(needed)


@cache
def _list_api_origins(root: Path) -> dict[str, set[str]]:
    """Return the modules that each name of the API comes from, for names of packages that measure."""
    origins: dict[str, set[str]] = {}
    for package, names, _ in IMPORT.findall((root / PACKAGE / "api.py").read_text(encoding="utf-8")):
        if package.split(".")[1:2] and package.split(".")[1] in MEASURING:
            imports = [name.split() for name in names.strip("()\n ").split(",") if name.strip()]
            origins |= {words[-1]: {package, f"{package}.{words[0]}"} for words in imports}
    return origins


@cache
def _modules(root: Path) -> dict[str, Path]:
    """Return the files of the library by the names of their modules, a package by its `__init__.py`."""
    files = (root / PACKAGE).rglob("*.py")
    return {".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path for path in files}
