"""Nsight Compute's report of any program: its kernels and their metrics. Read without a GPU."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from roofline.core.formatting import counted, listed
from roofline.measure.nsight_compute import BadReport

READER = "ncu_report"
NO_READER = "ncu-report, the Python package that reads Nsight Compute's reports, is not installed"
MAGIC, VERSION = b"NVR\0", 7  # of the file's format
PAYLOAD_SIZE = 5  # the field of a block's header
PREFIXES = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
UNIT = re.compile(r"(n|u|m|K|k|M|G|T)?(byte|second|s|hz|cycle|inst|sector)s?", re.IGNORECASE)
PERCENT = ("%", "percent")
CODE = "launch__function_pcs"  # its first instance: where the function's code begins
DIMENSIONS = tuple([f"launch__{what}_dim_{axis}" for axis in "xyz"] for what in ("grid", "block"))
Capability = tuple[int, int]
Value = Callable[[str], float | None]  # of a metric, by its name: in bytes, seconds, hertz or counts


@dataclass(frozen=True)
class Card:
    name: str
    capability: Capability
    multiprocessors: int
    memory_bytes: int


@dataclass(frozen=True)
class Kernel:
    """One launch. Kernels of one name whose `code` differs were compiled with other constants."""

    name: str
    signature: str  # with template arguments and parameters
    code: int | None
    grid: tuple[int, ...]
    block: tuple[int, ...]
    counts: Any  # what `take` made of its metrics


@dataclass(frozen=True)
class Report:
    path: str
    card: Card
    left_out: dict[str, int]  # what else it holds, by kind: ranges and graphs as a whole
    kernels: list[Kernel]


def read(path: Path, take: Callable[[Value, Capability], Any]) -> Report:
    """The kernels of a report, in order. `take` gets the metrics of each, and the compute capability of its card.

    Raises BadReport, in one line, for what is not a whole report of kernels of one card.
    """
    if not find_spec(READER):
        raise BadReport(NO_READER)
    require_whole(path)
    import ncu_report

    kinds = ncu_report.IAction
    others = {kinds.WorkloadType_RANGE: "range", kinds.WorkloadType_GRAPH: "graph"}
    left_out: dict[str, int] = {}
    kernels, cards = [], []
    try:
        for span in ncu_report.load_report(str(path)):
            for action in span:
                if action.workload_type() == kinds.WorkloadType_KERNEL:
                    cards.append(_card(action))
                    kernels.append(_kernel(action, kinds.NameBase_DEMANGLED, take, cards[-1].capability))
                else:
                    kind = others.get(action.workload_type(), "other workload")
                    left_out[kind] = left_out.get(kind, 0) + 1
    except (LookupError, OSError, RuntimeError, TypeError, ValueError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadReport(f"{path}: a damaged report ({why})") from None
    if not kernels:
        there = f"{listed(counted(count, kind) for kind, count in left_out.items())} and " if left_out else ""
        raise BadReport(f"{path}: it holds {there}no kernel; ncu profiles kernels with --replay-mode kernel")
    if len(set(cards)) > 1:
        names = listed(sorted({f"{one.name} of {one.multiprocessors} multiprocessors" for one in cards}))
        raise BadReport(f"{path}: of several cards, {names}; profile one at a time")
    return Report(str(path), cards[0], left_out, kernels)


def _needed(action, name: str):
    metric = action.metric_by_name(name)
    if metric is None:
        raise LookupError(f"a kernel without {name}")
    return metric


def _card(action) -> Card:
    def attribute(name: str) -> int:
        return int(_needed(action, f"device__attribute_{name}").as_double())

    capability = attribute("compute_capability_major"), attribute("compute_capability_minor")
    name = _needed(action, "device__attribute_display_name").as_string()
    return Card(name, capability, attribute("multiprocessor_count"), attribute("total_memory"))


def _kernel(action, demangled: int, take: Callable, capability: Capability) -> Kernel:
    def value(name: str) -> float | None:
        metric = action.metric_by_name(name)
        return metric.as_double() * scale(metric.unit()) if metric is not None and metric.has_value() else None

    code = action.metric_by_name(CODE)
    grid, block = (tuple(int(_needed(action, name).as_double()) for name in names) for names in DIMENSIONS)
    place = code.as_uint64(0) if code is not None and code.num_instances() else None
    return Kernel(action.name(), action.name(demangled), place, grid, block, take(value, capability))


def scale(unit: str) -> float:
    """What a value in this unit is multiplied by to be in bytes, seconds, hertz or counts."""
    above, _, below = unit.partition("/")
    return _scale(above) / _scale(below)


def _scale(unit: str) -> float:
    if unit in PERCENT:
        return 0.01
    known = UNIT.fullmatch(unit)
    return PREFIXES[known[1] or ""] if known else 1.0


# ---------------------------------------------------------------- whole or cut off


def require_whole(path: Path) -> None:
    """Raises BadReport for what is not a report, and for a report that was cut off, of which the reader gives the rest.

    A report is a header, then blocks: a size, the block's own header of that size, and a payload whose size is in it.
    """
    try:
        size = path.stat().st_size
        with open(path, "rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise BadReport(f"{path}: not a report of Nsight Compute (.ncu-rep)")
            header = file.read(_size(file.read(4)))
            if _fields(header).get(1) != VERSION:
                return  # of another format, and left to the reader
            place = file.tell()
            while place < size:
                file.seek(place)
                block = file.read(_size(file.read(4)))
                place = file.tell() + _fields(block).get(PAYLOAD_SIZE, 0)
    except FileNotFoundError:
        raise BadReport(f"{path}: no such file") from None
    except OSError as error:
        raise BadReport(f"{path}: cannot be read ({os.strerror(error.errno)})") from None
    except IndexError:
        place = None
    if place != size:
        raise BadReport(f"{path}: a report that was cut off, or damaged")


def _size(content: bytes) -> int:
    if len(content) < 4:
        raise IndexError
    return int.from_bytes(content, "little")


def _fields(message: bytes) -> dict[int, int]:
    """The whole numbers of a protobuf message by their fields. Raises IndexError where it ends within one."""
    found, place = {}, 0
    while place < len(message):
        key, place = _varint(message, place)
        value, place = _varint(message, place) if key & 7 in (0, 2) else (0, place + {1: 8, 5: 4}.get(key & 7, 0))
        if key & 7 == 0:
            found[key >> 3] = value
        place += value if key & 7 == 2 else 0
    if place != len(message):
        raise IndexError
    return found


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
