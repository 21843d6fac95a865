"""Whether the ceilings of a CPU agree with each other. A guest sees no load of its host, but its figures show it."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from roofline.analysis.checks.conditions import bandwidths, peaks
from roofline.analysis.checks.registry import Evidence, Outcome, check
from roofline.core.device_kinds import KINDS
from roofline.core.dtypes import ITEM_BYTES
from roofline.core.formatting import flops_unit, number, percent
from roofline.devices.levels import ALL_CORES, CACHE_OR_MEMORY, MEMORY
from roofline.records.compute import PeakFlopsRecord
from roofline.records.memory import Bandwidth, BandwidthRecord
from roofline.records.operator import JobRecord

APART = 0.15  # of figures that should be equal: quiet runs of one host stay within 10 %
SWEEP_APART = 0.10  # of the sweep's memory and dram_read
NAMED = 3

AGREE = "ceilings agree with each other"


@check(
    AGREE,
    looks_at="measurements",
    of_cpus=True,
    action="run again, and believe the higher figures: a virtual machine cannot see other guests of its host",
)
def agree(known: Evidence) -> Outcome | None:
    """Of CPUs: a GPU's ceilings are held against its clock and the vendor's figures."""
    if KINDS[known.record.device_kind].accelerator:
        return None
    streams, compute = bandwidths(known.records), peaks(known.records)
    if not streams and not compute:
        return Outcome("not_applicable", "no ceiling was measured")
    doubts = [
        *_against_trials(streams),
        *_against_fewer_cores(streams),
        *_of_sweep(streams, known.records),
        *_of_registers(compute, known.record.hardware.get("clock_may_boost", False)),
        *_of_products(compute),
    ]
    if doubts:
        more = f"; and {len(doubts) - NAMED} more" if len(doubts) > NAMED else ""
        return Outcome("note", "; ".join(doubts[:NAMED]) + more, len(doubts), 0)
    return Outcome("pass", f"within {percent(APART)} of what else was measured", 0, 0)


def _against_trials(streams: Sequence[Bandwidth]) -> Iterator[str]:
    """The search before a block, and the other blocks, ran the same stream."""
    for one in streams:
        highest = max([*(trial.gb_per_s for trial in one.trials), *one.blocks_gb_per_s], default=0)
        if highest > (1 + APART) * one.gb_per_s:
            yield f"{one.name} is {number(one.gb_per_s)} GB/s, and a trial before it gave {number(highest)}"


def _against_fewer_cores(streams: Sequence[Bandwidth]) -> Iterator[str]:
    for fewer, more in combinations(sorted(streams, key=lambda one: one.cores or float("inf")), 2):
        same = (fewer.level, fewer.mix) == (more.level, more.mix) and fewer.cores != more.cores
        if same and fewer.gb_per_s > (1 + APART) * more.gb_per_s:
            told = f"{number(more.gb_per_s)} GB/s by {more.name}, and {number(fewer.gb_per_s)} by {fewer.name}"
            yield f"more cores gave less: {told}"


def _of_sweep(streams: Sequence[Bandwidth], records: Iterable[JobRecord]) -> Iterator[str]:
    """The last plateau of all cores is of memory, or may be; dram_read reads arrays of several times all caches."""
    read = next((one for one in streams if one.name == "dram_read"), None)
    sweeps = [sweep for one in records if isinstance(one, BandwidthRecord) for sweep in one.sweeps]
    for level in (level for sweep in sweeps if sweep.series == ALL_CORES for level in sweep.levels[-1:]):
        of_memory = level.name in (None, MEMORY, CACHE_OR_MEMORY) and not level.knee_bytes
        if read and of_memory and abs(level.gb_per_s / read.gb_per_s - 1) > SWEEP_APART:
            found, believed = number(level.gb_per_s), number(read.gb_per_s)
            yield (
                f"the sweep's last plateau is {found} GB/s, and dram_read {believed}: believe dram_read, whose arrays "
                "are several times all caches"
            )


def _of_registers(compute: Iterable[PeakFlopsRecord], at_least: bool) -> Iterator[str]:
    """Register-only loops issue as many vector instructions a second whatever their dtype, and no product does more.
    Where the formula's peak is only a least one, they may exceed it."""
    loops = {one.dtype: one.peak for one in compute if one.peak.method == "fma"}
    shares = {dtype: peak.tflops / peak.vendor_tflops for dtype, peak in loops.items() if peak.vendor_tflops}
    for slow, fast in combinations(sorted(shares, key=shares.get), 2):
        if shares[fast] > (1 + APART) * shares[slow]:
            yield f"{slow} reaches {percent(shares[slow])} of the formula's peak, and {fast} {percent(shares[fast])}"
    for dtype, share in shares.items():
        if share > 1 + APART and not at_least:
            yield f"{dtype} reaches {percent(share)} of the formula's peak: the clock or the ports in it are too low"


def _of_products(compute: Sequence[PeakFlopsRecord]) -> Iterator[str]:
    peaks_of = {one.dtype: one.peak.tflops for one in compute}
    for dtype in ITEM_BYTES:
        product, loop = peaks_of.get(dtype), peaks_of.get(f"{dtype}_fma")
        if product and loop and product > (1 + APART) * loop:
            unit = flops_unit(dtype)
            yield f"{dtype} products reach {number(product)} {unit}, and its register-only loop {number(loop)}"
