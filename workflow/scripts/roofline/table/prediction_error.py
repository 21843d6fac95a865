"""Why a cell took longer or shorter than was sealed: the largest of four causes.

The sealed prediction is made again, each time with one more assumption replaced by what this run measured: what calls
cost, what the GPU takes to start, the two ceilings, the share of the roof that the GPU attained. The seconds that a
replacement moves are the part of that cause. The rest is launch overhead.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from roofline.core.cell_prediction import CellCosts, predict_cell
from roofline.records.operator_record import Measurement
from roofline.records.seal_records import PredictionRecord
from roofline.table.rows import Cause

CLOSE = 0.01  # of the measured time: a median wanders as far, so that a smaller error has no cause


def find_largest_cause(found: Mapping[Cause, float], measured_s: float) -> tuple[Cause | None, float | None]:
    """The largest cause and its seconds; neither if the sealed CPU time is right within 1 %."""
    gap_s = sum(found.values())
    if abs(gap_s) <= CLOSE * measured_s:
        return None, None
    cause = max(found, key=lambda one: found[one] / gap_s)
    return cause, found[cause]


def attribute_error(
    measured: Measurement,
    seal: PredictionRecord,
    constants: Mapping[str, float],
    tflops: float | None,
    gb_per_s: float | None,
) -> dict[Cause, float]:
    """Seconds by cause; they add up to measured minus sealed.

    `constants` are those of the operator's seal; `tflops` and `gb_per_s` are the measured ceilings, if measured.
    """

    def time_s(costs: CellCosts, rates: tuple[float | None, float | None]) -> float:
        known = {"tflops": rates[0], "gb_per_s": rates[1], "costs": costs}
        return predict_cell(flops=measured.flops, traffic_bytes=measured.bytes, **known).cpu_time_s or 0.0

    promised = seal.rates(measured.compute_ceiling, measured.memory_ceilings)
    measured_rates = tuple(one or other for one, other in zip((tflops, gb_per_s), promised, strict=True))
    assumed, alone, caller = measured.costs.costs(constants), measured.device_latency, measured.latency.median_s
    launched = assumed if measured.overhead_s is None else replace(assumed, overhead_s=measured.overhead_s)
    # Without a time of the smallest case, nothing is known of what the calls cost.
    known = measured.overhead_s is not None and measured.device_overhead_s is not None
    started = replace(launched, start_s=measured.device_overhead_s) if known else launched
    steps = [(assumed, promised), (launched, promised), (started, promised), (started, measured_rates)]
    worked = max(launched.overhead_s or 0.0, min(alone.median_s, caller)) if alone else caller
    times = [*(time_s(*step) for step in steps), worked]
    launch, start, ceiling, share = (after - before for before, after in pairwise(times))
    return {"launch": launch + caller - worked, "start": start, "ceiling": ceiling, "share": share}
