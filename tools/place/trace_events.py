"""The events of a torch.profiler trace, by rank: what ran on the GPUs, what launched it, operators, steps."""

import gc
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import trace_json

from roofline.api import UserError, group_by

ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
# By the category in the file, of which the capitalised are those of PyTorch 1.8 to 1.11.
KINDS = {kind: kind for kind in (*ON_GPU, "cpu_op", "user_annotation", "cuda_runtime", "cuda_driver")}
KINDS |= {"Kernel": "kernel", "Memcpy": "gpu_memcpy", "Memset": "gpu_memset", "Operator": "cpu_op"}
KINDS |= {"Runtime": "cuda_runtime"}
STEP = "ProfilerStep#"
MISSHAPED = (AttributeError, KeyError, TypeError, ValueError)  # events that are not as torch.profiler writes them
UNREADABLE = (trace_json.OtherLayoutError, EOFError, OSError, zlib.error, *MISSHAPED)
COLLECT = "collect one as `make place` prints"
INPUTS = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs", "Input dims")  # the last of PyTorch 1.8
COLLECTIVE_ARGS = ("Collective name", "In msg nelems", "Out msg nelems", "dtype", "Group size", "Process Group Ranks")
KEPT_ARGS = dict.fromkeys(ON_GPU, ("device", "grid", "block", "bytes", *COLLECTIVE_ARGS))
KEPT_ARGS["cpu_op"] = (*INPUTS, *COLLECTIVE_ARGS)
RANK = re.compile(r"[\s_:-]*\d+$")  # what follows the name of a rank in a process that a merger named: `[TP00] 4711`


class Event(NamedTuple):
    """An event of a trace: something that ran on a GPU, a launch, an operator, or a step."""

    start: float  # microseconds
    end: float
    name: str
    kind: str
    thread: tuple
    operator: int | None  # "External id": its own, or that of the operator around it
    correlation: int | None  # of a launch and what it launched
    args: dict  # the same object for events with the same


@dataclass
class Trace:
    """The events of one rank that placing needs."""

    path: str
    rank: str = ""  # empty: the file holds one
    cards: dict[int, str] = field(default_factory=dict)
    step_s: float = 0.0  # without the profiler, if the program stored it; else 0
    gpu: list[Event] = field(default_factory=list)
    operators: dict[int, Event] = field(default_factory=dict)  # by id
    launches: dict[int, Event] = field(default_factory=dict)  # by correlation
    steps: list[Event] = field(default_factory=list)
    ranks: int = 1  # of the program, of which this is one
    is_mixed: bool = False  # ids of several processes are the same

    @cached_property  # seldom needed: most events name their operator
    def operators_by_thread(self) -> dict[tuple, list[Event]]:
        """The operators of each thread by their start."""
        by_start = sorted(self.operators.values(), key=lambda operator: operator.start)
        return group_by(by_start, lambda operator: operator.thread)


def read_trace(path: Path) -> list[Trace]:
    """Return the events of a trace, by the rank that a merger of traces named.

    Raises UserError, in one line, for a file that is not a trace of torch.profiler, is cut, or lacks kernels.
    """
    gc.disable()  # it would walk all events again and again: three times as long
    try:
        try:
            traces = _Reader(path).read(trace_json.read_chunks(path))
        except trace_json.OtherLayoutError:
            traces = _Reader(path).read(trace_json.read_whole(path))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except UNREADABLE as error:
        is_cut = isinstance(error, EOFError)
        reason = "cut or still being written" if is_cut else "not the JSON of torch.profiler"
        raise UserError(f"{path}: {reason}; {COLLECT}") from None
    finally:
        gc.freeze()
        gc.enable()
    _require_kernels(traces)
    return [trace for trace in traces if trace.gpu]


