"""Which operators there are: every module of this package, and the user's own files that the config names."""

import ast
import hashlib
import importlib
import importlib.util
import inspect
import pkgutil
import sys
import traceback
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import roofline.operators
from roofline.core.terms import KINDS, UserError
from roofline.operators.base import Implementation, Operator, with_siblings
from roofline.operators.settings import OperatorSettings

NOT_OPERATORS = {"about", "base", "registry", "settings"}
# Rules of the workflow, keys of the config and pictures that are no operator's.
RULES = "all device_query calibration prediction operator_prediction predictions bandwidth instructions counters"
RULES += " own_operator derive plot manifest"
KEYS_AND_PICTURES = "cpu devices effort operators operations operation cost roofline instruction_roofline"
KEYS_AND_PICTURES += " sweep load"
RESERVED = frozenset(f"{RULES} {KEYS_AND_PICTURES}".split())
# CUDA libraries that the locked environments leave out, by the part of CuPy that needs them.
CUDA_LIBRARY_OF = {"random": "cuRAND", "fft": "cuFFT", "linalg": "cuSOLVER", "sparse": "cuSPARSE"}
WHEELS = {"cuRAND": "curand", "cuFFT": "cufft", "cuSOLVER": "cusolver", "cuSPARSE": "cusparse"}
CUPY_NAMES = {"cupy", "cp", "xp", "cupyx"}


@cache
def builtin() -> tuple[Operator, ...]:
    """The operators of this library, by the names of their modules."""
    names = sorted(module.name for module in pkgutil.iter_modules(roofline.operators.__path__))
    modules = [importlib.import_module(f"roofline.operators.{name}") for name in names if name not in NOT_OPERATORS]
    return tuple(operator for module in modules for operator in _defined_in(module))


def registered(paths: Iterable[str] = ()) -> dict[str, Operator]:
    """Operators by their rules: the library's, then those of the user's files. Raises UserError."""
    found: dict[str, Operator] = {}
    owners: dict[str, object] = dict.fromkeys(RESERVED)
    for operator in (*builtin(), *map(load, paths)):
        names = _names(operator)
        taken = [name for name, owner in names.items() if owners.get(name, owner) is not owner]
        if taken:
            where = operator.path or type(operator).__module__
            raise UserError(f"operators: {where}: the name {min(taken)!r} is already taken")
        owners |= names
        found[operator.rule] = operator
    return found


def _names(operator: Operator) -> dict[str, object]:
    """The names that an operator uses for rules, sections and pictures, and what each is the name of. Operators that
    derive from one another share its other sections and its prerequisite."""
    own = dict.fromkeys((operator.name, operator.rule, operator.picture), operator)
    made = {operator.prerequisite.rule: operator.prerequisite} if operator.prerequisite else {}
    return dict(operator.sections) | made | own


def load(path: str) -> Operator:
    """The operator of a user's file. Raises UserError for what is missing, not importable or incomplete."""
    file = Path(path)
    if not file.is_file():
        what = "a folder, and a file is needed" if file.is_dir() else "no such file"
        raise UserError(f"operators: {path}: {what}")
    told_apart = hashlib.sha256(str(file.absolute()).encode()).hexdigest()[:8]  # files of one name in two folders
    module_name = f"roofline_user_operator_{file.stem}_{told_apart}"
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise UserError(f"operators: {path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # so that pickling by name, and inspect, find it
    if (folder := str(file.absolute().parent)) not in sys.path:
        sys.path.append(folder)  # last: a module in the folder must not hide one of Python's
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise UserError(f"operators: {path}: not importable\n{traceback_of(error, spec.origin)}") from None
    found = _defined_in(module)
    if len(found) != 1:
        names = ", ".join(operator.name for operator in found) or "none"
        raise UserError(f"operators: {path}: one subclass of Operator is needed, and there are: {names}")
    for beside in with_siblings(file) - {file}:
        loaded = getattr(sys.modules.get(beside.stem), "__file__", None)
        if beside.stem in sys.modules and (not loaded or Path(loaded).resolve() != beside.resolve()):
            raise UserError(f"operators: {path}: {beside.name} beside it has the name of another module; rename it")
    found[0].path = path
    return found[0]


def traceback_of(error: BaseException, path: str) -> str:
    """As Python shows it, from the first frame within a file."""
    frames = error.__traceback__
    while frames and frames.tb_frame.f_code.co_filename != path:
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames)).rstrip()


