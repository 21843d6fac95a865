"""From records to roofline.json: ceilings, and every operator under the roof that was declared for it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from roofline.analysis.above_roof import above_roofs
from roofline.analysis.baselines import baseline
from roofline.analysis.instructions import instruction_rooflines
from roofline.analysis.results import Results
from roofline.analysis.table import (
    ComputeCeiling,
    DeviceEntry,
    FoundCache,
    MemoryCeiling,
    Operator,
    PeerPath,
    Predicted,
    Roofline,
    Skipped,
    SpeedUp,
    Variant,
)
from roofline.analysis.unsettled import no_ratio
from roofline.core import model, regimes
from roofline.core.dtypes import dtype_of
from roofline.core.prediction import Costs
from roofline.core.statistics import deciles
from roofline.core.terms import DeviceKind
from roofline.devices.levels import MAIN_MEMORY, roofs
from roofline.operators.about import About
from roofline.records.compute import PeakFlopsRecord
from roofline.records.memory import Bandwidth, BandwidthRecord, FoundLevel
from roofline.records.operator import JobRecord, Measurement
from roofline.records.prediction import CellPrediction, PredictionRecord

NO_ROOF = "warm, and what the caches of this device give is not measured"
LEVEL = MAIN_MEMORY


@dataclass(frozen=True)
class Asked:
    """What the config asks for beside records: the user's operations, and what devices lack of the rest."""

    effort: str | None = None
    dtypes: list[str] = field(default_factory=list)
    operations: list[dict[str, Any]] = field(default_factory=list)
    without: list[dict[str, str]] = field(default_factory=list)  # device, operator and reason


@dataclass(frozen=True)
class Cell:
    """An operator of roofline.json with the measurement that it was made from."""

    operator: Operator
    measured: Measurement
    record: JobRecord


@dataclass(frozen=True)
class Collected:
    roofline: Roofline
    cells: list[Cell]


def collect(found: Results, asked: Asked) -> Collected:
    """Everything that was measured, in the public format; and each cell beside its measurement."""
    peaks, bandwidths = found.of_kind(PeakFlopsRecord), found.of_kind(BandwidthRecord)
    ceilings: list[ComputeCeiling | MemoryCeiling]
    ceilings = [_compute_ceiling(path, record, found) for path, record in peaks if record.peak]
    ceilings += [_memory_ceiling(path, record.device, one) for path, record in bandwidths for one in record.bandwidths]
    cells = [
        Cell(_operator(record, path, measured, _of(ceilings, record.device), found), measured, record)
        for path, record in found.measured
        for measured in record.measurements
    ]
    operators, skipped = [cell.operator for cell in cells], _skipped(found, asked)
    compare_with_baselines(operators, found.abouts)
    for name, record in found.device_records().items():
        for operation in asked.operations:
            if operation.get("device") not in (None, name):
                continue
            placed = _operation(name, record.device_kind, operation, _of(ceilings, name))
            (skipped if isinstance(placed, Skipped) else operators).append(placed)
    levels = [
        _found_level(path, record.device, series.series, level)
        for path, record in bandwidths
        for series in record.sweeps
        for level in series.levels
    ]
    roofline = Roofline(
        devices={
            name: DeviceEntry(kind=record.device_kind, name=record.name, record=path)
            for name, (path, record) in found.devices.items()
        },
        ceilings=ceilings,
        operators=operators,
        levels=levels,
        above_roof=above_roofs(operators, ceilings),
        skipped=skipped,
        instructions=instruction_rooflines(found, ceilings, (cell.operator for cell in cells)),
        peers=[_peer_path(path, record) for path, record in bandwidths if record.peer and not record.skipped],
    )
    return Collected(roofline.described(found.abouts), cells)


def _of(ceilings: list, device: str) -> dict[str, ComputeCeiling | MemoryCeiling]:
    return {ceiling.name: ceiling for ceiling in ceilings if ceiling.device == device}


