"""Whether a record's figures follow from its own samples: a number edited by hand does not."""

import math
from collections.abc import Iterator

from roofline.core import statistics
from roofline.measure.sustained import summarise
from roofline.records.compute import PeakFlops, PeakFlopsRecord
from roofline.records.memory import BandwidthRecord
from roofline.records.operator import JobRecord, Measurement
from roofline.records.timing import Timing

# Figures are written in full; this allows for the rounding of samples to a tenth of a nanosecond.
TOLERANCE = 1e-6


def contradictions(record: JobRecord) -> list[str]:
    """One line for each figure that differs from what the record's samples give."""
    return list(_found(record))


def _found(record: JobRecord) -> Iterator[str]:
    if isinstance(record, BandwidthRecord):
        for one in record.bandwidths:
            yield from _timing(one.name, one.latency)
            yield from _same(f"{one.name} gb_per_s", one.gb_per_s, one.bytes / one.latency.median_s / 1e9)
            if one.blocks_gb_per_s:
                yield from _same(f"{one.name} fastest block", max(one.blocks_gb_per_s), one.gb_per_s)
        if record.envelope:
            whole = [one.gb_per_s for one in record.bandwidths if one.name.count("_") == 1]  # not those of one core
            yield from _same("envelope", record.envelope.gb_per_s, max(whole, default=0))
    for measured in record.measurements:
        name = " ".join(filter(None, [measured.implementation, measured.scope, measured.label]))
        yield from _timing(f"{name} latency", measured.latency)
        if measured.device_latency:
            yield from _timing(f"{name} device_latency", measured.device_latency)
    if isinstance(record, PeakFlopsRecord) and record.peak:
        yield from _peak(record.peak, record.measurements)


def _peak(peak: PeakFlops, measurements: list[Measurement]) -> Iterator[str]:
    yield from _same("tflops", peak.tflops, max(peak.burst_tflops, peak.sustained_tflops or 0))
    others = [("re-measured", block) for block in peak.slower_remeasurements]
    others += [("variant", block) for block in peak.variants]
    for name, block in (("burst", peak.burst), *others):
        yield from _timing(f"{name} latency", block.latency)
        yield from _same(f"{name} tflops", block.tflops, block.flops / block.latency.median_s / 1e12)
    remeasured = (peak.burst, *peak.slower_remeasurements)
    yield from _same("burst_tflops", peak.burst_tflops, max(block.tflops for block in remeasured))
    for reference in measurements[:1]:
        tflops = reference.flops / reference.latency.median_s / 1e12
        yield from _same("reference_tflops", peak.reference_tflops or 0, tflops)
    if peak.sustained:
        again = summarise(peak.sustained.curve, peak.sustained.product, peak.sustained.seconds)
        yield from _same("sustained_tflops", peak.sustained_tflops, again.tflops)


def _timing(name: str, timing: Timing) -> Iterator[str]:
    yield from _same(f"{name} median_s", timing.median_s, statistics.median(timing.samples_s))


def _same(name: str, written: float, computed: float) -> Iterator[str]:
    if not math.isclose(written, computed, rel_tol=TOLERANCE):
        yield f"{name} is {written:g} and its samples give {computed:g}"
