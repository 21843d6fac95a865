"""The picture of the instruction roofline, on an H200's ceilings and cells with made-up rates and counts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from pictures import overlapping_texts, texts_outside

from roofline.analysis.instructions import CELL, _kernels, placed_kernel, transaction_roofs
from roofline.analysis.results import read_table
from roofline.analysis.table import InstructionRoofline, InstructionWall, Roofline
from roofline.core.instructions import sectors_per_request
from roofline.devices.gpu.instructions import LANES_ON, STRIDES, WAYS
from roofline.report import instruction_figure

CHECKOUT = Path(__file__).parents[1]
ISSUE, CLOCK = 1.04e12, 1980.0


def wall(pattern: str, of: int, transactions: int | None, cycles: float) -> InstructionWall:
    rates = {"requests_per_s": 132 * CLOCK * 1e6 / cycles, "cycles_per_request": cycles}
    return InstructionWall(pattern=pattern, of=of, transactions_per_request=transactions, **rates)


def made_up_walls() -> list[InstructionWall]:
    strides = [wall("stride", of, sectors_per_request(of), max(1, sectors_per_request(of) / 4)) for of in STRIDES]
    conflicts = [wall("conflict", ways, ways, ways) for ways in WAYS]
    return [*strides, *conflicts, *(wall("predication", lanes, None, 0.25) for lanes in LANES_ON)]


def counts(cell, instructions_per_byte: float, lanes: float | None = 31.0) -> dict:
    """As counters give them: L1 moves twice the bytes, memory the declared ones."""
    sectors = cell.bytes / 32
    return {
        "warp_instructions": instructions_per_byte * cell.bytes,
        "lanes_on": lanes,
        "transactions": {"l1": 2 * sectors, "shared": sectors / 8, "l2": 1.1 * sectors, "hbm": sectors},
        "sectors_per_request": 4.0,
    }


def instruction_roofline(kernels: int = 40) -> Roofline:
    roofline = read_table(CHECKOUT / "reference/nvidia-h200/roofline.json")
    levels = transaction_roofs([one for one in roofline.ceilings if one.device == "gpu0" and one.kind == "memory"])
    rates = {level.level: level.transactions_per_s for level in levels}
    cells = [cell for cell in roofline.operators if cell.device == "gpu0" and cell.bytes and cell.latency_s]
    placed = []
    for place, cell in enumerate(cells[:: max(1, len(cells) // max(1, kernels))][:kernels]):
        found = counts(cell, 0.01 * (1 + place % 7), lanes=None if place % 2 else 20.0)
        placed.append(placed_kernel(cell, found, ISSUE, rates))
    one = InstructionRoofline(
        device="gpu0",
        warp_instructions_per_s=ISSUE,
        sm_clock_mhz=CLOCK,
        fraction_of_peak=0.99,
        levels=levels,
        walls=made_up_walls(),
        kernels=placed,
        record="gpu0/instructions/rates.json",
    )
    return roofline.model_copy(update={"instructions": [one]})


@pytest.mark.parametrize("kernels", [0, 40, 500])
def test_nothing_overlaps_or_is_cut(kernels):
    figure = instruction_figure.draw(instruction_roofline(kernels))
    assert not overlapping_texts(figure)
    assert not texts_outside(figure)


# ---------------------------------------------------------------------------------------------- where kernels stand


def cell(**fields):
    known = dict.fromkeys(CELL) | {"operator": "scan", "dtype": "fp32", "shape": {"n": 1}, "full_name": "scan"}
    known |= {"device_latency_s": 1e-6, "latency_s": 2e-6, "device_fraction_of_roof": 0.5, "fraction_of_roof": 0.2}
    return SimpleNamespace(**known | fields)


RATES = {"hbm": 1e11, "l2": 4e11}


@pytest.mark.parametrize(
    ("instructions", "transactions", "limit"),
    [
        (900_000, {"hbm": 1}, "issue"),
        (10_000, {"hbm": 90_000, "l2": 90_000}, "hbm"),
        (10_000, {"hbm": 1_000, "l2": 300_000}, "l2"),
        (10_000, {"hbm": 10_000}, "latency"),
    ],
)
def test_what_limits_a_kernel_is_what_it_uses_most_of(instructions, transactions, limit):
    """In a microsecond; a level that was not measured says nothing."""
    counted = {"warp_instructions": instructions, "transactions": transactions | {"l1": 1e12}}
    placed = placed_kernel(cell(), counted, 1e12, RATES)
    assert placed.limited_by == limit
    assert placed.fraction_of_issue == pytest.approx(instructions / 1e6)


def profiled(operator, **fields):
    """A cell as the hardware counted it."""
    levels = ("l1_load_sectors", "l1_store_sectors", "shared_load_wavefronts", "shared_store_wavefronts")
    levels += ("l2_read_sectors", "l2_write_sectors", "dram_read_bytes", "dram_write_bytes")
    known = dict.fromkeys(levels, 320) | {name: getattr(operator, name) for name in CELL}
    known |= {"warp_instructions": 100, "thread_instructions": 3200, "predicated_on_thread_instructions": 1600}
    return SimpleNamespace(**known | {"l1_load_requests": 80} | fields)


def placed_by(operator, *counted):
    return _kernels([operator], counted, 1e12, RATES)


def test_cells_stand_where_they_were_counted_and_others_are_left_out():
    operator = cell()
    (one,) = placed_by(operator, profiled(operator))
    assert (one.warp_instructions, one.lanes_on, one.sectors_per_request) == (100, 16, 4)
    assert one.transactions == {"l1": 640, "shared": 640, "l2": 640, "hbm": 20}
    assert placed_by(operator, profiled(operator, shape={"n": 2})) == placed_by(operator) == []
    assert placed_by(operator, profiled(operator, warp_instructions=None)) == []
    (one,) = placed_by(operator, profiled(operator, l2_write_sectors=None, l1_load_requests=None))
    assert "l2" not in one.transactions and one.sectors_per_request is None
