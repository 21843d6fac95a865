"""Made-up contents of results/roofline.json in the public format, with figures like real devices'."""

from __future__ import annotations

from collections.abc import Iterable

from roofline.operators.about import OwnOperator
from roofline.table.rows import Cell, ComputeCeiling, Device, MemoryCeiling, Roofline, Row, Skipped

TENSOR, CUDA, CPU = "tensor_core", "cuda_core", "cpu"
SEQ_LENS = (128, 256, 512, 1024)
BYTES_OF = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8_e4m3": 1, "int8": 1}

GPU_COMPUTE = {  # name: unit, TFLOPS, sustained, vendor
    "fp64": (TENSOR, 62.0, 59.1, 66.9),
    "fp32": (CUDA, 55.2, 55.0, 66.9),
    "tf32": (TENSOR, 420.0, 355.0, 494.7),
    "fp16": (TENSOR, 778.0, 665.0, 989.4),
    "bf16": (TENSOR, 812.0, 690.0, 989.4),
    "fp8_e4m3": (TENSOR, 1545.0, 1315.0, 1978.9),
    "int8": (TENSOR, 1700.0, 1415.0, 1978.9),
    "fp64_fma": (CUDA, 32.8, None, 33.5),
    "fp32_fma": (CUDA, 66.0, None, 66.9),
    "fp16_fma": (CUDA, 126.0, None, 133.8),
}
GPU_MEMORY = {  # name: level, mix, GB/s, vendor
    "hbm_read": ("hbm", "read", 4641.0, 4800.0),
    "hbm_write": ("hbm", "write", 4598.0, 4800.0),
    "hbm_copy": ("hbm", "copy", 4315.0, 4800.0),
    "hbm_triad": ("hbm", "triad", 4400.0, 4800.0),
    "d2d": ("hbm", "copy", 4258.0, 4800.0),
    "l2": ("l2", "read", 9300.0, None),
    "l1": ("l1", "read", 32700.0, 33450.0),
    "shared": ("shared", "read", 32400.0, 33450.0),
    "h2d": ("pcie", "copy", 55.6, 63.0),
    "d2h": ("pcie", "copy", 55.4, 63.0),
    "h2d_pageable": ("pcie", "copy", 12.1, 63.0),
    "d2h_pageable": ("pcie", "copy", 9.8, 63.0),
}
CPU_COMPUTE = {"fp32": (CPU, 1.43, None, 2.15), "fp64": (CPU, 0.71, None, 1.08)}
CPU_MEMORY = {
    "dram_read": ("dram", "read", 118.0, 307.2),
    "dram_write": ("dram", "write", 71.0, 307.2),
    "dram_copy": ("dram", "copy", 92.4, 307.2),
    "dram_triad": ("dram", "triad", 96.1, 307.2),
    "dram_read_one_core": ("dram", "read", 12.6, None),
    "dram_copy_one_core": ("dram", "copy", 11.8, None),
}
DEFAULT_GPU_COMPUTE = ("fp32", "fp16", "bf16", "fp8_e4m3", "tf32", "fp64")
DEFAULT_GPU_MEMORY = ("d2d", "h2d", "d2h", "hbm_read")
GEMM_DTYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8_e4m3", "int8")


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
        "ci95": [0.998 * tflops, 1.001 * tflops],
        "reference_tflops": None if name.endswith("_fma") else 0.98 * tflops,
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
    compute: Iterable[str] = DEFAULT_GPU_COMPUTE,
    memory: Iterable[str] = DEFAULT_GPU_MEMORY,
    scale: float = 1.0,
) -> list[dict]:
    found = []
    for name in compute:
        unit, tflops, sustained, vendor = GPU_COMPUTE[name]
        found.append(compute_ceiling(device, name, unit, scale * tflops, sustained and scale * sustained, vendor))
    return found + [memory_ceiling(device, name, *GPU_MEMORY[name]) for name in memory]


def cpu_ceilings(device: str = "cpu", memory: Iterable[str] = ("dram_copy", "dram_read")) -> list[dict]:
    return [compute_ceiling(device, name, *CPU_COMPUTE[name]) for name in CPU_COMPUTE] + [
        memory_ceiling(device, name, *CPU_MEMORY[name]) for name in memory
    ]


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
    sealed["fraction_of_compute_peak"] = 0.01
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


def gemm(ceilings: list[dict], device: str, dtype: str, memory: str, size: int = 4096) -> dict:
    peak = next(c["tflops"] for c in ceilings if c["device"] == device and c["name"] == dtype)
    return operator_row(
        ceilings,
        device,
        "gemm",
        dtype,
        flops=2 * size**3,
        traffic=3 * size**2 * BYTES_OF[dtype],
        latency_s=2 * size**3 / ((0.9 if dtype in ("fp32", "fp8_e4m3") else 0.975) * peak * 1e12),
        compute=dtype,
        memory=memory,
        implementation="cublas" if device != "cpu" else "blas",
        shape={"m": size, "n": size, "k": size},
        record=f"{device}/peak_flops/{dtype}.json",
    )


