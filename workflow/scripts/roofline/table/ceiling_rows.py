"""Rows of ceilings, sweeps and paths between GPUs, each with its doubt and its standing among known cards."""

import math
from collections.abc import Iterator, Sequence

from roofline.core.disturbance import find_hidden_load, is_disturbed
from roofline.core.dtypes import operand_dtype
from roofline.core.repeatability import MOST_CEILING_SPREAD, find_doubt, relative_spread
from roofline.core.statistics import is_too_few
from roofline.core.terms import DEVICE_TRAITS, DeviceKind
from roofline.devices.datasheets import highest_possible_tflops
from roofline.records.bandwidth_record import Bandwidth, BandwidthRecord
from roofline.records.cards import CardRun
from roofline.records.compute import PeakFlops, PeakFlopsRecord, Sustained, WorkloadBlock
from roofline.records.device_record import DeviceRecord
from roofline.records.energy_record import MemoryLoad
from roofline.table.rows import (
    ComputeCeiling,
    EnergyRow,
    InvestigationRow,
    Load,
    LoadPointRow,
    MemoryCeiling,
    PeerPath,
    Plateau,
    SweepRow,
    VariantRow,
)
from roofline.table.standing import rank_among_cards

MOST_POINTS = 120  # of a curve: a picture shows no more
FEWER_CORES = 1.15  # times the rate of more cores: quiet hosts stay within 1.10
BEATEN = 1.10  # a faster reference GEMM refutes it


def compute_ceiling_rows(
    peaks: Sequence[tuple[str, PeakFlopsRecord]], device: DeviceRecord, known: Sequence[CardRun]
) -> Iterator[ComputeCeiling]:
    """Of one device, with what its known cards reached."""
    found = [one for one in peaks if one[1].peak]
    sound = [one for path, one in found if not _compute(path, one, device, None, known).doubt]
    registers = {one.dtype: one.peak.tflops for one in sound}
    for path, record in found:
        yield _compute(path, record, device, registers.get(f"{record.dtype}_fma"), known)


def _compute(
    path: str, record: PeakFlopsRecord, device: DeviceRecord, registers: float | None, known: Sequence[CardRun]
) -> ComputeCeiling:
    peak, burst = record.peak, record.peak.burst
    apart = relative_spread([block.tflops for block in peak.blocks])
    doubt = find_doubt(
        kind=device.device_kind,
        samples=len(burst.latency.samples_s),
        block_spread=apart,
        most_spread=MOST_CEILING_SPREAD,
        disturbed=is_record_disturbed(record, burst.latency.contention, burst.states, device.device_kind),
        throttled=peak.throttled,
        impossible=_impossible(peak, registers, highest_possible_tflops(device, record.dtype, peak.clock_mhz)),
    )
    return ComputeCeiling.like(
        peak,
        device=record.device,
        kind="compute",
        name=record.dtype,
        dtype=operand_dtype(record.dtype),
        accumulation=burst.product.accumulation,
        output=burst.product.output,
        library=burst.product.library,
        samples=len(burst.latency.samples_s),
        blocks_apart=apart,
        datasheet_tflops=peak.vendor_tflops,
        fraction_of_datasheet=peak.fraction_of_vendor,
        datasheet_at_least=peak.unit == "cpu" and device.hardware.get("clock_may_boost", False),
        sustained_clock_mhz=peak.sustained and peak.sustained.sm_clock_mhz,
        variants=list(map(_variant, peak.variants)),
        load=_load(peak.sustained, burst.flops) if peak.sustained else None,
        energy=_energy(peak.sustained, "flop", device),
        investigation=_investigation(peak),
        remarks=peak.doubts,
        doubt=doubt,
        standing=None if doubt else rank_among_cards(record.dtype, peak.burst_tflops, known),
        record=path,
    )


def _variant(one: WorkloadBlock) -> VariantRow:
    product, samples = one.product, len(one.latency.samples_s)
    return VariantRow.like(one, accumulation=product.accumulation, output=product.output, samples=samples)


def _impossible(peak: PeakFlops, registers: float | None, most: float) -> bool:
    """Above what the clock allows, above the register-only peak of a CPU, or below the reference GEMM."""
    of_registers = peak.tflops / registers if registers and peak.unit == "cpu" and peak.method == "gemm" else 0
    return peak.tflops > most or of_registers > 1 or (peak.reference_tflops or 0) > BEATEN * peak.burst_tflops