def _defined_in(module) -> list[Operator]:
    """Instances of the operator classes that a module (or, of a package, its modules) defines."""
    classes = [
        one
        for _, one in inspect.getmembers(module, inspect.isclass)
        if issubclass(one, Operator) and one.__module__.startswith(module.__name__)
    ]
    return [_complete(one, module.__file__)() for one in classes]


def _complete(one: type[Operator], path: str) -> type[Operator]:
    """Raises UserError where a part of the interface is missing."""
    missing = sorted(getattr(one, "__abstractmethods__", ()))
    missing += [part for part in ("name", "implementations") if not hasattr(one, part)]
    if missing:
        raise UserError(f"operators: {path}: {one.__name__} lacks {', '.join(missing)}")
    if not str(one.rule).isidentifier():
        raise UserError(f"operators: {path}: {one.__name__}.rule is {one.rule!r}; allowed: letters, digits and _")
    if not (inspect.isclass(one.Settings) and issubclass(one.Settings, OperatorSettings)):
        raise UserError(f"operators: {path}: {one.__name__}.Settings is no subclass of OperatorSettings")
    for implementation in one.implementations:
        _require_complete(implementation, one, path)
    return one


def _require_complete(implementation: type[Implementation], one: type[Operator], path: str) -> None:
    name = getattr(implementation, "__name__", repr(implementation))
    if not (inspect.isclass(implementation) and issubclass(implementation, Implementation)):
        raise UserError(f"operators: {path}: {name} is no subclass of Implementation")
    missing = [part for part in ("name", "kind") if not hasattr(implementation, part)]
    if missing:
        raise UserError(f"operators: {path}: {name} lacks {', '.join(missing)}")
    if implementation.kind not in KINDS:
        raise UserError(f"operators: {path}: {name}.kind is {implementation.kind!r}; allowed: gpu, cpu")
    if implementation.compute is Implementation.compute and implementation.step is Implementation.step:
        raise UserError(f"operators: {path}: {name} lacks compute or step")


def missing_cuda_libraries(operator: Operator, installed: Mapping[str, bool] | None = None) -> list[str]:
    """CUDA libraries that an operator's code would need through CuPy, and that are not installed; by reading its code.

    `installed` says it of each library; left out, the installed packages are asked.
    """
    needed = set()
    for source in operator.source_files("gpu"):
        if source.suffix == ".py":
            needed |= _needed_by(ast.parse(source.read_text(encoding="utf-8")))
    return sorted(name for name in needed if not (_is_installed(name) if installed is None else installed[name]))


def _needed_by(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in CUDA_LIBRARY_OF:
            owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
            if owner in CUPY_NAMES:
                found.add(CUDA_LIBRARY_OF[node.attr])
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            if name.split(".")[0] in ("cupy", "cupyx"):
                found |= {CUDA_LIBRARY_OF[part] for part in name.split(".")[1:] if part in CUDA_LIBRARY_OF}
    return found


def _is_installed(library: str) -> bool:
    """Whether a wheel or the system has it."""
    import ctypes.util
    from importlib import metadata

    name = WHEELS[library]
    wheels = {distribution.name.lower() for distribution in metadata.distributions() if distribution.name}
    return any(wheel.startswith(f"nvidia-{name}") for wheel in wheels) or bool(ctypes.util.find_library(name))


def own_files(operator: Operator) -> list[Path]:
    """Files of an operator that lie outside this library."""
    library = Path(roofline.operators.__file__).parents[1]
    return sorted(path for path in operator.source_files() if not path.absolute().is_relative_to(library))
