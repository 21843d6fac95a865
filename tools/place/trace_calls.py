"""Events of a GPU by the operator's call that launched them, with the work that the operator's formula gives."""

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from formulas.base import Call, CallWork, Tensor, find
from trace_events import MISSHAPED, Event, Trace

COLLECTIVE = re.compile(r"nccl|(?<![a-z])all_?(?:reduce|gather|to_?all)|AllReduce|AllGather|cross_device_reduce")
OVER_LINK = re.compile(r"HtoD|DtoH")
NO_OPERATOR, IN_GRAPH = "kernels without an operator", "kernels of a CUDA graph that ran with no shape outside"


@dataclass(frozen=True)
class Label:
    """What calls have in common that are one row."""

    name: str
    shape: str = ""
    work: CallWork | None = None
    lacking: str | None = None  # what has no formula
    kind: str = "operator"  # operator, collective, idle, or copy: between host and device
    inferred: bool = False  # of a CUDA graph: taken from the same kernel outside, in their order


def labelled(trace: Trace, events: Sequence[Event]) -> list[tuple[Label, bool]]:
    """The label of each event, and whether it counts as a call: of a call with several kernels the longest does."""
    caller, calls = caller_in(trace), {}
    for place, event in enumerate(events):
        calls.setdefault(caller(event) or (place,), []).append(place)
    found, longest = {}, {}
    for call, places in calls.items():
        main = max(places, key=lambda place: events[place].end - events[place].start)
        label = _label(trace.operators.get(call), events[main])
        longest.setdefault(label, _code(events[main]))
        found |= {place: (label, place == main) for place in places}
    outside, inside = {}, {}
    for place, event in enumerate(events):
        if found[place][0].lacking != NO_OPERATOR:
            outside.setdefault(_code(event), []).append(found[place][0])
        elif _in_graph(trace, event):
            inside.setdefault((_code(event), event.correlation), []).append(place)
    for (code, _), places in inside.items():
        for place, label in zip(places, _in_turn(outside.get(code, []), len(places)), strict=True):
            inferred = label and (replace(label, inferred=True), longest[label] == code)
            found[place] = inferred or (replace(found[place][0], lacking=IN_GRAPH), True)
    return [found[place] for place in range(len(events))]


def _in_turn(outside: list[Label], count: int) -> list[Label | None]:
    """Of a kernel that a graph runs `count` times: its label outside if it is always the same, or `count` in turn."""
    outside = outside[:1] * count if len(set(outside)) == 1 else outside
    return outside[:count] if outside and outside[:count] * (len(outside) // count) == outside else [None] * count


def _code(event: Event) -> tuple:
    return event.name, str(event.args.get("grid")), str(event.args.get("block"))


def _in_graph(trace: Trace, event: Event) -> bool:
    return event.correlation in trace.launches and "GraphLaunch" in trace.launches[event.correlation].name


def caller_in(trace: Trace) -> Callable[[Event], int | None]:
    """Finds the id of the operator by the event, by its launch, or by what the launch is nested in."""
    threads: dict[tuple, list[Event]] = {}
    for one in sorted(trace.operators.values(), key=lambda one: one.start):
        threads.setdefault(one.thread, []).append(one)

    def caller(event: Event) -> int | None:
        launch = trace.launches.get(event.correlation)
        if COLLECTIVE.search(event.name) or OVER_LINK.search(event.name) or _in_graph(trace, event):
            return None
        for known in (event.operator, launch and launch.operator):
            if known in trace.operators and known != event.correlation:  # which some versions repeat there
                return known
        mine = threads.get(launch.thread, ()) if launch else ()
        place = bisect_right(mine, launch.start, key=lambda one: one.start) if mine else 0
        around = (one.operator for one in reversed(mine[max(0, place - 200) : place]) if one.end >= launch.start)
        return next(around, None)

    return caller


def _label(operator: Event | None, event: Event) -> Label:
    if COLLECTIVE.search(event.name):
        return Label(event.name, kind="collective")
    if operator is None and event.kind != "kernel":
        moved, link = event.args.get("bytes", 0), bool(OVER_LINK.search(event.name))
        work = CallWork(0, moved * (event.kind == "gpu_memcpy"), moved * (not link))
        return Label(event.name, f"{moved} bytes", work, kind="copy" if link else "operator")
    if operator is None:
        return Label(event.name, f"{event.args.get('grid')} x {event.args.get('block')}", lacking=NO_OPERATOR)
    call = Call(operator.name.removeprefix("aten::"), inputs_of(operator.args), event.name)
    formula = find(call.name)
    shape = ", ".join(dict.fromkeys("x".join(map(str, one.dims)) for one in call.tensors()[:4] if one.dims))
    try:
        work = formula and formula(call)
    except (*MISSHAPED, IndexError, ZeroDivisionError):  # other inputs than it expects
        work = None
    lacking = None if work else call.name + " with these inputs" * bool(formula)
    return Label(call.name, (work and work.shape) or shape, work, lacking)


def inputs_of(recorded: dict) -> tuple:
    """Of each argument a tensor, a tuple of tensors, the text of a scalar or list, or None."""
    dims, types = recorded.get("Input Dims") or [], recorded.get("Input type") or []
    strides, scalars = recorded.get("Input Strides") or dims, recorded.get("Concrete Inputs") or [""] * len(dims)
    return tuple(_input(*one) for one in zip(dims, types, strides, scalars, strict=False))


def _input(dims: list, kind: str, strides: list, scalar: str):
    if kind in ("Scalar", "ScalarList", ""):
        return scalar or None
    lists = [(dims, strides)] if kind != "TensorList" else zip(dims, dims, strict=True)
    found = tuple(Tensor(tuple(sizes), tuple(steps), kind) for sizes, steps in lists)
    return found if kind == "TensorList" else found[0]
