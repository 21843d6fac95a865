"""From records to roofline.json: ceilings, and every operator under the roof that was declared for it."""

from collections.abc import Iterable
from pathlib import Path

from roofline import model, regimes
from roofline.guard import above_roofs
from roofline.operators import gemm
from roofline.prediction import CONSTANTS, Costs, ceiling_values, costs_of, predict_cell, way_of
from roofline.records import (
    Bandwidth,
    BandwidthRecord,
    ComputeCeiling,
    DecodeAttnRecord,
    DeviceEntry,
    DeviceRecord,
    FoundCache,
    Measurement,
    MemoryCeiling,
    Operator,
    PeakFlopsRecord,
    Predicted,
    Roofline,
    Skipped,
    read,
)

# Where reading was not asked for, the slope is the copy; readers may exceed it.
SLOPES = {"gpu": ("hbm_read", "d2d"), "cpu": ("dram_read", "dram_copy")}


def place_files(devices, peaks, bandwidths, attention, operations: list[dict], results: Path) -> Roofline:
    """The roofline of record files, each a path under results/. Raises CorruptRecord."""
    records = _read_all(DeviceRecord, devices, results)
    return place(
        {record.device: (path, record) for path, record in records},
        _read_all(PeakFlopsRecord, peaks, results),
        _read_all(BandwidthRecord, bandwidths, results),
        _read_all(DecodeAttnRecord, attention, results),
        operations,
    )


def _read_all(kind, paths: Iterable, results: Path) -> list:
    """(path relative to results/, record) of every path."""
    return [(str(Path(path).relative_to(results)), read(kind, path)) for path in paths]


def place(
    devices: dict[str, tuple[str, DeviceRecord]],
    peaks: Iterable[tuple[str, PeakFlopsRecord]],
    bandwidths: Iterable[tuple[str, BandwidthRecord]],
    attention: Iterable[tuple[str, DecodeAttnRecord]],
    operations: list[dict],
) -> Roofline:
    """Everything that was measured, in the public format. Records come with their paths, relative to results/."""
    peaks = list(peaks)
    ceilings = [_compute_ceiling(path, record) for path, record in peaks if record.peak]
    bandwidths = list(bandwidths)
    ceilings += [_memory_ceiling(path, record.device, one) for path, record in bandwidths for one in record.bandwidths]
    operators = [
        _operator(record.device, path, record.peak.lab, _of_device(ceilings, record.device))
        for path, record in peaks
        if record.peak and record.peak.lab
    ]
    operators += [
        _operator(record.device, path, measurement, _of_device(ceilings, record.device))
        for path, record in attention
        for measurement in record.measurements
    ]
    skipped = [
        Skipped(device=record.device, what="peak_flops", dtype=record.dtype, reason=record.skipped)
        for _, record in peaks
        if record.skipped
    ]
    for name, (_, record) in devices.items():
        for operation in operations:
            placed = _operation(name, record.device_kind, operation, _of_device(ceilings, name))
            (skipped if isinstance(placed, Skipped) else operators).append(placed)
    levels = [
        FoundCache(device=record.device, series=series.series, record=path, **_same_fields(FoundCache, level))
        for path, record in bandwidths
        for series in record.sweeps
        for level in series.levels
    ]
    last_level_bytes = {name: record.last_level_cache_bytes for name, (_, record) in devices.items()}
    return Roofline(
        devices={
            name: DeviceEntry(kind=record.device_kind, name=record.name, record=path)
            for name, (path, record) in devices.items()
        },
        ceilings=ceilings,
        operators=operators,
        levels=levels,
        above_roof=above_roofs(operators, ceilings, levels, last_level_bytes),
        skipped=skipped,
    )


def _of_device(ceilings: list, device: str) -> list:
    return [ceiling for ceiling in ceilings if ceiling.device == device]


def _compute_ceiling(path: str, record: PeakFlopsRecord) -> ComputeCeiling:
    fields = _same_fields(ComputeCeiling, record.peak)
    return ComputeCeiling(device=record.device, kind="compute", name=record.dtype, record=path, **fields)


def _memory_ceiling(path: str, device: str, bandwidth: Bandwidth) -> MemoryCeiling:
    return MemoryCeiling(device=device, kind="memory", record=path, **_same_fields(MemoryCeiling, bandwidth))


def _same_fields(kind: type, record) -> dict:
    """The fields of a record that another kind has too."""
    return {field: getattr(record, field) for field in set(kind.model_fields) & set(type(record).model_fields)}


