"""A user's Nsight Compute report: its kernels, and what was counted of each. Read without a GPU."""

import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from roofline.core.formatting import counted, listed
from roofline.devices.gpu import profile_counts
from roofline.measure.nsight_compute import BadReport
from roofline.records.files import file_sha256
from roofline.records.profile import KernelLaunches, ProfileRecord

READER = "ncu_report"
NO_READER = "ncu-report, which reads Nsight Compute's reports, is not installed; `envs/install.sh reports` installs it"
MAGIC, VERSION = b"NVR\0", 7  # of the file's format
PAYLOAD_SIZE = 5  # the field of a block's header
PREFIXES = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
UNIT = re.compile(r"(n|u|m|K|k|M|G|T)?(byte|second|s|hz|cycle|inst|sector)s?", re.IGNORECASE)
PERCENT = ("%", "percent")
COLUMNS = ("duration_s", "sm_clock_mhz", "warp_instructions", *profile_counts.BYTES)
FLOPS = ("cuda_core_flops", "tensor_core_flops")
CODE = "launch__function_pcs"  # its first instance: where the function's code begins
DIMENSIONS = tuple([f"launch__{what}_dim_{axis}" for axis in "xyz"] for what in ("grid", "block"))


def command(capability: tuple[int, int], report: str = "my", program: Sequence[str] = ("python", "my.py")) -> str:
    """What collects all that placing needs of a program: clocks and caches as the program has them. Without machine
    code, which is not read and is most of a report of PyTorch."""
    metrics = ",".join(profile_counts.asked(capability))
    options = ["--clock-control", "none", "--cache-control", "none", "--import-sass", "no", "--metrics", metrics]
    return shlex.join(["ncu", *options, "--export", report, *program])


def installed() -> bool:
    return find_spec(READER) is not None


def read_profile(path: Path, name: str) -> ProfileRecord:
    """Raises BadReport, in one line, for what is no whole report of kernels of one card."""
    if not installed():
        raise BadReport(NO_READER)
    require_whole(path)
    import ncu_report

    kinds = ncu_report.IAction
    others = {kinds.WorkloadType_RANGE: "range", kinds.WorkloadType_GRAPH: "graph"}
    left_out: dict[str, int] = {}
    kernels = []
    try:
        for span in ncu_report.load_report(str(path)):
            for action in span:
                if action.workload_type() == kinds.WorkloadType_KERNEL:
                    kernels.append(_kernel(action, kinds.NameBase_DEMANGLED))
                else:
                    kind = others.get(action.workload_type(), "other workload")
                    left_out[kind] = left_out.get(kind, 0) + 1
    except (LookupError, OSError, RuntimeError, TypeError, ValueError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadReport(f"{path}: a damaged report ({why})") from None
    if not kernels:
        there = f"{listed(counted(count, kind) for kind, count in left_out.items())} and " if left_out else ""
        raise BadReport(f"{path}: it holds {there}no kernel; ncu profiles kernels with --replay-mode kernel")
    cards = {one["card"] for one in kernels}
    if len(cards) > 1:
        names = listed(sorted(f"{name} of {count} multiprocessors" for name, _, count, _ in cards))
        raise BadReport(f"{path}: of several cards, {names}; profile one at a time")
    ((device, capability, multiprocessors, memory),) = cards
    return ProfileRecord(
        name=name,
        report=str(path),
        report_sha256=file_sha256(path),
        device_name=device,
        compute_capability=".".join(map(str, capability)),
        multiprocessors=multiprocessors,
        memory_total_bytes=memory,
        pipes=profile_counts.pipes(capability),
        left_out=left_out,
        kernels=grouped(kernels),
    )


def require_card(record: ProfileRecord, names: Mapping[str, str]) -> str:
    """The first of the devices, given with their names, that is a card of the report's. Raises BadReport."""
    found = next((device for device, name in names.items() if name == record.device_name), None)
    if found is None:
        known = listed(dict.fromkeys(names.values())) if names else "no GPU"
        raise BadReport(
            f"{record.report}: profiled on {record.device_name}, but the ceilings are of {known}; "
            "a report is placed under those of the same model of card"
        )
    return found


def grouped(kernels: Sequence[dict[str, Any]]) -> list[KernelLaunches]:
    """Launches by kernel, grid and block, in the order in which each comes first. Kernels of one name whose code lies
    elsewhere were compiled with other constants."""
    groups: dict[tuple, list[int]] = {}
    for place, one in enumerate(kernels):
        groups.setdefault((one["signature"], one["code"], one["grid"], one["block"]), []).append(place)
    found = []
    for (signature, _, grid, block), places in groups.items():
        counts = [kernels[place]["counts"] for place in places]
        flops = {
            unit: {
                dtype: column for dtype in counts[0][unit] if (column := _column(one[unit][dtype] for one in counts))
            }
            for unit in FLOPS
        }
        found.append(
            KernelLaunches(
                name=kernels[places[0]]["name"],
                signature=signature,
                grid=grid,
                block=block,
                launches=places,
                **{name: _column(one[name] for one in counts) for name in COLUMNS},
                **flops,
            )
        )
    return found


def _column(values: Iterable[float | None]) -> list[float]:
    values = list(values)
    return [] if None in values else values


def _kernel(action, demangled: int) -> dict[str, Any]:
    def value(name: str) -> float | None:
        metric = action.metric_by_name(name)
        return metric.as_double() * scale(metric.unit()) if metric is not None and metric.has_value() else None

    def needed(name: str):
        metric = action.metric_by_name(name)
        if metric is None:
            raise LookupError(f"a kernel without {name}")
        return metric

    def attribute(name: str) -> int:
        return int(needed(f"device__attribute_{name}").as_double())

    capability = attribute("compute_capability_major"), attribute("compute_capability_minor")
    device = needed("device__attribute_display_name").as_string()
    code = action.metric_by_name(CODE)
    grid, block = (tuple(int(needed(name).as_double()) for name in names) for names in DIMENSIONS)
    return {
        "name": action.name(),
        "signature": action.name(demangled),
        "code": code.as_uint64(0) if code is not None and code.num_instances() else None,
        "grid": grid,
        "block": block,
        "card": (device, capability, attribute("multiprocessor_count"), attribute("total_memory")),
        "counts": profile_counts.counts(value, capability),
    }


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
    """Raises BadReport for what is no report, and for one that was cut off: NVIDIA's reader gives what is left of it.

    A report is a header, then blocks: a size, the block's own header of that size, and a payload whose size is in it.
    """
    try:
        size = path.stat().st_size
        with open(path, "rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise BadReport(f"{path}: no report of Nsight Compute (.ncu-rep)")
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