def _compute_ceiling(path: str, record: PeakFlopsRecord, found: Results) -> ComputeCeiling:
    peak, device = record.peak, found.device_records().get(record.device)
    of_device = [one for _, one in found.of_kind(PeakFlopsRecord) if one.device == record.device]
    registers = next((one.peak for one in of_device if one.dtype == f"{record.dtype}_fma"), None)
    other_operands = peak.on_reference_inputs != peak.burst
    return ComputeCeiling(
        device=record.device,
        kind="compute",
        name=record.dtype,
        method=peak.method,
        unit=peak.unit,
        dtype=dtype_of(record.dtype),
        accumulation=peak.burst.product.accumulation,
        output=peak.burst.product.output,
        tflops=peak.tflops,
        ci95=peak.ci95,
        samples=len(peak.burst.latency.samples_s),
        reference_tflops=peak.reference_tflops,
        on_reference_inputs_tflops=peak.on_reference_inputs.tflops if other_operands else None,
        burst_tflops=peak.burst_tflops,
        variants=[
            Variant(
                accumulation=one.product.accumulation,
                output=one.product.output,
                inputs=one.inputs,
                tflops=one.tflops,
                ci95=one.ci95,
                samples=len(one.latency.samples_s),
            )
            for one in peak.variants
        ],
        sustained_tflops=peak.sustained_tflops,
        vendor_tflops=peak.vendor_tflops,
        fraction_of_vendor=peak.fraction_of_vendor,
        vendor_at_least=peak.unit == "cpu" and device is not None and device.hardware.get("clock_may_boost", False),
        no_ratio=no_ratio(record, registers),
        clock_mhz=peak.clock_mhz,
        sustained_clock_mhz=peak.sustained and peak.sustained.sm_clock_mhz,
        inputs=peak.inputs,
        clock_tflops=peak.clock_tflops,
        fraction_of_clock=peak.fraction_of_clock,
        limited_by=peak.limited_by,
        burst_limited_by=peak.burst_limited_by,
        sustained_limited_by=peak.sustained_limited_by,
        throttled=peak.throttled,
        record=path,
    )


def _memory_ceiling(path: str, device: str, one: Bandwidth) -> MemoryCeiling:
    return MemoryCeiling(
        device=device,
        kind="memory",
        name=one.name,
        level=one.level,
        mix=one.mix,
        cores=one.cores,
        host_memory=one.host_memory,
        both_ways=one.both_ways,
        gb_per_s=one.gb_per_s,
        ci95=one.ci95,
        samples=len(one.latency.samples_s),
        sm_clock_mhz=one.sm_clock_mhz,
        vendor_gb_per_s=one.vendor_gb_per_s,
        fraction_of_vendor=one.fraction_of_vendor,
        limited_by=one.limited_by,
        throttled=one.throttled,
        record=path,
    )


def _found_level(path: str, device: str, series: str, level: FoundLevel) -> FoundCache:
    return FoundCache(
        device=device,
        series=series,
        name=level.name,
        gb_per_s=level.gb_per_s,
        knee_bytes=level.knee_bytes,
        reported_bytes=level.reported_bytes,
        record=path,
    )


def _peer_path(path: str, record: BandwidthRecord) -> PeerPath:
    peer = record.peer
    return PeerPath(
        device=record.device,
        peer=peer.device,
        path=peer.path,
        nvlinks=peer.nvlinks,
        nvlink_version=peer.nvlink_version,
        nvlinks_down=peer.nvlinks_down,
        latencies_s={one.name: one.timing.median_s for one in record.latencies},
        record=path,
    )


