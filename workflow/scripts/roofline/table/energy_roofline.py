"""The energy roofline: power = base + joules per byte x bandwidth + joules per FLOP x rate, fitted for each dtype.

Choi, Bedard, Fowler and Vuduc: A roofline model of energy, IPDPS 2013.
"""

from collections.abc import Iterator

import numpy

from roofline.core.statistics import median
from roofline.records.memory import BandwidthRecord
from roofline.table.rows import EnergyFit

ONE_CLOCK = 0.01  # what counts is within this of the median clock
FEWEST = 4


def energy_fits(path: str, record: BandwidthRecord) -> Iterator[EnergyFit]:
    """By least squares of relative residuals, on points that no power limit holds back."""
    for dtype in dict.fromkeys(point.dtype for point in record.energy_points):
        free = [point for point in record.energy_points if point.dtype == dtype and point.free]
        clock = median([point.load.sm_clock_mhz for point in free]) if free else 0.0
        points = [point.rates for point in free if abs(point.load.sm_clock_mhz / clock - 1) <= ONE_CLOCK]
        if len(points) < FEWEST:
            continue
        moved, flops, watts = map(numpy.array, zip(*points, strict=True))
        relative = numpy.stack([numpy.ones(len(points)), moved, flops], axis=1) / watts[:, None]
        terms = numpy.linalg.lstsq(relative, numpy.ones(len(points)), rcond=None)[0]
        names = ("base_w", "joules_per_byte", "joules_per_flop")
        yield EnergyFit(
            device=record.device,
            dtype=dtype,
            **dict(zip(names, map(float, terms), strict=True)),
            rms=float(numpy.sqrt(numpy.mean((relative @ terms - 1) ** 2))),
            clock_mhz=clock,
            points=points,
            record=path,
        )
