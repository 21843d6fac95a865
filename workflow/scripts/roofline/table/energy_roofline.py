"""The energy roofline: power = base + joules per byte x bandwidth + joules per FLOP x rate, fitted for each dtype.

Choi, Bedard, Fowler and Vuduc: A roofline model of energy, IPDPS 2013.
"""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

import numpy

from roofline.core.disturbance import throttle_reasons_text
from roofline.core.formatting import number
from roofline.core.grouping import group_by
from roofline.core.repeatability import relative_spread
from roofline.core.statistics import student_t_half_width
from roofline.records.bandwidth_record import BandwidthRecord
from roofline.records.energy_record import EnergyPoint, PowerPoint
from roofline.table.rows import ComputeCeiling, EnergyFit

ONE_CLOCK = 0.01  # a point counts if its clock is within this of the median clock
CONSTANTS = 3  # that a fit has
FEWEST_FIT_POINTS = CONSTANTS + 1
UNITS = (1, 1e12, 1e12)  # of the fit, W, TB/s and TFLOPS, over those of its constants


class PowerFit(NamedTuple):
    """The fields of an EnergyFit that follow from its points: constants, half widths of their intervals, and misses."""

    base_power_w: float
    joules_per_byte: float
    joules_per_flop: float
    base_power_half_width_w: float
    joules_per_byte_half_width: float
    joules_per_flop_half_width: float
    rms_relative_error: float
    residual_standard_error: float


def fit_energy(path: str, record: BandwidthRecord, peaks: Mapping[str, ComputeCeiling]) -> Iterator[EnergyFit]:
    """Yield a fit for each dtype whose points determine one, of points that no power limit held back.

    `peaks` has the device's compute ceilings, by name.
    """
    for dtype, of_dtype in group_by(record.energy_points, lambda point: point.dtype).items():
        usable = [point for point in of_dtype if point.usable]
        clocks_mhz = [point.sustained.sm_clock_mhz for point in usable if point.sustained.sm_clock_mhz]
        clock_mhz = median(clocks_mhz) if clocks_mhz else 0.0
        pairs = zip(usable, clocks_mhz, strict=True)  # each usable point has a clock
        fitted = [point for point, mhz in pairs if abs(mhz / clock_mhz - 1) <= ONE_CLOCK]
        points = [point.power_point for point in fitted]
        if len(points) < FEWEST_FIT_POINTS or (fit := _fit_power(points)) is None:
            continue
        above_w, above_joules = _energy_above_fit(peaks.get(dtype), fit, clock_mhz)
        yield EnergyFit(
            device=record.device,
            dtype=dtype,
            **fit._asdict(),
            repeats_spread=_spread_of_repeats(fitted),
            left_out=[_why_left_out(point) for point in of_dtype if point not in fitted],
            sm_clock_mhz=clock_mhz,
            gemm_above_fit_w=above_w,
            gemm_above_fit_joules_per_flop=above_joules,
            points=points,
            record=path,
        )


def _fit_power(points: Sequence[PowerPoint]) -> PowerFit | None:
    """The fit by least squares of the relative residuals; None if the points do not separate its constants."""
    terabytes_per_s = numpy.array([point.bytes_per_s for point in points]) / 1e12
    tflops = numpy.array([point.flops_per_s for point in points]) / 1e12
    watts = numpy.array([point.power_w for point in points])
    # Each row over its power: every residual is then a relative one.
    relative = numpy.stack([numpy.ones(len(points)), terabytes_per_s, tflops], axis=1) / watts[:, None]
    terms, _, rank, _ = numpy.linalg.lstsq(relative, numpy.ones(len(points)), rcond=1e-6)
    if rank < CONSTANTS or min(terms) <= 0:
        return None
    freedom = len(points) - CONSTANTS
    squares = (relative @ terms - 1) ** 2
    standard_error = float(numpy.sqrt(numpy.sum(squares) / freedom))
    standard_errors = standard_error * numpy.sqrt(numpy.diag(numpy.linalg.inv(relative.T @ relative)))
    half_widths = student_t_half_width(freedom) * standard_errors
    misses = numpy.sqrt(numpy.mean(squares)), standard_error
    return PowerFit(*map(float, [*(terms / UNITS), *(half_widths / UNITS), *misses]))  # in the order of its fields


def _energy_above_fit(
    gemm: ComputeCeiling | None, fit: PowerFit, clock_mhz: float
) -> tuple[float, float] | tuple[None, None]:
    """The watts that a sustained GEMM on CUDA cores draws above the fit at its clock, and the joules of each FLOP.

    Its few bytes are left out. None if no GEMM ran at this clock, or if it drew no more power.
    """
    energy = gemm.energy if gemm and gemm.compute_unit == "cuda_core" else None
    if not energy or not energy.joules_per_flop or not energy.power_w:
        return None, None
    flops_per_s = energy.power_w / energy.joules_per_flop  # between the ticks of the energy counter
    above_w = energy.power_w - fit.base_power_w - fit.joules_per_flop * flops_per_s
    at_clock = abs((energy.sm_clock_mhz or 0) / clock_mhz - 1) <= ONE_CLOCK
    return (above_w, above_w / flops_per_s) if at_clock and above_w > 0 else (None, None)


def _spread_of_repeats(points: Sequence[EnergyPoint]) -> float | None:
    """Return the largest relative spread of the power of a kernel that was loaded twice; None if none was."""
    kernels = group_by(points, lambda one: (one.multiply_adds_per_number, one.blocks_per_multiprocessor)).values()
    spreads = [relative_spread([point.power_point.power_w for point in repeats]) for repeats in kernels]
    return max((spread for spread in spreads if spread is not None), default=None)


def _why_left_out(point: EnergyPoint) -> str:
    load = point.sustained
    reason = load.energy.reason if load.energy else "no energy counter"
    limits = throttle_reasons_text(load.throttle_reasons)
    why = reason or (f"held back ({limits})" if limits else f"at {number(load.sm_clock_mhz or 0)} MHz")
    return f"{point.multiply_adds_per_number} multiply-adds a number: {why}"
