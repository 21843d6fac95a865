"""The events of a torch.profiler trace, read one by one: what ran on the GPUs, what launched it, operators, steps."""

import gc
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import ijson

from roofline.api import UserError

ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
LAUNCHES = ("cuda_runtime", "cuda_driver")
STEP = "ProfilerStep#"
WITHOUT_PROFILER = "step_s"  # the key of a step's seconds, stored by add_metadata_json
COLLECT = "collect it as `make place` prints"


class GpuEvent(NamedTuple):
    """Times are microseconds."""

    start: float
    end: float
    name: str
    kind: str
    device: int
    stream: int
    correlation: int | None
    operator: int | None
    grid: tuple[int, ...]
    block: tuple[int, ...]
    moved_bytes: int


class CpuEvent(NamedTuple):
    """An operator, or the call that launched something on the GPU."""

    start: float
    end: float
    thread: tuple
    name: str
    operator: int | None
    inputs: dict | None = None


@dataclass
class Trace:
    path: str
    cards: dict[int, str]
    step_s: float | None = None
    gpu: list[GpuEvent] = field(default_factory=list)
    operators: dict[int, CpuEvent] = field(default_factory=dict)
    launches: dict[int, CpuEvent] = field(default_factory=dict)
    waits: list[CpuEvent] = field(default_factory=list)  # of the host for the GPU
    steps: list[tuple[float, float, str]] = field(default_factory=list)


def read(path: Path) -> Trace:
    """Raises UserError, in one line, for what is not a trace of torch.profiler, lacks kernels or shapes, or is cut."""
    try:
        gc.disable()  # it would walk all events again and again: three times as long
        head = _head(path)
        devices = head.get("deviceProperties") or []
        devices = devices if isinstance(devices, list) else [devices]
        trace = Trace(
            str(path), {one.get("id", 0): one.get("name") or "" for one in devices}, head.get(WITHOUT_PROFILER)
        )
        with opened(path) as file:
            for event in ijson.items(file, "traceEvents.item", use_float=True, buf_size=1 << 20):
                _add(trace, event)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (ijson.JSONError, EOFError, OSError, zlib.error, UnicodeDecodeError, AttributeError):
        what = "damaged or cut" if _starts_as_json(path) else "not a trace of torch.profiler, which is JSON"
        raise UserError(f"{path}: {what}") from None
    finally:
        gc.freeze()
        gc.enable()
    _require(trace, head)
    return trace


@contextmanager
def opened(path: Path) -> Iterator:
    with open(path, "rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        yield gzip.GzipFile(fileobj=raw) if packed else raw


def _starts_as_json(path: Path) -> bool:
    try:
        with opened(path) as file:
            return file.read(64).lstrip()[:1] in (b"{", b"[")
    except (OSError, EOFError, zlib.error):
        return False


def _head(path: Path) -> dict:
    """What stands before the events, where torch.profiler writes the cards and all metadata; cards also after them."""
    builder = ijson.ObjectBuilder()
    with opened(path) as file:
        for prefix, event, value in ijson.parse(file, use_float=True):
            if prefix == "traceEvents" or (prefix, event) == ("", "start_array"):
                break
            builder.event(event, value)
    head = getattr(builder, "value", None) or {}
    if "deviceProperties" not in head:
        with opened(path) as file:
            head |= {"deviceProperties": devices for devices in ijson.items(file, "deviceProperties", use_float=True)}
    return head


def _add(trace: Trace, event: dict) -> None:
    kind, args = event.get("cat"), event.get("args") or {}
    if event.get("ph") != "X" or kind is None:
        return
    start, name = float(event["ts"]), event["name"]
    end, operator = start + float(event.get("dur", 0)), args.get("External id", args.get("external id"))
    if kind in ON_GPU:
        place = (args.get("device", 0), args.get("stream", 0), args.get("correlation"), operator)
        shape = (tuple(args.get("grid", ())), tuple(args.get("block", ())), args.get("bytes", 0))
        trace.gpu.append(GpuEvent(start, end, name, kind, *place, *shape))
        return
    found = CpuEvent(start, end, (event.get("pid"), event.get("tid")), name, operator)
    if kind == "cpu_op":
        trace.operators[operator] = found._replace(inputs=args)
    elif kind in LAUNCHES:
        if "Synchronize" in name:
            trace.waits.append(found)
        elif "correlation" in args:
            trace.launches[args["correlation"]] = found
    elif kind == "user_annotation" and name.startswith(STEP):
        trace.steps.append((start, end, name))


def _require(trace: Trace, head: dict) -> None:
    if "schemaVersion" not in head and not trace.operators:
        raise UserError(f"{trace.path}: not a trace of torch.profiler (of TensorFlow, JAX or another program?)")
    if "hip_runtime_version" in head or any(name.startswith("AMD") for name in trace.cards.values()):
        raise UserError(f"{trace.path}: of an AMD GPU; ceilings are measured on NVIDIA GPUs only")
    if not trace.gpu:
        raise UserError(f"{trace.path}: nothing ran on a GPU in this trace; {COLLECT}, on a machine with a GPU")
    if not any((one.inputs or {}).get("Input Dims") for one in trace.operators.values()):
        raise UserError(f"{trace.path}: no shapes were recorded (record_shapes=True); {COLLECT}")
