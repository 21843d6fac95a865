"""Predictions: what the datasheets promise, sealed before anything is timed, and what a cell should take.

The model, in docs/prediction.md in one page: a cell's device time is what it costs to start plus the larger of
FLOPs / compute ceiling and bytes / (memory ceiling x the share of it that the implementation attains); its caller's
time is the larger of that and what the calls cost the host. The regime follows by the rule of regimes.py, the same that
names the regime found. Sealed, the ceilings are the datasheet's and the costs are constants of this module; from
ceilings, both are what this run measured.
"""

import hashlib
import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from roofline import model, regimes
from roofline.records import CellPrediction, DeviceRecord, PredictionRecord, PromisedCeiling

# What is assumed of every card and CPU, before this one is timed: a value, and where it is from.
H200_RUN = "runs on an H200 with 16 host cores, 2026-11, before the one at hand"
ASSUMED = {
    "cpu_dram_gb_per_s_per_core": (
        10.0,
        "rule of thumb: one server core copies 10 GB/s or more; no datasheet at run time",
    ),
    # What the calls of a step cost the host, in seconds.
    "gpu_gemm_call_s": (19e-6, "one eager CuPy operation issued from Python: 150 us for eight, an H200 host, 2026-11"),
    "gpu_eager_core_call_s": (8 * 30e-6, "8 array operations, counted in the code, of 19 to 60 us: " + H200_RUN),
    "gpu_eager_block_call_s": (12 * 30e-6, "12 array operations, counted in the code, of 19 to 60 us: " + H200_RUN),
    "gpu_fused_core_call_s": (9e-6, "an empty kernel with nine arguments takes 7.1 us a launch from Python"),
    "gpu_fused_graph_core_call_s": (12e-6, "one launch of a graph from Python, for all its layers"),
    "cpu_gemm_call_s": (2e-6, "one small NumPy call: rule of thumb, 1 to 3 us"),
    "cpu_numpy_core_call_s": (25e-6, "S = 1 at batch 1 on a server of 16 cores, 2026-11"),
    "cpu_numpy_block_call_s": (120e-6, "S = 1 at batch 1 on a server of 16 cores, 2026-11"),
    # What the device takes where there is next to nothing to do, in seconds.
    "gpu_gemm_start_s": (3e-6, "the shortest products of " + H200_RUN),
    "gpu_eager_core_start_s": (18e-6, "S = 128 at batch 1 in fp32, " + H200_RUN),
    "gpu_eager_block_start_s": (30e-6, "S = 128 at batch 1 in fp32, " + H200_RUN),
    "gpu_fused_core_start_s": (5.0e-6, "S = 1 at batch 1, with an event a step, " + H200_RUN),
    "gpu_fused_graph_core_start_s": (1.8e-6, "S = 1 at batch 1, " + H200_RUN),
    "gpu_joining_s": (1.7e-6, "splits of S joined, against none: " + H200_RUN),
    # A block waits for the memory once a turn over its tiles, however short.
    "gpu_turn_s": (0.5e-6, "S = 256 against 128 at batch 1, " + H200_RUN),
    # Blocks that do not fit the card at once come in waves, each of which waits for the memory anew.
    "gpu_wave_s": (2.2e-6, "2720 blocks of a few keys each take 11.3 us in 5.2 waves: " + H200_RUN),
    # The share of the memory ceiling that long steps attain.
    "gpu_gemm_share": (1.0, "a product reads its operands about once"),
    "gpu_eager_fp32_share": (0.28, "batch 256, S 512 and 1024, " + H200_RUN),
    "gpu_eager_fp16_share": (0.05, "batch 256, S 512 and 1024, " + H200_RUN),
    "gpu_eager_bf16_share": (0.05, "taken to be fp16's"),
    "gpu_fused_share": (0.95, "1 GB and more, " + H200_RUN),
    "cpu_gemm_share": (1.0, "a product reads its operands about once"),
    "cpu_numpy_fp32_share": (0.8, "two cores of a server, 2026-11"),
    "cpu_numpy_fp16_share": (0.25, "converting takes three times as long as reading: two cores of a server, 2026-11"),
    # Cells that are so small are read by one core, and cells of so many times as much by so many cores.
    "cpu_numpy_core_bytes": (4 << 20, "batch 1 up to S = 1024 reads at one core's pace: a server of 16 cores, 2026-11"),
    "cpu_numpy_bf16_share": (0.5, "converting takes as long as reading: two cores of a server, 2026-11"),
}
CONSTANTS = {name: value for name, (value, _) in ASSUMED.items()}
CONSTANT_SOURCES = {name: source for name, (_, source) in ASSUMED.items()}


