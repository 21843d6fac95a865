"""Made-up contents of results/roofline.json in the public format, with figures like real devices'."""

from __future__ import annotations

from collections.abc import Iterable

from roofline.operators.about import OwnOperator
from roofline.table.rows import Cell, ComputeCeiling, Device, MemoryCeiling, Roofline, Row, Skipped

TENSOR, CUDA = "tensor_core", "cuda_core"
SEQ_LENS = (128, 256, 512, 1024)
BYTES_OF = {"fp32": 4, "fp16": 2}

GPU_COMPUTE = {  # name: unit, TFLOPS, sustained, vendor
    "fp64": (TENSOR, 62.0, 59.1, 66.9),
    "fp32": (CUDA, 55.2, 55.0, 66.9),
    "tf32": (TENSOR, 420.0, 355.0, 494.7),
    "fp16": (TENSOR, 778.0, 665.0, 989.4),
    "bf16": (TENSOR, 812.0, 690.0, 989.4),
    "fp8_e4m3": (TENSOR, 1545.0, 1315.0, 1978.9),
}
GPU_MEMORY = {  # name: level, mix, GB/s, vendor
    "d2d": ("hbm", "copy", 4258.0, 4800.0),
    "h2d": ("pcie", "copy", 55.6, 63.0),
    "d2h": ("pcie", "copy", 55.4, 63.0),
    "hbm_read": ("hbm", "read", 4641.0, 4800.0),
}


def compute_ceiling(
    device: str, name: str, unit: str, tflops: float, sustained: float | None, vendor: float | None
) -> dict:
    return {
        "device": device,
        "kind": "compute",
        "name": name,
        "dtype": name.removesuffix("_fma"),
        "method": "fma" if name.endswith("_fma") else "gemm",
        "unit": unit,
        "tflops": tflops,
        "reference_tflops": 0.98 * tflops,
        "sustained_tflops": sustained,
        "burst_tflops": tflops,
        "samples": 100,
        "datasheet_tflops": vendor,
        "fraction_of_datasheet": vendor and tflops / vendor,
        "fraction_of_clock": vendor and tflops / (1.07 * vendor),
        "record": f"{device}/peak_flops/{name}.json",
    }


def memory_ceiling(device: str, name: str, level: str, mix: str, gb_per_s: float, vendor: float | None) -> dict:
    return {
        "device": device,
        "kind": "memory",
        "name": name,
        "level": level,
        "mix": mix,
        "gb_per_s": gb_per_s,
        "ci95": [0.998 * gb_per_s, 1.001 * gb_per_s],
        "samples": 100,
        "datasheet_gb_per_s": vendor,
        "fraction_of_datasheet": vendor and gb_per_s / vendor,
        "record": f"{device}/bandwidth/{name}.json",
    }


def gpu_ceilings(
    device: str,
    compute: Iterable[str] = GPU_COMPUTE,
    memory: Iterable[str] = GPU_MEMORY,
    scale: float = 1.0,
) -> list[dict]:
    found = []
    for name in compute:
        unit, tflops, sustained, vendor = GPU_COMPUTE[name]
        found.append(compute_ceiling(device, name, unit, scale * tflops, sustained and scale * sustained, vendor))
    return found + [memory_ceiling(device, name, *GPU_MEMORY[name]) for name in memory]


