"""The counts that placing needs of a kernel: which metrics to request of Nsight Compute, and how to read its reports.

Counters have the names of the command below, or those of the sections of Nsight Compute. A section holds a rate instead
of a sum, per second or per cycle; like its own roofline charts, we multiply by the time and the clock of the kernel.
"""

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import fsum
from pathlib import Path

import yaml

from roofline.api import counter_names, ncu

Capability = ncu.Capability
Key = str | tuple[str, str]  # of a count: its name, or for FLOPs the unit and the dtype
Total = Callable[[str], float | None]  # the sum of a counter over a kernel

DURATION = "gpu__time_duration"
CLOCK = "sm__cycles_elapsed"
CLOCKS = (CLOCK, "smsp__cycles_elapsed", "gpc__cycles_elapsed")  # of the same domain
INSTRUCTIONS = "smsp__inst_executed"  # of warps
TMA, FIRST_TMA = "sm__inst_executed_pipe_tma", (9, 0)

# Which counters count operands of tensor cores, and bytes of each level.
NAMES = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
TENSOR_OPERANDS = {tuple(operands.pop("since")): operands for operands in NAMES["tensor_operands"]}
BYTES: dict[str, dict[str, int]] = NAMES["bytes"]
MEMORY_BYTES, CACHE_BYTES = ("memory_read_bytes", "memory_write_bytes"), ("l2_bytes", "l1_bytes")
RENAMED = (12, 0)  # from here on reads and writes of memory have their second names


@dataclass(frozen=True)
class Launches:
    """The launches of one kernel with one grid and block."""

    name: str
    signature: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    launches: int
    columns: dict[Key, list[float]]  # the values of each count by launch; a count that a launch lacks is left out
    lacking_flops: list[tuple[str, str]]

    def total(self, key: Key) -> float | None:
        """Return the sum of a count over all launches; None if a launch lacks it."""
        return fsum(self.columns[key]) if key in self.columns else None


def group_launches(kernels: Sequence[ncu.ProfiledKernel]) -> list[Launches]:
    """Return the launches by kernel, grid and block, in the order in which each group comes first."""
    groups: dict[tuple, list[ncu.ProfiledKernel]] = {}
    for kernel in kernels:
        groups.setdefault((kernel.signature, kernel.code, kernel.grid, kernel.block), []).append(kernel)
    return [_group(launches) for launches in groups.values()]


def _group(launches: list[ncu.ProfiledKernel]) -> Launches:
    first, columns, lacking_flops = launches[0], {}, []
    for key in first.counts:
        values = [launch.counts[key] for launch in launches]
        if None not in values:
            columns[key] = values
        elif isinstance(key, tuple):
            lacking_flops.append(key)
    return Launches(first.name, first.signature, first.grid, first.block, len(launches), columns, lacking_flops)


def collect_command(capability: Capability, report: str = "my", program: Sequence[str] = ("python", "my.py")) -> str:
    """Return the ncu command that collects every metric that placing needs.

    Clocks and caches stay as the program has them. Machine code is left out: placing does not read it, and it is most
    of a report of PyTorch.
    """
    metrics = ",".join(list_metrics(capability))
    options = ["--clock-control", "none", "--cache-control", "none", "--import-sass", "no", "--metrics", metrics]
    return shlex.join(["ncu", *options, "--export", report, *program])


def tensor_operands(capability: Capability) -> dict[str, list[str]]:
    """Return the operands of tensor cores that an architecture counts, by the dtype of their ceiling."""
    oldest_first = [operands for since, operands in TENSOR_OPERANDS.items() if capability >= since]
    return {dtype: names.split() for dtype, names in oldest_first[-1].items()} if oldest_first else {}


def list_metrics(capability: Capability) -> list[str]:
    """Return the metrics that a report needs so that everything in it can be placed."""
    alternative = 1 if capability >= RENAMED else 0
    counters = [list(BYTES[name])[alternative] for name in MEMORY_BYTES]
    counters += [next(iter(BYTES[name])) for name in CACHE_BYTES]
    counters += [INSTRUCTIONS, TMA] if capability >= FIRST_TMA else [INSTRUCTIONS]
    for dtype in _cuda_core_dtypes(capability):
        counters += _flops_per_instruction(dtype)
    for operands in tensor_operands(capability).values():
        counters += [f"{counter_names.TENSOR_METRIC_PREFIX}{operand}" for operand in operands]
    return [f"{DURATION}.sum", f"{CLOCK}.avg.per_second", *(f"{counter}.sum" for counter in counters)]


