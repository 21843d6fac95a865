"""The events of a torch.profiler trace, read one by one: what ran on the GPUs, what launched it, operators, steps."""

import gc
import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import IO, Any, NamedTuple

import ijson

from roofline.api import UserError

ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
READ = {*ON_GPU, "cpu_op", "user_annotation", "cuda_runtime", "cuda_driver"}
STEP = "ProfilerStep#"
MISSHAPED = (AttributeError, KeyError, TypeError, ValueError)  # events that are not as torch.profiler writes them
COLLECT = "collect one as `make place` prints"
STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)  # of JSON
BRACKETS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
NO_BRACKETS = bytes({*range(256)} - BRACKETS.keys())
DEEPEST = 100  # brackets within one another; those of a trace are 5


class Event(NamedTuple):
    """An event of a trace: something that ran on a GPU, a launch, an operator, or a step."""

    start: float  # microseconds
    end: float
    name: str
    kind: str
    thread: tuple
    operator: int | None  # "External id": its own, or that of the operator around it
    correlation: int | None  # of a launch and what it launched
    args: dict


@dataclass
class Trace:
    """The events of a trace that placing needs."""

    path: str
    cards: dict[int, str]
    step_s: float  # without the profiler, if the program stored it; else 0
    gpu: list[Event] = field(default_factory=list)
    operators: dict[int, Event] = field(default_factory=dict)  # by id
    launches: dict[int, Event] = field(default_factory=dict)  # by correlation
    steps: list[Event] = field(default_factory=list)


def read_trace(path: Path) -> Trace:
    """Return the events of a trace.

    Raises UserError, in one line, for a file that is not a trace of torch.profiler, is cut, or lacks kernels or shapes.
    """
    gc.disable()  # it would walk all events again and again: three times as long
    try:
        trace = _read_events(path)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (ijson.JSONError, EOFError, OSError, zlib.error, *MISSHAPED) as error:
        is_cut = ("premature EOF" in str(error) or "end-of-stream" in str(error)) and path.stat().st_size
        reason = "cut or still being written" if is_cut else "not the JSON of torch.profiler"
        raise UserError(f"{path}: {reason}; {COLLECT}") from None
    finally:
        gc.freeze()
        gc.enable()
    _require_kernels_and_shapes(trace)
    return trace


def _read_events(path: Path) -> Trace:
    devices = next(_items(path, "deviceProperties"), None) or []
    step_s = float(next(_items(path, "step_s"), 0))
    trace = Trace(str(path), {device.get("id", 0): device.get("name", "") for device in devices}, step_s)
    for raw in _items(path, "traceEvents.item"):
        if raw.get("ph") == "X" and raw.get("cat") in READ:
            _add(trace, raw)
    return trace


def _items(path: Path, key: str) -> Iterator[Any]:
    """Yield the values at a key of ijson, such as `traceEvents.item`, of a file that may be packed by gzip."""
    with open(path, "rb") as raw:
        is_packed = raw.peek(2).startswith(b"\x1f\x8b")
        text = ShallowJson(gzip.GzipFile(fileobj=raw) if is_packed else raw)
        yield from ijson.items(text, key, use_float=True, buf_size=1 << 20)


class ShallowJson:
    """A file of JSON that is read until its brackets lie too deep: ijson would take memory by the square of the depth.

    Brackets in strings, such as the names of kernels, do not count.
    """

    def __init__(self, file: IO[bytes]):
        self._file, self._depth = file, 0
        self._unclosed = b""  # of a string that goes on: its quote, and a backslash if that is the last byte so far

    def read(self, size: int) -> bytes:
        """Return the next bytes. Raises ValueError if they lie in more brackets than those of a trace."""
        text = self._file.read(size)
        outside, quote, string = STRING.sub(b"", self._unclosed + text).partition(b'"')
        escapes = (len(string) - len(string.rstrip(b"\\"))) % 2
        self._unclosed = quote + b"\\" * escapes
        steps = map(BRACKETS.__getitem__, outside.translate(None, delete=NO_BRACKETS))
        depths = [*accumulate(steps, initial=self._depth)]
        self._depth = depths[-1]
        if max(depths) > DEEPEST:
            raise ValueError(f"more than {DEEPEST} brackets within one another")
        return text


def _add(trace: Trace, raw: dict) -> None:
    args = raw.get("args") or {}
    start = float(raw["ts"])
    end = start + max(0.0, float(raw.get("dur", 0)))
    thread = (raw.get("pid"), raw.get("tid"))
    operator, correlation = args.get("External id", args.get("external id")), args.get("correlation")
    event = Event(start, end, raw["name"], raw["cat"], thread, operator, correlation, args)
    if event.kind in ON_GPU:
        trace.gpu.append(event)
    elif event.kind == "cpu_op":
        trace.operators[event.operator] = event
    elif event.kind != "user_annotation" and event.correlation is not None:
        trace.launches[event.correlation] = event
    elif event.name.startswith(STEP):
        trace.steps.append(event)


def _require_kernels_and_shapes(trace: Trace) -> None:
    has_shapes = any(operator.args.get("Input Dims") for operator in trace.operators.values())
    has_amd_gpu = any("AMD" in card for card in trace.cards.values())
    for is_wrong, reason in (
        (not trace.operators and not trace.gpu, "not a trace of torch.profiler (of TensorFlow, JAX, another program?)"),
        (has_amd_gpu, "of an AMD GPU; ceilings are measured on NVIDIA GPUs"),
        (not trace.gpu, f"nothing ran on a GPU; {COLLECT}, on a machine with a GPU"),
        (not has_shapes, f"no shapes were recorded (record_shapes=True); {COLLECT}"),
    ):
        if is_wrong:
            raise UserError(f"{trace.path}: {reason}")
