"""Made-up contents of results/roofline.json in the public format, and records, with figures like real devices'."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from math import exp, log2, sin

from roofline.core import regimes
from roofline.records import DecodeAttnRecord
from roofline.records.compute import PeakFlopsRecord
from roofline.records.memory import BandwidthRecord

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
THROUGH_L1, PAST_L1 = "through L1", "past L1"
KIB, MIB = 1 << 10, 1 << 20
LEVELS = {  # device: series, name, GB/s, knee, capacity that the device reports
    "gpu": (
        (THROUGH_L1, "l1", 248.0, 214 * KIB, 256 * KIB),
        (THROUGH_L1, "l2", 98.0, None, 15 * MIB),
        (PAST_L1, "l2", 9300.0, 51 * MIB, 60 * MIB),
        (PAST_L1, None, 4600.0, None, None),
    ),
    "cpu": (
        ("all_cores", "l1", 5400.0, 45 * KIB, 48 * KIB),
        ("all_cores", "l2", 2300.0, 1700 * KIB, 2048 * KIB),
        ("all_cores", "l3", 640.0, 6 * MIB, None),
        ("all_cores", None, 118.0, None, None),
        ("one_core", "l1", 410.0, 44 * KIB, 48 * KIB),
        ("one_core", None, 12.6, None, None),
    ),
}


def compute_ceiling(
    device: str, name: str, unit: str, tflops: float, sustained: float | None, vendor: float | None
) -> dict:
    return {
        "device": device,
        "kind": "compute",
        "name": name,
        "method": "fma" if name.endswith("_fma") else "gemm",
        "unit": unit,
        "tflops": tflops,
        "ci95": [0.998 * tflops, 1.001 * tflops],
        "lab_tflops": None if name.endswith("_fma") else 0.98 * tflops,
        "sustained_tflops": sustained,
        "vendor_tflops": vendor,
        "fraction_of_vendor": vendor and tflops / vendor,
        "clock_tflops": vendor and 1.07 * vendor,
        "fraction_of_clock": vendor and tflops / (1.07 * vendor),
        "held_back_by": ["sw_power_cap"] if unit == TENSOR else [],
        "throttled": None if unit == CPU else False,
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
        "vendor_gb_per_s": vendor,
        "fraction_of_vendor": vendor and gb_per_s / vendor,
        "held_back_by": [],
        "throttled": None if level == "dram" else False,
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


def found_levels(*devices: str) -> list[dict]:
    """What the sweeps found on each device."""
    keys = ("series", "name", "gb_per_s", "knee_bytes", "reported_bytes")
    return [
        {"device": device, **dict(zip(keys, level, strict=True)), "record": f"{device}/bandwidth/sweep.json"}
        for device in devices
        for level in LEVELS[device.rstrip("0123456789")]
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
    predicted = {
        "regime": "memory",
        "latency_s": latency_s and 0.8 * latency_s,
        "fraction_of_compute_peak": 0.01,
    }
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
        "no_traffic": traffic == 0,
        "latency_s": latency_s,
        "latency_ci95_s": latency_s and [0.99 * latency_s, 1.01 * latency_s],
        "device_latency_s": latency_s and 0.7 * latency_s,
        "device_latency_ci95_s": None,
        "attained_tflops": attained,
        "device_attained_tflops": attained and attained / 0.7,
        "compute_ceiling": compute,
        "memory_ceiling": memory if memory in by_name else None,
        "roof_tflops": roof,
        "fraction_of_roof": attained and roof and attained / roof,
        "device_fraction_of_roof": attained and roof and attained / roof / 0.7,
        "fraction_of_compute_peak": attained and attained / peak,
        "regime": "memory" if slope < peak else "compute",
        "regime_level": "hbm",
        "predicted": {"sealed": predicted, "from_ceilings": predicted},
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
    reach: float = 0.62,
    compute: str | None = None,
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
        latency_s=overhead_s + traffic / (reach * bandwidth * 1e9),
        compute=compute or dtype,
        memory=memory,
        implementation=implementation,
        preset="minigpt",
        scope=scope,
        shape={"batch": batch, "heads": heads, "kv_heads": heads, "head_size": head_size, "seq_len": seq_len},
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
        implementation=None,
        name=name,
        predicted={"sealed": None, "from_ceilings": None},
    )


def decode_sweep(
    ceilings: list[dict],
    device: str,
    dtypes: Iterable[str] = ("fp32", "fp16"),
    batches: Iterable[int] = (1, 256),
    scopes: Iterable[str] = ("core", "block"),
    memory: str = "hbm_read",
    **fields,
) -> list[dict]:
    return [
        decode_attention(ceilings, device, dtype, seq_len, batch, scope, memory, **fields)
        for dtype in dtypes
        for batch in batches
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
    levels: list[dict] | None = None,
    above_roof: list[dict] | None = None,
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
        "schema_version": 1,
        "devices": devices,
        "ceilings": ceilings,
        "operators": operators,
        "levels": levels or [],
        "above_roof": above_roof or [],
        "skipped": skipped,
    }


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
    return sample_roofline(ceilings=ceilings, operators=operators, levels=found_levels("gpu0", "cpu"))


STARTS_S = {"eager": 18e-6, "fused": 3.5e-6, "fused_graph": 2.0e-6}  # of the device
CALLS_S = {"eager": 285e-6, "fused": 8e-6, "fused_graph": 2e-6}
GRAPHS_US = {1: (2.6, 3.0, 3.6, 4.4), 256: (18.3, 33.0, 63.0, 122.0)}  # by batch: device's time of a layer, by S


def attention_cell(ceilings: list[dict], device: str, implementation: str, dtype: str, seq_len: int, **fields) -> dict:
    """A step as it is measured on an H200 and on a CPU's cores, with the device's part and what starting it takes."""
    batch, scope = fields.get("batch", 1), fields.get("scope", "core")
    memory, compute = ("hbm_read", dtype) if device != "cpu" else ("dram_read", "fp32")
    row = decode_attention(ceilings, device, dtype, seq_len, batch, scope, memory, implementation, compute=compute)
    gb_per_s = next(c["gb_per_s"] for c in ceilings if c["device"] == device and c["name"] == memory)
    roof_s = row["bytes"] / gb_per_s / 1e9
    if device == "cpu":
        latency_s, device_s, start_s = 4e-5 + roof_s / (0.7 if dtype == "fp32" else 0.2), None, 3e-5
        sealed_s, sealed_device_s = 3e-5 + 1.1 * roof_s, None
    else:
        start_s, call_s, share = STARTS_S[implementation], CALLS_S[implementation], 0.28 if dtype == "fp32" else 0.05
        if scope == "block":
            start_s, call_s = start_s + 12e-6, 1.6 * call_s
        if implementation == "eager":
            device_s = start_s + roof_s / share
        else:
            device_s = 1e-6 * GRAPHS_US[batch][SEQ_LENS.index(seq_len)] * (1.9 if dtype == "fp32" and batch > 1 else 1)
            device_s += start_s - STARTS_S["fused_graph"]
        latency_s = max(call_s, device_s + (0 if implementation == "fused_graph" else 1e-6))
        sealed_device_s = start_s + roof_s / (1.05 * share if implementation == "eager" else 0.95)
        sealed_s = max(0.6 * call_s, sealed_device_s)
    attained, roof = row["flops"] / latency_s / 1e12, row["roof_tflops"]
    on_device = device_s and row["flops"] / device_s / 1e12
    peak = next(c["tflops"] for c in ceilings if c["device"] == device and c["name"] == compute)
    work = {"compute_s": row["flops"] / peak / 1e12, "memory_s": roof_s}
    sealed = {
        "regime": regimes.regime(latency_s=sealed_s, device_latency_s=sealed_device_s, start_s=start_s, **work),
        "latency_s": sealed_s,
        "device_latency_s": sealed_device_s,
        "fraction_of_compute_peak": 0.01,
    }
    return row | {
        "latency_s": latency_s,
        "latency_ci95_s": None,
        "device_latency_s": device_s,
        "attained_tflops": attained,
        "device_attained_tflops": on_device,
        "fraction_of_roof": attained / roof,
        "device_fraction_of_roof": on_device and on_device / roof,
        "regime": regimes.regime(latency_s=latency_s, device_latency_s=device_s, start_s=start_s, **work),
        "predicted": {"sealed": sealed, "from_ceilings": sealed},
    }


def attention_cells(ceilings: list[dict], device: str, dtypes: Iterable[str] = ("fp32", "fp16")) -> list[dict]:
    """Every implementation of a device at every cell."""
    gpus = (("eager", "core"), ("eager", "block"), ("fused", "core"), ("fused_graph", "core"))
    ways = gpus if device != "cpu" else (("numpy", "core"), ("numpy", "block"))
    return [
        attention_cell(ceilings, device, implementation, dtype, seq_len, batch=batch, scope=scope)
        for dtype in dtypes
        for seq_len in SEQ_LENS
        for implementation, scope in ways
        for batch in (1, 256)
    ]


def every_implementation(dtypes: Iterable[str] = ("fp32", "fp16")) -> dict:
    """What a run by default finds on an H200: 71 + 34 dots."""
    ceilings = gpu_ceilings("gpu0", GPU_COMPUTE, GPU_MEMORY) + cpu_ceilings(memory=CPU_MEMORY)
    operators = [
        *(gemm(ceilings, "gpu0", dtype, "hbm_read") for dtype in GEMM_DTYPES),
        *attention_cells(ceilings, "gpu0", dtypes),
        *(gemm(ceilings, "cpu", dtype, "dram_read") for dtype in CPU_COMPUTE),
        *attention_cells(ceilings, "cpu", dtypes),
    ]
    return sample_roofline(ceilings=ceilings, operators=operators, levels=found_levels("gpu0", "cpu"))


def twenty_four_dots() -> dict:
    ceilings = gpu_ceilings("gpu0", GPU_COMPUTE, GPU_MEMORY)
    operators = [gemm(ceilings, "gpu0", dtype, "d2d") for dtype in GEMM_DTYPES]
    operators += decode_sweep(ceilings, "gpu0", scopes=("core",))
    operators += [operation(ceilings, "gpu0", "layer norm", 6 * 2**20, 2**23, 6.1e-6)]
    return sample_roofline(gpu(), ceilings, operators, [])


def only_cpu() -> dict:
    whole = sample_roofline()
    return (
        whole
        | {
            "devices": cpu(),
        }
        | {key: [i for i in whole[key] if i["device"] == "cpu"] for key in ("ceilings", "operators", "levels")}
    )


def one_dot() -> dict:
    ceilings = gpu_ceilings("gpu0", ("fp16",), ("d2d",))
    return sample_roofline(gpu(), ceilings, [gemm(ceilings, "gpu0", "fp16", "d2d")], [])


def no_dots() -> dict:
    return sample_roofline(gpu(), gpu_ceilings("gpu0"), [], [])


def two_implementations() -> dict:
    ceilings = gpu_ceilings("gpu0", memory=(*DEFAULT_GPU_MEMORY, "l2"))
    operators = [gemm(ceilings, "gpu0", "fp16", "d2d"), gemm(ceilings, "gpu0", "fp32", "d2d")]
    operators += decode_sweep(ceilings, "gpu0", scopes=("core",))
    operators += decode_sweep(ceilings, "gpu0", scopes=("core",), implementation="kernel", overhead_s=7e-6, reach=0.92)
    return sample_roofline(gpu(), ceilings, operators, [])


def many_operations() -> dict:
    """What users list: measured or not, without traffic, without FLOPs, with long names, above the roof."""
    ceilings = gpu_ceilings("gpu0", ("fp32", "fp16"), ("d2d", "h2d", "d2h"))
    unknown = ("fraction_of_vendor", "vendor_tflops", "vendor_gb_per_s", "ci95")
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
        operation(
            ceilings,
            "gpu0",
            "an operation whose author thought that names cannot be long enough",
            1e12,
            2e10,
            None,
        ),
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


SAMPLES = {
    f.__name__: f
    for f in (
        default_run,
        whole_run,
        every_implementation,
        twenty_four_dots,
        two_implementations,
        only_cpu,
        one_dot,
        no_dots,
        many_operations,
        eight_devices,
    )
}


# ---------------------------------------------------------------------------------------------- records of one job

JOB = {"seal_sha256": "0" * 64, "started_at": "2026-11-05T12:00:00+00:00", "elapsed_s": 1.0}


def sweep(series: str, reader: str, sizes: Iterable[int], levels: Iterable[tuple]) -> dict:
    """Plateaus of (name, GB/s, knee, capacity reported), one after the other, with soft knees between them."""
    levels, points = list(levels), []
    for size in sizes:
        rate = levels[0][1]
        for (_, upper, knee, _), (_, lower, _, _) in pairwise(levels):
            rate *= (lower / upper) ** (1 / (1 + (knee / size) ** 6))
        points.append({"size_bytes": size, "gb_per_s": rate})
    edges = [points[0]["size_bytes"], *(knee for _, _, knee, _ in levels if knee), points[-1]["size_bytes"] * 2]
    found = [
        {
            "name": name,
            "gb_per_s": rate,
            "first_bytes": min(p["size_bytes"] for p in points if p["size_bytes"] >= start * (1 if not i else 1.4)),
            "last_bytes": max(p["size_bytes"] for p in points if p["size_bytes"] <= end / 1.4),
            "knee_bytes": knee,
            "reported_bytes": reported,
        }
        for i, ((name, rate, knee, reported), (start, end)) in enumerate(zip(levels, pairwise(edges), strict=True))
    ]
    return {
        "series": series,
        "reader": reader,
        "counted": "bytes that all readers read",
        "points": points,
        "levels": found,
        "states": [],
    }


def sizes_between(first: int, last: int, an_octave: int = 4) -> list[int]:
    steps = round(an_octave * log2(last / first))
    return [round(first * 2 ** (i / an_octave)) for i in range(steps + 1)]


def sweep_records() -> list[BandwidthRecord]:
    """Of an H200 and of a CPU's cores together and one alone."""
    gpu, cpu = LEVELS["gpu"], LEVELS["cpu"]
    sweeps = {
        "gpu0": [
            sweep(
                THROUGH_L1,
                "one multiprocessor, of 33 that read at once",
                sizes_between(16 * KIB, 4 * MIB),
                [i[1:] for i in gpu[:2]],
            ),
            sweep(PAST_L1, "the device", sizes_between(2 * MIB, 1024 * MIB), [i[1:] for i in gpu[2:]]),
        ],
        "cpu": [
            sweep("all_cores", "each core", sizes_between(8 * KIB, 128 * MIB), [i[1:] for i in cpu[:4]]),
            sweep("one_core", "one core", sizes_between(8 * KIB, 128 * MIB), [i[1:] for i in cpu[4:]]),
        ],
    }
    return [
        BandwidthRecord.model_validate({"device": device, "level": "sweep", "bandwidths": [], "sweeps": found, **JOB})
        for device, found in sweeps.items()
    ]


