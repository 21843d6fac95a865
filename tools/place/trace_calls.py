"""Events of a GPU by the operator's call that launched them, with the work that the operator's formula gives."""

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod

from collectives import count_carried, is_collective
from formulas.base import Call, CallWork, Tensor, UnknownTypeError, find_formula
from trace_events import MISSHAPED, Event, Trace, input_dims
from trace_steps import find_step

from roofline.api import group_by

OVER_LINK = re.compile(r"HtoD|DtoH")
ACCUMULATE = "torch::autograd::AccumulateGrad"
NUMBER = re.compile(r"_\d+$")
NESTED_LIMIT = 200  # operators that are searched for the one around a launch
NO_OPERATOR, IN_GRAPH = "kernels without an operator", "kernels of a CUDA graph that ran with no shape outside"
NO_SIZE = "collectives without a recorded size"
UNKNOWN = (NO_OPERATOR, IN_GRAPH, NO_SIZE)  # what a kernel of a graph lacks, unless it ran outside


@dataclass(frozen=True)
class CallLabel:
    """The properties that the calls of one row have in common."""

    name: str
    shape: str = ""
    work: CallWork | None = None
    lacking: str | None = None  # what has no formula
    family: str = ""  # of its formula, which is the name of its file, or that of a collective
    kind: str = "operator"  # operator, collective, idle, or copy: between host and device
    inferred: bool = False  # of a CUDA graph: taken from the same kernel outside, in their order


Labels = dict[int, tuple[CallLabel, bool]]  # by place of the event, and whether it counts as a call


def label_events(trace: Trace, events: Sequence[Event], others: Iterable[Trace] = ()) -> Labels:
    """Return the label of each event, and whether it counts as a call: of a call with several kernels the longest does.

    Events of a CUDA graph have the labels of the same kernels outside of it, where these are unambiguous: in this
    trace, else in a step of one of the `others`.
    """
    labels = _label_calls(trace, events)
    missing = any(_is_unknown_in_graph(trace, event, labels[place][0]) for place, event in enumerate(events))
    if missing:
        missing = _infer_labels(trace, events, labels, _list_outside(events, labels))
    for other in others:
        if missing:
            other_events = sorted(other.gpu, key=lambda event: event[:2])  # of one GPU, as eager code has it
            step_events = [other_events[place] for place in find_step(other, other_events).places]
            outside = _list_outside(step_events, _label_calls(other, step_events))
            missing = _infer_labels(trace, events, labels, outside)
    return labels


def _label_calls(trace: Trace, events: Sequence[Event]) -> Labels:
    callers = [_find_caller(trace, event) for event in events]
    # A collective and a copy over the link are calls by themselves.
    alone = [is_collective(event.name) or bool(OVER_LINK.search(event.name)) for event in events]
    keys = [(place,) if alone[place] else caller or (place,) for place, caller in enumerate(callers)]
    communications = Counter(caller for caller, is_alone in zip(callers, alone, strict=True) if is_alone)
    gradients = _list_gradients(trace.operators.values())
    labels: Labels = {}
    label_by_arguments: dict[tuple, CallLabel] = {}
    for places in group_by(range(len(events)), keys.__getitem__).values():
        longest = max(places, key=lambda place: events[place].end - events[place].start)
        operator, event = trace.operators.get(callers[longest]), events[longest]
        launched = [events[place].args for place in places]
        sizes = gradients.get(callers[longest], ())
        if alone[longest] and communications[callers[longest]] > 1:
            operator = None  # its tensors are not those of each collective
        arguments = operator and (operator.name, id(operator.args)), event.name, tuple(map(id, launched)), sizes
        if arguments not in label_by_arguments:
            blocks = sum(prod(args.get("grid") or [0]) for args in launched)
            label_by_arguments[arguments] = _label(operator, event, blocks, sizes, trace.ranks)
        label = label_by_arguments[arguments]
        labels |= {place: (label, place == longest) for place in places}
    return labels


def _list_gradients(operators: Iterable[Event]) -> dict[int, tuple[int, ...]]:
    """Return for each operator on lists without sizes the elements of each gradient of the backward pass before it."""
    gradients: dict[int, tuple[int, ...]] = {}
    accumulated: list[int] = []
    is_stepping = False  # an optimizer, which may have several such operators
    relevant = [operator for operator in operators if operator.name == ACCUMULATE or _lacks_sizes(operator)]
    for operator in sorted(relevant, key=lambda operator: operator.start):
        if operator.name != ACCUMULATE:
            gradients[operator.operator] = tuple(accumulated)
            is_stepping = True
        elif dims := input_dims(operator.args):
            if is_stepping:
                accumulated, is_stepping = [], False
            accumulated.append(prod(dims[0]))
    return gradients


def _lacks_sizes(operator: Event) -> bool:
    if not operator.name.startswith(("aten::_foreach_", "aten::_fused_")):
        return False
    lists = zip(input_dims(operator.args), operator.args.get("Input type") or [], strict=False)
    return any(kind == "TensorList" and not dims for dims, kind in lists)


@dataclass(frozen=True)
class Outside:
    """The calls that ran outside of CUDA graphs, by the kernels that they launched, in order."""

    labels: dict[tuple, list[CallLabel]]
    longest_kernels: dict[CallLabel, set[tuple]]  # of the calls of a label


