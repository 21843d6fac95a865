"""Which operators there are: every package here, and the user's own files that the config names."""

import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import pkgutil
import sys
import traceback
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import roofline.operators
from roofline.core.terms import ACCESS_PATTERNS, DEVICE_TRAITS, UserError
from roofline.operators.base import Implementation, Operator, find_local_modules
from roofline.operators.setting_types import OperatorSettings

# Rules of the workflow, keys of the config and pictures that are no operator's.
RESERVED_RULES = (
    "all device_query calibration prediction operator_prediction predictions bandwidth instructions counters"
)
RESERVED_RULES += (
    " own_operator derive manifest bandwidth_dram bandwidth_hbm bandwidth_l2 bandwidth_h2d bandwidth_sweep"
)
RESERVED_RULES += " peak_flops_fma"
RESERVED_KEYS = "cpu devices effort operators operations operation cost roofline instruction_roofline"
RESERVED_KEYS += " plot sweep load"
UNITS = ("tensor_core", "cuda_core")
RESERVED_NAMES = frozenset(f"{RESERVED_RULES} {RESERVED_KEYS}".split())


@cache
def builtin_operators() -> tuple[Operator, ...]:
    """The operators of this library, by the names of their packages."""
    names = sorted(module.name for module in pkgutil.iter_modules(roofline.operators.__path__) if module.ispkg)
    modules = [importlib.import_module(f"roofline.operators.{name}.operator") for name in names]
    return tuple(operator for module in modules for operator in _instantiate_operators(module))


def collect_operators(paths: Iterable[str] = ()) -> dict[str, Operator]:
    """Operators by their rules: the library's, then those of the user's files. Raises UserError."""
    found: dict[str, Operator] = {}
    owners: dict[str, object] = dict.fromkeys(RESERVED_NAMES)
    for operator in (*builtin_operators(), *map(load_operator_file, paths)):
        names = _claimed_names(operator)
        taken = [name for name, owner in names.items() if owners.get(name, owner) is not owner]
        if taken:
            where = operator.path or type(operator).__module__
            raise UserError(f"operators: {where}: the name {min(taken)!r} is already taken")
        owners |= names
        found[operator.rule] = operator
    return found


def _claimed_names(operator: Operator) -> dict[str, object]:
    """The names that an operator uses for rules, sections and pictures, and what each is the name of. Operators that
    derive from one another share its other sections and its prerequisite."""
    own = dict.fromkeys((operator.name, operator.rule, operator.picture), operator)
    made = {operator.prerequisite.rule: operator.prerequisite} if operator.prerequisite else {}
    return dict(operator.sections) | made | own


def load_operator_file(path: str) -> Operator:
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
        with contextlib.chdir("."):  # the file may change the folder
            spec.loader.exec_module(module)
    except SyntaxError as error:
        where = f"{error.filename or path}, line {error.lineno}" if error.lineno else path
        raise UserError(f"operators: {path}: not importable: {error.msg} ({where})") from None
    except (Exception, SystemExit) as error:
        raise UserError(f"operators: {path}: not importable\n{format_traceback(error, spec.origin)}") from None
    found = _instantiate_operators(module)
    if len(found) != 1:
        names = ", ".join(operator.name for operator in found) or "none"
        raise UserError(f"operators: {path}: one subclass of Operator is needed, and there are: {names}")
    for near in find_local_modules(file) - {file}:
        loaded = getattr(sys.modules.get(near.stem), "__file__", None)
        if near.stem in sys.modules and (not loaded or Path(loaded).resolve() != near.resolve()):
            raise UserError(f"operators: {path}: {near.name} next to it has the name of another module; rename it")
    found[0].path = path
    return found[0]


def format_traceback(error: BaseException, path: str) -> str:
    """As Python shows it, from the first frame within a file."""
    frames = error.__traceback__
    while frames and frames.tb_frame.f_code.co_filename != path:
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames)).rstrip()


def _instantiate_operators(module) -> list[Operator]:
    """Instances of the operator classes that a module defines."""
    classes = [
        one
        for _, one in inspect.getmembers(module, inspect.isclass)
        if issubclass(one, Operator) and one.__module__ == module.__name__
    ]
    for one in classes:
        for fault in _interface_faults(one):
            raise UserError(f"operators: {module.__file__}: {fault}")
    return [one() for one in classes]


def _interface_faults(one: type[Operator]) -> Iterator[str]:
    """Parts of the interface that are missing, or are not what they should be."""
    missing = sorted(getattr(one, "__abstractmethods__", ()))
    missing += [part for part in ("name", "implementations") if not hasattr(one, part)]
    if missing:
        yield f"{one.__name__} lacks {', '.join(missing)}"
    if not str(one.rule).isidentifier():
        yield f"{one.__name__}.rule is {one.rule!r}; allowed: letters, digits and _"
    if not (inspect.isclass(one.Settings) and issubclass(one.Settings, OperatorSettings)):
        yield f"{one.__name__}.Settings is not a subclass of OperatorSettings"
    yield from _value_faults(one, mix=ACCESS_PATTERNS, unit=UNITS)
    for implementation in one.implementations:
        name = getattr(implementation, "__name__", repr(implementation))
        if not (inspect.isclass(implementation) and issubclass(implementation, Implementation)):
            yield f"{name} is not a subclass of Implementation"
        missing = [part for part in ("name", "kind") if not hasattr(implementation, part)]
        if missing:
            yield f"{name} lacks {', '.join(missing)}"
        yield from _value_faults(implementation, kind=DEVICE_TRAITS)
        if implementation.compute is Implementation.compute and implementation.step is Implementation.step:
            yield f"{name} lacks compute or step"


def _value_faults(one: type, **allowed: Iterable[str]) -> Iterator[str]:
    for attribute, values in allowed.items():
        if (value := getattr(one, attribute)) not in values:
            yield f"{one.__name__}.{attribute} is {value!r}; allowed: {', '.join(values)}"


def own_files(operator: Operator) -> list[Path]:
    """Files of an operator that lie outside this library."""
    library = Path(roofline.operators.__file__).parents[1]
    return sorted(path for path in operator.source_files() if not path.absolute().is_relative_to(library))