def timing(median_s: float, interval: bool = True) -> dict:
    return {
        "method": "made up",
        "warmup": 3,
        "requested": 100,
        "stopped_by": "precision",
        "samples_s": [median_s] * 100,
        "median_s": median_s,
        "ci95_s": (0.99 * median_s, 1.01 * median_s) if interval else None,
    }


def product(library: str = "cuBLASLt", size: int = 8192, algorithm: str | None = "12") -> dict:
    return {
        "library": library,
        "shape": {"m": size, "n": size, "k": size},
        "layout": "TN",
        "algorithm": algorithm,
        "accumulation": "fp32",
        "output": "fp16",
    }


def lab_block(device: str, dtype: str, tflops: float, size: int = 4096) -> dict:
    """The square product by the array library."""
    flops = 2 * size**3
    return {
        "operator": "gemm",
        "implementation": "cupy.matmul" if device != "cpu" else "numpy.matmul",
        "preset": None,
        "scope": None,
        "dtype": dtype,
        "cache": "warm",
        "shape": {"m": size, "n": size, "k": size},
        "flops": flops,
        "bytes": 3 * size**2 * BYTES_OF[dtype],
        "compute_ceiling": dtype,
        "memory_ceilings": ["hbm_read", "d2d"] if device != "cpu" else ["dram_read", "dram_copy"],
        "memory_level": "hbm" if device != "cpu" else "dram",
        "predicted": {"regime": "compute", "latency_s": 1e-4, "fraction_of_compute_peak": 1.0},
        "check": {"compared": "made up", "error": 0, "tolerance": 1},
        "latency": timing(flops / tflops / 1e12),
        "device_latency": None,
        "overhead_s": None,
        "states": [],
    }


