"""The row of one cell: its roof, its sealed prediction, its operator's baselines and its doubt."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from roofline.core import disturbance, regimes, roofline_model, statistics
from roofline.core.levels import MAIN_MEMORY, memory_ceiling_names
from roofline.core.repeatability import Doubt, find_doubt
from roofline.core.terms import DeviceKind
from roofline.operators.about import About
from roofline.records.base import copy_fields, shared_fields
from roofline.records.operator_record import CellKey, JobRecord, Measurement, OperatorRecord
from roofline.records.seal_records import PredictionRecord
from roofline.table.ceiling_rows import is_record_disturbed
from roofline.table.error_reason import explain_cause
from roofline.table.prediction_error import attribute_error, find_largest_cause, prepare_replay
from roofline.table.rows import (
    USERS,
    Ceiling,
    CellRow,
    ComputeCeiling,
    MemoryCeiling,
    Skipped,
    SpeedUp,
    TimeShares,
)
from roofline.table.scores import predict_baseline, promised_roof_s

MemoryCeilings = Mapping[str, MemoryCeiling]  # of one device, by name
NO_ROOF = "warm, and no ceiling of a cache is measured"
GENERATED = "weights were generated, not trained"
ROUNDING = 1e-9
ROUNDED = 0.9999  # of the peak: a roof that is nearer to it is the peak
# Too few samples for an interval place a median within 5 % at best; the user's own figure is taken at its word.
WITHOUT_INTERVAL = 1.05


class Ceilings(NamedTuple):
    """The ceilings of one device, by name."""

    compute: Mapping[str, ComputeCeiling]
    memory: MemoryCeilings

    def find(self, compute: str, memory: Iterable[str]) -> tuple[ComputeCeiling | None, MemoryCeiling | None]:
        """Return the compute ceiling of a name, and the first of these memory ceilings; None if not measured."""
        return self.compute.get(compute), next((self.memory[name] for name in memory if name in self.memory), None)


class CellContext(NamedTuple):
    """The facts that a cell's row follows from besides its own measurement."""

    kind: DeviceKind
    about: About  # of its operator
    ceilings: Ceilings
    seal: PredictionRecord | None  # the device's
    constants: Mapping[str, float] | None  # of its operator's seal
    same_case: Sequence[tuple[JobRecord, Measurement]]  # the same case by each implementation


def build_cell_row(path: str, record: JobRecord, measured: Measurement, context: CellContext) -> CellRow:
    """Return the row of one measurement: its roof, shares, regime, sealed prediction, baseline, speed-ups and doubt.

    Times are in seconds, rates in TFLOPS and GB/s.
    """
    compute, memory = context.ceilings.find(measured.compute_ceiling, measured.memory_ceilings)
    peak, gb_per_s = compute.tflops if compute else None, memory.gb_per_s if memory else None
    no_roof_reason = NO_ROOF if measured.bytes and not measured.memory_ceilings else None
    roof = None if no_roof_reason else roofline_model.roof_tflops(measured.flops, measured.bytes, peak, gb_per_s)
    cpu, gpu, sealed = measured.cpu_time, measured.gpu_time, measured.sealed
    cpu_s, gpu_s = cpu.median_s, gpu.median_s if gpu else None
    regime, level, roof_s = find_regime(measured, peak, gb_per_s, context.ceilings.memory)
    gpu_shares, cpu_shares = time_shares(measured, roof_s)
    exceeded = share_above_roof(measured, peak, gb_per_s)
    doubt = _doubt(record, measured, context.kind, exceeded)
    return CellRow(
        **shared_fields(measured, CellKey),
        **copy_fields(measured, "overhead_s", "start_s", "sealed"),
        **_place_under_roof(measured.flops, measured.bytes, cpu_s, compute, memory, roof),
        device=record.device,
        graph=context.about.runs_in_graph(measured.implementation),
        cpu_time_ci95_s=cpu.ci95_s,
        cpu_time_decile_ratio=statistics.decile_ratio(cpu.samples_s),
        gpu_time_s=gpu_s,
        gpu_time_ci95_s=gpu and gpu.ci95_s,
        sample_count=len(cpu.samples_s),
        cores_used=cpu.contention and cpu.contention.own_cores,
        gpu_attained_tflops=measured.flops / gpu_s / 1e12 if gpu_s else None,
        no_roof_reason=no_roof_reason,
        gpu_fraction_of_roof=_roof_fraction(measured.flops, measured.bytes, gpu_s, roof, gb_per_s),
        fraction_of_exceeded_ceiling=exceeded,
        regime=regime,
        regime_level=level,
        gpu_time_shares=gpu_shares,
        cpu_time_shares=cpu_shares,
        sealed_tflops=measured.flops / sealed.cpu_time_s / 1e12 if sealed.cpu_time_s else None,
        sealed_cpu_time_error=prediction_error(sealed.cpu_time_s, cpu_s),
        sealed_gpu_time_error=prediction_error(sealed.gpu_time_s, gpu_s),
        sealed_regime_right=sealed.regime == regime if regime else None,
        **_fields_by_seals(measured, context, compute, memory),
        speed_up={} if doubt else _speed_up(measured, context),
        notes=_notes(record),
        doubt=doubt,
        record=path,
    )


