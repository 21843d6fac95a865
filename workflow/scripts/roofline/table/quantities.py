"""Every quantity by which a run can be compared with others, as plain data."""

from collections.abc import Iterator
from typing import NamedTuple

from roofline.core import levels
from roofline.core.formatting import capacity, flops_unit
from roofline.core.repeatability import Doubt
from roofline.core.terms import QuantityKind
from roofline.records.base import copy_fields
from roofline.records.operator_record import CellKey
from roofline.table.rows import (
    AllReduceRow,
    AllReduceSize,
    CellRow,
    ComputeCeiling,
    InstructionRoofline,
    MemoryCeiling,
    Roofline,
)

COMMON = ("device", "record", "doubt")  # of every row
TIME_UNIT = "us"
HOST_BOUND = 1.05  # CPU time over GPU time: above it the device waits for the host
WIDE = 1.2  # the ninth decile of CPU times over the first: of cells that the device paces it is 1.1 at most


class Quantity(NamedTuple):
    """One quantity of one device in one run."""

    key: str  # the same in every run: fp16, fp16/sustained, hbm_read, gemm/cuBLASLt/.../gpu_time
    name: str  # as text
    kind: QuantityKind
    value: float
    unit: str
    device: str  # its key in that run, such as gpu0
    record: str | None  # below results/
    doubt: Doubt | None  # why the value is not to be relied on
    inputs: str | None = None  # operands, where a record has them
    modal: bool = False  # whether the host sets its pace, so that it may settle at one of several levels

    @property
    def higher_is_better(self) -> bool:
        """True of rates, False of times."""
        return self.unit != TIME_UNIT


def list_quantities(roofline: Roofline) -> list[Quantity]:
    """Return all quantities of a run in the order of roofline.json."""
    quantities = [quantity for ceiling in roofline.ceilings for quantity in _ceiling_quantities(ceiling)]
    quantities += [_issue_quantity(row) for row in roofline.instructions]
    quantities += [*_all_reduce_quantities(roofline)]
    quantities += [quantity for cell in roofline.operators for quantity in _cell_quantities(cell, roofline)]
    return quantities


def _issue_quantity(row: InstructionRoofline) -> Quantity:
    rate = row.warp_instructions_per_s / 1e9
    return Quantity("issue", "instruction issue", "issue", rate, "G warp instructions/s", **copy_fields(row, *COMMON))


def _all_reduce_quantities(roofline: Roofline) -> Iterator[Quantity]:
    """Yield the rate of each size: of pairs and, where cards are in two, of each card by its faster pair."""

    def make_quantity(device: str, key: str, name: str, row: AllReduceRow, size: AllReduceSize) -> Quantity:
        key, name = f"{key}/{size.size_bytes}", f"{name}, {capacity(size.size_bytes)}"
        return Quantity(key, name, "link", size.gb_per_s, "GB/s", device, row.record, size.doubt)

    for row in roofline.all_reduces:
        for size in row.sizes:
            yield make_quantity(row.device, f"all_reduce_{row.peer}", f"all-reduce with {row.peer}", row, size)
    for device, fastest in roofline.fastest_all_reduces.items():
        for row, size in fastest:
            yield make_quantity(device, "all_reduce", "all-reduce of the faster pair", row, size)


def _ceiling_quantities(row: ComputeCeiling | MemoryCeiling) -> Iterator[Quantity]:
    """Yield burst and sustained apart: the first shows the product, the second the power limit and the cooling."""
    common = copy_fields(row, *COMMON)
    if row.kind == "memory":
        kind: QuantityKind = "pageable" if row.host_memory == "pageable" else levels.level_medium(row.level)
        yield Quantity(row.name, row.name, kind, row.gb_per_s, "GB/s", **common)
        return
    unit, common = flops_unit(row.name), common | {"inputs": row.inputs}
    yield Quantity(row.name, row.name, "burst", row.burst_tflops, unit, **common)
    if row.sustained_tflops:
        key, name = f"{row.name}/sustained", f"{row.name} sustained"
        yield Quantity(key, name, "sustained", row.sustained_tflops, unit, **common)


def _cell_quantities(cell: CellRow, roofline: Roofline) -> Iterator[Quantity]:
    """Yield the GPU time, if there is one, and the CPU time, in which the host has its part."""
    key, name = cell_key(cell), roofline.full_name(cell)
    common = copy_fields(cell, *COMMON)
    if cell.gpu_time_s:
        yield Quantity(f"{key}/gpu_time", f"{name}, GPU time", "gpu_time", cell.gpu_time_s * 1e6, TIME_UNIT, **common)
    if cell.cpu_time_s:
        common["modal"] = _host_bound(cell, cell.cpu_time_s)
        yield Quantity(f"{key}/cpu_time", f"{name}, CPU time", "cpu_time", cell.cpu_time_s * 1e6, TIME_UNIT, **common)


def cell_key(cell: CellKey) -> str:
    """Return what is the same of a cell in every run; the keys of its times add /gpu_time and /cpu_time."""
    name = cell.name if isinstance(cell, CellRow) else None
    shape = ",".join(f"{dimension}{size}" for dimension, size in cell.shape.items())
    parts = (cell.operator, name, cell.implementation, cell.preset, cell.scope, cell.dtype, cell.cache, shape)
    return "/".join(filter(None, parts))


def _host_bound(cell: CellRow, cpu_s: float) -> bool:
    """Return whether the host sets the pace: such a time has modes, 190 us in one process and 250 us in the next."""
    gpu_s = cell.gpu_time_s
    return gpu_s is not None and (cpu_s > HOST_BOUND * gpu_s or (cell.cpu_time_decile_ratio or 1) > WIDE)
