"""Rows of ceilings, sweeps and paths between GPUs, each with its doubt and its standing among known cards."""

import math
from collections.abc import Iterator, Sequence

from roofline.core.disturbance import find_hidden_load, is_disturbed
from roofline.core.dtypes import operand_dtype
from roofline.core.levels import HOST_LINK
from roofline.core.repeatability import Doubt, find_doubt, relative_spread
from roofline.core.roofline_model import ridge_point
from roofline.core.statistics import is_too_few
from roofline.core.terms import DEVICE_TRAITS, DeviceKind
from roofline.devices.datasheets import highest_possible_tflops
from roofline.operators.gemm.tensor_matmul import LIBRARY_NAME
from roofline.records.bandwidth_record import Bandwidth, BandwidthFigures, BandwidthRecord, Peer, PeerLink, SweepCurve
from roofline.records.base import Interval, copy_fields, shared_fields
from roofline.records.compute import PeakFigures, PeakFlops, PeakFlopsRecord, Sustained, WorkloadBlock
from roofline.records.device_record import DeviceRecord
from roofline.records.energy_record import MemoryLoad
from roofline.records.operator_record import JobRecord
from roofline.records.timing_record import Contention, DeviceState
from roofline.table.rows import (
    ComputeCeiling,
    EnergyRow,
    LoadRow,
    MemoryCeiling,
    PeerPath,
    Spreads,
    Standing,
    SustainedRow,
    SweepRow,
    VariantRow,
)
from roofline.table.standing import KnownRuns, find_spreads, rank_among_cards

PeakRecords = Sequence[tuple[str, PeakFlopsRecord]]  # each with its path below results/
MOST_POINTS = 120  # of a curve: a picture shows no more
INTERVAL_PARTS = 4  # of a load without cycles, as roofline/measure/sustained.py divides it
MOST_GAIN_OF_FEWER_CORES = 1.15  # the rate of fewer cores over that of more: quiet hosts stay within 1.10
MOST_GAIN_OF_REFERENCE = 1.10  # the rate of the reference GEMM over the burst: a faster one refutes the burst


def compute_ceiling_rows(
    peaks: PeakRecords, device: DeviceRecord, known_runs: KnownRuns, reads_gb_per_s: float | None
) -> Iterator[ComputeCeiling]:
    """Yield a row for each measured compute ceiling of one device, ranked among `known_runs`.

    `reads_gb_per_s` is the bandwidth of reads of main memory, which sets the ridge points; None if it was not measured
    or is doubtful.
    """
    measured = [(path, record, record.peak) for path, record in peaks if record.peak]
    sound = [(record, peak) for _, record, peak in measured if not _doubt_of_peak(record, peak, device, None)]
    sound_tflops = {record.name: peak.tflops for record, peak in sound}
    for path, record, peak in measured:
        burst, doubt = peak.burst, _doubt_of_peak(record, peak, device, sound_tflops.get(f"{record.name}_fma"))
        ridge_gb_per_s = None if doubt else reads_gb_per_s
        yield ComputeCeiling(
            **shared_fields(peak, PeakFigures),
            device=record.device,
            kind="compute",
            name=record.name,
            dtype=operand_dtype(record.name),
            product=burst.product,
            kernel=peak.kernel.name,
            library_tflops=_library_tflops(peak),
            sample_count=len(burst.timing.samples_s),
            repeat_spread=_spread_of_peak(peak),
            ridge_flops_per_byte=ridge_point(peak.tflops * 1e12, ridge_gb_per_s * 1e9) if ridge_gb_per_s else None,
            fraction_of_datasheet=_fraction(peak.tflops, peak.datasheet_tflops),
            burst_fraction_of_datasheet=_fraction(peak.burst_tflops, peak.datasheet_tflops),
            sustained_fraction_of_datasheet=_fraction(peak.sustained_tflops, peak.datasheet_tflops),
            datasheet_at_least=peak.compute_unit == "cpu" and device.hardware.get("clock_may_boost", False),
            variants=[_variant(block) for block in peak.variants],
            sustained=_sustained(peak.sustained, burst.flops) if peak.sustained else None,
            energy=_energy(peak.sustained, "flop", device),
            doubt=doubt,
            **({} if doubt else _compare("", record.name, peak.burst_tflops, known_runs)),
            **({} if doubt else _compare("sustained_", f"{record.name}/sustained", peak.sustained_tflops, known_runs)),
            record=path,
        )