def _place_under_roof(
    flops: float,
    traffic: float,
    time_s: float | None,
    compute: ComputeCeiling | None,
    memory: MemoryCeiling | None,
    roof: float | None,
) -> dict[str, Any]:
    """The counts, rates, ceilings and shares of a row by its CPU time; `roof` is in TFLOPS."""
    peak, gb_per_s = compute.tflops if compute else None, memory.gb_per_s if memory else None
    attained = flops / time_s / 1e12 if time_s else None
    lower = lower_ceiling(peak, gb_per_s, roof)
    limiting: Ceiling | None = memory if lower == "memory" else compute
    return {
        "flops": flops,
        "bytes": traffic,
        "intensity_flops_per_byte": flops / traffic if traffic else None,
        "cpu_time_s": time_s,
        "attained_tflops": attained,
        "attained_gb_per_s": traffic / time_s / 1e9 if time_s else None,
        "compute_ceiling": compute and compute.name,
        "memory_ceiling": memory and memory.name,
        "lower_ceiling": lower,
        "roof_tflops": roof,
        "fraction_of_roof": _roof_fraction(flops, traffic, time_s, roof, gb_per_s),
        "fraction_of_compute_peak": attained / peak if attained is not None and peak else None,
        "roof_doubt": limiting and limiting.doubt,
    }


def lower_ceiling(peak: float | None, gb_per_s: float | None, roof: float | None) -> Literal["compute", "memory"]:
    """Return which ceiling is the lower one at a cell's intensity; a roof within ROUNDED of the peak is the peak.

    `peak` and `roof` are in TFLOPS.
    """
    if not peak or not roof:
        return "memory"
    return "memory" if gb_per_s and roof < ROUNDED * peak else "compute"


def _fields_by_seals(
    measured: Measurement, context: CellContext, compute: ComputeCeiling | None, memory: MemoryCeiling | None
) -> dict[str, Any]:
    """The fields of a row that follow from its seals, as far as there are any: its roof by the promised rates, the
    baseline, and the main cause of the sealed CPU time's error, with the seconds that it adds and its reason."""
    if context.seal is None:
        return {}
    promised = context.seal.rates(measured.compute_ceiling, measured.memory_ceilings)
    roof_s = promised_roof_s(measured.flops, measured.bytes, promised)
    fields = {"promised_roof_s": roof_s, "baseline_prediction": predict_baseline(measured, context.seal)}
    if context.constants is None or measured.sealed.cpu_time_s is None:
        return fields
    replay = prepare_replay(measured, context.seal, context.constants)
    seconds_by_cause = attribute_error(replay, compute.tflops if compute else None, memory.gb_per_s if memory else None)
    cause, cause_s = find_largest_cause(seconds_by_cause, measured.cpu_time.median_s)
    reason = explain_cause(replay, cause, cause_s, compute, memory) if cause and cause_s else None
    return fields | {"cause": cause, "cause_s": cause_s, "cause_reason": reason}


