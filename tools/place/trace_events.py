"""The events of a torch.profiler trace, read one by one: what ran on the GPUs, what launched it, operators, steps."""

import gc
import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import ijson

from roofline.api import UserError

ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
READ = {*ON_GPU, "cpu_op", "user_annotation", "cuda_runtime", "cuda_driver"}
STEP = "ProfilerStep#"
MISSHAPED = (AttributeError, KeyError, TypeError, ValueError)  # events that are not as torch.profiler writes them
COLLECT = "collect one as `make place` prints"


class Event(NamedTuple):
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
    path: str
    cards: dict[int, str]
    step_s: float  # without the profiler, if the program stored it; else 0
    gpu: list[Event] = field(default_factory=list)
    operators: dict[int, Event] = field(default_factory=dict)
    launches: dict[int, Event] = field(default_factory=dict)
    steps: list[Event] = field(default_factory=list)


def read(path: Path) -> Trace:
    """Raises UserError, in one line, for what is no trace of torch.profiler, is cut, or lacks kernels or shapes."""
    gc.disable()  # it would walk all events again and again: three times as long
    try:
        devices, step_s = (next(_items(path, key), 0) for key in ("deviceProperties", "step_s"))
        trace = Trace(str(path), {one.get("id", 0): one.get("name", "") for one in devices or []}, float(step_s))
        for raw in _items(path, "traceEvents.item"):
            if raw.get("ph") == "X" and raw.get("cat") in READ:
                _add(trace, raw)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (ijson.JSONError, EOFError, OSError, zlib.error, *MISSHAPED) as error:
        cut = ("premature EOF" in str(error) or "end-of-stream" in str(error)) and path.stat().st_size
        what = "cut or still being written" if cut else "not the JSON of torch.profiler"
        raise UserError(f"{path}: {what}; {COLLECT}") from None
    finally:
        gc.freeze()
        gc.enable()
    _require(trace)
    return trace


def _items(path: Path, key: str) -> Iterator:
    with open(path, "rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        yield from ijson.items(gzip.GzipFile(fileobj=raw) if packed else raw, key, use_float=True, buf_size=1 << 20)


def _add(trace: Trace, raw: dict) -> None:
    args, start, thread = raw.get("args") or {}, float(raw["ts"]), (raw.get("pid"), raw.get("tid"))
    ids = args.get("External id", args.get("external id")), args.get("correlation")
    one = Event(start, start + max(0.0, float(raw.get("dur", 0))), raw["name"], raw["cat"], thread, *ids, args)
    if one.kind in ON_GPU:
        trace.gpu.append(one)
    elif one.kind == "cpu_op":
        trace.operators[one.operator] = one
    elif one.kind != "user_annotation" and one.correlation is not None:
        trace.launches[one.correlation] = one
    elif one.name.startswith(STEP):
        trace.steps.append(one)


def _require(trace: Trace) -> None:
    shaped = any(one.args.get("Input Dims") for one in trace.operators.values())
    for missing, reason in (
        (not trace.operators and not trace.gpu, "not a trace of torch.profiler (of TensorFlow, JAX, another program?)"),
        (any("AMD" in one for one in trace.cards.values()), "of an AMD GPU; ceilings are measured on NVIDIA GPUs"),
        (not trace.gpu, f"nothing ran on a GPU; {COLLECT}, on a machine with a GPU"),
        (not shaped, f"no shapes were recorded (record_shapes=True); {COLLECT}"),
    ):
        if missing:
            raise UserError(f"{trace.path}: {reason}")