def _operator(record: JobRecord, path: str, measured: Measurement, ceilings: Mapping, found: Results) -> Operator:
    device, about = record.device, found.abouts[measured.operator]
    compute = ceilings.get(measured.compute_ceiling)
    memory = next((ceilings[name] for name in measured.memory_ceilings if name in ceilings), None)
    peak, gb_per_s = compute and compute.tflops, memory and memory.gb_per_s
    no_roof = NO_ROOF if measured.bytes and not measured.memory_ceilings else None
    roof = None if no_roof else roof_tflops(measured.flops, measured.bytes, peak, gb_per_s)
    attained = measured.flops / measured.latency.median_s / 1e12
    on_device = measured.device_latency
    device_attained = measured.flops / on_device.median_s / 1e12 if on_device else None
    regime, level = found_regime(measured, peak, memory, ceilings)
    row = Operator(
        operator=measured.operator,
        implementation=measured.implementation,
        preset=measured.preset,
        scope=measured.scope,
        dtype=measured.dtype,
        cache=measured.cache,
        shape=measured.shape,
        flops=measured.flops,
        bytes=measured.bytes,
        overhead_s=measured.overhead_s,
        device=device,
        intensity_flops_per_byte=measured.flops / measured.bytes if measured.bytes else None,
        no_traffic=measured.bytes == 0,
        latency_s=measured.latency.median_s,
        latency_ci95_s=measured.latency.ci95_s,
        samples=len(measured.latency.samples_s),
        latency_deciles=deciles(measured.latency.samples_s),
        device_latency_s=on_device.median_s if on_device else None,
        device_latency_ci95_s=on_device.ci95_s if on_device else None,
        attained_tflops=attained,
        device_attained_tflops=device_attained,
        compute_ceiling=compute and compute.name,
        memory_ceiling=memory and memory.name,
        no_roof=no_roof,
        roof_tflops=roof,
        fraction_of_roof=_of_roof(measured, measured.latency.median_s, roof, gb_per_s),
        device_fraction_of_roof=_of_roof(measured, on_device.median_s, roof, gb_per_s) if on_device else None,
        fraction_of_compute_peak=attained / peak if peak else None,
        regime=regime,
        regime_level=level,
        predicted=Predicted(
            sealed=measured.predicted,
            roof_and_start=_without_a_model(measured, found.device_seal(device)),
        ),
        record=path,
    )
    return row.described(about, found.kind_of(device))


def _without_a_model(measured: Measurement, seal: PredictionRecord | None) -> CellPrediction | None:
    rates = seal and seal.rates(measured.compute_ceiling, measured.memory_ceilings)
    return baseline(measured.flops, measured.bytes, rates, measured.costs) if rates else None


def compare_with_baselines(operators: Iterable[Operator], abouts: Mapping[str, About]) -> None:
    """Fill in each cell's `speed_up` over the baselines of its operator that the same case was measured by.

    Graphs are compared with graphs alone: over single launches a graph's lead is the launches'.
    """
    alike: dict[tuple, list[Operator]] = {}
    for cell in operators:
        case = cell.device, cell.operator, cell.preset, cell.scope, cell.dtype, cell.cache, *sorted(cell.shape.items())
        alike.setdefault(case, []).append(cell)
    for cells in alike.values():
        about = abouts.get(cells[0].operator)
        named = {cell.implementation: cell for cell in cells}
        baselines = [named[name] for name in (about.baselines if about else ()) if name in named]
        graph = {name: about.in_graph(name) for name in named} if about else {}
        for cell in cells:
            cell.speed_up = {
                baseline.implementation: SpeedUp(
                    latency=baseline.latency_s / cell.latency_s,
                    device_latency=_ratio(baseline.device_latency_s, cell.device_latency_s),
                )
                for baseline in baselines
                if baseline is not cell and graph[baseline.implementation] == graph[cell.implementation]
            }


def _ratio(of: float | None, to: float | None) -> float | None:
    return of / to if of and to else None


def _of_roof(measured: Measurement, latency_s: float, roof: float | None, gb_per_s: float | None) -> float | None:
    """Attained by its roof; of an operator that moves bytes and computes nothing, the bandwidth by its ceiling."""
    if roof:
        return measured.flops / latency_s / 1e12 / roof
    if measured.flops == 0 and gb_per_s:
        return measured.bytes / latency_s / 1e9 / gb_per_s
    return None


def roof_tflops(flops: float, traffic_bytes: float, peak: float | None, gb_per_s: float | None) -> float | None:
    """The lower of the two declared ceilings, in TFLOPS; of the one that was measured where only one was."""
    limits = [peak] if peak else []
    if gb_per_s and traffic_bytes:
        limits.append(flops / traffic_bytes * gb_per_s / 1e3)
    return min(limits, default=None)


def measured_costs(measured: Measurement, constants: Mapping[str, float] | None) -> Costs:
    """What a cell costs beside its work: calls and start as this run measured them, the rest by the seal's constants.

    Where the smallest case was not measured, calls cost nothing: the ceilings alone say what the cell takes.
    """
    if constants is None or measured.overhead_s is None:
        return Costs(call_s=None, start_s=None)
    assumed = measured.costs.costs(constants)
    return replace(assumed, call_s=measured.overhead_s, start_s=measured.device_overhead_s)