class _Reader:
    """Events of a file by rank. Equal names, threads and arguments are one object: a file has few different ones."""

    def __init__(self, path: Path):
        self._path = path
        self._traces: dict[str, Trace] = {}
        self._by_thread: dict[tuple, tuple[Trace, tuple]] = {}
        self._same: dict[Any, Any] = {}

    def read(self, parts: Iterable[trace_json.Part]) -> list[Trace]:
        """Return the traces with events that placing needs; one without any if the file has none."""
        head: dict[str, Any] = {}
        for values, events in parts:
            head |= values
            for event in events:
                if event.get("ph") == "X" and event.get("cat") in KINDS:
                    self._add(event)
        traces = list(self._traces.values()) or [Trace(str(self._path))]
        for trace in traces:
            trace.cards = {card.get("id", 0): card.get("name", "") for card in head.get("deviceProperties") or []}
            trace.step_s = float(head.get("step_s") or 0)
            trace.ranks = (head.get("distributedInfo") or {}).get("world_size", 1)
        return traces

    def _add(self, raw: dict) -> None:
        kind, args, thread = KINDS[raw["cat"]], raw.get("args") or {}, (raw.get("pid"), raw.get("tid"))
        trace, thread = self._by_thread.get(thread) or self._add_thread(thread)
        start = float(raw["ts"])
        end = start + max(0.0, float(raw.get("dur", 0)))
        name = self._same.setdefault(raw["name"], raw["name"])
        operator, correlation = args.get("External id", args.get("external id")), args.get("correlation")
        kept_args = {key: args[key] for key in KEPT_ARGS.get(kind, ()) if key in args}
        kept_args = self._same.setdefault(orjson.dumps(kept_args), kept_args)
        event = Event(start, end, name, kind, thread, operator, correlation, kept_args)
        if kind in ON_GPU:
            trace.gpu.append(event)
        elif name.startswith(STEP):
            trace.steps.append(event)
        elif kind == "cpu_op":
            self._add_by_id(trace, trace.operators, operator, event)
        elif kind != "user_annotation" and correlation is not None:
            self._add_by_id(trace, trace.launches, correlation, event)

    def _add_by_id(self, trace: Trace, events: dict[int, Event], number: int, event: Event) -> None:
        other = events.setdefault(number, event)
        if other is not event:
            trace.is_mixed |= other.thread[0] != event.thread[0]
            events[number] = event

    def _add_thread(self, thread: tuple) -> tuple[Trace, tuple]:
        process = thread[0]
        rank = RANK.sub("", process) if isinstance(process, str) else ""
        trace = self._traces.setdefault(rank, Trace(str(self._path), rank))
        return self._by_thread.setdefault(thread, (trace, thread))


def _require_kernels(traces: Sequence[Trace]) -> None:
    first = traces[0]
    has_events = any(trace.operators or trace.gpu for trace in traces)
    for is_wrong, reason in (
        (not has_events, "not a trace of torch.profiler (of TensorFlow, JAX, another program?)"),
        (any("AMD" in card for card in first.cards.values()), "of an AMD GPU; ceilings are measured on NVIDIA GPUs"),
        (any(trace.gpu and not trace.launches for trace in traces[1:]), "which rank a GPU is of is not known"),
        (any(trace.is_mixed for trace in traces), "several processes have the same ids; give the trace of one rank"),
        (not any(trace.gpu for trace in traces), f"nothing ran on a GPU; {COLLECT}, on a machine with a GPU"),
    ):
        if is_wrong:
            raise UserError(f"{first.path}: {reason}")


def require_shapes(traces: Sequence[Trace]) -> None:
    """Raise UserError if no operator of these traces has shapes, or none has types."""
    recorded = [operator.args for trace in traces for operator in trace.operators.values()]
    has_graph = any("GraphLaunch" in launch.name for launch in traces[0].launches.values())
    remedy = f'with CUDA graphs, name a trace without them too: TRACE="{traces[0].path} eager.json.gz"'
    for is_wrong, reason in (
        (not any(map(input_dims, recorded)), "no shapes were recorded (record_shapes=True)"),
        (not any(args.get("Input type") for args in recorded), "no types were recorded: this PyTorch is too old"),
    ):
        if is_wrong:
            raise UserError(f"{traces[0].path}: {reason}; {remedy if has_graph else COLLECT}")


def input_dims(args: dict) -> list:
    """Return the sizes of an operator's arguments, as any version writes them; [] if they were not recorded."""
    return args.get("Input Dims") or args.get("Input dims") or []
