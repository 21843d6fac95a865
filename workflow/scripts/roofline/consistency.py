"""Whether a record's figures follow from its own samples: a number edited by hand does not."""

import math
from collections.abc import Iterator

from roofline import statistics
from roofline.records import BandwidthRecord, DecodeAttnRecord, JobRecord, Measurement, PeakFlopsRecord, Timing

# Figures are written in full; this allows for the rounding of samples to a tenth of a nanosecond.
TOLERANCE = 1e-6


def contradictions(record: JobRecord) -> list[str]:
    """One line for each figure that differs from what the record's samples give."""
    return list(_found(record))


def _found(record: JobRecord) -> Iterator[str]:
    if isinstance(record, BandwidthRecord):
        bandwidth = record.bandwidth
        yield from _timing("bandwidth", bandwidth.latency)
        yield from _same("gb_per_s", bandwidth.gb_per_s, bandwidth.bytes / bandwidth.latency.median_s / 1e9)
    if isinstance(record, DecodeAttnRecord):
        for measured in record.measurements:
            yield from _measurement(f"{measured.scope} batch {measured.shape['batch']}", measured)
    if isinstance(record, PeakFlopsRecord) and record.peak:
        peak = record.peak
        for name, block, tflops in (("lab", peak.lab, peak.lab_tflops), ("repeat", peak.repeat, peak.repeat_tflops)):
            yield from _measurement(name, block)
            yield from _same(f"{name}_tflops", tflops, block.flops / block.latency.median_s / 1e12)
        trials = [trial.tflops or 0 for trial in peak.investigation.trials] if peak.investigation else []
        yield from _same("tflops", peak.tflops, max(peak.lab_tflops, peak.repeat_tflops, *trials))


def _measurement(name: str, measured: Measurement) -> Iterator[str]:
    yield from _timing(f"{name} latency", measured.latency)
    if measured.device_latency:
        yield from _timing(f"{name} device_latency", measured.device_latency)


def _timing(name: str, timing: Timing) -> Iterator[str]:
    yield from _same(f"{name} median_s", timing.median_s, statistics.median(timing.samples_s))


def _same(name: str, written: float, computed: float) -> Iterator[str]:
    if not math.isclose(written, computed, rel_tol=TOLERANCE):
        yield f"{name} is {written:g} and its samples give {computed:g}"
