"""The score of sealed predictions, by regime and time, next to that of a baseline without a model.

The baseline is the promised roof and one start-up time for each kind of implementation.
"""

from collections.abc import Iterable, Sequence
from math import inf
from statistics import median

from roofline.core.cell_prediction import CLOSE_WITHIN_FACTOR, CellCosts, is_within_factor, predict_cell
from roofline.core.roofline_model import roofline_time
from roofline.records.base import shared_fields
from roofline.records.operator_record import Measurement
from roofline.records.seal_records import CellPrediction, CostTerms, PredictionRecord
from roofline.table.rows import Baseline, CellRow, Score, Tally

# Seconds beyond the roof by kind of implementation: the median of cells drawn at random on hosts of an H200, and of
# cells of the default config on their CPUs.
START_S = {
    "graph": 1.8e-6,
    "kernel": 9.4e-6,
    "library": 11e-6,
    "arrays": 260e-6,
    "loops of a CPU": 100e-6,
    "product on a CPU": 30e-6,
    "arrays of a CPU": 400e-6,
}
SEVERAL_OPERATIONS = 3  # calls of the array library: fewer are one product, and not a chain of array operations


def promised_roof_s(flops: float, traffic_bytes: float, rates: tuple[float | None, float | None]) -> float:
    """Return the seconds of a roof of promised TFLOPS and GB/s; what is not promised (None) sets no limit."""
    tflops, gb_per_s = (rate or inf for rate in rates)
    return roofline_time(flops, traffic_bytes, tflops * 1e12, gb_per_s * 1e9)


def predict_baseline(measured: Measurement, seal: PredictionRecord) -> CellPrediction:
    """Return the prediction by the promised rates and the start-up time of the kind of implementation."""
    tflops, gb_per_s = seal.rates(measured.compute_ceiling, measured.memory_ceilings)
    costs = CellCosts(overhead_s=START_S[implementation_kind(measured.costs)], start_s=None)
    prediction = predict_cell(
        flops=measured.flops, traffic_bytes=measured.bytes, tflops=tflops, gb_per_s=gb_per_s, costs=costs
    )
    return CellPrediction(**prediction._asdict())


def implementation_kind(terms: CostTerms) -> str:
    """Return the kind of an implementation, a key of START_S, by the costs that its cells declare."""
    if terms.start is None and "loop_s" in terms.calls:
        return "loops of a CPU"
    if terms.start is None:
        return "product on a CPU" if terms.compute_share else "arrays of a CPU"
    if "graph_launch_s" in terms.calls:
        return "graph"
    if terms.calls.get("array_operation_s", 0.0) >= SEVERAL_OPERATIONS:
        return "arrays"
    return "kernel" if "kernel_launch_s" in terms.calls else "library"


def select_judged(cells: Iterable[CellRow]) -> list[CellRow]:
    """Return the cells without a doubt that have a regime and a predicted time."""
    undoubted = [cell for cell in cells if not cell.doubt and not cell.roof_doubt]
    return [cell for cell in undoubted if cell.regime and cell.sealed_time_right is not None]


def score_predictions(cells: Iterable[CellRow], baselines: Sequence[Baseline] = ()) -> Score:
    """Return the score over the judged cells, next to these baselines."""
    judged = select_judged(cells)
    with_baseline = [(cell, cell.baseline_prediction) for cell in judged if cell.baseline_prediction]
    return Score(
        **shared_fields(_tally([(cell, cell.sealed) for cell in judged if cell.sealed]), Tally),
        both_right=sum(bool(cell.sealed_regime_right and cell.sealed_time_right) for cell in judged),
        baseline_tally=_tally(with_baseline) if with_baseline else None,
        baselines=list(baselines),
    )


def _tally(pairs: Sequence[tuple[CellRow, CellPrediction]]) -> Tally:
    """The score of predictions that have a CPU time, each with its timed cell."""
    seconds = [(prediction.cpu_time_s, cell.cpu_time_s) for cell, prediction in pairs]
    times = [(predicted_s, measured_s) for predicted_s, measured_s in seconds if predicted_s and measured_s]
    error, close_count = score_times(times) if times else (None, 0)
    return Tally(
        cell_count=len(pairs),
        regimes_right=sum(prediction.regime == cell.regime for cell, prediction in pairs),
        times_right=sum(is_within_factor(predicted_s, measured_s) for predicted_s, measured_s in times),
        times_close=close_count,
        median_cpu_time_error=error,
    )


def score_times(times: Sequence[tuple[float, float]]) -> tuple[float, int]:
    """Return the median relative error of predicted against measured times, a fraction, and how many are close.

    Raises ValueError for no times.
    """
    errors = [abs(predicted_s - measured_s) / measured_s for predicted_s, measured_s in times]
    return median(errors), sum(is_within_factor(*pair, CLOSE_WITHIN_FACTOR) for pair in times)
