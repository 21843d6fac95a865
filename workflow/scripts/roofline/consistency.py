"""Whether a record's figures follow from its own samples: a number edited by hand does not."""

import math
from collections.abc import Iterator

from roofline import statistics
from roofline.load import summarise
from roofline.records import (
    BandwidthRecord,
    DecodeAttnRecord,
    JobRecord,
    Measurement,
    PeakFlops,
    PeakFlopsRecord,
    Timing,
)

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
    if isinstance(record, DecodeAttnRecord):
        for measured in record.measurements:
            yield from _measurement(f"{measured.scope} batch {measured.shape['batch']}", measured)
    if isinstance(record, PeakFlopsRecord) and record.peak:
        yield from _peak(record.peak)


def _peak(peak: PeakFlops) -> Iterator[str]:
    yield from _same("tflops", peak.tflops, max(peak.burst_tflops, peak.sustained_tflops or 0))
    others = [("outdone", block) for block in peak.outdone] + [("beside", block) for block in peak.beside]
    for name, block in (("burst", peak.burst), *others):
        yield from _timing(f"{name} latency", block.latency)
        yield from _same(f"{name} tflops", block.tflops, block.flops / block.latency.median_s / 1e12)
    yield from _same("burst_tflops", peak.burst_tflops, max(block.tflops for block in (peak.burst, *peak.outdone)))
    if peak.lab:
        yield from _measurement("lab", peak.lab)
        yield from _same("lab_tflops", peak.lab_tflops, peak.lab.flops / peak.lab.latency.median_s / 1e12)
    if peak.sustained:
        again = summarise(peak.sustained.curve, peak.sustained.product, peak.sustained.seconds)
        yield from _same("sustained_tflops", peak.sustained_tflops, again.tflops)


def _measurement(name: str, measured: Measurement) -> Iterator[str]:
    yield from _timing(f"{name} latency", measured.latency)
    if measured.device_latency:
        yield from _timing(f"{name} device_latency", measured.device_latency)


def _timing(name: str, timing: Timing) -> Iterator[str]:
    yield from _same(f"{name} median_s", timing.median_s, statistics.median(timing.samples_s))


def _same(name: str, written: float, computed: float) -> Iterator[str]:
    if not math.isclose(written, computed, rel_tol=TOLERANCE):
        yield f"{name} is {written:g} and its samples give {computed:g}"