@dataclass(frozen=True)
class Way:
    """How a cell is computed, as far as the model asks: `layers` a call, whether splits of S are joined, and the
    turns that a block takes over its tiles, and how many times as many blocks there are as the card holds at once."""

    implementation: str
    scope: str | None
    dtype: str
    layers: int = 1
    joins: bool = False
    turns: int = 1
    waves: float = 1.0


@dataclass(frozen=True)
class Costs:
    """What a way costs beside its work, in seconds, and the share of the memory ceiling that it attains.

    `call_s` is the host's, None where nothing is known of it; `start_s` the device's, None where the device is its own
    caller; `least_work_s` what the work takes however fast the memory is; `joining_s` the joining of splits of S;
    `waves_s` what waves of blocks wait for the memory, beside the time that it needs.
    """

    call_s: float | None
    start_s: float | None
    share: float = 1.0
    least_work_s: float = 0.0
    joining_s: float = 0.0
    waves_s: float = 0.0


def way_of(measured) -> Way:
    """The way of a measurement."""
    implementation = measured.operator if measured.operator == "gemm" else measured.implementation
    return Way(
        implementation, measured.scope, measured.dtype, measured.layers, measured.joins, measured.turns, measured.waves
    )


def assumed_costs(constants: Mapping[str, float], kind: str, way: Way, traffic_bytes: float) -> Costs:
    """From the seal's constants."""
    name = "_".join([kind, way.implementation, *([way.scope] if way.scope else [])])
    return costs_of(
        constants,
        kind,
        way,
        traffic_bytes,
        call_s=constants[f"{name}_call_s"] / way.layers,
        start_s=constants.get(f"{name}_start_s"),
    )


def costs_of(
    constants: Mapping[str, float], kind: str, way: Way, traffic_bytes: float, call_s: float, start_s: float | None
) -> Costs:
    """With what a call and a start cost from elsewhere, and all else from the constants."""
    base = way.implementation.removesuffix("_graph")
    share = constants.get(f"{kind}_{base}_{way.dtype}_share") or constants[f"{kind}_{base}_share"]
    joining_s = constants["gpu_joining_s"] if way.joins else 0.0
    least_s = (way.turns - 1) * constants["gpu_turn_s"]
    if way.implementation == "numpy":
        reading = max(1.0, traffic_bytes / constants["cpu_numpy_core_bytes"])
        a_core = constants["cpu_dram_gb_per_s_per_core"] * 1e9 * share
        least_s = traffic_bytes / (reading * a_core)
    waves_s = (way.waves - 1) * constants["gpu_wave_s"]
    return Costs(call_s, start_s, share, least_s, joining_s, waves_s)


def seal(device: DeviceRecord, device_record_path: Path | str, sealed_at: str) -> PredictionRecord:
    """The promised ceilings of a device and the constants of the model, with hashes of what they came from."""
    return PredictionRecord(
        device=device.device,
        device_kind=device.device_kind,
        sealed_at=sealed_at,
        device_record_sha256=file_sha256(device_record_path),
        model_source_sha256=model_source_sha256(),
        ceilings=promised_ceilings(device),
        constants=CONSTANTS,
        constant_sources=CONSTANT_SOURCES,
    )