def _list_outside(events: Sequence[Event], labels: Labels) -> Outside:
    longest_kernels: dict[CallLabel, set[tuple]] = defaultdict(set)
    outside: dict[tuple, list[CallLabel]] = defaultdict(list)
    for place, event in enumerate(events):
        label, is_call = labels[place]
        kernel = _launch_key(event)
        if is_call:
            longest_kernels[label].add(_without_number(kernel))
        if label.lacking not in UNKNOWN:
            for key in {kernel, _without_number(kernel)}:
                outside[key].append(label)
    return Outside(outside, longest_kernels)


def _infer_labels(trace: Trace, events: Sequence[Event], labels: Labels, outside: Outside) -> bool:
    """Replace the labels of events of CUDA graphs by those of the same kernels outside; return if some have none."""
    graph_places = [place for place, event in enumerate(events) if _is_unknown_in_graph(trace, event, labels[place][0])]
    inside = group_by(graph_places, lambda place: (_launch_key(events[place]), events[place].correlation))
    is_missing = False
    for (kernel, _), places in inside.items():
        alike = outside.labels.get(kernel) or outside.labels.get(_without_number(kernel), [])
        inferred = _labels_in_turn(alike, len(places))
        for place, label in zip(places, inferred, strict=True):
            if label is None:
                unknown = labels[place][0]
                labels[place] = (unknown if unknown.kind == "collective" else replace(unknown, lacking=IN_GRAPH), True)
                is_missing = True
            else:
                is_call = _without_number(kernel) in outside.longest_kernels[label]
                labels[place] = (replace(label, inferred=True), is_call)
    return is_missing


def _is_unknown_in_graph(trace: Trace, event: Event, label: CallLabel) -> bool:
    return label.lacking in UNKNOWN and _in_graph(trace, event)


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


def _without_number(kernel: tuple[str, str, str]) -> tuple[str, str, str]:
    """Return the key of a launch without the number that torch.compile gave a Triton kernel: it may differ by trace."""
    name, grid, block = kernel
    return (NUMBER.sub("", name) if name.startswith("triton_") else name), grid, block


def _in_graph(trace: Trace, event: Event) -> bool:
    return event.correlation in trace.launches and "GraphLaunch" in trace.launches[event.correlation].name


def _find_caller(trace: Trace, event: Event) -> int | None:
    """Return the id of the operator that launched an event; None if there is none.

    It is the id that the event or its launch has, or the operator of the thread that the launch is nested in.
    """
    if _in_graph(trace, event):
        return None
    launch = trace.launches.get(event.correlation)
    for operator_id in (event.operator, launch and launch.operator):
        # Some versions repeat the correlation as the id.
        if operator_id in trace.operators and operator_id != event.correlation:
            return operator_id
    return _find_around(trace, launch) if launch else None


def _find_around(trace: Trace, launch: Event) -> int | None:
    """Return the id of the innermost operator that ran when a launch began, on its thread; None without one."""
    operators = trace.operators_by_thread.get(launch.thread, [])
    end = bisect_right(operators, launch.start, key=lambda operator: operator.start)
    innermost_first = reversed(operators[max(0, end - NESTED_LIMIT) : end])
    return next((operator.operator for operator in innermost_first if operator.end >= launch.start), None)


def _label(operator: Event | None, event: Event, blocks: int, gradients: tuple[int, ...], ranks: int) -> CallLabel:
    """Return the label of a call, by its operator, its longest event, and what `Call` holds besides."""
    if is_collective(event.name):
        recorded = operator.args if operator else {}
        tensors = Call("", read_inputs(recorded), "").tensors()
        try:
            carried, lacking = count_carried(event.name, recorded | event.args, tensors), NO_SIZE
        except UnknownTypeError as error:
            carried, lacking = None, f"collectives of {error}"
        if carried is None:
            return CallLabel(event.name, lacking=lacking, kind="collective")
        work, family = carried
        return CallLabel(event.name, work.shape, work, None, family, "collective")
    if operator is not None and not OVER_LINK.search(event.name):
        name = operator.name.removeprefix("aten::")
        return _operator_label(Call(name, read_inputs(operator.args), event.name, blocks, gradients, ranks))
    if event.kind == "kernel":
        return CallLabel(event.name, f"{event.args.get('grid')} x {event.args.get('block')}", lacking=NO_OPERATOR)
    # A copy or a memset. Over the link only the bytes that are read count: they cross it once.
    moved, over_link = event.args.get("bytes", 0), bool(OVER_LINK.search(event.name))
    work = CallWork(0, moved if event.kind == "gpu_memcpy" else 0, 0 if over_link else moved)
    return CallLabel(event.name, f"{moved} bytes", work, kind="copy" if over_link else "operator")


def _operator_label(call: Call) -> CallLabel:
    """Return the label of an operator's call with the work that its formula gives, if it has one."""
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
    return CallLabel(call.name, work.shape or shape, work, family=formula.__module__.rpartition(".")[2])


def read_inputs(recorded: dict) -> tuple:
    """Return the arguments of a call: a tensor, a tuple of tensors, the text of a scalar or list, or None."""
    dims, types = input_dims(recorded), recorded.get("Input type") or []
    strides, scalars = recorded.get("Input Strides") or dims, recorded.get("Concrete Inputs") or [""] * len(dims)
    return tuple(map(_read_input, dims, types, strides, scalars))


def _read_input(dims: list, kind: str, strides: list, scalar: str) -> Tensor | tuple[Tensor, ...] | str | None:
    if kind in ("Scalar", "ScalarList", ""):
        return scalar or None
    if kind == "TensorList":  # without strides
        return tuple(Tensor(tuple(sizes), tuple(sizes), kind) for sizes in dims)
    return Tensor(tuple(dims), tuple(strides), kind)
