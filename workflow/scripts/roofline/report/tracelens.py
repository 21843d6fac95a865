"""The measured ceilings as an architecture file of TraceLens (github.com/AMD-AGI/TraceLens), which places PyTorch's
traces under it."""

from collections.abc import Iterable

from roofline.analysis.table import ComputeCeiling, MemoryCeiling
from roofline.devices import memory_ceilings
from roofline.records.device import DeviceRecord

METHODS = {"gemm": "matrix", "fma": "vector"}
NAMES = {"fp8_e4m3": "fp8"}  # where TraceLens has another


def architecture(device: DeviceRecord, ceilings: Iterable[ComputeCeiling | MemoryCeiling]) -> dict | None:
    """What was measured and nothing else: products as matrix_* and multiply-adds in registers as vector_*, in TFLOPS,
    and reads of the memory, in GB/s. None where these reads were not measured."""
    mine = {one.name: one for one in ceilings if one.device == device.device}
    read = next((mine[name] for name in memory_ceilings(device.device_kind, "read") if name in mine), None)
    if read is None:
        return None
    compute = [one for one in mine.values() if one.kind == "compute"]
    return {
        "name": device.name,
        "mem_bw_gbps": _digits(read.gb_per_s),
        "memory_gb": _digits(device.memory_total_bytes / 1e9),
        "max_achievable_tflops": {
            f"{METHODS[one.method]}_{NAMES.get(one.dtype, one.dtype)}": _digits(one.tflops) for one in compute
        },
    }


def _digits(value: float) -> float:
    return float(f"{value:.5g}")
