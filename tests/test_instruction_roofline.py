"""Where kernels are placed on the instruction roofline."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from records_factory import instructions_record

from roofline.table.instruction_roofline import build_instruction_row, place_kernel
from roofline.table.rows import CellKeyRow


def cell(**fields):
    values = dict.fromkeys(CellKeyRow.model_fields) | {"operator": "scan", "implementation": "plain", "dtype": "fp32"}
    values |= {"shape": {"n": 1}, "device": "gpu0", "own_time_s": 1e-6, "gpu_fraction_of_roof": 0.5}
    values |= {"fraction_of_roof": 0.2}
    return SimpleNamespace(**values | fields)


RATES = {"hbm": 1e11, "l2": 4e11}


def profiled(operator, **fields):
    """A cell as the hardware counted it."""
    levels = ("l1_load_sectors", "l1_store_sectors", "shared_load_wavefronts", "shared_store_wavefronts")
    levels += ("l2_read_sectors", "l2_write_sectors", "dram_read_bytes", "dram_write_bytes")
    values = dict.fromkeys(levels, 320) | {name: getattr(operator, name) for name in CellKeyRow.model_fields}
    values |= {"warp_instructions": 100, "thread_instructions": 3200, "predicated_on_thread_instructions": 1600}
    return SimpleNamespace(**values | {"declared_write_bytes": 320} | fields)


@pytest.mark.parametrize(
    ("instructions", "moved", "limit"),
    [
        (900_000, {}, "issue"),
        (10_000, {"dram_read_bytes": 90_000 * 32, "l2_read_sectors": 90_000}, "hbm"),
        (10_000, {"l2_read_sectors": 300_000}, "l2"),
        (10_000, {"l1_load_sectors": 1e12}, "latency"),
    ],
)
def test_what_limits_a_kernel_is_what_it_uses_most_of(instructions, moved, limit):
    """In a microsecond; a level that was not measured says nothing."""
    counted = profiled(cell(), warp_instructions=instructions, **moved)
    placed = place_kernel(cell(), counted, 1e12, RATES)
    assert placed.limit == limit
    assert placed.fraction_of_issue == pytest.approx(instructions / 1e6)


def placed_by(operator, *counted):
    record = instructions_record("gpu0", 1e12)
    return build_instruction_row("gpu0/instructions/rates.json", record, {}, [operator], counted).kernels


def test_cells_stand_where_they_were_counted_and_others_are_left_out():
    operator = cell()
    (kernel,) = placed_by(operator, profiled(operator))
    assert (kernel.warp_instructions, kernel.active_lanes) == (100, 16)
    assert kernel.transactions == {"l1": 640, "shared": 640, "l2": 640, "hbm": 20}
    assert placed_by(operator, profiled(operator, shape={"n": 2})) == placed_by(operator) == []
    assert placed_by(operator, profiled(operator, warp_instructions=None)) == []
    (kernel,) = placed_by(operator, profiled(operator, l2_write_sectors=None))
    assert "l2" not in kernel.transactions
