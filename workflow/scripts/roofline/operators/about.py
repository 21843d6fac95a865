"""What a reader sees of an operator: title, labels, advice. No measurement follows from it.

An operator of the library has an `about.py` in its package. A user's own operator has the same as attributes of its
class; they are stored beside the results once, so that an archive is rendered without running its code.
"""

import importlib
import importlib.util
import pkgutil
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Literal, NamedTuple, Protocol

from pydantic import Field

import roofline.operators
from roofline.core.dtypes import ITEM_BYTES
from roofline.core.terms import BYTES, KINDS, Axis, DeviceKind, Regime
from roofline.records.base import Interval, Record, RunRecord

ONE_FUSED_KERNEL = "one kernel that fuses the passes"
FEWER_INTERMEDIATES = "fewer intermediate arrays"
Advice = dict[Regime, list[str]]


class Cell(Protocol):
    """What tells a cell from others."""

    preset: str | None
    dtype: str
    shape: dict[str, int]
    implementation: str


class Way(NamedTuple):
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
    ways: Mapping[str, Way] = {}
    other_ways = Way()  # of implementations that are not in `ways`

    def __init_subclass__(cls, **keywords):
        super().__init_subclass__(**keywords)
        if "name" in cls.__dict__:
            cls.title = cls.__dict__.get("title", cls.name.replace("_", " "))
            cls.picture = cls.__dict__.get("picture", cls.name)

    def label(self, cell: Cell) -> str:
        """What tells a case from others of its preset and dtype."""
        return ", ".join(f"{key} {size}" for key, size in cell.shape.items())

    def series(self, cell: Cell) -> str:
        """The same without the axis."""
        if not self.axis:
            return self.label(cell)
        if self.axis.key == BYTES:
            return ""
        return ", ".join(f"{key} {size}" for key, size in cell.shape.items() if key != self.axis.key)

    def in_graph(self, implementation: str | None) -> bool:
        """Whether a graph launches its kernels, so that no call of its own stands before each."""
        return self.ways.get(implementation, self.other_ways).graph

    def advice(self, cell: Cell, kind: DeviceKind) -> Advice:
        """What helps in each regime, without what the implementation does already.

        Fusion saves launches and passes over intermediates, not the operator's own bytes: it is no remedy where memory
        sets the time.
        """
        way, device = self.ways.get(cell.implementation, self.other_ways), KINDS[kind]
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
def builtin() -> dict[str, About]:
    """The library's, by the operators' names."""
    packages = [module.name for module in pkgutil.iter_modules(roofline.operators.__path__) if module.ispkg]
    names = [f"roofline.operators.{name}.about" for name in sorted(packages)]
    modules = [importlib.import_module(name) for name in names if importlib.util.find_spec(name)]
    found = [one() for module in modules for one in vars(module).values() if _is_about(one, module.__name__)]
    return {one.name: one for one in found}


def _is_about(one: object, module: str) -> bool:
    return isinstance(one, type) and issubclass(one, About) and one.__module__ == module


class Unknown(About):
    """Of an operator whose text is not stored."""

    def __init__(self, name: str):
        self.name, self.title, self.picture = name, name.replace("_", " "), name


# ---------------------------------------------------------------- a user's own operator


class CaseText(Record):
    """Of one implementation of one case."""

    kind: DeviceKind
    preset: str | None
    dtype: str
    shape: dict[str, int]
    implementation: str
    label: str
    series: str
    advice: Advice
    graph: bool = False


class OwnOperator(RunRecord):
    """results/operators/{name}.json: what a reader sees of a user's own operator, beside the table."""

    kind: Literal["own_operator"] = "own_operator"
    name: str
    title: str
    picture: str
    counted: str
    axis: tuple[str, str, int | None] | None = None
    baselines: list[str] = Field(default=[])
    scopes: dict[str, str] = Field(default={})
    usual_share_of_peak: Interval | None = None
    cases: list[CaseText] = Field(description="of the cases that were measured")


class Stored(About):
    """A user's own operator, as stored."""

    def __init__(self, own: OwnOperator):
        self.own = own
        self.name, self.title, self.picture, self.counted = own.name, own.title, own.picture, own.counted
        self.axis = Axis(*own.axis) if own.axis else None
        self.baselines, self.scopes = tuple(own.baselines), own.scopes
        self.usual_share_of_peak = own.usual_share_of_peak
        self.ways = {one.implementation: Way(graph=one.graph) for one in own.cases}
        self._cases = {_key(one): one for one in own.cases}
        self._kinds = {(*_key(one), one.kind): one for one in own.cases}

    def label(self, cell: Cell) -> str:
        known = self._cases.get(_key(cell))
        return known.label if known else super().label(cell)

    def series(self, cell: Cell) -> str:
        known = self._cases.get(_key(cell))
        return known.series if known else super().series(cell)

    def advice(self, cell: Cell, kind: DeviceKind) -> Advice:
        known = self._kinds.get((*_key(cell), kind))
        return known.advice if known else super().advice(cell, kind)


def _key(cell: Cell) -> tuple:
    return cell.preset, cell.dtype, cell.implementation, *sorted(cell.shape.items())


def describe(operator, jobs: Iterable) -> OwnOperator:
    """The text of a user's operator, evaluated for every case and implementation of its jobs."""
    names = {"name": operator.name, "picture": operator.picture, "unit": operator.unit}
    about = type("Own", (About,), names | _declared(operator))()
    about.ways = {
        one.name: Way(one.fused, one.graph, tuple(getattr(one, "improvements", ()))) for one in operator.implementations
    }
    cases = [
        _case_text(operator, about, case, implementation)
        for job in jobs
        for case in job.cases
        for implementation in operator.implementations
    ]
    return OwnOperator(
        name=about.name,
        title=about.title,
        picture=about.picture,
        counted=about.counted,
        axis=tuple(about.axis) if about.axis else None,
        baselines=list(about.baselines),
        scopes=dict(about.scopes),
        usual_share_of_peak=about.usual_share_of_peak,
        cases=cases,
    )


def _declared(operator) -> dict:
    """What the class declares, under the names that it has here."""
    names = {"title": "title", "counted": "counted", "axis": "axis", "baselines": "baselines"}
    names |= {"scope_words": "scopes", "usual_share_of_peak": "usual_share_of_peak"}
    return {here: getattr(operator, there) for there, here in names.items() if hasattr(operator, there)}


def _case_text(operator, about: About, case, implementation) -> CaseText:
    cell = _Case(case.preset, case.dtype, case.shape, implementation.name)
    kind = implementation.kind
    label = operator.label(case) if hasattr(operator, "label") else about.label(cell)
    if hasattr(operator, "series"):
        series = operator.series(case)
    else:
        series = label if not about.axis else about.series(cell)
    advice = about.advice(cell, kind)
    if hasattr(operator, "remedies"):
        advice = operator.remedies(case, implementation)
    return CaseText(
        kind=kind,
        preset=case.preset,
        dtype=case.dtype,
        shape=case.shape,
        implementation=implementation.name,
        label=label,
        series=series,
        advice=advice,
        graph=implementation.graph,
    )


class _Case(NamedTuple):
    preset: str | None
    dtype: str
    shape: dict[str, int]
    implementation: str
