"""The row of one cell: under its roof, against its sealed prediction and its operator's baselines, with its doubt."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from roofline.core import regimes, roofline_model
from roofline.core.disturbance import is_disturbed
from roofline.core.repeatability import Doubt, find_doubt
from roofline.core.statistics import decile_ratio
from roofline.core.terms import DeviceKind
from roofline.devices.levels import MAIN_MEMORY
from roofline.devices.levels import memory_ceiling_names as memory_ceilings
from roofline.operators.about import About
from roofline.records.operator_record import JobRecord, Measurement, OperatorRecord
from roofline.records.seal_records import PredictionRecord
from roofline.table.ceiling_rows import is_record_disturbed
from roofline.table.prediction_error import attribute_error, find_largest_cause
from roofline.table.rows import USERS, CellRow, ComputeCeiling, MemoryCeiling, Skipped, SpeedUp
from roofline.table.scores import predict_baseline, prediction

Ceilings = Mapping[str, ComputeCeiling | MemoryCeiling]  # of one device, by name
NO_ROOF = "warm, and no ceiling of a cache is measured"
GENERATED = "weights were generated, not trained"
ROUNDING = 1e-9
# Too few samples for an interval place a median within 5 % at best; the user's own figure is taken at its word.
WITHOUT_INTERVAL = 1.05


class CellContext(NamedTuple):
    """What a cell's row follows from besides its own measurement."""

    kind: DeviceKind
    about: About  # of its operator
    ceilings: Ceilings
    seal: PredictionRecord | None  # the device's
    constants: Mapping[str, float] | None  # of its operator's seal
    alike: Mapping[str, Measurement]  # the same case by each implementation


def build_cell_row(path: str, record: JobRecord, measured: Measurement, around: CellContext) -> CellRow:
    compute = around.ceilings.get(measured.compute_ceiling)
    memory = next((around.ceilings[name] for name in measured.memory_ceilings if name in around.ceilings), None)
    peak, gb_per_s = compute and compute.tflops, memory and memory.gb_per_s
    no_roof = NO_ROOF if measured.bytes and not measured.memory_ceilings else None
    roof = None if no_roof else roofline_model.roof_tflops(measured.flops, measured.bytes, peak, gb_per_s)
    cpu, gpu, sealed = measured.latency, measured.device_latency, measured.predicted
    gpu_s, attained = gpu and gpu.median_s, measured.flops / cpu.median_s / 1e12
    regime, level = find_regime(measured, peak, gb_per_s, around.ceilings)
    lower = "memory" if not peak or not roof or (gb_per_s and roof < 0.9999 * peak) else "compute"
    above, bound = share_above_roof(measured, peak, gb_per_s), memory if lower == "memory" else compute
    known = around.seal and around.constants is not None and sealed.latency_s is not None
    by_cause = attribute_error(measured, around.seal, around.constants, peak, gb_per_s) if known else {}
    cause, cause_s = find_largest_cause(by_cause, cpu.median_s)
    return CellRow.like(
        measured,
        device=record.device,
        graph=around.about.in_graph(measured.implementation),
        intensity_flops_per_byte=measured.flops / measured.bytes if measured.bytes else None,
        cpu_time_s=cpu.median_s,
        cpu_time_ci95_s=cpu.ci95_s,
        cpu_time_deciles=decile_ratio(cpu.samples_s),
        gpu_time_s=gpu_s,
        gpu_time_ci95_s=gpu and gpu.ci95_s,
        samples=len(cpu.samples_s),
        attained_tflops=attained,
        gpu_attained_tflops=measured.flops / gpu_s / 1e12 if gpu_s else None,
        compute_ceiling=compute and compute.name,
        memory_ceiling=memory and memory.name,
        lower_ceiling=lower,
        no_roof=no_roof,
        roof_tflops=roof,
        fraction_of_roof=_of_roof(measured.flops, measured.bytes, cpu.median_s, roof, gb_per_s),
        gpu_fraction_of_roof=_of_roof(measured.flops, measured.bytes, gpu_s, roof, gb_per_s),
        fraction_of_compute_peak=attained / peak if peak else None,
        above_roof=above,
        regime=regime,
        regime_level=level,
        start_s=measured.device_overhead_s,
        sealed=prediction(sealed),
        baseline=predict_baseline(measured, around.seal) if around.seal else None,
        sealed_error=prediction_error(sealed.latency_s, cpu.median_s),
        sealed_gpu_error=prediction_error(sealed.device_latency_s, gpu_s),
        sealed_regime_correct=sealed.regime == regime if regime else None,
        cause=cause,
        cause_s=cause_s,
        speed_up=_speed_up(measured, around),
        notes=_notes(record),
        doubt=_doubt(record, measured, around.kind, above),
        roof_doubt=bound and bound.doubt,
        record=path,
    )


def find_regime(
    measured: Measurement, peak: float | None, gb_per_s: float | None, ceilings: Ceilings
) -> tuple[str | None, str | None]:
    """The regime from measurements alone, by the rule of regimes.py, and of a memory-bound cell the level."""
    on_device = measured.device_latency
    levels = {measured.memory_level: measured.bytes / (gb_per_s * 1e9) if gb_per_s else None}
    if gb_per_s:
        moved = {level: size for level, size in measured.level_bytes.items() if level in ceilings}
        levels |= {level: size / (ceilings[level].gb_per_s * 1e9) for level, size in moved.items()}
    level, memory_s = regimes.find_slowest_level(levels)
    regime = regimes.classify_regime(
        cpu_time_s=measured.latency.median_s,
        gpu_time_s=on_device.median_s if on_device else None,
        start_s=measured.device_overhead_s if on_device else measured.overhead_s,
        compute_s=measured.flops / (peak * 1e12) if peak else (None if measured.flops else 0.0),
        memory_s=memory_s,
    )
    return regime, level if regime == roofline_model.MEMORY_BOUND else None


