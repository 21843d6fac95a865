"""What a reader sees of an operator: title, labels, advice. No measurement follows from it.

An operator of the library has an `about.py` in its package. A user's own operator has the same as attributes of its
class; they are stored next to the results once, so that an archive is rendered without running its code.
"""

import importlib
import importlib.util
import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import Literal, Protocol

from pydantic import Field

import roofline.operators
from roofline.core.dtypes import ITEM_BYTES
from roofline.core.terms import BYTES_AXIS_KEY, DEVICE_TRAITS, Axis, DeviceKind, Regime
from roofline.records.base import Interval, Record, RunRecord

ONE_FUSED_KERNEL = "one kernel that fuses the passes"
FEWER_INTERMEDIATES = "fewer intermediate arrays"
Advice = dict[Regime, list[str]]


class CellIdentity(Protocol):
    """What distinguishes a cell from others."""

    preset: str | None
    dtype: str
    shape: dict[str, int]
    implementation: str


class ImplementationAdvice(Record):
    """One implementation: what it does already, and what would help where neither roof nor overheads set the time."""

    fused: bool = False
    graph: bool = False
    improvements: tuple[str, ...] = ()


class About:
    name: str
    title: str
    picture: str  # results/{picture}.png
    counted = "inputs and outputs once"  # which bytes count
    axis: Axis | None = None
    baselines: tuple[str, ...] = ()  # implementations that the others are compared with
    scopes: Mapping[str, str] = {}  # parts that are timed separately, each in a few words
    usual_share_of_peak: tuple[float, float] | None = None  # of a memory-bound cell, where the literature names one
    unit = "cuda_core"
    ways: Mapping[str, ImplementationAdvice] = {}
    other_ways = ImplementationAdvice()  # of implementations that are not in `ways`

    def __init_subclass__(cls, **keywords):
        super().__init_subclass__(**keywords)
        if "name" in cls.__dict__:
            cls.title = cls.__dict__.get("title", cls.name.replace("_", " "))
            cls.picture = cls.__dict__.get("picture", cls.name)

    def label(self, cell: CellIdentity) -> str:
        """What distinguishes a case from others of its preset and dtype."""
        return ", ".join(f"{key} {size}" for key, size in cell.shape.items())

    def series(self, cell: CellIdentity) -> str:
        """The same without the axis."""
        if not self.axis:
            return self.label(cell)
        if self.axis.key == BYTES_AXIS_KEY:
            return ""
        return ", ".join(f"{key} {size}" for key, size in cell.shape.items() if key != self.axis.key)

    def in_graph(self, implementation: str | None) -> bool:
        """Whether a graph launches its kernels, so that no call comes before each."""
        return self.ways.get(implementation, self.other_ways).graph

    def advice(self, cell: CellIdentity, kind: DeviceKind) -> Advice:
        """What helps in each regime, without what the implementation does already.

        Fusion saves launches and passes over intermediates, not the operator's own bytes: it does not help where memory
        sets the time.
        """
        way, device = self.ways.get(cell.implementation, self.other_ways), DEVICE_TRAITS[kind]
        lower = ["lower precision"] if ITEM_BYTES[cell.dtype] > device.narrowest_bytes else []
        fusion = [] if way.fused else ["operator fusion"]
        graph = ["a CUDA graph"] if not (device.synchronous or way.graph) else []
        generic = ["more work in flight"] if way.fused else [ONE_FUSED_KERNEL, FEWER_INTERMEDIATES]
        return {
            "compute": (["tensor cores"] if device.tensor_cores and self.unit == "cuda_core" else []) + lower,
            "memory": lower,
            "overhead": [*graph, *fusion, "larger batches"],
            "implementation": list(way.improvements) or generic,
        }


@cache
def load_abouts() -> dict[str, About]:
    """The library's, by the operators' names."""
    packages = [module.name for module in pkgutil.iter_modules(roofline.operators.__path__) if module.ispkg]
    names = [f"roofline.operators.{name}.about" for name in sorted(packages)]
    modules = [importlib.import_module(name) for name in names if importlib.util.find_spec(name)]
    found = [one() for module in modules for one in vars(module).values() if _is_about(one, module.__name__)]
    return {one.name: one for one in found}


def _is_about(one: object, module: str) -> bool:
    return isinstance(one, type) and issubclass(one, About) and one.__module__ == module


class UnknownAbout(About):
    """Of an operator whose text is not stored."""

    def __init__(self, name: str):
        self.name, self.title, self.picture = name, name.replace("_", " "), name


# ---------------------------------------------------------------- a user's own operator


class OwnOperatorRecord(RunRecord):
    """results/operators/{name}.json: what a reader sees of a user's own operator, next to the table."""

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
    """A user's own operator, as stored."""

    def __init__(self, own: OwnOperatorRecord):
        self.name, self.title, self.picture = own.name, own.title, own.picture
        self.unit, self.counted, self.axis = own.unit, own.counted, own.axis
        self.baselines, self.scopes, self.ways = own.baselines, own.scopes, own.ways
        self.usual_share_of_peak = own.usual_share_of_peak


def describe_own_operator(operator) -> OwnOperatorRecord:
    """What a user's operator declares for its readers."""
    names = ("title", "counted", "axis", "baselines", "usual_share_of_peak")
    declared = {name: getattr(operator, name) for name in names if hasattr(operator, name)}
    return OwnOperatorRecord(
        name=operator.name,
        picture=operator.picture,
        unit=operator.unit,
        scopes=getattr(operator, "scope_words", {}),
        ways={
            one.name: ImplementationAdvice(
                fused=one.fused, graph=one.graph, improvements=getattr(one, "improvements", ())
            )
            for one in operator.implementations
        },
        **{"title": operator.name.replace("_", " ")} | declared,
    )
