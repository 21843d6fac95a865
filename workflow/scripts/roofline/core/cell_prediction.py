"""The model that predicts a cell, in one page: docs/prediction.md.

GPU time: what a cell costs to start, plus the passes next to its roof, plus the larger of FLOPs / compute ceiling and
bytes / memory ceiling of the slowest level, each by the share of the ceiling that the implementation attains. CPU time:
the larger of that and what the calls cost the host. The regime follows by the rule of regimes.py. A prediction is right
where its regime is, and its time within a factor of RIGHT_WITHIN_FACTOR.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from roofline.core import regimes, roofline_model
from roofline.core.terms import Regime, RegimeLevel

RIGHT_WITHIN_FACTOR = 2.0  # a right time differs from the measured one by no more
CLOSE_WITHIN_FACTOR = 1.25  # a close one likewise
SHARED_COST_PREFIX = "shared_"  # before the name of a cost: the part that all cores take together


def is_within_factor(predicted_s: float, measured_s: float, factor: float = RIGHT_WITHIN_FACTOR) -> bool:
    """Return whether a predicted time lies between the measured one divided and multiplied by `factor`."""
    return measured_s <= factor * predicted_s and predicted_s <= factor * measured_s


@dataclass(frozen=True)
class CellCosts:
    """The costs of a cell besides its work, in seconds, and the shares of its ceilings that it attains."""

    overhead_s: float | None  # of the host, for the calls; None if not known
    start_s: float | None  # of the device; None on a synchronous device
    share: float = 1.0  # of the memory ceiling
    extra_s: float = 0.0  # on top of the work, whatever sets its time
    floor_s: float = 0.0  # the work takes as long, however fast the memory is
    waits_s: float = 0.0  # waits for the memory, which its own transfers hide in part
    compute_share: float = 1.0  # of the compute ceiling
    compute_adds: bool = False  # to the waits; otherwise it goes on meanwhile
    levels_s: Mapping[RegimeLevel, float] = field(default_factory=dict)  # of the other memory levels, by name

    def work_s(self, compute_s: float, memory_s: float) -> float:
        """Return the seconds of work that takes `compute_s` and `memory_s` at the full rates of its two ceilings."""
        computing_s = compute_s / self.compute_share
        return max(
            computing_s,
            math.hypot(memory_s / self.share, self.waits_s + computing_s * self.compute_adds),
            self.floor_s,
            *self.levels_s.values(),
        )


class ModelPrediction(NamedTuple):
    """The model's answer for a cell: its regime, its times in seconds, and its share of the compute peak.

    The GPU time is None on a synchronous device, the CPU time if neither a ceiling nor a cost is known, the share
    without FLOPs or a compute ceiling.
    """

    regime: Regime
    cpu_time_s: float | None
    gpu_time_s: float | None
    fraction_of_compute_peak: float | None
    regime_level: RegimeLevel | None = None  # the memory level that sets the time of a memory-bound cell


def weighted_sum(terms: Mapping[str, float], constants: Mapping[str, float]) -> float:
    """Return the sum of `terms`, multiples of the named constants. Raises KeyError for an unknown constant.

    math.fsum rounds once, so that every version of Python gives the same sum.
    """
    return math.fsum(factor * constants[name] for name, factor in terms.items())


def divided_cost_terms(name: str, amount: float, cores: float) -> dict[str, float]:
    """Return the terms of `amount` units of a cost that `cores` cores divide among them.

    They add up to amount x (cost / cores + shared cost). A core takes the first part for its own units. All cores
    together take the second part, however many they are: it is the memory's.
    """
    return {name: amount / cores, SHARED_COST_PREFIX + name: amount}


def predict_cell(
    *,
    flops: float,
    traffic_bytes: float,
    tflops: float | None,
    gb_per_s: float | None,
    costs: CellCosts,
    memory_level: RegimeLevel | None = None,
) -> ModelPrediction:
    """Predict a cell under ceilings of `tflops` and `gb_per_s`; a ceiling that is not known (None) sets no limit.

    The bytes come from `memory_level`. On a synchronous device (no `start_s`) the calls come before the work; on all
    others both run at the same time.
    """
    compute_s = flops / (tflops * 1e12) if tflops else None
    memory_s = traffic_bytes / (gb_per_s * 1e9) if gb_per_s else None
    work_s = costs.extra_s + costs.work_s(compute_s or 0.0, memory_s or 0.0)
    overhead_s = costs.overhead_s or 0.0
    if costs.start_s is None:
        gpu_time_s, start_s = None, overhead_s
        cpu_time_s = overhead_s + work_s
    else:
        gpu_time_s, start_s = costs.start_s + work_s, costs.start_s
        cpu_time_s = max(overhead_s, gpu_time_s)
    level_seconds = dict([(memory_level, memory_s), *costs.levels_s.items()])
    slowest_level, slowest_level_s = regimes.find_slowest_level(level_seconds)
    regime = regimes.classify_regime(
        cpu_time_s=cpu_time_s, gpu_time_s=gpu_time_s, start_s=start_s, compute_s=compute_s, memory_s=slowest_level_s
    )
    if regime is None:
        is_compute_bound = (compute_s or 0.0) >= (slowest_level_s or 0.0)
        regime = roofline_model.COMPUTE_BOUND if is_compute_bound else roofline_model.MEMORY_BOUND
    return ModelPrediction(
        regime=regime,
        cpu_time_s=cpu_time_s or None,
        gpu_time_s=gpu_time_s,
        fraction_of_compute_peak=compute_s / cpu_time_s if compute_s and cpu_time_s else None,
        regime_level=slowest_level if regime == roofline_model.MEMORY_BOUND else None,
    )