def found_regime(
    measured: Measurement, peak: float | None, memory: MemoryCeiling | None, ceilings: Mapping
) -> tuple[str | None, str | None]:
    """The regime from measurements alone, by the rule of regimes.py, and of a memory-bound cell the level."""
    on_device = measured.device_latency
    levels = {measured.memory_level: measured.bytes / (memory.gb_per_s * 1e9) if memory else None}
    if memory:
        moved = {level: size for level, size in measured.level_bytes.items() if level in ceilings}
        levels |= {level: size / (ceilings[level].gb_per_s * 1e9) for level, size in moved.items()}
    level, memory_s = regimes.slowest_level(levels)
    regime = regimes.regime(
        latency_s=measured.latency.median_s,
        device_latency_s=on_device.median_s if on_device else None,
        start_s=measured.device_overhead_s if on_device else measured.overhead_s,
        compute_s=measured.flops / (peak * 1e12) if peak else (None if measured.flops else 0.0),
        memory_s=memory_s,
    )
    return regime, level if regime == model.MEMORY_BOUND else None


def _skipped(found: Results, asked: Asked) -> list[Skipped]:
    """What was asked for and a device lacks: by its own record, or as it turned out when it was measured."""
    turned_out = {(record.device, record.dtype): record.skipped for _, record in found.of_kind(PeakFlopsRecord)}
    skipped = [
        Skipped(device=name, what="peak_flops", dtype=dtype, reason=reason)
        for name, record in found.device_records().items()
        for dtype in asked.dtypes
        if (reason := record.unsupported.get(dtype) or turned_out.get((name, dtype)))
    ]
    skipped += [
        Skipped(device=record.device, what="bandwidth", dtype="", name=record.level, reason=record.skipped)
        for _, record in found.of_kind(BandwidthRecord)
        if record.skipped
    ]
    return skipped + [
        Skipped(device=one["device"], what="operator", dtype="", name=one["operator"], reason=one["reason"])
        for one in asked.without
    ]


def _operation(device: str, kind: DeviceKind, operation: dict, ceilings: Mapping) -> Operator | Skipped:
    """An operation of the user's own: analysed under its dtype's ceiling, measured only where the user did."""
    dtype = operation["dtype"]
    peak, memory = (
        ceilings.get(dtype),
        next((ceilings[name] for name in roofs(kind, "read") if name in ceilings), None),
    )
    if not peak or not memory:
        missing = f"no {dtype} ceiling" if not peak else "no memory ceiling"
        reason = f"{missing} was measured on {device}"
        return Skipped(device=device, what="operation", dtype=dtype, name=operation["name"], reason=reason)
    flops, traffic, measured_s = operation["flops"], operation["memory_bytes"], operation.get("measured_s")
    analysis = model.analyse(flops, traffic, peak.tflops * 1e12, memory.gb_per_s * 1e9)
    roof = analysis.attainable_flops / 1e12
    attained = flops / measured_s / 1e12 if measured_s else None
    return Operator(
        device=device,
        operator="operation",
        name=operation["name"],
        implementation="user",
        preset=None,
        scope=None,
        dtype=dtype,
        cache=None,
        shape={},
        flops=flops,
        bytes=traffic,
        intensity_flops_per_byte=analysis.intensity_flops_per_byte if traffic else None,
        no_traffic=not traffic,
        latency_s=measured_s,
        latency_ci95_s=None,
        device_latency_s=None,
        device_latency_ci95_s=None,
        attained_tflops=attained,
        device_attained_tflops=None,
        compute_ceiling=dtype,
        memory_ceiling=memory.name,
        roof_tflops=roof,
        fraction_of_roof=attained / roof if attained is not None and roof else None,
        device_fraction_of_roof=None,
        fraction_of_compute_peak=attained / peak.tflops if attained is not None else None,
        regime=analysis.bound,
        regime_level=LEVEL[kind] if analysis.bound == model.MEMORY_BOUND else None,
        estimated_time_s=flops / analysis.attainable_flops if analysis.attainable_flops else None,
        roofline_time_s=analysis.roofline_time_s,
        efficiency_percent=analysis.efficiency_percent,
        predicted=Predicted(sealed=None),
        record=None,
    )