def _compare(prefix: str, key: str, value: float | None, known_runs: KnownRuns) -> dict[str, Standing | Spreads | None]:
    """The standing and the spreads of a figure among known runs, as fields of a row; none without a figure."""
    if value is None:
        return {}
    standing = rank_among_cards(key, value, known_runs.of_others)
    return {f"{prefix}standing": standing, f"{prefix}spreads": find_spreads(key, value, known_runs)}


def _library_tflops(peak: PeakFlops) -> float | None:
    """The best of the vendor's library: the burst, or where a kernel of ours reached that, the fastest finalist."""
    if peak.workload != "gemm":
        return None
    if peak.burst.product.library != LIBRARY_NAME:
        return peak.burst_tflops
    return next((one.trial_tflops for one in peak.candidates if one.product.library != LIBRARY_NAME), None)


def _doubt_of_peak(
    record: PeakFlopsRecord, peak: PeakFlops, device: DeviceRecord, register_tflops: float | None
) -> Doubt | None:
    """The doubt of a peak; `register_tflops` is the sound peak of its dtype in registers alone, if there is one."""
    timing, kind = peak.burst.timing, device.device_kind
    highest_tflops = highest_possible_tflops(device, record.name, peak.sm_clock_mhz)
    return find_doubt(
        kind=kind,
        samples=sum(len(block.timing.samples_s) for block in peak.repeats),  # of a block there may be five
        block_spread=_spread_of_peak(peak),
        most_spread=DEVICE_TRAITS[kind].most_ceiling_spread,
        disturbed=is_record_disturbed(record, timing.contention, peak.burst.states, kind),
        throttled=peak.all_throttled,
        impossible=_impossible(peak, register_tflops, highest_tflops),
    )


def _spread_of_peak(peak: PeakFlops) -> float | None:
    return relative_spread([block.tflops for block in peak.repeats])


def _fraction(measured: float | None, datasheet: float | None) -> float | None:
    """A measured rate over that of the datasheet; None if either is not known."""
    return measured / datasheet if measured and datasheet else None


def _variant(block: WorkloadBlock) -> VariantRow:
    return VariantRow(**copy_fields(block, "product", "inputs", "tflops"), sample_count=len(block.timing.samples_s))


def _impossible(peak: PeakFlops, register_tflops: float | None, highest_tflops: float) -> bool:
    """Return whether a peak cannot be right.

    It exceeds what the clock allows or a CPU's register-only peak, or the reference GEMM is clearly faster.
    """
    if peak.tflops > highest_tflops:
        return True
    if register_tflops and peak.compute_unit == "cpu" and peak.workload == "gemm" and peak.tflops > register_tflops:
        return True
    return (peak.reference_tflops or 0) > MOST_GAIN_OF_REFERENCE * peak.burst_tflops


def _sustained(load: Sustained, flops: int) -> SustainedRow:
    """The load with a curve of at most MOST_POINTS points, the last one included; `flops` are of one product."""
    step = math.ceil(len(load.curve) / (MOST_POINTS - 1))
    curve = load.curve[::step]
    if (len(load.curve) - 1) % step:
        curve.append(load.curve[-1])
    return SustainedRow(
        **_load_fields(load, load.tflops, load.ci95_tflops),
        product_flops=flops,
        first_products_s=load.first_products_s,
        curve=curve,
    )


def _load_fields(load: Sustained | MemoryLoad, rate: float, ci95: Interval | None) -> dict:
    """The fields of a load's row; `rate` and `ci95` are in the load's own unit."""
    shared = copy_fields(load, "duration_s", "settled_after_s", "sm_clock_mhz", "temperature_c", "drift")
    if ci95 is None:
        return {**shared, "point_count": len(load.curve)}
    counted_s = load.curve[-1].at_s - (load.settled_after_s or 0.0)
    part_count = round(counted_s / load.cycle_s) if load.cycle_s else INTERVAL_PARTS
    return {**shared, "point_count": len(load.curve), "half_width": ci95[1] / rate - 1, "part_count": part_count}


def _energy(load: Sustained | MemoryLoad | None, unit: str, device: DeviceRecord) -> EnergyRow | None:
    """The energy of a load per `unit`, flop or byte; None if there was no load or no counter."""
    if not load or not load.energy:
        return None
    return EnergyRow(
        **{f"joules_per_{unit}": load.energy.joules_per_work},
        **copy_fields(load, "temperature_c", "sm_clock_mhz"),
        **copy_fields(load.energy, "power_w", "reason"),
        counter_scope="module" if "GH200" in device.name else "card",
    )