def _load(load: Sustained, flops: int) -> Load:
    step = -(-len(load.curve) // (MOST_POINTS - 1))
    curve = load.curve[::step] + ([] if (len(load.curve) - 1) % step == 0 else load.curve[-1:])
    return Load.like(
        load,
        points=len(load.curve),
        product_flops=flops,
        first_tflops=[flops / seconds / 1e12 for seconds in load.first_products_s],
        curve=[LoadPointRow.like(one) for one in curve],
    )


def _energy(load: Sustained | MemoryLoad | None, unit: str, device: DeviceRecord) -> EnergyRow | None:
    if not load or not load.energy:
        return None
    figures = {"temperature_c": load.temperature_c, "clock_mhz": load.sm_clock_mhz}
    figures["scope"] = "module" if "GH200" in device.name else "card"
    return EnergyRow.like(load.energy, **figures, **{f"joules_per_{unit}": load.energy.each})


def _investigation(peak: PeakFlops) -> InvestigationRow | None:
    found = peak.investigation
    of_verdict = found and (trial.finding for trial in found.trials if trial.what == found.verdict)
    return found and InvestigationRow.like(found, finding=next(of_verdict, None))


def memory_ceiling_rows(
    path: str, record: BandwidthRecord, device: DeviceRecord, known: Sequence[CardRun]
) -> Iterator[MemoryCeiling]:
    for one in record.bandwidths:
        alike = [other for other in record.bandwidths if (other.level, other.mix) == (one.level, one.mix)]
        fewer = [other.gb_per_s for other in alike if (other.cores or math.inf) < (one.cores or math.inf)]
        yield _memory(path, record, one, device, known, impossible=max(fewer, default=0) > FEWER_CORES * one.gb_per_s)


def _memory(
    path: str, record: BandwidthRecord, one: Bandwidth, device: DeviceRecord, known: Sequence[CardRun], impossible: bool
) -> MemoryCeiling:
    kind = device.device_kind
    doubt = find_doubt(
        kind="cpu" if one.level == "pcie" else kind,  # the host's memory has its part in transfers
        samples=len(one.latency.samples_s),
        block_spread=relative_spread(one.blocks_gb_per_s),
        disturbed=is_record_disturbed(record, one.latency.contention, one.states, kind),
        throttled=one.throttled,
        impossible=impossible,
    )
    return MemoryCeiling.like(
        one,
        device=record.device,
        kind="memory",
        peer=record.peer and record.peer.device,
        samples=len(one.latency.samples_s),
        load_latency_s=_load_latency_s(record, one),
        sustained_gb_per_s=one.load and one.load.gb_per_s,
        energy=_energy(one.load, "byte", device),
        datasheet_gb_per_s=one.vendor_gb_per_s,
        fraction_of_datasheet=one.fraction_of_vendor,
        doubt=doubt,
        standing=None if doubt else rank_among_cards(one.name, one.gb_per_s, known),
        record=path,
    )


def _load_latency_s(record: BandwidthRecord, one: Bandwidth) -> float | None:
    """On the row of the level's first reads."""
    first = next((other for other in record.bandwidths if other.mix == "read"), None)
    loads = [one.timing for one in record.latencies if one.name == "load" and not is_too_few(len(one.timing.samples_s))]
    return loads[0].median_s if loads and one is first and not record.peer else None


def is_record_disturbed(record, contention, states, kind: DeviceKind) -> bool:
    """Whether other load ran during a block of a record, or meanwhile where only the whole job shows it."""
    sensitive = DEVICE_TRAITS[kind].load_sensitivity
    return is_disturbed(contention, states, sensitive) or bool(find_hidden_load(record.whole_job, sensitive))


def sweep_rows(path: str, record: BandwidthRecord) -> list[SweepRow]:
    return [
        SweepRow.like(
            one, device=record.device, points=[(at.size_bytes, at.gb_per_s) for at in one.points], record=path
        )
        for one in record.sweeps
    ]


def plateau_rows(path: str, record: BandwidthRecord) -> list[Plateau]:
    return [
        Plateau.like(level, device=record.device, series=sweep.series, record=path)
        for sweep in record.sweeps
        for level in sweep.levels
    ]


def peer_path_row(path: str, record: BandwidthRecord) -> PeerPath:
    latencies = {one.name: one.timing.median_s for one in record.latencies}
    loaded = {one.device: (one.alone_tflops, one.together_tflops) for one in record.loaded}
    of = {"device": record.device, "peer": record.peer.device, "record": path}
    return PeerPath.like(record.peer, **of, latencies_s=latencies, loaded_tflops=loaded)
