"""The model that predicts a cell, in one page: docs/prediction.md.

GPU time: what a cell costs to start, plus the passes next to its roof, plus the larger of FLOPs / compute ceiling and
bytes / memory ceiling of the slowest level, each by the share of the ceiling that the implementation attains. CPU time:
the larger of that and what the calls cost the host. The regime follows by the rule of regimes.py. A prediction is right
where its regime is, and its time within a factor of TIMES.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from roofline.core import regimes, roofline_model

RIGHT_WITHIN_FACTOR = 2.0  # by which a right time may differ from the measured one
CLOSE_WITHIN_FACTOR = 1.25  # and a close one
SHARED_COST_PREFIX = "shared_"  # before the name of a cost: the part that all cores take together


def is_within_factor(predicted_s: float, measured_s: float, times: float = RIGHT_WITHIN_FACTOR) -> bool:
    """Whether a predicted time is right: between half and twice the measured one, or within another factor."""
    return measured_s <= times * predicted_s and predicted_s <= times * measured_s


@dataclass(frozen=True)
class CellCosts:
    """What a cell costs besides its work, in seconds, and the shares of its ceilings that it attains.

    `call_s` is the host's, None where nothing is known of it. `start_s` is the device's, None where device and caller
    are one (synchronous). `extra_s` comes on top of either, `floor_s` is what the work takes however fast the memory
    is, and `waits_s` are waits for the memory that its own transfers hide in part. `compute_share` is of the compute
    ceiling; `levels_s` is what other memory levels take, by their names.
    """

    call_s: float | None
    start_s: float | None
    share: float = 1.0
    extra_s: float = 0.0
    floor_s: float = 0.0
    waits_s: float = 0.0
    compute_share: float = 1.0
    levels_s: Mapping[str, float] = field(default_factory=dict)

    def work_s(self, compute_s: float, memory_s: float) -> float:
        """What the work takes whose roofs allow these times."""
        return max(
            compute_s / self.compute_share,
            math.hypot(memory_s / self.share, self.waits_s),
            self.floor_s,
            *self.levels_s.values(),
        )


class ModelPrediction(NamedTuple):
    regime: str
    latency_s: float | None
    device_latency_s: float | None
    fraction_of_compute_peak: float | None
    level: str | None = None


def weighted_sum(terms: Mapping[str, float], constants: Mapping[str, float]) -> float:
    """The sum of multiples of named constants, alike in every version of Python. Raises KeyError for an unknown one."""
    return math.fsum(factor * constants[name] for name, factor in terms.items())


def divided_cost_terms(name: str, amount: float, cores: float) -> dict[str, float]:
    """The terms of so much work of a cost, divided among so many cores: `amount x (own / cores + shared)`.

    Each core takes the first part for its own work. The second all cores take together, however many they are: memory.
    """
    return {name: amount / cores, SHARED_COST_PREFIX + name: amount}


def predict_cell(
    *,
    flops: float,
    traffic_bytes: float,
    peak_tflops: float | None,
    bandwidth_gb_per_s: float | None,
    costs: CellCosts,
    memory_level: str | None = None,
) -> ModelPrediction:
    """What the model says of a cell, whose bytes come from `memory_level`; what is unknown (None) sets no limit.

    On a synchronous device (no `start_s`) the calls come before the work, not next to it.
    """
    compute_s = flops / (peak_tflops * 1e12) if peak_tflops else None
    memory_s = traffic_bytes / (bandwidth_gb_per_s * 1e9) if bandwidth_gb_per_s else None
    work_s = costs.extra_s + costs.work_s(compute_s or 0.0, memory_s or 0.0)
    call_s = costs.call_s or 0.0
    device_s = None if costs.start_s is None else costs.start_s + work_s
    level, of_levels_s = regimes.find_slowest_level({memory_level: memory_s, **costs.levels_s})
    latency_s = call_s + work_s if device_s is None else max(call_s, device_s)
    regime = regimes.classify_regime(
        latency_s=latency_s,
        device_latency_s=device_s,
        start_s=call_s if device_s is None else costs.start_s,
        compute_s=compute_s,
        memory_s=of_levels_s,
    )
    by_roofs = (
        roofline_model.COMPUTE_BOUND if (compute_s or 0.0) >= (of_levels_s or 0.0) else roofline_model.MEMORY_BOUND
    )
    return ModelPrediction(
        regime=regime or by_roofs,
        level=level if (regime or by_roofs) == roofline_model.MEMORY_BOUND else None,
        latency_s=latency_s or None,
        device_latency_s=device_s,
        fraction_of_compute_peak=compute_s / latency_s if compute_s and latency_s else None,
    )