def memory_ceiling_rows(
    path: str, record: BandwidthRecord, device: DeviceRecord, known_runs: KnownRuns
) -> Iterator[MemoryCeiling]:
    """Yield a row for each memory ceiling of a record, ranked among `known_runs`."""
    for bandwidth in record.bandwidths:
        load = bandwidth.sustained
        doubt = _doubt_of_bandwidth(record, bandwidth, device.device_kind)
        yield MemoryCeiling(
            **shared_fields(bandwidth, BandwidthFigures),
            device=record.device,
            kind="memory",
            peer=record.peer and record.peer.peer,
            sample_count=len(bandwidth.timing.samples_s),
            repeat_spread=relative_spread(bandwidth.repeats_gb_per_s),
            load_latency_s=_load_latency_s(record, bandwidth),
            sustained_gb_per_s=load and load.gb_per_s,
            sustained=LoadRow(**_load_fields(load, load.gb_per_s, load.ci95_gb_per_s)) if load else None,
            energy=_energy(load, "byte", device),
            fraction_of_datasheet=_fraction(bandwidth.gb_per_s, bandwidth.datasheet_gb_per_s),
            doubt=doubt,
            **({} if doubt else _compare("", bandwidth.name, bandwidth.gb_per_s, known_runs)),
            record=path,
        )


def _doubt_of_bandwidth(record: BandwidthRecord, bandwidth: Bandwidth, kind: DeviceKind) -> Doubt | None:
    """The doubt of a bandwidth.

    It is impossible if fewer cores reached more than MOST_GAIN_OF_FEWER_CORES times as much.
    """
    pattern, cores = (bandwidth.level, bandwidth.mix), bandwidth.cores or math.inf
    same_pattern = [candidate for candidate in record.bandwidths if (candidate.level, candidate.mix) == pattern]
    rates_of_fewer = [candidate.gb_per_s for candidate in same_pattern if (candidate.cores or math.inf) < cores]
    return find_doubt(
        kind="cpu" if bandwidth.level == HOST_LINK else kind,  # the host's memory has its part in transfers
        samples=len(bandwidth.timing.samples_s),
        block_spread=relative_spread(bandwidth.repeats_gb_per_s),
        disturbed=is_record_disturbed(record, bandwidth.timing.contention, bandwidth.states, kind),
        throttled=bandwidth.all_throttled,
        impossible=max(rates_of_fewer, default=0) > MOST_GAIN_OF_FEWER_CORES * bandwidth.gb_per_s,
    )


def _load_latency_s(record: BandwidthRecord, bandwidth: Bandwidth) -> float | None:
    """The latency of a dependent load, on the row of the level's first reads; None on all other rows."""
    first_reads = next((candidate for candidate in record.bandwidths if candidate.mix == "read"), None)
    if record.peer or bandwidth is not first_reads:
        return None
    loads = [latency.timing for latency in record.latencies if latency.name == "load"]
    return next((timing.median_s for timing in loads if not is_too_few(len(timing.samples_s))), None)


def is_record_disturbed(
    record: JobRecord, contention: Contention | None, states: Sequence[DeviceState], kind: DeviceKind
) -> bool:
    """Return whether other load ran during a block of a record, or meanwhile if only the whole job shows it."""
    sensitivity = DEVICE_TRAITS[kind].load_sensitivity
    return is_disturbed(contention, states, sensitivity) or bool(find_hidden_load(record.whole_job, sensitivity))


def sweep_rows(path: str, record: BandwidthRecord) -> list[SweepRow]:
    """Return the sweeps of a record, each with the plateaus that it shows."""
    return [SweepRow(**shared_fields(sweep, SweepCurve), device=record.device, record=path) for sweep in record.sweeps]


def peer_path_row(path: str, record: BandwidthRecord, peer: Peer) -> PeerPath:
    """Return the link of a GPU to `peer`, of this record, with its latencies in seconds and the loaded cards."""
    latencies_s = {latency.name: latency.timing.median_s for latency in record.latencies}
    return PeerPath(
        **shared_fields(peer, PeerLink),
        device=record.device,
        load_latency_s=latencies_s.get("load"),
        copy_latency_s=latencies_s.get("copy"),
        loaded=record.loaded,
        record=path,
    )
