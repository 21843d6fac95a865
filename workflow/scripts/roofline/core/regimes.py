"""The rule that names what sets the time of a cell, predicted or measured: see docs/prediction.md."""

from collections.abc import Mapping
from typing import TypeVar

from roofline.core import roofline_model
from roofline.core.terms import Regime

LevelT = TypeVar("LevelT")

# The implementation sets the time where roof and overheads together explain less than this share of it.
EXPLAINED_SHARE = 0.5


def overhead_of_cell_s(*, cpu_time_s: float, gpu_time_s: float | None, start_s: float | None) -> float:
    """Return the seconds of a CPU time that go to calls and start-up.

    On a GPU these are its wait for the calls and its start-up. On a synchronous device (no GPU time) they are what the
    calls take. Neither is more than the time itself, whatever was measured elsewhere.
    """
    if gpu_time_s is None:
        return min(start_s or 0.0, cpu_time_s)
    waited_s = max(0.0, cpu_time_s - gpu_time_s)
    return min(waited_s + min(start_s or 0.0, gpu_time_s), cpu_time_s)


def find_slowest_level(seconds: Mapping[LevelT, float | None]) -> tuple[LevelT, float | None] | tuple[None, None]:
    """Return the memory level that takes longest, and its seconds.

    A level whose rate is not known has None seconds and counts as zero; among equals the first counts.
    """
    return max(seconds.items(), key=lambda pair: pair[1] or 0.0, default=(None, None))


def classify_regime(
    *,
    cpu_time_s: float,
    gpu_time_s: float | None,
    start_s: float | None,
    compute_s: float | None,
    memory_s: float | None,
) -> Regime | None:
    """Return `implementation` where roof and overheads explain less than half of the CPU time; else the largest of
    `overhead`, `compute` and `memory`. None if a roof is not known and the overheads alone do not explain half.

    `gpu_time_s` is the device's part alone, None on a synchronous device. `start_s` is the time of the same code with
    almost nothing to do: of the GPU where there is a GPU time, else of the CPU. `compute_s` and `memory_s` are the
    seconds that the two roofs allow: FLOPs over the compute ceiling, and bytes over the memory ceiling of the slowest
    memory level.
    """
    overhead_s = overhead_of_cell_s(cpu_time_s=cpu_time_s, gpu_time_s=gpu_time_s, start_s=start_s)
    if compute_s is None or memory_s is None:
        return roofline_model.OVERHEAD_BOUND if overhead_s >= EXPLAINED_SHARE * cpu_time_s else None
    roof_s = max(compute_s, memory_s)
    if roof_s + overhead_s < EXPLAINED_SHARE * cpu_time_s:
        return roofline_model.IMPLEMENTATION_BOUND
    if overhead_s > roof_s:
        return roofline_model.OVERHEAD_BOUND
    return roofline_model.COMPUTE_BOUND if compute_s >= memory_s else roofline_model.MEMORY_BOUND
