"""All operators: every package in this folder, and the user's own files that the config names."""

import ast
import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import os
import pkgutil
import sys
import traceback
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import roofline.operators
from roofline.core.levels import TARGETS
from roofline.core.terms import ACCESS_PATTERNS, DEVICE_TRAITS, UserError
from roofline.operators.base import Implementation, Operator
from roofline.operators.setting_types import OperatorSettings

# Rules of the workflow, keys of the config and pictures that belong to no operator.
RESERVED_RULES = "all device_query calibration prediction operator_prediction predictions bandwidth"
RESERVED_RULES += " instructions own_predictions counters own_operator derive manifest"
RESERVED_RULES += " peak_flops_fma " + " ".join(f"bandwidth_{target.job}" for target in TARGETS.values())
RESERVED_KEYS = "cpu devices drawn effort operators operations operation cost roofline instruction_roofline"
RESERVED_KEYS += " plot sweep load"
UNITS = ("tensor_core", "cuda_core")
RESERVED_NAMES = frozenset(f"{RESERVED_RULES} {RESERVED_KEYS}".split())


@cache
def builtin_operators() -> tuple[Operator, ...]:
    """Return the operators of this library, sorted by the names of their packages."""
    names = sorted(module.name for module in pkgutil.iter_modules(roofline.operators.__path__) if module.ispkg)
    modules = [importlib.import_module(f"roofline.operators.{name}.operator") for name in names]
    return tuple(operator for module in modules for operator in _instantiate_operators(module))


def collect_operators(paths: Iterable[str] = ()) -> dict[str, Operator]:
    """Return the operators by rule: the library's, then those of the user's files.

    Raises UserError for a file without a valid operator, or for a name that is taken.
    """
    operators: dict[str, Operator] = {}
    owners: dict[str, object] = dict.fromkeys(RESERVED_NAMES)
    for operator in (*builtin_operators(), *map(load_operator_file, paths)):
        names = _claimed_names(operator)
        taken_names = [name for name, owner in names.items() if owners.get(name, owner) is not owner]
        if taken_names:
            location = operator.path or type(operator).__module__
            raise UserError(f"operators: {location}: the name {min(taken_names)!r} is already taken")
        owners |= names
        operators[operator.rule] = operator
    return operators


def _claimed_names(operator: Operator) -> dict[str, object]:
    """Return the names that an operator uses for rules, sections and pictures, each with the object that it names.

    Operators that derive from one another may share a further section and a prerequisite: the object is then the same.
    """
    names: dict[str, object] = dict(operator.sections)
    if operator.prerequisite:
        names[operator.prerequisite.rule] = operator.prerequisite
    return names | dict.fromkeys((operator.name, operator.rule, operator.picture), operator)


def load_operator_file(path: str) -> Operator:
    """Return the operator of a user's file. Raises UserError for a file that is missing, broken or incomplete."""
    file = Path(path)
    if not file.is_file():
        problem = "a folder, and a file is needed" if file.is_dir() else "no such file"
        raise UserError(f"operators: {path}: {problem}")
    operators = _instantiate_operators(_import_file(path, file))
    if len(operators) != 1:
        names = ", ".join(operator.name for operator in operators) or "none"
        raise UserError(f"operators: {path}: one subclass of Operator is needed, and there are: {names}")
    for sibling in find_local_modules(file) - {file}:
        loaded = getattr(sys.modules.get(sibling.stem), "__file__", None)
        if sibling.stem in sys.modules and (not loaded or Path(loaded).resolve() != sibling.resolve()):
            raise UserError(f"operators: {path}: {sibling.name} next to it has the name of another module; rename it")
    operators[0].path = path
    return operators[0]