def promised_ceilings(device: DeviceRecord) -> list[PromisedCeiling]:
    compute = [
        PromisedCeiling(
            kind="compute",
            name=name,
            tflops=peak.tflops,
            source=peak.source,
            verified=peak.verified,
            derived=peak.derived,
        )
        for name, peak in device.vendor.peaks.items()
    ]
    if device.vendor.bandwidth:
        bandwidth = device.vendor.bandwidth
        names, gb_per_s = ("hbm_read", "d2d"), bandwidth.gb_per_s
        source, verified, derived = bandwidth.source, bandwidth.verified, bandwidth.derived
    elif device.device_kind == "gpu":
        return compute  # neither the table nor the driver tells a bandwidth: none is promised
    else:
        names = ("dram_read", "dram_copy")
        gb_per_s = CONSTANTS["cpu_dram_gb_per_s_per_core"] * device.hardware.get("cores_usable", 1)
        source, verified, derived = CONSTANT_SOURCES["cpu_dram_gb_per_s_per_core"], False, True
    memory = [
        PromisedCeiling(kind="memory", name=name, gb_per_s=gb_per_s, source=source, verified=verified, derived=derived)
        for name in names
    ]
    return compute + memory


def predict_sealed(
    seal: PredictionRecord, *, flops: float, traffic_bytes: float, compute_ceiling: str, way: Way
) -> CellPrediction:
    """A cell's regime, times and share of peak from the seal alone."""
    tflops = {c.name: c.tflops for c in seal.ceilings if c.kind == "compute"}
    gb_per_s = next((c.gb_per_s for c in seal.ceilings if c.kind == "memory"), None)
    return predict_cell(
        flops=flops,
        traffic_bytes=traffic_bytes,
        peak_tflops=tflops.get(compute_ceiling),
        bandwidth_gb_per_s=gb_per_s,
        costs=assumed_costs(seal.constants, seal.device_kind, way, traffic_bytes),
    )


def predict_cell(
    *,
    flops: float,
    traffic_bytes: float,
    peak_tflops: float | None,
    bandwidth_gb_per_s: float | None,
    costs: Costs,
) -> CellPrediction:
    """What the model says of a cell; what is unknown (None) sets no limit.

    On a device that is its own caller (no `start_s`) the calls come before the work, not beside it.
    """
    compute_s = flops / (peak_tflops * 1e12) if peak_tflops else None
    memory_s = traffic_bytes / (bandwidth_gb_per_s * 1e9) if bandwidth_gb_per_s else None
    # What waits for the memory and what uses it hide one another in part.
    reading_s = math.hypot((memory_s or 0.0) / costs.share, costs.waves_s)
    work_s = max(compute_s or 0.0, reading_s, costs.least_work_s)
    call_s = costs.call_s or 0.0
    device_s = None if costs.start_s is None else costs.start_s + costs.joining_s + work_s
    latency_s = call_s + work_s if device_s is None else max(call_s, device_s)
    named = regimes.regime(
        latency_s=latency_s,
        device_latency_s=device_s,
        start_s=call_s if device_s is None else costs.start_s,
        compute_s=compute_s,
        memory_s=memory_s,
    )
    return CellPrediction(
        regime=named or (model.COMPUTE_BOUND if (compute_s or 0.0) >= (memory_s or 0.0) else model.MEMORY_BOUND),
        latency_s=latency_s or None,
        device_latency_s=device_s,
        fraction_of_compute_peak=compute_s / latency_s if compute_s and latency_s else None,
    )


def model_source_sha256() -> str:
    """The hash of the model's own source: this module, the rule of the regimes, the arithmetic under them, and the
    modules that count an operator's work and divide it among blocks."""
    from roofline.operators import attention_fused, decode_attention, gemm

    digest = hashlib.sha256()
    for module in (inspect.getmodule(model_source_sha256), regimes, model, decode_attention, attention_fused, gemm):
        digest.update(Path(module.__file__).read_bytes())
    return digest.hexdigest()


def file_sha256(path: Path | str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def ceiling_values(ceilings: list) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """(TFLOPS of compute ceilings, GB/s of memory ceilings) by name."""
    compute = {c.name: c.tflops for c in ceilings if c.kind == "compute"}
    return compute, {c.name: c.gb_per_s for c in ceilings if c.kind == "memory"}