def _of_roof(
    flops: float, traffic: float, time_s: float | None, roof: float | None, gb_per_s: float | None
) -> float | None:
    """Attained by its roof; of an operator that moves bytes and computes nothing, the bandwidth by its ceiling."""
    if time_s and roof:
        return flops / time_s / 1e12 / roof
    if time_s and flops == 0 and gb_per_s:
        return traffic / time_s / 1e9 / gb_per_s
    return None


def share_above_roof(measured: Measurement, peak: float | None, gb_per_s: float | None) -> float | None:
    """The largest share of a ceiling that even the slow end of the faster time exceeds."""
    timings = [one for one in (measured.latency, measured.device_latency) if one]
    faster = min(timings, key=lambda one: one.ci95_s[1] if one.ci95_s else one.median_s)
    slow_end_s = faster.ci95_s[1] * (1 + ROUNDING) if faster.ci95_s else WITHOUT_INTERVAL * faster.median_s
    return _exceeded(measured.flops, measured.bytes, faster.median_s, peak, gb_per_s, slow_end_s / faster.median_s)


def _exceeded(
    flops: float, traffic: float, time_s: float, peak: float | None, gb_per_s: float | None, allowed: float
) -> float | None:
    share = max(flops / time_s / 1e12 / (peak or math.inf), traffic / time_s / 1e9 / (gb_per_s or math.inf))
    return share if share > allowed else None


def prediction_error(predicted_s: float | None, measured_s: float | None) -> float | None:
    """(predicted - measured) / measured; None where either is not known."""
    return (predicted_s - measured_s) / measured_s if predicted_s is not None and measured_s else None


def _speed_up(measured: Measurement, around: CellContext) -> dict[str, SpeedUp]:
    """Graphs are compared with graphs alone: over single launches a graph's lead is the launches'."""
    graph = around.about.in_graph(measured.implementation)
    return {
        name: SpeedUp(
            latency=other.latency.median_s / measured.latency.median_s,
            device_latency=other.device_latency.median_s / measured.device_latency.median_s
            if other.device_latency and measured.device_latency
            else None,
        )
        for name, other in around.alike.items()
        if name in around.about.baselines and name != measured.implementation and around.about.in_graph(name) == graph
    }


def _notes(record: JobRecord) -> list[str]:
    own = record if isinstance(record, OperatorRecord) else None
    return [*own.notes, *([GENERATED] if any(file.generated for file in own.data) else [])] if own else []


def _doubt(record: JobRecord, measured: Measurement, kind: DeviceKind, above_roof: float | None) -> Doubt | None:
    cpu, gpu = measured.latency, measured.device_latency
    return find_doubt(
        kind=kind,
        samples=len(cpu.samples_s),
        throttled=cpu.all_throttled,
        disturbed=is_record_disturbed(record, cpu.contention, measured.states, kind)
        or is_disturbed(gpu and gpu.contention, (), "device"),
        impossible=above_roof is not None,
    )


def build_operation_row(device: str, kind: DeviceKind, asked: Mapping, ceilings: Ceilings) -> CellRow | Skipped:
    """An operation of the user's own: analysed under its dtype's ceiling, measured only where the user did."""
    dtype, name, flops, traffic = (asked[key] for key in ("dtype", "name", "flops", "memory_bytes"))
    peak = ceilings.get(dtype)
    memory = next((ceilings[one] for one in memory_ceilings(kind, "read") if one in ceilings), None)
    if not peak or not memory:
        reason = f"no {'memory' if peak else dtype} ceiling was measured on {device}"
        return Skipped(device=device, what="operation", dtype=dtype, name=name, reason=reason)
    analysis, time_s = (
        roofline_model.place_under_roof(flops, traffic, peak.tflops * 1e12, memory.gb_per_s * 1e9),
        asked.get("measured_s"),
    )
    roof, attained = analysis.attainable_flops_per_s / 1e12, flops / time_s / 1e12 if time_s else None
    lower = "memory" if not roof or roof < 0.9999 * peak.tflops else "compute"
    above = _exceeded(flops, traffic, time_s, peak.tflops, memory.gb_per_s, 1 + ROUNDING) if time_s else None
    nothing = dict.fromkeys(name for name, field in CellRow.model_fields.items() if field.is_required())
    return CellRow(
        **nothing
        | {
            "device": device,
            "operator": USERS,
            "name": name,
            "implementation": "user",
            "dtype": dtype,
            "shape": {},
            "graph": False,
            "flops": flops,
            "bytes": traffic,
            "intensity_flops_per_byte": analysis.intensity_flops_per_byte if traffic else None,
            "cpu_time_s": time_s,
            "attained_tflops": attained,
            "compute_ceiling": dtype,
            "memory_ceiling": memory.name,
            "lower_ceiling": lower,
            "roof_tflops": roof,
            "fraction_of_roof": _of_roof(flops, traffic, time_s, roof, memory.gb_per_s),
            "fraction_of_compute_peak": attained / peak.tflops if attained is not None else None,
            "above_roof": above,
            "regime": analysis.bound,
            "regime_level": MAIN_MEMORY[kind] if analysis.bound == roofline_model.MEMORY_BOUND else None,
            "estimated_time_s": flops / analysis.attainable_flops_per_s if analysis.attainable_flops_per_s else None,
            "roofline_time_s": analysis.roofline_time_s,
            "efficiency_percent": analysis.efficiency_percent,
            "speed_up": {},
            "notes": [],
            "doubt": "impossible" if above else None,
            "roof_doubt": (memory if lower == "memory" else peak).doubt,
        }
    )