def _operator(device: str, path: str, measured: Measurement, ceilings: list) -> Operator:
    compute, memory = ceiling_values(ceilings)
    memory_ceiling = next((name for name in measured.memory_ceilings if name in memory), None)
    peak, gb_per_s = compute.get(measured.compute_ceiling), memory.get(memory_ceiling)
    roof = roof_tflops(measured.flops, measured.bytes, peak, gb_per_s)
    attained = measured.flops / measured.latency.median_s / 1e12
    on_device = measured.device_latency
    device_attained = measured.flops / on_device.median_s / 1e12 if on_device else None
    return Operator(
        device=device,
        operator=measured.operator,
        implementation=measured.implementation,
        preset=measured.preset,
        scope=measured.scope,
        dtype=measured.dtype,
        cache=measured.cache,
        shape=measured.shape,
        flops=measured.flops,
        bytes=measured.bytes,
        intensity_flops_per_byte=measured.flops / measured.bytes if measured.bytes else None,
        no_traffic=measured.bytes == 0,
        latency_s=measured.latency.median_s,
        latency_ci95_s=measured.latency.ci95_s,
        device_latency_s=on_device.median_s if on_device else None,
        device_latency_ci95_s=on_device.ci95_s if on_device else None,
        attained_tflops=attained,
        device_attained_tflops=device_attained,
        compute_ceiling=measured.compute_ceiling if peak else None,
        memory_ceiling=memory_ceiling,
        roof_tflops=roof,
        fraction_of_roof=attained / roof if roof else None,
        device_fraction_of_roof=device_attained / roof if roof and device_attained else None,
        fraction_of_compute_peak=attained / peak if peak else None,
        **found_regime(measured, peak, gb_per_s),
        predicted=Predicted(
            sealed=measured.predicted,
            from_ceilings=predict_cell(
                flops=measured.flops,
                traffic_bytes=measured.bytes,
                peak_tflops=peak,
                bandwidth_gb_per_s=gb_per_s,
                costs=measured_costs(measured),
            )
            if peak or gb_per_s
            else None,
        ),
        record=path,
    )


def roof_tflops(flops: float, traffic_bytes: float, peak: float | None, gb_per_s: float | None) -> float | None:
    """The lower of the two declared ceilings, in TFLOPS; of the one that was measured where only one was."""
    limits = [peak] if peak else []
    if gb_per_s and traffic_bytes:
        limits.append(flops / traffic_bytes * gb_per_s / 1e3)
    return min(limits, default=None)


def measured_costs(measured: Measurement) -> Costs:
    """What a cell costs beside its work: calls and start as this run measured them, the rest by the model."""
    if measured.operator == gemm.OPERATOR:
        return Costs(call_s=None, start_s=None)
    kind = "cpu" if measured.memory_level == "dram" else "gpu"
    return costs_of(
        CONSTANTS,
        kind,
        way_of(measured),
        measured.bytes,
        call_s=measured.overhead_s,
        start_s=measured.device_overhead_s,
    )


def found_regime(measured: Measurement, peak: float | None, gb_per_s: float | None) -> dict:
    """The regime from measurements alone, by the rule of regimes.py; memory's with the level."""
    on_device = measured.device_latency
    named = regimes.regime(
        latency_s=measured.latency.median_s,
        device_latency_s=on_device.median_s if on_device else None,
        start_s=measured.device_overhead_s if on_device else measured.overhead_s,
        compute_s=measured.flops / (peak * 1e12) if peak else None,
        memory_s=measured.bytes / (gb_per_s * 1e9) if gb_per_s else None,
    )
    return {"regime": named, "regime_level": measured.memory_level if named == model.MEMORY_BOUND else None}


def _operation(device: str, kind: str, operation: dict, ceilings: list) -> Operator | Skipped:
    """An operation of the user's own: analysed under its dtype's ceiling, measured only where the user did."""
    compute, memory = ceiling_values(ceilings)
    peak = compute.get(operation["dtype"])
    memory_ceiling = next((name for name in SLOPES[kind] if name in memory), None)
    if not peak or not memory_ceiling:
        missing = f"no {operation['dtype']} ceiling" if not peak else "no memory ceiling"
        return Skipped(
            device=device,
            what="operation",
            dtype=operation["dtype"],
            name=operation["name"],
            reason=f"{missing} was measured on {device}",
        )
    flops, traffic, measured_s = operation["flops"], operation["memory_bytes"], operation.get("measured_s")
    analysis = model.analyse(flops, traffic, peak * 1e12, memory[memory_ceiling] * 1e9)
    roof = analysis.attainable_flops / 1e12
    attained = flops / measured_s / 1e12 if measured_s else None
    return Operator(
        device=device,
        operator="operation",
        name=operation["name"],
        implementation="user",
        preset=None,
        scope=None,
        dtype=operation["dtype"],
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
        compute_ceiling=operation["dtype"],
        memory_ceiling=memory_ceiling,
        roof_tflops=roof,
        fraction_of_roof=attained / roof if attained is not None and roof else None,
        device_fraction_of_roof=None,
        fraction_of_compute_peak=attained / peak if attained is not None else None,
        regime=analysis.bound,
        regime_level={"gpu": "hbm", "cpu": "dram"}[kind] if analysis.bound == model.MEMORY_BOUND else None,
        estimated_time_s=flops / analysis.attainable_flops if analysis.attainable_flops else None,
        roofline_time_s=analysis.roofline_time_s,
        efficiency_percent=analysis.efficiency_percent,
        predicted=Predicted(sealed=None, from_ceilings=None),
        record=None,
    )
