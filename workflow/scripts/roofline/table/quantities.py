"""Every figure of a run by which it can be compared with others, as plain data."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from roofline.core.formatting import flops_unit
from roofline.core.repeatability import Doubt
from roofline.core.terms import QuantityKind
from roofline.devices import levels
from roofline.records.device import DeviceRecord
from roofline.records.manifest import Manifest
from roofline.table.rows import Cell, ComputeCeiling, MemoryCeiling, Roofline

HOST_BOUND = 1.05  # of the device's time, that a caller waits: the device waits for the host
WIDE = 1.2  # the ninth decile of a caller's samples over the first: of figures that the device sets it is 1.1 at most


class Quantity(NamedTuple):
    """One figure of one device as one run found it."""

    device: str  # its key in that run, such as gpu0
    key: str  # the same in every run: fp16, fp16/sustained, hbm_read, gemm/cuBLASLt/.../device_time
    name: str  # in words
    kind: QuantityKind
    value: float
    unit: str
    higher_is_better: bool
    samples: int | None  # timed ones that it rests on; None if not known
    inputs: str | None  # operands, where a record tells
    record: str | None  # below results/
    doubt: Doubt | None = None  # why it is not to be relied on
    modal: bool = False  # whether the host sets its pace, so that it may settle at one of several levels


@dataclass(frozen=True)
class Run:
    """A run by its records: what it was measured on and with, and every figure."""

    source: str  # the archive or folder
    devices: Mapping[str, DeviceRecord]
    roofline: Roofline
    manifest: Manifest
    quantities: list[Quantity]
    fingerprint: str  # the same for one run and its copies, whatever else an archive holds

    @property
    def effort(self) -> str | None:
        return self.manifest.config.get("effort")

    @property
    def commit(self) -> str | None:
        return self.manifest.sources.commit

    def of_device(self, device: str) -> dict[str, Quantity]:
        """The quantities of one device, by key."""
        return {one.key: one for one in self.quantities if one.device == device}


def quantities(roofline: Roofline) -> list[Quantity]:
    """All figures in the order of roofline.json."""
    found: list[Quantity] = []
    for ceiling in roofline.ceilings:
        found += _compute(ceiling) if ceiling.kind == "compute" else [_memory(ceiling)]
    for one in roofline.instructions:
        rate = one.warp_instructions_per_s / 1e9
        words = ("issue", "instruction issue", "issue", rate, "G warp instructions/s", True)
        found.append(Quantity(one.device, *words, one.samples, None, one.record, one.doubt))
    return found + [figure for cell in roofline.operators for figure in _cell(cell, roofline)]


def sound(figures: Iterable[Quantity], device: str) -> list[Quantity]:
    """Figures of one device that may be relied on."""
    return [one for one in figures if one.device == device and not one.doubt]


def fingerprint(figures: Iterable[Quantity], devices: Mapping[str, DeviceRecord]) -> str:
    """SHA-256 over every figure in full and over which devices were queried when."""
    asked = sorted((record.device, record.uuid, record.queried_at) for record in devices.values())
    values = sorted((one.device, one.key, repr(one.value)) for one in figures)
    return hashlib.sha256(json.dumps([asked, values]).encode()).hexdigest()


def _compute(ceiling: ComputeCeiling) -> list[Quantity]:
    """Burst and sustained are two figures: the one shows the product, the other the power limit and the cooling."""
    unit, inputs = flops_unit(ceiling.name), ceiling.inputs
    words = (ceiling.device, ceiling.name, ceiling.name, "burst", ceiling.burst_tflops, unit, True)
    found = [Quantity(*words, ceiling.samples, inputs, ceiling.record, ceiling.doubt)]
    if ceiling.sustained_tflops:
        key = f"{ceiling.name}/sustained"
        words = (ceiling.device, key, f"{ceiling.name} sustained", "sustained", ceiling.sustained_tflops, unit, True)
        found.append(Quantity(*words, None, inputs, ceiling.record, ceiling.doubt))
    return found


def _memory(ceiling: MemoryCeiling) -> Quantity:
    kind = levels.medium(ceiling.level)
    kind = "pageable" if ceiling.host_memory == "pageable" else kind
    words = (ceiling.device, ceiling.name, ceiling.name, kind, ceiling.gb_per_s, "GB/s", True)
    return Quantity(*words, ceiling.samples, None, ceiling.record, ceiling.doubt)


def _cell(cell: Cell, roofline: Roofline) -> list[Quantity]:
    """The device's time, where it is known apart, and what a caller gets: the host has its part in that."""
    shape = ",".join(f"{name}{size}" for name, size in cell.shape.items())
    parts = (cell.operator, cell.name, cell.implementation, cell.preset, cell.scope, cell.dtype, cell.cache, shape)
    key, found = "/".join(filter(None, parts)), []
    times = (("device_time", "GPU time", cell.gpu_time_s), ("caller_time", "CPU time", cell.cpu_time_s))
    for kind, words, seconds in times:
        if seconds:
            named = (
                cell.device,
                f"{key}/{kind}",
                f"{roofline.full_name(cell)}, {words}",
                kind,
                seconds * 1e6,
                "us",
                False,
            )
            modal = kind == "caller_time" and host_bound(seconds, cell.gpu_time_s, cell.cpu_time_deciles)
            found.append(Quantity(*named, cell.samples, None, cell.record, cell.doubt, modal))
    return found


def host_bound(caller: float, device: float | None, deciles: float | None = None) -> bool:
    """Whether the host sets the pace of a call, by its time, the device's part and how far its samples reach.

    Such a time has modes: one process is at 190 us throughout, and the next at 250. Never of a device that is its own
    caller, whose device's part is None.
    """
    return device is not None and (caller > HOST_BOUND * device or (deciles or 1) > WIDE)
