"""The text that a reader sees of an operator: title, labels, advice. No measurement follows from it.

An operator of the library has an `about.py` in its package. A user's own operator has the same as attributes of its
class; they are stored next to the results once, so that an archive is rendered without running its code.
"""

import importlib
import importlib.util
import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from pydantic import Field

import roofline.operators
from roofline.core.architectures import Architecture
from roofline.core.dtypes import has_narrower_dtype
from roofline.core.terms import BYTES_AXIS_KEY, DEVICE_TRAITS, Axis, DeviceKind, Regime
from roofline.records.base import Interval, Record, RunRecord, copy_fields
from roofline.records.operator_record import CellKey

ONE_FUSED_KERNEL = "one kernel that fuses the passes"
FEWER_INTERMEDIATES = "fewer intermediate arrays"
Advice = dict[Regime, list[str]]


class ImplementationAdvice(Record):
    """The features that an implementation has, and improvements where neither roof nor overheads set the time."""

    fused: bool = False
    graph: bool = False
    improvements: tuple[str, ...] = ()
    generic: bool = Field(default=False, description="its prediction knows calls alone, since it declares no costs")


class About:
    """The text of one operator: its title, the labels of its cells, and advice for each regime."""

    name: str
    title: str
    picture: str  # results/{picture}.png
    counted = "inputs and outputs once"  # which bytes count
    axis: Axis | None = None
    baselines: tuple[str, ...] = ()  # implementations that the others are compared with
    scopes: Mapping[str, str] = {}  # parts that are timed separately, each in a few words
    usual_share_of_peak: tuple[float, float] | None = None  # of a memory-bound cell, where the literature names one
    unit = "cuda_core"
    advice_by_implementation: Mapping[str, ImplementationAdvice] = {}
    default_advice = ImplementationAdvice()  # for implementations that have no entry

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "name" in cls.__dict__:
            cls.title = cls.__dict__.get("title", cls.name.replace("_", " "))
            cls.picture = cls.__dict__.get("picture", cls.name)

    def label(self, cell: CellKey) -> str:
        """Return the words that distinguish a case from others of its preset and dtype: its sizes."""
        return ", ".join(f"{key} {size}" for key, size in cell.shape.items())

    def full_name(self, cell: CellKey, scope: str | None) -> str:
        """Return operator, scope, implementation, dtype, shape and preset of a cell in one line; `scope` is None where
        all cells have the same."""
        return " ".join(
            filter(None, [self.title, scope, cell.implementation, cell.dtype, self.label(cell), cell.preset])
        )

    def series(self, cell: CellKey) -> str:
        """Return the label without the size along the axis: the cells of one series share it."""
        if not self.axis:
            return self.label(cell)
        if self.axis.key == BYTES_AXIS_KEY:
            return ""
        return ", ".join(f"{key} {size}" for key, size in cell.shape.items() if key != self.axis.key)

    def runs_in_graph(self, implementation: str) -> bool:
        """Return whether a CUDA graph launches the implementation's kernels, so that no call precedes each of them."""
        return self._implementation_advice(implementation).graph

    def advice(self, cell: CellKey, kind: DeviceKind, architecture: Architecture) -> Advice:
        """Return what helps in each regime, without what the implementation does already.

        Fusion saves launches and passes over intermediates, not the bytes of the operator's inputs and outputs: it does
        not help where memory sets the time.
        """
        current = self._implementation_advice(cell.implementation)
        tensor_cores = ["tensor cores"] if architecture.tensor_dtypes and self.unit == "cuda_core" else []
        lower = ["lower precision"] if has_narrower_dtype(cell.dtype, architecture.tensor_dtypes) else []
        fusion = [] if current.fused else ["operator fusion"]
        graph = [] if DEVICE_TRAITS[kind].synchronous or current.graph else ["a CUDA graph"]
        generic = ["more work in flight"] if current.fused else [ONE_FUSED_KERNEL, FEWER_INTERMEDIATES]
        return {
            "compute": tensor_cores + lower,
            "memory": lower,
            "overhead": [*graph, *fusion, "larger batches"],
            "implementation": list(current.improvements) or generic,
        }

    def _implementation_advice(self, implementation: str) -> ImplementationAdvice:
        return self.advice_by_implementation.get(implementation, self.default_advice)


@cache
def load_abouts() -> dict[str, About]:
    """Return the texts of the library's operators by operator name. Each package has one subclass of About."""
    packages = [module.name for module in pkgutil.iter_modules(roofline.operators.__path__) if module.ispkg]
    names = [f"roofline.operators.{name}.about" for name in sorted(packages)]
    modules = [importlib.import_module(name) for name in names if importlib.util.find_spec(name)]
    abouts = [member() for module in modules for member in vars(module).values() if _is_about(member, module.__name__)]
    return {about.name: about for about in abouts}


def _is_about(member: object, module: str) -> bool:
    """Return whether a module's member is a subclass of About that the module itself defines."""
    return isinstance(member, type) and issubclass(member, About) and member.__module__ == module


class UnknownAbout(About):
    """The text of an operator for which none is stored: a title made from its name."""

    def __init__(self, name: str):
        self.name, self.title, self.picture = name, name.replace("_", " "), name


# ---------------------------------------------------------------- a user's own operator


class OwnOperatorRecord(RunRecord):
    """results/operators/{name}.json: the text of a user's own operator, stored next to the table."""

    kind: Literal["own_operator"] = "own_operator"
    name: str
    title: str
    picture: str
    unit: str = About.unit
    counted: str = About.counted
    axis: Axis | None = None
    baselines: tuple[str, ...] = ()
    scopes: dict[str, str] = Field(default={})
    usual_share_of_peak: Interval | None = None
    ways: dict[str, ImplementationAdvice] = Field(default={}, description="by implementation")


class StoredAbout(About):
    """The text of a user's own operator, as stored in its record."""

    def __init__(self, record: OwnOperatorRecord):
        self.name, self.title, self.picture = record.name, record.title, record.picture
        self.unit, self.counted, self.axis = record.unit, record.counted, record.axis
        self.baselines, self.scopes = record.baselines, record.scopes
        self.advice_by_implementation = record.ways
        self.usual_share_of_peak = record.usual_share_of_peak


def describe_own_operator(operator: Any) -> OwnOperatorRecord:
    """Return the record of what a user's operator declares for its readers.

    `operator` is an operators.base.Operator; this module does not import it, so that no page depends on that module.
    """
    names = ("title", "counted", "axis", "baselines", "usual_share_of_peak")
    declared = {name: getattr(operator, name) for name in names if hasattr(operator, name)}
    advice = {}
    for implementation in operator.implementations:
        advice[implementation.name] = ImplementationAdvice(
            **copy_fields(implementation, "fused", "graph"),
            improvements=getattr(implementation, "improvements", ()),
            generic=implementation.costs.__qualname__ == "Implementation.costs",
        )
    return OwnOperatorRecord(
        **copy_fields(operator, "name", "picture", "unit"),
        scopes=getattr(operator, "scope_words", {}),
        ways=advice,
        **{"title": operator.name.replace("_", " ")} | declared,
    )
