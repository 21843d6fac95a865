"""Predictions: what the datasheets promise, sealed before anything is timed, and a cell's place under a roof.

A cell's time is the largest of three (row E4's regimes): FLOPs / compute peak, bytes / bandwidth, and what its
array operations cost the host that issues them.
"""

import hashlib
import inspect
from collections.abc import Mapping
from pathlib import Path

from roofline import model
from roofline.records import CellPrediction, DeviceRecord, PredictionRecord, PromisedCeiling

# What is assumed of every card and CPU, before this one is timed.
CONSTANTS = {
    "gpu_array_operation_s": 19e-6,
    "cpu_array_operation_s": 2e-6,
    "cpu_dram_gb_per_s_per_core": 10.0,
    "gemm_array_operations": 1,
    "decode_attention_eager_core_array_operations": 8,
    "decode_attention_eager_block_array_operations": 12,
}
CONSTANT_SOURCES = {
    "gpu_array_operation_s": "one eager CuPy operation issued from Python: 150 us for eight, an H200 host, 2026-11",
    "cpu_array_operation_s": "one small NumPy call: rule of thumb, 1 to 3 us",
    "cpu_dram_gb_per_s_per_core": "rule of thumb: one server core copies 10 GB/s or more; no datasheet at run time",
    "gemm_array_operations": "counted in the code",
    "decode_attention_eager_core_array_operations": "counted in the code",
    "decode_attention_eager_block_array_operations": "counted in the code",
}


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
    seal: PredictionRecord, *, flops: float, traffic_bytes: float, compute_ceiling: str, calls: str
) -> CellPrediction:
    """A cell's regime, time and share of peak from the seal alone; `calls` names its count of array operations."""
    tflops = {c.name: c.tflops for c in seal.ceilings if c.kind == "compute"}
    gb_per_s = next((c.gb_per_s for c in seal.ceilings if c.kind == "memory"), None)
    return predict_cell(
        flops=flops,
        traffic_bytes=traffic_bytes,
        peak_tflops=tflops.get(compute_ceiling),
        bandwidth_gb_per_s=gb_per_s,
        overhead_s=seal.constants[f"{calls}_array_operations"]
        * seal.constants[f"{seal.device_kind}_array_operation_s"],
    )


def predict_cell(
    *,
    flops: float,
    traffic_bytes: float,
    peak_tflops: float | None,
    bandwidth_gb_per_s: float | None,
    overhead_s: float | None,
) -> CellPrediction:
    """The largest of the three times names the regime. What is unknown (None) sets no limit."""
    times = {
        model.COMPUTE_BOUND: flops / (peak_tflops * 1e12) if peak_tflops else 0.0,
        model.MEMORY_BOUND: traffic_bytes / (bandwidth_gb_per_s * 1e9) if bandwidth_gb_per_s else 0.0,
        model.OVERHEAD_BOUND: overhead_s or 0.0,
    }
    regime = max(times, key=times.get)
    latency = times[regime]
    share = flops / latency / (peak_tflops * 1e12) if peak_tflops and latency else None
    return CellPrediction(regime=regime, latency_s=latency or None, fraction_of_compute_peak=share)


def model_source_sha256() -> str:
    """The hash of the model's own source: this module and the arithmetic under it."""
    digest = hashlib.sha256()
    for module in (inspect.getmodule(model_source_sha256), model):
        digest.update(Path(module.__file__).read_bytes())
    return digest.hexdigest()


def file_sha256(path: Path | str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def ceiling_values(ceilings: list) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """(TFLOPS of compute ceilings, GB/s of memory ceilings) by name."""
    compute = {c.name: c.tflops for c in ceilings if c.kind == "compute"}
    return compute, {c.name: c.gb_per_s for c in ceilings if c.kind == "memory"}
