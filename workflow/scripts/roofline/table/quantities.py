"""Every figure of a run by which it can be compared with others, as plain data."""

from collections.abc import Iterator
from typing import NamedTuple

from roofline.core.formatting import flops_unit
from roofline.core.repeatability import Doubt
from roofline.core.terms import QuantityKind
from roofline.devices import levels
from roofline.table.rows import CellRow, ComputeCeiling, MemoryCeiling, Roofline

TIME = "us"
HOST_BOUND = 1.05  # of the device's time, that a caller waits: the device waits for the host
WIDE = 1.2  # the ninth decile of a caller's samples over the first: of figures that the device sets it is 1.1 at most


class Quantity(NamedTuple):
    """One figure of one device as one run found it."""

    key: str  # the same in every run: fp16, fp16/sustained, hbm_read, gemm/cuBLASLt/.../gpu_time
    name: str  # in words
    kind: QuantityKind
    value: float
    unit: str
    device: str  # its key in that run, such as gpu0
    record: str | None  # below results/
    doubt: Doubt | None  # why it is not to be relied on
    samples: int | None = None  # timed ones that it rests on; None if not known
    inputs: str | None = None  # operands, where a record has them
    modal: bool = False  # whether the host sets its pace, so that it may settle at one of several levels

    @property
    def higher_is_better(self) -> bool:
        return self.unit != TIME


def list_quantities(roofline: Roofline) -> list[Quantity]:
    """All figures in the order of roofline.json."""
    found = [one for ceiling in roofline.ceilings for one in _ceiling(ceiling)]
    for one in roofline.instructions:
        words = ("issue", "instruction issue", "issue", one.warp_instructions_per_s / 1e9, "G warp instructions/s")
        found.append(Quantity(*words, one.device, one.record, one.doubt, one.sample_count))
    return found + [figure for cell in roofline.operators for figure in _cell(cell, roofline)]


def _ceiling(c: ComputeCeiling | MemoryCeiling) -> Iterator[Quantity]:
    """Burst and sustained are two figures: the one shows the product, the other the power limit and the cooling."""
    of = {"device": c.device, "record": c.record, "doubt": c.doubt}
    if c.kind == "memory":
        kind = "pageable" if c.host_memory == "pageable" else levels.level_medium(c.level)
        yield Quantity(c.name, c.name, kind, c.gb_per_s, "GB/s", **of, samples=c.sample_count)
        return
    unit, of = flops_unit(c.name), of | {"inputs": c.inputs}
    yield Quantity(c.name, c.name, "burst", c.burst_tflops, unit, **of, samples=c.sample_count)
    if c.sustained_tflops:
        yield Quantity(f"{c.name}/sustained", f"{c.name} sustained", "sustained", c.sustained_tflops, unit, **of)


def _cell(cell: CellRow, roofline: Roofline) -> Iterator[Quantity]:
    """GPU time, where it is known apart, and CPU time: the host has its part in that."""
    shape = ",".join(f"{name}{size}" for name, size in cell.shape.items())
    parts = (cell.operator, cell.name, cell.implementation, cell.preset, cell.scope, cell.dtype, cell.cache, shape)
    key, name = "/".join(filter(None, parts)), roofline.full_name(cell)
    of = {"device": cell.device, "record": cell.record, "doubt": cell.doubt, "samples": cell.sample_count}
    if cell.gpu_time_s:
        yield Quantity(f"{key}/gpu_time", f"{name}, GPU time", "gpu_time", cell.gpu_time_s * 1e6, TIME, **of)
    if cell.cpu_time_s:
        of["modal"] = _host_bound(cell)
        yield Quantity(f"{key}/cpu_time", f"{name}, CPU time", "cpu_time", cell.cpu_time_s * 1e6, TIME, **of)


def _host_bound(cell: CellRow) -> bool:
    """Whether the host sets the pace: such a time has modes, 190 us in one process and 250 us in the next."""
    gpu_s = cell.gpu_time_s
    return gpu_s is not None and (cell.cpu_time_s > HOST_BOUND * gpu_s or (cell.cpu_time_decile_ratio or 1) > WIDE)