def sustained(burst: float, tflops: float, reasons: list[str] | None, seconds: float = 5.0, told: bool = True) -> dict:
    """Clock and power under load: it falls from the burst to what is left, and stays there."""
    curve, count = [], 60
    for i in range(count):
        at_s = seconds * (i + 1) / count
        rate = tflops + (burst - tflops) * exp(-at_s / 0.3) + 0.002 * burst * sin(7 * i)
        state = {"sm_clock_mhz": 1980 * rate / burst, "power_w": 700 - 150 * exp(-at_s / 0.1), "temperature_c": 55}
        curve.append({"at_s": at_s, "tflops": rate, **(state | {"throttle_reasons": reasons} if told else {})})
    return {
        "product": product(),
        "seconds": seconds,
        "settled_after_s": 1.2,
        "tflops": tflops,
        "ci95": (0.99 * tflops, 1.01 * tflops),
        "sm_clock_mhz": 1980 * tflops / burst if told else None,
        "power_w": 695.0 if told else None,
        "held_back_by": reasons or [],
        "throttled_points": 0,
        "all_throttled": False,
        "curve": curve,
    }


def peak_record(
    device: str,
    dtype: str,
    burst: float,
    *,
    lab: float | None = None,
    block: float | None = None,
    load: dict | None = None,
    vendor: float | None = None,
    clock: tuple[float, float] | None = None,
    **fields,
) -> PeakFlopsRecord:
    """`burst` is that of the best product, `block` what it gave when it was chosen, `lab` the square product's figure;
    `clock` is a pair: MHz, and TFLOPS at that clock."""
    fma = dtype.endswith("_fma")
    lab = None if fma else lab or 0.98 * burst
    kept = load["tflops"] if load else None
    ceiling = max(burst, kept or 0)
    clock_mhz, clock_tflops = clock or (None, None)
    best = product("a kernel of ours", algorithm=None) if fma else product()
    peak = {
        "method": "fma" if fma else "gemm",
        "unit": "cpu" if device == "cpu" else GPU_COMPUTE[dtype][0],
        "tflops": ceiling,
        "ci95": (0.99 * ceiling, 1.01 * ceiling),
        "lab_tflops": lab,
        "burst_tflops": burst,
        "sustained_tflops": kept,
        "vendor_tflops": vendor,
        "fraction_of_vendor": vendor and ceiling / vendor,
        "clock_mhz": clock_mhz,
        "clock_tflops": clock_tflops,
        "fraction_of_clock": clock_tflops and burst / clock_tflops,
        "inputs": "made up",
        "held_back_by": load["held_back_by"] if load else [],
        "throttled": None if device == "cpu" else False,
        "doubts": [],
        "search": {"offered": 2, "tried": 2, "refused": []},
        "candidates": [
            {"product": best, "flops": 10**12, "trial_tflops": burst, "block_tflops": block or burst},
            {"product": product(size=4096), "flops": 10**12, "trial_tflops": 0.9 * burst},
        ],
        "burst": {
            "product": best,
            "inputs": "made up",
            "flops": 10**12,
            "check": {"compared": "made up", "error": 0, "tolerance": 1},
            "latency": timing(1 / burst),
            "tflops": burst,
            "ci95": (0.99 * burst, 1.01 * burst),
            "states": [],
            "sm_clock_mhz": clock_mhz,
        },
        "sustained": load,
        "beside": [],
        "kernel": {"name": None, "tensor_cores": None, "how_known": "made up"},
        "lab": None if fma else lab_block(device, dtype, lab),
        "investigation": None,
    }
    found = {"device": device, "dtype": dtype, "skipped": None, "peak": peak | fields}
    return PeakFlopsRecord.model_validate(found | JOB)


