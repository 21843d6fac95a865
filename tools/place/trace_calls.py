"""Events of a GPU by the operator's call that launched them, with the call's work by the formula of the operator."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from formulas.base import Call, Tensor, Work, find
from trace_events import CpuEvent, GpuEvent, Trace

COLLECTIVE = re.compile(r"nccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all", re.IGNORECASE)
IN_GRAPH = "kernels of a CUDA graph, of one shape nowhere else"
OVER_LINK = re.compile(r"HtoD|DtoH")
UNFIT = (AttributeError, IndexError, KeyError, TypeError, ValueError)  # of a formula, by inputs that it does not expect


class Label(NamedTuple):
    """What calls have in common that are one row."""

    name: str
    shape: str = ""
    work: Work | None = None
    lacking: str | None = None  # what has no formula
    kind: str = "operator"  # operator, collective, or copy: between host and device
    inferred: bool = False  # from the same kernel outside of the graph


def labelled(trace: Trace, events: Sequence[GpuEvent]) -> list[tuple[Label, bool]]:
    """The label of each event, and whether it counts as a call: of a call with several kernels the longest does."""
    nesting, calls = Nesting(trace), {}
    for place, event in enumerate(events):
        calls.setdefault(nesting.call(event) or (place,), []).append(place)
    found, eager, longest = {}, {}, {}
    for call, places in calls.items():
        main = max(places, key=lambda place: events[place].end - events[place].start)
        label = _label(trace.operators.get(call), events[main])
        longest.setdefault(label, _code(events[main]))
        for place in places:
            found[place] = label, place == main
            if call in trace.operators:
                eager.setdefault(_code(events[place]), set()).add(label)
    for place, event in enumerate(events):
        if nesting.in_graph(event) and found[place][0].kind == "operator":
            label, *others = eager.get(_code(event)) or [found[place][0]._replace(lacking=IN_GRAPH)]
            if not others and not label.lacking:
                found[place] = label._replace(inferred=True), longest[label] == _code(event)
            else:
                found[place] = found[place][0]._replace(lacking=IN_GRAPH), True
    return [found[place] for place in range(len(events))]


def _code(event: GpuEvent) -> tuple:
    return event.name, event.grid, event.block


class Nesting:
    """Which operator's call launched an event."""

    def __init__(self, trace: Trace):
        self.operators, self.launches = trace.operators, trace.launches
        self.threads: dict[tuple, list[CpuEvent]] = {}

    def in_graph(self, event: GpuEvent) -> bool:
        launch = self.launches.get(event.correlation)
        return launch is not None and "GraphLaunch" in launch.name

    def call(self, event: GpuEvent) -> int | None:
        """The id of the operator, by the event, by its launch, or by what the launch is nested in."""
        if COLLECTIVE.search(event.name) or OVER_LINK.search(event.name) or self.in_graph(event):
            return None
        launch = self.launches.get(event.correlation)
        known = (event.operator, launch and launch.operator)  # some versions repeat the correlation there
        direct = (one for one in known if one != event.correlation and one in self.operators)
        return next(direct, None) or (launch and self._around(launch))

    def _around(self, launch: CpuEvent) -> int | None:
        """The innermost operator of the thread."""
        if not self.threads:
            for one in sorted(self.operators.values(), key=lambda one: one.start):
                self.threads.setdefault(one.thread, []).append(one)
        mine = self.threads.get(launch.thread, [])
        place = bisect_right(mine, launch.start, key=lambda one: one.start)
        nested = (one for one in reversed(mine[max(0, place - 200) : place]) if one.end >= launch.start)
        return next((one.operator for one in nested), None)


def _label(operator: CpuEvent | None, event: GpuEvent) -> Label:
    if COLLECTIVE.search(event.name):
        return Label(event.name, kind="collective")
    if operator is None and event.kind != "kernel":
        moved, copied = event.moved_bytes, event.kind == "gpu_memcpy"
        kind = "copy" if OVER_LINK.search(event.name) else "operator"
        return Label(event.name, f"{moved} bytes", Work(0, moved * copied, moved * (kind != "copy")), kind=kind)
    if operator is None:
        return Label(event.name, f"{event.grid} x {event.block}", lacking="kernels without an operator")
    name = operator.name.removeprefix("aten::")
    call = Call(name, inputs_of(operator.inputs or {}), event.name)
    formula, shape = find(name), _shape(call)
    if formula is None:
        return Label(name, shape, lacking=name)
    try:
        work = formula(call)
    except UNFIT:
        work = None
    return Label(name, (work and work.shape) or shape, work, None if work else f"{name} with such inputs")


def inputs_of(recorded: dict) -> tuple:
    """Of each argument a tensor, a tuple of tensors, the text of a scalar or list, or None."""
    dims, types = recorded.get("Input Dims") or [], recorded.get("Input type") or []
    strides, scalars = recorded.get("Input Strides") or dims, recorded.get("Concrete Inputs") or [""] * len(dims)
    return tuple(_input(*one) for one in zip(dims, types, strides, scalars, strict=False))


def _input(dims: list, kind: str, strides: list, scalar: str):
    if kind == "TensorList":
        pairs = zip(dims, strides, strict=False)
        return tuple(Tensor(tuple(size), tuple(stride), kind) for size, stride in pairs)
    if kind in ("Scalar", "ScalarList", ""):
        return scalar or None
    return Tensor(tuple(dims), tuple(strides if len(strides) == len(dims) else dims), kind)


def _shape(call: Call) -> str:
    """Of the tensors, the same once."""
    return ", ".join(dict.fromkeys("x".join(map(str, one.dims)) for one in call.tensors()[:4] if one.dims))
