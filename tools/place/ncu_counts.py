"""The counts that placing needs of a kernel: which metrics to request of Nsight Compute, and how to read its reports.

Counters have the names of the command below, or those of the sections of Nsight Compute. A section holds a rate instead
of a sum, per second or per cycle; like its own roofline charts, we multiply by the time and the clock of the kernel.
"""

from collections.abc import Callable, Iterable, Sequence
from math import fsum
from pathlib import Path

import yaml

from roofline.api import architecture_of, counter_names, group_by, ncu

Pipe = tuple[str, str]  # the unit and the dtype of FLOPs
Key = str | Pipe  # of a count: its name, or for FLOPs their pipe
Total = Callable[[str], float | None]  # the sum of a counter over a kernel, by its metric

CLOCKS = ("sm__cycles_elapsed", "smsp__cycles_elapsed", "gpc__cycles_elapsed")  # of the same domain
INSTRUCTIONS = "smsp__inst_executed.sum"  # of warps
TMA = "sm__inst_executed_pipe_tma.sum"

# Which counters count the bytes of each level.
BYTES: dict[str, dict[str, int]] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
MEMORY_BYTES, CACHE_BYTES = ("memory_read_bytes", "memory_write_bytes"), ("l2_bytes", "l1_bytes")
RENAMED = (12, 0)  # from here on reads and writes of memory have their second names


def group_launches(kernels: Iterable[ncu.ProfiledKernel]) -> list[list[ncu.ProfiledKernel]]:
    """Return the launches by kernel, grid and block, in the order in which each group comes first."""
    groups = group_by(kernels, lambda kernel: (kernel.signature, kernel.code, kernel.grid, kernel.block))
    return list(groups.values())


def sum_counts(launches: Sequence[ncu.ProfiledKernel]) -> dict[Key, float]:
    """Return the sum of each count over the launches of a kernel; a count that a launch lacks is left out."""
    columns = {key: [launch.counts.get(key) for launch in launches] for key in launches[0].counts}
    return {key: fsum(values) for key, values in columns.items() if None not in values}


def collect_command(capability: ncu.Capability) -> str:
    """Return the ncu command that collects every metric that placing needs, of `python my.py`.

    Clocks and caches stay as the program has them. Machine code is left out: placing does not read it, and it is most
    of a report of PyTorch.
    """
    options = "--clock-control none --cache-control none --import-sass no"
    return f"ncu {options} --metrics {','.join(list_metrics(capability))} --export my python my.py"


def flops_counters(capability: ncu.Capability, of_reports: bool = False) -> dict[Pipe, dict[str, int]]:
    """Return the metrics of each unit and dtype whose FLOPs an architecture counts, and the FLOPs of a count.

    A report may hold more than the newest ncu counts, as those of a V100 do: `of_reports` adds these.
    """
    counted = architecture_of(capability).counts_instructions or of_reports
    pipes = counter_names.PIPES if counted else ()
    counters = {("cuda_core", dtype): counter_names.pipe_metrics(dtype) for dtype in pipes}
    for dtype, operands in architecture_of(capability).operand_counters.items():
        metrics = [f"{counter_names.TENSOR_METRIC_PREFIX}{operand}.sum" for operand in operands]
        counters["tensor_core", dtype] = dict.fromkeys(metrics, 1)
    return counters


def list_metrics(capability: ncu.Capability) -> list[str]:
    """Return the metrics that a report needs so that everything in it can be placed."""
    alternative = 1 if capability >= RENAMED else 0
    bytes_metrics = [f"{list(BYTES[name])[alternative]}.sum" for name in MEMORY_BYTES]
    bytes_metrics += [f"{next(iter(BYTES[name]))}.sum" for name in CACHE_BYTES]
    metrics = [counter_names.DURATION_METRIC, f"{CLOCKS[0]}.avg.per_second", *bytes_metrics]
    metrics += [INSTRUCTIONS, TMA] if architecture_of(capability).clusters else [INSTRUCTIONS]
    return metrics + [metric for metrics_of_pipe in flops_counters(capability).values() for metric in metrics_of_pipe]


def read_counts(value: ncu.Value, capability: ncu.Capability) -> dict[Key, float | None]:
    """Return all counts of a kernel; None for one that the report lacks. FLOPs have a count for each unit and dtype.

    Raises LookupError if the report has none of them, as of a kernel that failed under the profiler.
    """
    seconds = value(counter_names.DURATION_METRIC)
    clock_hz = next((hz for name in CLOCKS if (hz := value(f"{name}.avg.per_second"))), None)

    def total(metric: str) -> float | None:
        """Return the sum of a counter over the kernel, from its sum or from its rate per second or per cycle."""
        if (count := value(metric)) is not None:
            return count
        if seconds is not None and (per_second := value(f"{metric}.per_second")) is not None:
            return per_second * seconds
        if seconds is not None and clock_hz and (per_cycle := value(f"{metric}.per_cycle_elapsed")) is not None:
            return per_cycle * clock_hz * seconds
        return None

    counts: dict[Key, float | None] = {"duration_s": seconds, "sm_clock_mhz": clock_hz and clock_hz / 1e6}
    counts |= {name: _first_bytes(total, alternatives) for name, alternatives in BYTES.items()}
    counts["warp_instructions"] = total(INSTRUCTIONS)
    counts["tma_instructions"] = total(TMA) if architecture_of(capability).clusters else 0.0
    asked_for = flops_counters(capability)
    for pipe, counters in flops_counters(capability, of_reports=True).items():
        flops = _sum_flops(total, counters)
        if flops is not None or pipe in asked_for:
            counts[pipe] = flops
    if not any(count is not None for key, count in counts.items() if key != "tma_instructions"):
        raise LookupError("a kernel without any counter that is read here")
    return counts


def _first_bytes(total: Total, alternatives: dict[str, int]) -> float | None:
    """Return the bytes by the first of these counters that the report holds."""
    counted = ((total(f"{counter}.sum"), bytes_per_count) for counter, bytes_per_count in alternatives.items())
    return next((count * bytes_per_count for count, bytes_per_count in counted if count is not None), None)


def _sum_flops(total: Total, counters: dict[str, int]) -> float | None:
    """Return the FLOPs by these metrics; None if the report lacks one of them."""
    counts = [_count_operations(total, metric) for metric in counters]
    if None in counts:
        return None
    return sum(flops * count for flops, count in zip(counters.values(), counts, strict=True))


def _count_operations(total: Total, metric: str) -> float | None:
    """Return a count by its metric; that of an operand of tensor cores may be in two, without and with sparsity.

    Scripts of others ask for the same sum by multiprocessor instead of by its four parts.
    """
    for name in (metric, metric.replace("smsp__", "sm__", 1)):
        if (count := total(name)) is not None:
            return count
    parts = [total(metric.replace(".sum", f"_sparsity_{state}.sum")) for state in ("off", "on")]
    known_parts = [part for part in parts if part is not None]
    return sum(known_parts) if known_parts else None