def decode_attention(
    ceilings: list[dict],
    device: str,
    dtype: str,
    seq_len: int,
    batch: int,
    scope: str,
    memory: str,
    implementation: str = "eager",
    overhead_s: float = 150e-6,
) -> dict:
    """A step with a fixed overhead and, above it, a share of the bandwidth: about what is measured."""
    heads, head_size = 8, 64
    width = heads * head_size
    flops = 4 * batch * width * seq_len
    traffic = 2 * batch * width * seq_len * BYTES_OF[dtype]
    if scope == "block":
        flops += 2 * batch * 4 * width**2
        traffic += 4 * width**2 * BYTES_OF[dtype]
        overhead_s *= 1.35
    bandwidth = next(c["gb_per_s"] for c in ceilings if c["device"] == device and c["name"] == memory)
    return operator_row(
        ceilings,
        device,
        "decode_attention",
        dtype,
        flops=flops,
        traffic=traffic,
        latency_s=overhead_s + traffic / (0.62 * bandwidth * 1e9),
        compute=dtype,
        memory=memory,
        implementation=implementation,
        preset="minigpt",
        scope=scope,
        shape={"batch": batch, "heads": heads, "kv_heads": heads, "head_size": head_size, "seq_len": seq_len},
        overhead_s=overhead_s,
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


def decode_sweep(
    ceilings: list[dict],
    device: str,
    dtypes: Iterable[str] = ("fp32", "fp16"),
    scopes: Iterable[str] = ("core", "block"),
    memory: str = "hbm_read",
    **fields,
) -> list[dict]:
    return [
        decode_attention(ceilings, device, dtype, seq_len, batch, scope, memory, **fields)
        for dtype in dtypes
        for batch in (1, 256)
        for scope in scopes
        for seq_len in SEQ_LENS
    ]


def cpu_decode_sweep(ceilings: list[dict]) -> list[dict]:
    fields = {"memory": "dram_read", "implementation": "numpy", "overhead_s": 2e-5}
    return decode_sweep(ceilings, "cpu", ("fp32",), scopes=("core",), **fields)


def gpu(device: str = "gpu0", name: str = "NVIDIA H200") -> dict:
    return {device: {"kind": "gpu", "name": name, "record": f"{device}/device_query.json"}}


def cpu(name: str = "Intel(R) Xeon(R) Platinum 8468 (16 cores, AVX-512)") -> dict:
    return {"cpu": {"kind": "cpu", "name": name, "record": "cpu/device_query.json"}}


def sample_roofline(
    devices: dict | None = None,
    ceilings: list[dict] | None = None,
    operators: list[dict] | None = None,
    skipped: list[dict] | None = None,
) -> dict:
    """By default a few dtypes on a rented H200: the GPU, the CPU, 34 + 10 dots."""
    if devices is None:
        devices = gpu() | cpu()
    if ceilings is None:
        ceilings = gpu_ceilings("gpu0") + cpu_ceilings()
    if operators is None:
        operators = [
            gemm(ceilings, "gpu0", "fp16", "d2d"),
            gemm(ceilings, "gpu0", "fp32", "d2d"),
            *decode_sweep(ceilings, "gpu0"),
            gemm(ceilings, "cpu", "fp32", "dram_copy"),
            gemm(ceilings, "cpu", "fp64", "dram_copy"),
            *cpu_decode_sweep(ceilings),
        ]
    if skipped is None:
        reason = "NumPy has no fp16 product of its own: it would measure the conversion"
        skipped = [{"device": "cpu", "what": "peak_flops", "dtype": "fp16", "reason": reason}]
    return {
        "devices": devices,
        "ceilings": ceilings,
        "operators": operators,
        "skipped": skipped,
    }


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


def default_run() -> dict:
    return sample_roofline()


def whole_run() -> dict:
    """Everything that a run on a rented H200 finds: 39 + 10 dots."""
    ceilings = gpu_ceilings("gpu0", GPU_COMPUTE, GPU_MEMORY) + cpu_ceilings(memory=CPU_MEMORY)
    operators = [
        *(gemm(ceilings, "gpu0", dtype, "hbm_read") for dtype in GEMM_DTYPES),
        *decode_sweep(ceilings, "gpu0"),
        *(gemm(ceilings, "cpu", dtype, "dram_read") for dtype in CPU_COMPUTE),
        *cpu_decode_sweep(ceilings),
    ]
    return sample_roofline(ceilings=ceilings, operators=operators)


def only_cpu() -> dict:
    whole = sample_roofline()
    kept = {key: [one for one in whole[key] if one["device"] == "cpu"] for key in ("ceilings", "operators")}
    return whole | {"devices": cpu()} | kept


def one_dot() -> dict:
    ceilings = gpu_ceilings("gpu0", ("fp16",), ("d2d",))
    return sample_roofline(gpu(), ceilings, [gemm(ceilings, "gpu0", "fp16", "d2d")], [])


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
    operators = [gemm(ceilings, device, dtype, "d2d") for device in devices for dtype in ("fp16", "fp32")]
    for device in devices:
        operators += decode_sweep(ceilings, device, scopes=("core",))
    return sample_roofline(devices, ceilings, operators, [])


ALL = (default_run, whole_run, only_cpu, one_dot, no_dots, many_operations, eight_devices)
SAMPLES = {make.__name__: make for make in ALL}
