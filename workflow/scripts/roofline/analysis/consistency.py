"""Whether a record's figures follow from its own samples: a number edited by hand does not."""

import math
from collections.abc import Iterator

from roofline.core import statistics
from roofline.measure.sustained import summarise
from roofline.records.base import Interval
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
            yield from _rates(one.name, one.ci95, one.bytes / 1e9, one.latency)
            yield from _share(
                f"{one.name} fraction_of_vendor", one.fraction_of_vendor, one.gb_per_s, one.vendor_gb_per_s
            )
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
    yield from _share("fraction_of_vendor", peak.fraction_of_vendor, peak.tflops, peak.vendor_tflops)
    yield from _share("fraction_of_clock", peak.fraction_of_clock, peak.burst_tflops, peak.clock_tflops)
    others = [("re-measured", block) for block in peak.slower_remeasurements]
    others += [("variant", block) for block in peak.variants]
    for name, block in (("burst", peak.burst), *others):
        yield from _timing(f"{name} latency", block.latency)
        yield from _same(f"{name} tflops", block.tflops, block.flops / block.latency.median_s / 1e12)
        yield from _rates(name, block.ci95, block.flops / 1e12, block.latency)
    remeasured = (peak.burst, *peak.slower_remeasurements)
    yield from _same("burst_tflops", peak.burst_tflops, max(block.tflops for block in remeasured))
    for reference in measurements[:1]:
        tflops = reference.flops / reference.latency.median_s / 1e12
        yield from _same("reference_tflops", peak.reference_tflops or 0, tflops)
    yield from _same("clock_mhz", peak.clock_mhz, peak.burst.sm_clock_mhz)
    ci95 = peak.burst.ci95
    if peak.sustained:
        again = summarise(peak.sustained.curve, peak.sustained.product, peak.sustained.seconds)
        yield from _same("sustained_tflops", peak.sustained_tflops, again.tflops)
        yield from _same("sustained tflops", peak.sustained.tflops, again.tflops)
        ci95 = again.ci95 if again.tflops > peak.burst_tflops else ci95
    yield from _interval("ci95", peak.ci95, ci95)


def _timing(name: str, timing: Timing) -> Iterator[str]:
    yield from _same(f"{name} median_s", timing.median_s, statistics.median(timing.samples_s))
    yield from _interval(f"{name} ci95_s", timing.ci95_s, statistics.median_interval(timing.samples_s))


def _rates(name: str, written: Interval | None, counted: float, timing: Timing) -> Iterator[str]:
    """The interval of a rate from that of its times."""
    computed = timing.ci95_s and (counted / timing.ci95_s[1], counted / timing.ci95_s[0])
    yield from _interval(f"{name} ci95", written, computed)


def _share(name: str, written: float | None, part: float, whole: float | None) -> Iterator[str]:
    yield from _same(name, written, whole and part / whole)


def _interval(name: str, written: Interval | None, computed: Interval | None) -> Iterator[str]:
    for end in (0, 1) if written or computed else ():
        yield from _same(f"{name}[{end}]", written and written[end], computed and computed[end])


def _same(name: str, written: float | None, computed: float | None) -> Iterator[str]:
    unknown = None in (written, computed)
    if written is not computed if unknown else not math.isclose(written, computed, rel_tol=TOLERANCE):
        yield f"{name} is {_shown(written)} and its samples give {_shown(computed)}"


def _shown(value: float | None) -> str:
    return "null" if value is None else f"{value:g}"
