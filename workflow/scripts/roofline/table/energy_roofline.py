"""The energy roofline: power = base + joules per byte x bandwidth + joules per FLOP x rate, fitted for each dtype.

Choi, Bedard, Fowler and Vuduc: A roofline model of energy, IPDPS 2013.
"""

from collections.abc import Iterator

import numpy

from roofline.core.statistics import median
from roofline.records.bandwidth_record import BandwidthRecord
from roofline.table.cell_rows import Ceilings
from roofline.table.rows import ComputeCeiling, EnergyFit

ONE_CLOCK = 0.01  # a point counts if its clock is within this of the median clock
FEWEST_FIT_POINTS = 4


def fit_energy(path: str, record: BandwidthRecord, ceilings: Ceilings) -> Iterator[EnergyFit]:
    """Yield a fit for each dtype whose points determine one, of points that no power limit held back.

    The fit is by least squares of the relative residuals.
    """
    for dtype in dict.fromkeys(point.dtype for point in record.energy_points):
        usable = [point for point in record.energy_points if point.dtype == dtype and point.usable]
        clock_mhz = median([point.sustained.sm_clock_mhz for point in usable]) if usable else 0.0
        at_clock = [point for point in usable if abs(point.sustained.sm_clock_mhz / clock_mhz - 1) <= ONE_CLOCK]
        points = [point.power_point for point in at_clock]
        if len(points) < FEWEST_FIT_POINTS:
            continue
        terabytes_per_s = numpy.array([point.bytes_per_s for point in points]) / 1e12
        tflops = numpy.array([point.flops_per_s for point in points]) / 1e12
        watts = numpy.array([point.power_w for point in points])
        # Each row over its power: every residual is then a relative one.
        relative = numpy.stack([numpy.ones(len(points)), terabytes_per_s, tflops], axis=1) / watts[:, None]
        terms, _, rank, _ = numpy.linalg.lstsq(relative, numpy.ones(len(points)), rcond=1e-6)
        base_power_w, joules_per_byte, joules_per_flop = map(float, terms / (1, 1e12, 1e12))
        if rank < 3 or min(terms) <= 0:  # the points do not separate them
            continue
        above_w = _power_above_fit(ceilings.get(dtype), base_power_w, joules_per_flop, clock_mhz)
        yield EnergyFit(
            device=record.device,
            dtype=dtype,
            base_power_w=base_power_w,
            joules_per_byte=joules_per_byte,
            joules_per_flop=joules_per_flop,
            rms_relative_error=float(numpy.sqrt(numpy.mean((relative @ terms - 1) ** 2))),
            sm_clock_mhz=clock_mhz,
            gemm_above_fit_w=above_w,
            gemm_above_fit_joules_per_flop=above_w and above_w / _flops_per_s(ceilings[dtype]),
            points=points,
            record=path,
        )


def _power_above_fit(
    gemm: ComputeCeiling | None, base_power_w: float, joules_per_flop: float, clock_mhz: float
) -> float | None:
    """The watts that a sustained GEMM on CUDA cores draws above the fit at its clock, without its few bytes.

    None if no GEMM ran at this clock, or if it drew no more power.
    """
    if not gemm or gemm.compute_unit != "cuda_core" or not gemm.energy or not gemm.energy.joules_per_flop:
        return None
    if abs((gemm.energy.sm_clock_mhz or 0) / clock_mhz - 1) > ONE_CLOCK:
        return None
    above_w = gemm.energy.power_w - base_power_w - joules_per_flop * _flops_per_s(gemm)
    return above_w if above_w > 0 else None


def _flops_per_s(gemm: ComputeCeiling) -> float:
    """The FLOP/s of a sustained GEMM between the ticks of the energy counter."""
    return gemm.energy.power_w / gemm.energy.joules_per_flop
