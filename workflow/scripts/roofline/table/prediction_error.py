"""The cause of a sealed prediction's error: the largest of four.

The sealed prediction is made again, each time with one more assumption replaced by a measurement of this run: the cost
of calls, the GPU's time to start, the two ceilings, the share of the roof that the GPU attained. The seconds by which a
replacement moves the prediction are the part of that cause. The rest is launch overhead.

A share that the prediction assumed is one of the promised rate. Then no measured ceiling replaces the promised one, and
what the work attained is held against the promise.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from roofline.core.cell_prediction import CellCosts, predict_cell
from roofline.records.operator_record import Measurement
from roofline.records.seal_records import PredictionRecord
from roofline.table.rows import Cause

CLOSE = 0.01  # of the measured time: a median varies by as much, so that a smaller error has no cause


def find_largest_cause(seconds_by_cause: Mapping[Cause, float], measured_s: float) -> tuple[Cause | None, float | None]:
    """Return the largest cause and its seconds; None and None if the sealed CPU time is right within 1 %."""
    gap_s = sum(seconds_by_cause.values())
    if abs(gap_s) <= CLOSE * measured_s:
        return None, None
    cause = max(seconds_by_cause, key=lambda name: seconds_by_cause[name] / gap_s)
    return cause, seconds_by_cause[cause]


class Replay(NamedTuple):
    """A sealed prediction, to be made again with measured values in place of assumed ones."""

    measured: Measurement
    promised: tuple[float | None, float | None]  # TFLOPS and GB/s
    assumed: CellCosts
    with_calls: CellCosts  # the assumed costs, with calls as measured
    with_start: CellCosts  # with the start as measured too
    busy_s: float  # of the CPU time, without waits for the host

    def predict_s(self, costs: CellCosts, tflops: float | None, gb_per_s: float | None) -> float:
        """Return the CPU time in seconds by these costs and ceilings; None is a ceiling that is not known."""
        flops, traffic_bytes = self.measured.flops, self.measured.bytes
        prediction = predict_cell(
            flops=flops, traffic_bytes=traffic_bytes, tflops=tflops, gb_per_s=gb_per_s, costs=costs
        )
        return prediction.cpu_time_s or 0.0

    def compared_rates(self, tflops: float | None, gb_per_s: float | None) -> tuple[float | None, float | None]:
        """Return the TFLOPS and GB/s that the work is held against: the promised rate where the prediction assumed a
        share of it, else the measured ceiling; where one of the two is not known, the other."""
        costs, (promised_tflops, promised_gb_per_s) = self.measured.costs, self.promised
        return (
            promised_tflops or tflops if costs.compute_share else tflops or promised_tflops,
            promised_gb_per_s or gb_per_s if costs.share else gb_per_s or promised_gb_per_s,
        )


def prepare_replay(measured: Measurement, seal: PredictionRecord, constants: Mapping[str, float]) -> Replay:
    """Return what the prediction of a cell assumed, and what was measured instead; `constants` are the operator's."""
    assumed, gpu_time, cpu_s = measured.costs.costs(constants), measured.gpu_time, measured.cpu_time.median_s
    with_calls = assumed if measured.overhead_s is None else replace(assumed, overhead_s=measured.overhead_s)
    # Without a time of the smallest case, nothing is known of what the calls cost.
    costs_known = measured.overhead_s is not None and measured.start_s is not None
    with_start = replace(with_calls, start_s=measured.start_s) if costs_known else with_calls
    busy_s = max(with_calls.overhead_s or 0.0, min(gpu_time.median_s, cpu_s)) if gpu_time else cpu_s
    promised = seal.rates(measured.compute_ceiling, measured.memory_ceilings)
    return Replay(measured, promised, assumed, with_calls, with_start, busy_s)


def attribute_error(replay: Replay, tflops: float | None, gb_per_s: float | None) -> dict[Cause, float]:
    """Split measured minus sealed CPU time, in seconds, into four causes that add up to it.

    `tflops` and `gb_per_s` are the measured ceilings, None if not measured.
    """
    sealed_s = replay.predict_s(replay.assumed, *replay.promised)
    with_calls_s = replay.predict_s(replay.with_calls, *replay.promised)
    with_start_s = replay.predict_s(replay.with_start, *replay.promised)
    with_ceilings_s = replay.predict_s(replay.with_start, *replay.compared_rates(tflops, gb_per_s))
    return {
        "launch": with_calls_s - sealed_s + replay.measured.cpu_time.median_s - replay.busy_s,
        "start": with_start_s - with_calls_s,
        "ceiling": with_ceilings_s - with_start_s,
        "share": replay.busy_s - with_ceilings_s,
    }
