"""What is read of one kernel of a user's Nsight Compute report: counters by architecture, under the names by which they
are asked for and under those that Nsight Compute's own sections have.

A section has a rate in place of a sum: per second, or per cycle. Both follow Nsight Compute's roofline charts, whose
section files multiply them by the time and the clock that stand beside them.
"""

from collections.abc import Callable, Iterable
from typing import Any

from roofline.devices.gpu.counter_names import FIRST_SASS, PACKED, PIPES, TENSOR, WORTH

Capability = tuple[int, int]

DURATION = "gpu__time_duration"
CLOCK = "sm__cycles_elapsed"
CLOCKS = (CLOCK, "smsp__cycles_elapsed", "gpc__cycles_elapsed")  # of the same domain
INSTRUCTIONS = "smsp__inst_executed"  # of warps
SECTOR, LINE = 32, 128  # bytes

# By capability, from which on: operands of tensor cores that have a ceiling of their own here, each with its counters.
# On 10.0 fp4 and fp6 are counted with fp8.
_SINCE_8_0 = {
    "fp64": ("fp64",),
    "tf32": ("tf32_dst_fp32",),
    "fp16": ("fp16_dst_fp16", "fp16_dst_fp32"),
    "bf16": ("bf16_dst_fp32",),
    "int8": ("int8",),
}
TENSOR_OPERANDS: dict[Capability, dict[str, tuple[str, ...]]] = {
    (7, 0): {"fp16": ("fp16_dst_fp16", "fp16_dst_fp32")},
    (7, 5): {"fp16": ("fp16_dst_fp16", "fp16_bf16_tf32_dst_fp32"), "int8": ("int8",)},
    (8, 0): _SINCE_8_0,
    (8, 9): _SINCE_8_0 | {"fp8_e4m3": ("fp8",)},
    (9, 0): _SINCE_8_0 | {"fp16": ("fp16",), "fp8_e4m3": ("fp8",)},
    (10, 0): _SINCE_8_0 | {"fp8_e4m3": ("fp4_fp6_fp8_dst_fp16", "fp4_fp6_fp8_dst_fp32")},
    (10, 3): _SINCE_8_0 | {"fp8_e4m3": ("fp8_dst_fp16", "fp8_dst_fp32")},
}
# The alternatives of each traffic, as asked for first, then as sections have it: bytes of a unit, and its counter.
BYTES = {
    "memory_read_bytes": ((1, "dram__bytes_read"), (1, "dram__bytes_op_read"), (SECTOR, "dram__sectors_read")),
    "memory_write_bytes": ((1, "dram__bytes_write"), (1, "dram__bytes_op_write"), (SECTOR, "dram__sectors_write")),
    "memory_bytes": ((1, "dram__bytes"),),
    "l2_bytes": ((SECTOR, "lts__t_sectors_srcunit_tex"), (SECTOR, "lts__lts2xbar_cycles_active")),
    "l1_bytes": (
        (1, "l1tex__t_bytes"),
        (LINE, "l1tex__lsu_writeback_active_mem_lgds"),
        (LINE, "l1tex__lsu_writeback_active_mem_lg"),
    ),
}
ASKED_BYTES = ("memory_read_bytes", "memory_write_bytes", "l2_bytes", "l1_bytes")
NAMED_ANEW = (12, 0)  # from which on reads and writes of memory have their second names


def tensor_operands(capability: Capability) -> dict[str, tuple[str, ...]]:
    return next((found for since, found in reversed(TENSOR_OPERANDS.items()) if capability >= since), {})


def pipes(capability: Capability) -> dict[str, list[str]]:
    """Dtypes whose FLOPs are told apart, by unit."""
    cuda_core = list(PIPES) if capability >= FIRST_SASS else []
    return {"cuda_core": cuda_core, "tensor_core": list(tensor_operands(capability))}


def asked(capability: Capability) -> list[str]:
    """The metrics that a report needs to be placed whole."""
    anew = capability >= NAMED_ANEW
    traffic = [BYTES[name][1 if anew and name.startswith("memory_") else 0][1] for name in ASKED_BYTES]
    sass = [counter for dtype in pipes(capability)["cuda_core"] for counter in _instructions(dtype)]
    tensor = [f"{TENSOR}{one}" for operands in tensor_operands(capability).values() for one in operands]
    sums = (*traffic, INSTRUCTIONS, *sass, *tensor)
    return [f"{DURATION}.sum", f"{CLOCK}.avg.per_second", *(f"{name}.sum" for name in sums)]


def counts(value: Callable[[str], float | None], capability: Capability) -> dict[str, Any]:
    """Of a kernel, by the names of a record of profiles, what its report has; `value` gives a metric in SI units."""
    seconds = value(f"{DURATION}.sum")
    clock = next((hz for name in CLOCKS if (hz := value(f"{name}.avg.per_second"))), None)

    def total(counter: str) -> float | None:
        if (found := value(f"{counter}.sum")) is not None:
            return found
        if seconds is not None and (rate := value(f"{counter}.sum.per_second")) is not None:
            return rate * seconds
        if seconds is not None and clock and (rate := value(f"{counter}.sum.per_cycle_elapsed")) is not None:
            return rate * clock * seconds
        return None

    def operations(operand: str) -> float | None:
        whole = total(f"{TENSOR}{operand}")
        parts = [total(f"{TENSOR}{operand}_sparsity_{state}") for state in ("off", "on")]
        return whole if whole is not None else _sum(part for part in parts if part is not None)

    found: dict[str, Any] = {"duration_s": seconds, "sm_clock_mhz": clock and clock / 1e6}
    for name, alternatives in BYTES.items():
        known = (unit * count for unit, counter in alternatives if (count := total(counter)) is not None)
        found[name] = next(known, None)
    found["warp_instructions"] = total(INSTRUCTIONS)
    found["cuda_core_flops"] = {
        dtype: _sum(_times(worth, total(counter)) for counter, worth in _instructions(dtype).items())
        for dtype in pipes(capability)["cuda_core"]
    }
    found["tensor_core_flops"] = {
        dtype: _sum(map(operations, operands)) for dtype, operands in tensor_operands(capability).items()
    }
    return found


def _instructions(dtype: str) -> dict[str, int]:
    """The counters of a dtype's instructions on CUDA cores, and the FLOPs of each."""
    return {
        f"smsp__sass_thread_inst_executed_op_{PIPES[dtype]}{operation}_pred_on": worth * PACKED.get(dtype, 1)
        for operation, worth in WORTH.items()
    }


def _times(worth: float, count: float | None) -> float | None:
    return None if count is None else worth * count


def _sum(parts: Iterable[float | None]) -> float | None:
    """None where there is none, or one is not known."""
    parts = list(parts)
    return sum(parts) if parts and None not in parts else None