def share_out_time(time_s: float, roof_s: float, overhead_s: float) -> TimeShares:
    """Return the shares of a time that the slowest roof takes, launches and start, and what is left.

    The roof comes first: what starts meanwhile takes no time of its own.
    """
    roof_share = min(1.0, roof_s / time_s)
    overhead_share = min(1.0 - roof_share, overhead_s / time_s)
    return TimeShares(roof=roof_share, overhead=overhead_share, rest=1.0 - roof_share - overhead_share)


def time_shares(measured: Measurement, roof_s: float | None) -> tuple[TimeShares | None, TimeShares | None]:
    """Return the shares of a cell's GPU time and of its CPU time; None without a GPU time, or without a roof."""
    if roof_s is None:
        return None, None
    cpu_s, gpu_s = measured.cpu_time.median_s, measured.gpu_time.median_s if measured.gpu_time else None
    start_s = measured.start_s if gpu_s else measured.overhead_s
    overhead_s = regimes.overhead_of_cell_s(cpu_time_s=cpu_s, gpu_time_s=gpu_s, start_s=start_s)
    of_gpu = share_out_time(gpu_s, roof_s, start_s or 0.0) if gpu_s else None
    return of_gpu, share_out_time(cpu_s, roof_s, overhead_s)


def find_regime(
    measured: Measurement, peak: float | None, gb_per_s: float | None, memory: MemoryCeilings
) -> tuple[str | None, str | None, float | None]:
    """Return the regime by the rule of regimes.py, from measurements alone, the level of a memory-bound cell, and the
    seconds that the slowest roof allows.

    `peak` is in TFLOPS, `memory` has the device's memory ceilings. They are None if a ceiling that they depend on was
    not measured.
    """
    on_device = measured.gpu_time
    levels: dict[str, float | None] = {measured.memory_level: measured.bytes / (gb_per_s * 1e9) if gb_per_s else None}
    if gb_per_s:
        for passed, size in measured.level_bytes.items():
            if ceiling := memory.get(measured.level_ceilings.get(passed, passed)):
                levels[passed] = size / (ceiling.gb_per_s * 1e9)
    level, memory_s = regimes.find_slowest_level(levels)
    compute_s = measured.flops / (peak * 1e12) if peak else (None if measured.flops else 0.0)
    regime = regimes.classify_regime(
        cpu_time_s=measured.cpu_time.median_s,
        gpu_time_s=on_device.median_s if on_device else None,
        start_s=measured.start_s if on_device else measured.overhead_s,
        compute_s=compute_s,
        memory_s=memory_s,
    )
    roof_s = None if compute_s is None or memory_s is None else max(compute_s, memory_s)
    return regime, level if regime == roofline_model.MEMORY_BOUND else None, roof_s


def _roof_fraction(
    flops: float, traffic: float, time_s: float | None, roof: float | None, gb_per_s: float | None
) -> float | None:
    """The attained FLOP rate over the roof; without FLOPs, the attained bandwidth over the memory ceiling."""
    if time_s and roof:
        return flops / time_s / 1e12 / roof
    if time_s and flops == 0 and gb_per_s:
        return traffic / time_s / 1e9 / gb_per_s
    return None


def share_above_roof(measured: Measurement, peak: float | None, gb_per_s: float | None) -> float | None:
    """Return the largest share of a ceiling that the cell exceeds even at the slow end of its faster time.

    `peak` is in TFLOPS. None if the cell exceeds no ceiling.
    """
    timings = [timing for timing in (measured.cpu_time, measured.gpu_time) if timing]
    faster = min(timings, key=lambda timing: timing.ci95_s[1] if timing.ci95_s else timing.median_s)
    slow_end_s = faster.ci95_s[1] * (1 + ROUNDING) if faster.ci95_s else WITHOUT_INTERVAL * faster.median_s
    share = _larger_share(measured.flops, measured.bytes, faster.median_s, peak, gb_per_s)
    return share if share > slow_end_s / faster.median_s else None


def _larger_share(flops: float, traffic: float, time_s: float, peak: float | None, gb_per_s: float | None) -> float:
    """The larger of the two shares of the ceilings that a time means."""
    return max(flops / time_s / 1e12 / (peak or math.inf), traffic / time_s / 1e9 / (gb_per_s or math.inf))