def read_counts(value: ncu.Value, capability: Capability) -> dict[Key, float | None]:
    """Return all counts of a kernel; None for one that the report lacks. FLOPs have a count for each unit and dtype.

    Raises LookupError if the report has none of them, as of a kernel that failed under the profiler.
    """
    seconds = value(f"{DURATION}.sum")
    clock_hz = next((hz for name in CLOCKS if (hz := value(f"{name}.avg.per_second"))), None)

    def total(counter: str) -> float | None:
        return _read_sum(value, counter, seconds, clock_hz)

    counts: dict[Key, float | None] = {"duration_s": seconds, "sm_clock_mhz": clock_hz and clock_hz / 1e6}
    counts |= {name: _first_bytes(total, alternatives) for name, alternatives in BYTES.items()}
    counts["warp_instructions"] = total(INSTRUCTIONS)
    counts["tma_instructions"] = total(TMA) if capability >= FIRST_TMA else 0.0
    counts |= {("cuda_core", dtype): _cuda_core_flops(total, dtype) for dtype in _cuda_core_dtypes(capability)}
    for dtype, operands in tensor_operands(capability).items():
        counts["tensor_core", dtype] = _sum(_tensor_core_flops(total, operand) for operand in operands)
    if not any(count is not None for key, count in counts.items() if key != "tma_instructions"):
        raise LookupError("a kernel without any counter that is read here")
    return counts


def _read_sum(value: ncu.Value, counter: str, seconds: float | None, clock_hz: float | None) -> float | None:
    """Return the sum of a counter over a kernel, from its sum or from its rate per second or per cycle."""
    if (count := value(f"{counter}.sum")) is not None:
        return count
    if seconds is not None and (per_second := value(f"{counter}.sum.per_second")) is not None:
        return per_second * seconds
    if seconds is not None and clock_hz and (per_cycle := value(f"{counter}.sum.per_cycle_elapsed")) is not None:
        return per_cycle * clock_hz * seconds
    return None


def _first_bytes(total: Total, alternatives: dict[str, int]) -> float | None:
    """Return the bytes by the first of these counters that the report holds."""
    for counter, bytes_per_count in alternatives.items():
        if (count := total(counter)) is not None:
            return bytes_per_count * count
    return None


def counted_flops(capability: Capability) -> set[tuple[str, str]]:
    """Return the units and dtypes whose FLOPs an architecture counts."""
    cuda_cores = {("cuda_core", dtype) for dtype in _cuda_core_dtypes(capability)}
    return cuda_cores | {("tensor_core", dtype) for dtype in tensor_operands(capability)}


def _tensor_core_flops(total: Total, operand: str) -> float | None:
    """Return the FLOPs of an operand, from one counter, or from one without and one with sparsity."""
    counter = f"{counter_names.TENSOR_METRIC_PREFIX}{operand}"
    flops = total(counter)
    if flops is not None:
        return flops
    parts = [total(f"{counter}_sparsity_{state}") for state in ("off", "on")]
    return _sum(part for part in parts if part is not None)


def _cuda_core_flops(total: Total, dtype: str) -> float | None:
    """Return the FLOPs of a dtype on CUDA cores; None if the report lacks one of its counters."""
    flops_by_counter = _flops_per_instruction(dtype)
    counts = [total(counter) for counter in flops_by_counter]
    if None in counts:
        return None
    return sum(flops * count for flops, count in zip(flops_by_counter.values(), counts, strict=True))


def _cuda_core_dtypes(capability: Capability) -> list[str]:
    return list(counter_names.PIPES) if capability >= counter_names.FIRST_SASS_CAPABILITY else []


def _flops_per_instruction(dtype: str) -> dict[str, int]:
    """Return the FLOPs of an instruction of a dtype on CUDA cores, by its counter."""
    pipe, packed = counter_names.PIPES[dtype], counter_names.NUMBERS_PER_INSTRUCTION.get(dtype, 1)
    prefix, operations = f"smsp__sass_thread_inst_executed_op_{pipe}", counter_names.FLOPS_PER_OPERATION
    return {f"{prefix}{operation}_pred_on": flops * packed for operation, flops in operations.items()}


def _sum(parts: Iterable[float | None]) -> float | None:
    """Return the sum; None without parts, or if a part is not known."""
    parts = list(parts)
    return sum(parts) if parts and None not in parts else None