def skipped_peak(device: str, dtype: str, reason: str) -> PeakFlopsRecord:
    return PeakFlopsRecord.model_validate({"device": device, "dtype": dtype, "skipped": reason, "peak": None} | JOB)


def peak_records() -> list[PeakFlopsRecord]:
    """Of an H200, with what is left of each peak under load, and of a CPU, which tells neither clock nor power."""
    found = []
    for dtype, (unit, burst, kept, vendor) in GPU_COMPUTE.items():
        reasons = ["sw_power_cap"] if unit == TENSOR else []
        found.append(peak_record("gpu0", dtype, burst, load=sustained(burst, kept or burst, reasons), vendor=vendor))
    for dtype, (_, burst, _, vendor) in CPU_COMPUTE.items():
        load = sustained(burst, 0.93 * burst, None, told=False)
        found.append(peak_record("cpu", dtype, burst, load=load, vendor=vendor))
    return [*found, skipped_peak("cpu", "bf16", "made up")]


def attention_records(roofline: dict, overheads_s: dict[str, float] | None = None) -> list[DecodeAttnRecord]:
    """A record for each device, preset, S and dtype of the cells of decode attention in a roofline."""
    overheads_s = overheads_s or {**CALLS_S, "numpy": 3e-5}
    jobs: dict[tuple, list[dict]] = {}
    for row in roofline["operators"]:
        if row["operator"] == "decode_attention":
            jobs.setdefault((row["device"], row["preset"], row["shape"]["seq_len"], row["dtype"]), []).append(row)
    weights = {"path": "w", "sha256": "0" * 64, "generated": True, "naming": "minigpt", "hidden_state": "made up"}
    return [
        DecodeAttnRecord.model_validate(
            {**dict(zip(("device", "preset", "seq_len", "dtype"), job, strict=True)), "weights": weights, "note": None}
            | {"measurements": [attention_measurement(row, overheads_s) for row in rows]}
            | JOB
        )
        for job, rows in jobs.items()
    ]


def attention_measurement(row: dict, overheads_s: dict[str, float]) -> dict:
    shared = ("operator", "implementation", "preset", "scope", "dtype", "cache", "shape", "flops", "bytes")
    return {
        **{key: row[key] for key in shared},
        "compute_ceiling": row["compute_ceiling"],
        "memory_ceilings": [row["memory_ceiling"]],
        "memory_level": "dram" if row["device"] == "cpu" else "hbm",
        "predicted": row["predicted"]["sealed"],
        "check": {"compared": "made up", "error": 0, "tolerance": 1},
        "latency": timing(row["latency_s"]),
        "device_latency": row["device_latency_s"] and timing(row["device_latency_s"]),
        "overhead_s": overheads_s.get(row["implementation"]),
        "device_overhead_s": STARTS_S.get(row["implementation"]),
        "states": [],
    }