def prediction_error(predicted_s: float | None, measured_s: float | None) -> float | None:
    """Return (predicted - measured) / measured; None if either is not known."""
    return (predicted_s - measured_s) / measured_s if predicted_s is not None and measured_s else None


def _speed_up(measured: Measurement, context: CellContext) -> dict[str, SpeedUp]:
    """The speed-up over each baseline of the operator that is not in doubt, by its name.

    Graphs are compared with graphs alone: over single launches the lead of a graph is that of its launches.
    """
    runs_in_graph = context.about.runs_in_graph
    speed_ups = {}
    for record, baseline in context.same_case:
        name = baseline.implementation
        launched_alike = runs_in_graph(name) == runs_in_graph(measured.implementation)
        if name not in context.about.baselines or name == measured.implementation or not launched_alike:
            continue
        compute, memory = context.ceilings.find(baseline.compute_ceiling, baseline.memory_ceilings)
        peak, gb_per_s = compute.tflops if compute else None, memory.gb_per_s if memory else None
        if _doubt(record, baseline, context.kind, share_above_roof(baseline, peak, gb_per_s)):
            continue
        gpu, baseline_gpu = measured.gpu_time, baseline.gpu_time
        gpu_time_ratio = baseline_gpu.median_s / gpu.median_s if baseline_gpu and gpu else None
        cpu_time_ratio = baseline.cpu_time.median_s / measured.cpu_time.median_s
        speed_ups[name] = SpeedUp(cpu_time_ratio=cpu_time_ratio, gpu_time_ratio=gpu_time_ratio)
    return speed_ups


def _notes(record: JobRecord) -> list[str]:
    if not isinstance(record, OperatorRecord):
        return []
    generated = any(file.generated for file in record.data)
    return [*record.notes, GENERATED] if generated else list(record.notes)


def _doubt(record: JobRecord, measured: Measurement, kind: DeviceKind, exceeded: float | None) -> Doubt | None:
    cpu, gpu = measured.cpu_time, measured.gpu_time
    on_cpu = is_record_disturbed(record, cpu.contention, measured.states, kind)
    return find_doubt(
        kind=kind,
        samples=min(len(time.samples_s) for time in (cpu, gpu) if time),
        throttled=cpu.all_throttled,
        disturbed=on_cpu or disturbance.is_disturbed(gpu.contention if gpu else None, (), "device"),
        impossible=exceeded is not None,
    )


def build_operation_row(
    device: str, kind: DeviceKind, operation: Mapping[str, Any], ceilings: Ceilings
) -> CellRow | Skipped:
    """Return the row of an operation of the user's own: analysed under the ceiling of its dtype.

    It is measured only if the user timed it (`measured_s`).
    """
    dtype, name, flops, traffic = operation["dtype"], operation["name"], operation["flops"], operation["memory_bytes"]
    compute, memory = ceilings.find(dtype, memory_ceiling_names(kind, operation.get("mix", "read")))
    if not compute or not memory:
        reason = f"no {'memory' if compute else dtype} ceiling was measured on {device}"
        return Skipped(device=device, kind="operation", name=name, reason=reason)
    analysis = roofline_model.place_under_roof(flops, traffic, compute.tflops * 1e12, memory.gb_per_s * 1e9)
    time_s = operation.get("measured_s")
    share = _larger_share(flops, traffic, time_s, compute.tflops, memory.gb_per_s) if time_s else 0.0
    exceeded = share if share > 1 + ROUNDING else None
    return CellRow(
        **_place_under_roof(flops, traffic, time_s, compute, memory, analysis.attainable_flops_per_s / 1e12),
        device=device,
        operator=USERS,
        name=name,
        implementation="user",
        dtype=dtype,
        shape={},
        graph=False,
        fraction_of_exceeded_ceiling=exceeded,
        regime=analysis.bound,
        regime_level=MAIN_MEMORY[kind] if analysis.bound == roofline_model.MEMORY_BOUND else None,
        estimated_time_s=flops / analysis.attainable_flops_per_s if analysis.attainable_flops_per_s else None,
        roofline_time_s=analysis.roofline_time_s,
        roof_fraction_of_compute_peak=analysis.efficiency_percent / 100,
        speed_up={},
        notes=[],
        doubt="impossible" if exceeded else None,
    )
