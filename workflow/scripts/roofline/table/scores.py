"""How good sealed predictions are, the regime and the time, next to a baseline without a model: the promised roof and
one start-up time for each kind of implementation."""

from collections.abc import Iterable, Sequence

from roofline.core.cell_prediction import CLOSE_WITHIN_FACTOR, CellCosts, is_within_factor, predict_cell
from roofline.core.statistics import median
from roofline.records.operator_record import Measurement
from roofline.records.seal_records import CellPrediction, CostTerms, PredictionRecord
from roofline.table.rows import CellRow, PredictedTimesRow, Score, Tally

# Seconds by kind of implementation: what cells drawn at random on hosts of an H200 took beyond their roof, and cells of
# the default config on their CPUs, in the median.
START_S = {
    "graph": 1.8e-6,
    "kernel": 9.4e-6,
    "library": 11e-6,
    "arrays": 260e-6,
    "loops of a CPU": 100e-6,
    "product on a CPU": 30e-6,
    "arrays of a CPU": 400e-6,
}
SEVERAL = 3  # calls of the array library from which on they are several operations, not one product


def predict_baseline(measured: Measurement, seal: PredictionRecord) -> PredictedTimesRow:
    """By the promised rates and the start-up time of its kind."""
    tflops, gb_per_s = seal.rates(measured.compute_ceiling, measured.memory_ceilings)
    found = predict_cell(
        flops=measured.flops,
        traffic_bytes=measured.bytes,
        tflops=tflops,
        gb_per_s=gb_per_s,
        costs=CellCosts(overhead_s=START_S[implementation_kind(measured.costs)], start_s=None),
    )
    return PredictedTimesRow.like(found, level=found.regime_level)


def prediction(found: CellPrediction) -> PredictedTimesRow:
    """Return the row of a prediction in a record."""
    return PredictedTimesRow.like(found, cpu_time_s=found.latency_s, gpu_time_s=found.device_latency_s)


def implementation_kind(terms: CostTerms) -> str:
    """Of an implementation, by what its cells declare of their calls."""
    if terms.start is None and "loop_s" in terms.calls:
        return "loops of a CPU"
    if terms.start is None:
        return "product on a CPU" if terms.compute_share else "arrays of a CPU"
    if "graph_launch_s" in terms.calls:
        return "graph"
    if terms.calls.get("array_operation_s", 0.0) >= SEVERAL:
        return "arrays"
    return "kernel" if "kernel_launch_s" in terms.calls else "library"


def score_predictions(cells: Iterable[CellRow]) -> Score:
    """Of the cells without a doubt whose regime was found and whose time was predicted."""
    sure = [cell for cell in cells if not cell.doubt and not cell.roof_doubt]
    judged = [cell for cell in sure if cell.regime and cell.sealed_time_right is not None]
    started = [cell for cell in judged if cell.baseline and cell.baseline.cpu_time_s]
    return Score.like(
        _tally(judged, [cell.sealed for cell in judged]),
        both_right=sum(bool(cell.sealed_regime_correct and cell.sealed_time_right) for cell in judged),
        baseline=_tally(started, [cell.baseline for cell in started]) if started else None,
    )


def _tally(cells: Sequence[CellRow], predicted: Sequence[PredictedTimesRow]) -> Tally:
    times = [(one.cpu_time_s, cell.cpu_time_s) for cell, one in zip(cells, predicted, strict=True)]
    return Tally(
        cells=len(cells),
        regimes_right=sum(one.regime == cell.regime for cell, one in zip(cells, predicted, strict=True)),
        times_right=sum(is_within_factor(*both) for both in times),
        times_close=sum(is_within_factor(*both, CLOSE_WITHIN_FACTOR) for both in times),
        median_error=median([abs(made - found) / found for made, found in times]) if times else None,
    )
