"""The energy roofline: power = base + joules per byte x bandwidth + joules per FLOP x rate, fitted for each dtype.

Choi, Bedard, Fowler and Vuduc: A roofline model of energy, IPDPS 2013.
"""

from collections.abc import Iterator

import numpy

from roofline.core.statistics import median
from roofline.records.bandwidth_record import BandwidthRecord
from roofline.table.cell_rows import Ceilings
from roofline.table.rows import ComputeCeiling, EnergyFit

ONE_CLOCK = 0.01  # what counts is within this of the median clock
FEWEST = 4


def fit_energy(path: str, record: BandwidthRecord, ceilings: Ceilings) -> Iterator[EnergyFit]:
    """By least squares of relative residuals, on points that no power limit holds back."""
    for dtype in dict.fromkeys(point.dtype for point in record.energy_points):
        free = [point for point in record.energy_points if point.dtype == dtype and point.free]
        clock = median([point.load.sm_clock_mhz for point in free]) if free else 0.0
        points = [point.rates for point in free if abs(point.load.sm_clock_mhz / clock - 1) <= ONE_CLOCK]
        if len(points) < FEWEST:
            continue
        moved, flops, watts = numpy.transpose(points) / [[1e12], [1e12], [1]]
        relative = numpy.stack([numpy.ones(len(points)), moved, flops], axis=1) / watts[:, None]
        terms, _, rank, _ = numpy.linalg.lstsq(relative, numpy.ones(len(points)), rcond=1e-6)
        base_w, per_byte, per_flop = map(float, terms / (1, 1e12, 1e12))
        if rank < 3 or min(terms) <= 0:  # the points do not separate them
            continue
        yield EnergyFit(
            device=record.device,
            dtype=dtype,
            base_w=base_w,
            joules_per_byte=per_byte,
            joules_per_flop=per_flop,
            **_above(ceilings.get(dtype), base_w, per_flop, clock),
            rms=float(numpy.sqrt(numpy.mean((relative @ terms - 1) ** 2))),
            clock_mhz=clock,
            points=points,
            record=path,
        )


def _above(gemm: ComputeCeiling | None, base_w: float, joules_per_flop: float, clock: float) -> dict[str, float]:
    """What a sustained GEMM on CUDA cores draws above the fit at its clock, without its few bytes."""
    joules = gemm and gemm.unit == "cuda_core" and gemm.energy and gemm.energy.joules_per_flop
    if not joules or abs((gemm.energy.clock_mhz or 0) / clock - 1) > ONE_CLOCK:
        return {}
    flops = gemm.energy.power_w / joules
    above_w = gemm.energy.power_w - base_w - joules_per_flop * flops
    return {"gemm_above_w": above_w, "gemm_above_joules_per_flop": above_w / flops} if above_w > 0 else {}
