"""What placing needs of a kernel in an Nsight Compute report: which metrics to ask for, and how to read them.

Counters have the names of the command below, or those of the sections of Nsight Compute. A section holds a rate instead
of a sum, per second or per cycle; like its own roofline charts, we multiply by the time and the clock of the kernel.
"""

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import fsum

from roofline.api import counter_names, ncu

Capability = tuple[int, int]
Key = str | tuple[str, str]  # of a count: its name, or for FLOPs the unit and the dtype

DURATION = "gpu__time_duration"
CLOCK = "sm__cycles_elapsed"
CLOCKS = (CLOCK, "smsp__cycles_elapsed", "gpc__cycles_elapsed")  # of the same domain
INSTRUCTIONS = "smsp__inst_executed"  # of warps
TMA, FIRST_TMA = "sm__inst_executed_pipe_tma", (9, 0)
SECTOR, LINE = 32, 128  # bytes

# From which compute capability on: operands of tensor cores that have their own ceiling here, with their counters.
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
# Each traffic by the counter that the command asks for, then those of sections: bytes of a count, and the counter.
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
RENAMED = (12, 0)  # from here on reads and writes of memory have their second names


@dataclass(frozen=True)
class Launches:
    """The launches of one kernel with one grid and block."""

    name: str
    signature: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    launches: int
    columns: dict[Key, list[float]]  # of each count its values by launch; left out if a launch lacks it
    lacking_flops: list[tuple[str, str]]

    def total(self, key: Key) -> float | None:
        return fsum(self.columns[key]) if key in self.columns else None


def grouped(kernels: Sequence[ncu.Kernel]) -> list[Launches]:
    """Launches by kernel, grid and block, in the order in which each comes first."""
    groups: dict[tuple, list[ncu.Kernel]] = {}
    for one in kernels:
        groups.setdefault((one.signature, one.code, one.grid, one.block), []).append(one)
    found = []
    for mine in groups.values():
        first, every = mine[0], {key: [one.counts[key] for one in mine] for key in mine[0].counts}
        columns = {key: values for key, values in every.items() if None not in values}
        lacking = [key for key in every if isinstance(key, tuple) and key not in columns]
        found.append(Launches(first.name, first.signature, first.grid, first.block, len(mine), columns, lacking))
    return found


def command(capability: Capability, report: str = "my", program: Sequence[str] = ("python", "my.py")) -> str:
    """Collects all that placing needs, with clocks and caches as the program has them, and without machine code: it is
    most of a report of PyTorch, and is not read."""
    metrics = ",".join(asked(capability))
    options = ["--clock-control", "none", "--cache-control", "none", "--import-sass", "no", "--metrics", metrics]
    return shlex.join(["ncu", *options, "--export", report, *program])


def tensor_operands(capability: Capability) -> dict[str, tuple[str, ...]]:
    return next((found for since, found in reversed(TENSOR_OPERANDS.items()) if capability >= since), {})


def asked(capability: Capability) -> list[str]:
    """The metrics that a report needs to be placed whole."""
    renamed = capability >= RENAMED
    traffic = [BYTES[name][1 if renamed and name.startswith("memory_") else 0][1] for name in ASKED_BYTES]
    sass = [counter for dtype in _cuda_cores(capability) for counter in _instructions(dtype)]
    tensor = [f"{counter_names.TENSOR}{one}" for each in tensor_operands(capability).values() for one in each]
    sums = (*traffic, INSTRUCTIONS, *([TMA] if capability >= FIRST_TMA else []), *sass, *tensor)
    return [f"{DURATION}.sum", f"{CLOCK}.avg.per_second", *(f"{name}.sum" for name in sums)]


def counts(value: ncu.Value, capability: Capability) -> dict[Key, float | None]:
    """All counts of a kernel; None if the report lacks one. FLOPs are there for each dtype that is counted apart.

    Raises LookupError without any, as of a kernel that failed under the profiler.
    """
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

    found: dict[Key, float | None] = {"duration_s": seconds, "sm_clock_mhz": clock and clock / 1e6}
    for name, alternatives in BYTES.items():
        known = (unit * count for unit, counter in alternatives if (count := total(counter)) is not None)
        found[name] = next(known, None)
    found["warp_instructions"] = total(INSTRUCTIONS)
    found["tma_instructions"] = total(TMA) if capability >= FIRST_TMA else 0.0
    for dtype in _cuda_cores(capability):
        parts = [(worth, total(counter)) for counter, worth in _instructions(dtype).items()]
        found["cuda_core", dtype] = _sum(None if count is None else worth * count for worth, count in parts)
    for dtype, operands in tensor_operands(capability).items():
        found["tensor_core", dtype] = _sum(_operations(total, operand) for operand in operands)
    if not any(count is not None for key, count in found.items() if key != "tma_instructions"):
        raise LookupError("a kernel without any counter that is read here")
    return found


def flops_counted(capability: Capability) -> set[tuple[str, str]]:
    """The units and dtypes whose FLOPs an architecture counts."""
    cuda_cores = {("cuda_core", dtype) for dtype in _cuda_cores(capability)}
    return cuda_cores | {("tensor_core", dtype) for dtype in tensor_operands(capability)}


def _operations(total: Callable[[str], float | None], operand: str) -> float | None:
    """Of tensor cores: as a whole, or without and with sparsity."""
    counter = f"{counter_names.TENSOR}{operand}"
    parts = [total(f"{counter}_sparsity_{state}") for state in ("off", "on")]
    return whole if (whole := total(counter)) is not None else _sum(part for part in parts if part is not None)


def _cuda_cores(capability: Capability) -> list[str]:
    return list(counter_names.PIPES) if capability >= counter_names.FIRST_SASS else []


def _instructions(dtype: str) -> dict[str, int]:
    """The counters of a dtype's instructions on CUDA cores, and the FLOPs of each."""
    pipe, packed = counter_names.PIPES[dtype], counter_names.PACKED.get(dtype, 1)
    return {
        f"smsp__sass_thread_inst_executed_op_{pipe}{operation}_pred_on": worth * packed
        for operation, worth in counter_names.WORTH.items()
    }


def _sum(parts: Iterable[float | None]) -> float | None:
    """None without parts, or if a part is not known."""
    parts = list(parts)
    return sum(parts) if parts and None not in parts else None
