"""What placing needs of a kernel in an Nsight Compute report: which metrics to ask for, and how to read them.

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

Capability = tuple[int, int]
Key = str | tuple[str, str]  # of a count: its name, or for FLOPs the unit and the dtype

DURATION = "gpu__time_duration"
CLOCK = "sm__cycles_elapsed"
CLOCKS = (CLOCK, "smsp__cycles_elapsed", "gpc__cycles_elapsed")  # of the same domain
INSTRUCTIONS = "smsp__inst_executed"  # of warps
TMA, FIRST_TMA = "sm__inst_executed_pipe_tma", (9, 0)

# Which counters count operands of tensor cores, and bytes of each level.
NAMES = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
TENSOR_OPERANDS: dict[Capability, dict[str, str]] = {tuple(one.pop("since")): one for one in NAMES["tensor_operands"]}
BYTES: dict[str, dict[str, int]] = NAMES["bytes"]
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


def grouped(kernels: Sequence[ncu.ProfiledKernel]) -> list[Launches]:
    """Launches by kernel, grid and block, in the order in which each comes first."""
    groups: dict[tuple, list[ncu.ProfiledKernel]] = {}
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


def tensor_operands(capability: Capability) -> dict[str, list[str]]:
    found = next((found for since, found in reversed(TENSOR_OPERANDS.items()) if capability >= since), {})
    return {dtype: names.split() for dtype, names in found.items()}


def asked(capability: Capability) -> list[str]:
    """The metrics that a report needs to be placed whole."""
    renamed = capability >= RENAMED
    traffic = [[*BYTES[name]][renamed and name.startswith("memory_")] for name in ASKED_BYTES]
    sass = [counter for dtype in _cuda_cores(capability) for counter in _instructions(dtype)]
    tensor = [
        f"{counter_names.TENSOR_METRIC_PREFIX}{one}" for each in tensor_operands(capability).values() for one in each
    ]
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
        known = (unit * count for counter, unit in alternatives.items() if (count := total(counter)) is not None)
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
    counter = f"{counter_names.TENSOR_METRIC_PREFIX}{operand}"
    parts = [total(f"{counter}_sparsity_{state}") for state in ("off", "on")]
    return whole if (whole := total(counter)) is not None else _sum(part for part in parts if part is not None)


def _cuda_cores(capability: Capability) -> list[str]:
    return list(counter_names.PIPES) if capability >= counter_names.FIRST_SASS_CAPABILITY else []


def _instructions(dtype: str) -> dict[str, int]:
    """The counters of a dtype's instructions on CUDA cores, and the FLOPs of each."""
    pipe, packed = counter_names.PIPES[dtype], counter_names.NUMBERS_PER_INSTRUCTION.get(dtype, 1)
    return {
        f"smsp__sass_thread_inst_executed_op_{pipe}{operation}_pred_on": worth * packed
        for operation, worth in counter_names.FLOPS_PER_OPERATION.items()
    }


def _sum(parts: Iterable[float | None]) -> float | None:
    """None without parts, or if a part is not known."""
    parts = list(parts)
    return sum(parts) if parts and None not in parts else None