def operator_row(
    ceilings: list[dict],
    device: str,
    operator: str,
    dtype: str,
    flops: float,
    traffic: float,
    latency_s: float | None,
    compute: str,
    memory: str,
    **fields,
) -> dict:
    """One operator under its roof, with everything that follows from its FLOPs, bytes and latency."""
    by_name = {c["name"]: c for c in ceilings if c["device"] == device}
    peak = by_name[compute]["tflops"]
    intensity = flops / traffic if traffic else None
    bounded = intensity is not None and memory in by_name
    slope = intensity * by_name[memory]["gb_per_s"] / 1e3 if bounded else peak
    roof = min(peak, slope)
    attained = None if latency_s is None else flops / latency_s / 1e12
    sealed = {"regime": "memory", "cpu_time_s": latency_s and 0.8 * latency_s, "gpu_time_s": None}
    sealed |= {"level": None, "fraction_of_compute_peak": 0.01}
    row = {
        "device": device,
        "operator": operator,
        "implementation": "eager",
        "preset": None,
        "scope": None,
        "dtype": dtype,
        "cache": "cold",
        "shape": {},
        "flops": flops,
        "bytes": traffic,
        "intensity_flops_per_byte": intensity,
        "cpu_time_s": latency_s,
        "cpu_time_ci95_s": latency_s and [0.99 * latency_s, 1.01 * latency_s],
        "gpu_time_s": latency_s and 0.7 * latency_s,
        "attained_tflops": attained,
        "gpu_attained_tflops": attained and attained / 0.7,
        "compute_ceiling": compute,
        "memory_ceiling": memory if memory in by_name else None,
        "roof_tflops": roof,
        "fraction_of_roof": attained and roof and attained / roof,
        "gpu_fraction_of_roof": attained and roof and attained / roof / 0.7,
        "fraction_of_compute_peak": attained and attained / peak,
        "regime": "memory" if slope < peak else "compute",
        "regime_level": "hbm",
        "overhead_s": None,
        "sealed": sealed,
        "record": f"{device}/{operator}.json",
    }
    return row | fields


def gemm(ceilings: list[dict], device: str, dtype: str, size: int = 4096) -> dict:
    peak = next(c["tflops"] for c in ceilings if c["device"] == device and c["name"] == dtype)
    return operator_row(
        ceilings,
        device,
        "gemm",
        dtype,
        flops=2 * size**3,
        traffic=3 * size**2 * BYTES_OF[dtype],
        latency_s=2 * size**3 / ((0.9 if dtype == "fp32" else 0.975) * peak * 1e12),
        compute=dtype,
        memory="d2d",
        implementation="cublas",
        shape={"m": size, "n": size, "k": size},
    )


def decode_attention(ceilings: list[dict], device: str, dtype: str, seq_len: int, batch: int) -> dict:
    """A step with a fixed overhead and, above it, a share of the bandwidth: about what is measured."""
    heads, head_size = 8, 64
    traffic = 2 * batch * heads * head_size * seq_len * BYTES_OF[dtype]
    bandwidth = next(c["gb_per_s"] for c in ceilings if c["device"] == device and c["name"] == "hbm_read")
    return operator_row(
        ceilings,
        device,
        "decode_attention",
        dtype,
        flops=4 * batch * heads * head_size * seq_len,
        traffic=traffic,
        latency_s=150e-6 + traffic / (0.62 * bandwidth * 1e9),
        compute=dtype,
        memory="hbm_read",
        preset="minigpt",
        scope="core",
        shape={"batch": batch, "heads": heads, "kv_heads": heads, "head_size": head_size, "seq_len": seq_len},
        overhead_s=150e-6,
    )


def operation(
    ceilings: list[dict],
    device: str,
    name: str,
    flops: float,
    traffic: float,
    latency_s: float | None,
    dtype: str = "fp32",
    memory: str = "d2d",
) -> dict:
    return operator_row(
        ceilings,
        device,
        "operation",
        dtype,
        flops,
        traffic,
        latency_s,
        compute=dtype,
        memory=memory,
        implementation="user",
        name=name,
        sealed=None,
        record=None,
    )


def gpu(device: str = "gpu0", name: str = "NVIDIA H200") -> dict:
    return {device: {"kind": "gpu", "name": name, "record": f"{device}/device_query.json"}}


def sample_roofline(devices: dict, ceilings: list[dict], operators: list[dict], skipped: list[dict]) -> dict:
    return {"devices": devices, "ceilings": ceilings, "operators": operators, "skipped": skipped}


def table(content: dict, *own: OwnOperator) -> Roofline:
    """As a page reads it, with the text of these operators."""
    return Roofline.model_validate(completed(content) | {"own_operators": list(own)})