def _import_file(path: str, file: Path) -> ModuleType:
    """Import a user's file as a module. Raises UserError if that fails; `path` is the file as the config names it."""
    path_hash = hashlib.sha256(str(file.absolute()).encode()).hexdigest()[:8]  # two folders may have files of one name
    module_name = f"roofline_user_operator_{file.stem}_{path_hash}"
    spec = importlib.util.spec_from_file_location(module_name, file)
    if not (spec and spec.loader and spec.origin):
        raise UserError(f"operators: {path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # so that pickling by name, and inspect, find it
    if (folder := str(file.absolute().parent)) not in sys.path:
        sys.path.append(folder)  # last: a module in the folder must not hide one of Python's
    try:
        with contextlib.chdir("."):  # the file may change the folder
            spec.loader.exec_module(module)
    except SyntaxError as error:
        location = f"{error.filename or path}, line {error.lineno}" if error.lineno else path
        raise UserError(f"operators: {path}: not importable: {error.msg} ({location})") from None
    except (Exception, SystemExit) as error:
        trace = format_traceback(error, spec.origin).splitlines()
        raise UserError([f"operators: {path}: not importable", *trace]) from None
    return module


def format_traceback(error: BaseException, path: str) -> str:
    """Return the traceback as Python shows it, from the first frame within the file `path`."""
    frames = error.__traceback__
    while frames and frames.tb_frame.f_code.co_filename != path:
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames)).rstrip()


def _instantiate_operators(module: ModuleType) -> list[Operator]:
    """Return an instance of every operator class that a module defines. Raises UserError for the first fault."""
    members = [member for _, member in inspect.getmembers(module, inspect.isclass) if issubclass(member, Operator)]
    classes = [member for member in members if member.__module__ == module.__name__]
    for operator_class in classes:
        if fault := next(_interface_faults(operator_class), None):
            raise UserError(f"operators: {module.__file__}: {fault}")
    return [operator_class() for operator_class in classes]


def _interface_faults(operator_class: type[Operator]) -> Iterator[str]:
    """Yield a line for each part of the interface that is missing or invalid."""
    name = operator_class.__name__
    missing = sorted(getattr(operator_class, "__abstractmethods__", ()))
    missing += [part for part in ("name", "implementations") if not hasattr(operator_class, part)]
    if missing:
        yield f"{name} lacks {', '.join(missing)}"
    if not str(operator_class.rule).isidentifier():
        yield f"{name}.rule is {operator_class.rule!r}; allowed: letters, digits and _"
    if not (inspect.isclass(operator_class.Settings) and issubclass(operator_class.Settings, OperatorSettings)):
        yield f"{name}.Settings is not a subclass of OperatorSettings"
    yield from _value_faults(operator_class, mix=ACCESS_PATTERNS, unit=UNITS)
    for implementation in operator_class.implementations:
        name = getattr(implementation, "__name__", repr(implementation))
        if not (inspect.isclass(implementation) and issubclass(implementation, Implementation)):
            yield f"{name} is not a subclass of Implementation"
        missing = [part for part in ("name", "kind") if not hasattr(implementation, part)]
        if missing:
            yield f"{name} lacks {', '.join(missing)}"
        yield from _value_faults(implementation, kind=DEVICE_TRAITS)
        if implementation.compute is Implementation.compute and implementation.step is Implementation.step:
            yield f"{name} lacks compute or step"


def _value_faults(checked_class: type, **allowed: Iterable[str]) -> Iterator[str]:
    for attribute, values in allowed.items():
        if (value := getattr(checked_class, attribute)) not in values:
            yield f"{checked_class.__name__}.{attribute} is {value!r}; allowed: {', '.join(values)}"


def own_files(operator: Operator) -> list[Path]:
    """Return, sorted, the files outside this library of an operator, its implementations and the modules next to them.

    Those of the library's operators are none.
    """
    if not operator.path:
        return []
    paths = {Path(inspect.getfile(type(operator)))}
    for implementation in operator.implementations:
        paths |= {Path(inspect.getfile(implementation)), *implementation.sources}
    paths = paths.union(*(find_local_modules(path) for path in paths if path.suffix == ".py"))
    if not Path(operator.path).is_absolute():  # relative as in the config, so that a moved run stays up to date
        paths = {Path(os.path.relpath(path)) for path in paths}
    library = Path(roofline.operators.__file__).parents[1]
    return sorted(path for path in paths if not path.absolute().is_relative_to(library))


@cache
def find_local_modules(file: Path) -> frozenset[Path]:
    """Return a Python file and the modules in its folder that it imports, directly or through others."""
    modules: set[Path] = set()
    new = {file}
    while new:
        modules |= new
        nodes = [node for path in new for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
        names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
        siblings = {file.with_name(f"{name.partition('.')[0]}.py") for name in names}
        new = {path for path in siblings if path.is_file()} - modules
    return frozenset(modules)
