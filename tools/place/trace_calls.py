"""Events of a GPU by the operator's call that launched them, with the work that the operator's formula gives."""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from formulas.base import Call, CallWork, Tensor, UnknownTypeError, find_formula
from trace_events import MISSHAPED, Event, Trace

from roofline.api import group_by

COLLECTIVE = re.compile(r"nccl|(?<![a-z])all_?(?:reduce|gather|to_?all)|AllReduce|AllGather|cross_device_reduce")
OVER_LINK = re.compile(r"HtoD|DtoH")
NESTED_LIMIT = 200  # operators that are searched for the one around a launch
NO_OPERATOR, IN_GRAPH = "kernels without an operator", "kernels of a CUDA graph that ran with no shape outside"


@dataclass(frozen=True)
class CallLabel:
    """The properties that the calls of one row have in common."""

    name: str
    shape: str = ""
    work: CallWork | None = None
    lacking: str | None = None  # what has no formula
    kind: str = "operator"  # operator, collective, idle, or copy: between host and device
    inferred: bool = False  # of a CUDA graph: taken from the same kernel outside, in their order


Labels = dict[int, tuple[CallLabel, bool]]  # by place of the event, and whether it counts as a call


def label_events(trace: Trace, events: Sequence[Event]) -> Labels:
    """Return the label of each event, and whether it counts as a call: of a call with several kernels the longest does.

    Events of a CUDA graph have the labels of the same kernels outside of it, where these are unambiguous.
    """
    by_start = sorted(trace.operators.values(), key=lambda operator: operator.start)
    threads = group_by(by_start, lambda operator: operator.thread)
    callers = [_find_caller(trace, threads, event) for event in events]
    places_by_call = group_by(range(len(events)), lambda place: callers[place] or (place,))
    labels: Labels = {}
    for call, places in places_by_call.items():
        longest = max(places, key=lambda place: events[place].end - events[place].start)
        label = _label(trace.operators.get(call), events[longest])
        labels |= {place: (label, place == longest) for place in places}
    _infer_labels(trace, events, labels)
    return labels


def _infer_labels(trace: Trace, events: Sequence[Event], labels: Labels) -> None:
    """Replace the labels of events of CUDA graphs by those of the same kernels outside."""
    calls = [(place, label) for place, (label, is_call) in labels.items() if is_call]
    longest_kernel = {label: _launch_key(events[place]) for place, label in reversed(calls)}  # of its first call
    outside: dict[tuple, list[CallLabel]] = defaultdict(list)
    inside: dict[tuple, list[int]] = defaultdict(list)
    for place, event in enumerate(events):
        label, _ = labels[place]
        if label.lacking != NO_OPERATOR:
            outside[_launch_key(event)].append(label)
        elif _in_graph(trace, event):
            inside[_launch_key(event), event.correlation].append(place)
    for (kernel, _), places in inside.items():
        inferred = _labels_in_turn(outside.get(kernel, []), len(places))
        for place, label in zip(places, inferred, strict=True):
            if label is None:
                labels[place] = (replace(labels[place][0], lacking=IN_GRAPH), True)
            else:
                labels[place] = (replace(label, inferred=True), longest_kernel[label] == kernel)


def _labels_in_turn(outside: list[CallLabel], count: int) -> list[CallLabel | None]:
    """Return the labels of a kernel that a graph runs `count` times, from its labels outside of the graph.

    The label is the same each time, or the labels outside repeat every `count`. Otherwise each is None.
    """
    if len(set(outside)) == 1:
        return outside[:1] * count
    is_periodic = bool(outside) and outside[:count] * (len(outside) // count) == outside
    return outside[:count] if is_periodic else [None] * count


def _launch_key(event: Event) -> tuple[str, str, str]:
    """Return the kernel's name, its grid and its block."""
    return event.name, str(event.args.get("grid")), str(event.args.get("block"))


def _in_graph(trace: Trace, event: Event) -> bool:
    return event.correlation in trace.launches and "GraphLaunch" in trace.launches[event.correlation].name


def _find_caller(trace: Trace, threads: dict[tuple, list[Event]], event: Event) -> int | None:
    """Return the id of the operator that launched an event; None if there is none, or it does not matter.

    It is the id that the event or its launch has, or the operator of the thread that the launch is nested in.
    """
    launch = trace.launches.get(event.correlation)
    if COLLECTIVE.search(event.name) or OVER_LINK.search(event.name) or _in_graph(trace, event):
        return None
    for operator_id in (event.operator, launch and launch.operator):
        # Some versions repeat the correlation as the id.
        if operator_id in trace.operators and operator_id != event.correlation:
            return operator_id
    return _find_around(threads.get(launch.thread, []), launch.start) if launch else None


def _find_around(operators: list[Event], moment: float) -> int | None:
    """Return the id of the innermost operator that ran at a moment, of a thread's operators sorted by start."""
    end = bisect_right(operators, moment, key=lambda operator: operator.start)
    innermost_first = reversed(operators[max(0, end - NESTED_LIMIT) : end])
    return next((operator.operator for operator in innermost_first if operator.end >= moment), None)


def _label(operator: Event | None, event: Event) -> CallLabel:
    if COLLECTIVE.search(event.name):
        return CallLabel(event.name, kind="collective")
    if operator is not None:
        return _operator_label(operator, event)
    if event.kind == "kernel":
        return CallLabel(event.name, f"{event.args.get('grid')} x {event.args.get('block')}", lacking=NO_OPERATOR)
    # A copy or a memset. Over the link only the bytes that are read count: they cross it once.
    moved, over_link = event.args.get("bytes", 0), bool(OVER_LINK.search(event.name))
    work = CallWork(0, moved if event.kind == "gpu_memcpy" else 0, 0 if over_link else moved)
    return CallLabel(event.name, f"{moved} bytes", work, kind="copy" if over_link else "operator")


def _operator_label(operator: Event, event: Event) -> CallLabel:
    """Return the label of an operator's call with the work that its formula gives, if it has one."""
    call = Call(operator.name.removeprefix("aten::"), read_inputs(operator.args), event.name)
    formula = find_formula(call.name)
    shape = ", ".join(dict.fromkeys("x".join(map(str, tensor.dims)) for tensor in call.tensors()[:4] if tensor.dims))
    if formula is None:
        return CallLabel(call.name, shape, lacking=call.name)
    work, lacking = None, f"{call.name} with these inputs"
    try:
        work = formula(call)
    except UnknownTypeError as error:
        lacking = f"{call.name} of {error}"
    except (*MISSHAPED, IndexError, ZeroDivisionError):  # other inputs than it expects
        pass
    if work is None:
        return CallLabel(call.name, shape, lacking=lacking)
    return CallLabel(call.name, work.shape or shape, work)


def read_inputs(recorded: dict) -> tuple:
    """Return the arguments of a call: a tensor, a tuple of tensors, the text of a scalar or list, or None."""
    dims, types = recorded.get("Input Dims") or [], recorded.get("Input type") or []
    strides, scalars = recorded.get("Input Strides") or dims, recorded.get("Concrete Inputs") or [""] * len(dims)
    return tuple(map(_read_input, dims, types, strides, scalars))


def _read_input(dims: list, kind: str, strides: list, scalar: str) -> Tensor | tuple[Tensor, ...] | str | None:
    if kind in ("Scalar", "ScalarList", ""):
        return scalar or None
    if kind == "TensorList":  # without strides
        return tuple(Tensor(tuple(sizes), tuple(sizes), kind) for sizes in dims)
    return Tensor(tuple(dims), tuple(strides), kind)