def completed(content: dict) -> dict:
    """Rows with every field; what they do not give is null or empty."""
    kinds = {"operators": Cell, "skipped": Skipped}
    rows = {name: [whole(kind, one) for one in content[name]] for name, kind in kinds.items()}
    of_kind = {"compute": ComputeCeiling, "memory": MemoryCeiling}
    rows["ceilings"] = [whole(of_kind[one["kind"]], one) for one in content["ceilings"]]
    rows["devices"] = {name: whole(Device, one) for name, one in content["devices"].items()}
    return whole(Roofline, content | rows)


def whole(kind: type[Row], row: dict) -> dict:
    empty = {"list": [], "dict": {}, "bool": False, "str": "", "int": 1, "float": 1.0}
    none = {"score": {"cells": 0, "regimes_right": 0, "times_right": 0, "times_close": 0, "both_right": 0}}
    none["score"] |= {"median_error": None, "baseline": None}
    lower = {"lower_ceiling": "compute"} if row.get("regime") == "compute" else {"lower_ceiling": "memory"}
    missing = {
        name: none.get(name, lower.get(name, _empty(field.annotation, empty)))
        for name, field in kind.model_fields.items()
        if field.is_required() and name not in row
    }
    return row | missing


def _empty(annotation, empty: dict):
    name = getattr(getattr(annotation, "__origin__", annotation), "__name__", "")
    return empty.get(name)


def no_dots() -> dict:
    return sample_roofline(gpu(), gpu_ceilings("gpu0"), [], [])


def many_operations() -> dict:
    """What users list: measured or not, without traffic, without FLOPs, with long names, above the roof."""
    ceilings = gpu_ceilings("gpu0", ("fp32", "fp16"), ("d2d", "h2d", "d2h"))
    unknown = ("fraction_of_datasheet", "datasheet_tflops", "datasheet_gb_per_s", "ci95")
    ceilings = [c | {key: None for key in unknown if key in c} for c in ceilings]
    operators = []
    for i in range(18):
        flops, traffic = 3e9 * 1.9**i, 2e9 * 1.25**i
        roof_s = max(flops / 55.2e12, traffic / 4258e9)
        latency = None if i % 3 == 0 else roof_s * (1.3 + 0.8 * i)
        operators.append(operation(ceilings, "gpu0", f"layer {i} of the user's model", flops, traffic, latency))
    operators += [
        operation(ceilings, "gpu0", "faster than a copy", 1e9, 4e9, 4e9 / 4600e9),
        operation(ceilings, "gpu0", "random numbers in registers", 1e12, 0, 1e12 / 40e12),
        operation(ceilings, "gpu0", "embedding lookup", 0, 1e9, 1e9 / 3000e9),
        operation(ceilings, "gpu0", "an operation whose author thinks that no name is too long", 1e12, 2e10, None),
    ]
    reason = "compute capability 8.0, fp8 needs 8.9"
    return sample_roofline(
        gpu(name="NVIDIA A100-SXM4-80GB"),
        ceilings,
        operators,
        [{"device": "gpu0", "what": "peak_flops", "dtype": "fp8_e4m3", "reason": reason}],
    )


def eight_devices() -> dict:
    devices: dict = {}
    ceilings: list[dict] = []
    for i in range(8):
        devices |= gpu(f"gpu{i}")
        ceilings += gpu_ceilings(f"gpu{i}", scale=1 - 0.01 * i)
    operators = [gemm(ceilings, device, dtype) for device in devices for dtype in ("fp16", "fp32")]
    operators += [
        decode_attention(ceilings, device, dtype, seq_len, batch)
        for device in devices
        for dtype in ("fp32", "fp16")
        for batch in (1, 256)
        for seq_len in SEQ_LENS
    ]
    return sample_roofline(devices, ceilings, operators, [])


def long_names() -> dict:
    content, name = many_operations(), "an extraordinarily long name " * 8
    content["devices"]["gpu0"]["name"] = name
    return content | {"operators": [operator | {"name": name} for operator in content["operators"]]}


SAMPLES = {make.__name__: make for make in (no_dots, many_operations, eight_devices)}
