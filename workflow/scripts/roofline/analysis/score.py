"""How good sealed predictions are, the regime and the time, next to a predictor without a model."""

from collections.abc import Iterable, Sequence

from roofline.analysis.table import Operator, Score, Tally
from roofline.core.prediction import CLOSE_TIMES, within
from roofline.core.statistics import median
from roofline.records.prediction import CellPrediction


def time_right(predicted_s: float | None, measured_s: float | None) -> bool | None:
    """Whether the times are within a factor of two; None where either is not known."""
    return within(predicted_s, measured_s) if predicted_s and measured_s else None


def score(cells: Iterable[Operator]) -> Score:
    """Of the cells whose regime was found and whose time was predicted."""
    judged = [cell for cell in cells if cell.regime and cell.latency_s and cell.sealed and cell.sealed.latency_s]
    started = [cell for cell in judged if cell.roof_and_start and cell.roof_and_start.latency_s]
    return Score(
        **_tally(judged, [cell.sealed for cell in judged]).model_dump(),
        both_right=sum(
            cell.sealed.regime == cell.regime and within(cell.sealed.latency_s, cell.latency_s) for cell in judged
        ),
        roof_and_start=_tally(started, [cell.roof_and_start for cell in started]) if started else None,
    )


def _tally(cells: Sequence[Operator], predicted: Sequence[CellPrediction]) -> Tally:
    times = [(one.latency_s, cell.latency_s) for cell, one in zip(cells, predicted, strict=True)]
    return Tally(
        cells=len(cells),
        regimes_right=sum(one.regime == cell.regime for cell, one in zip(cells, predicted, strict=True)),
        times_right=sum(within(*both) for both in times),
        times_close=sum(within(*both, CLOSE_TIMES) for both in times),
        median_error=median([abs(made - found) / found for made, found in times]) if times else None,
    )
