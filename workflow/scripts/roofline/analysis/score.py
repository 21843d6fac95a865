"""How good sealed predictions are, the regime and the time, beside predictors without a model."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from roofline.analysis.table import Score, Tally
from roofline.core.prediction import CLOSE_TIMES, within
from roofline.core.statistics import median
from roofline.records.prediction import CellPrediction

ROOF, ROOF_AND_START = "the roof alone", "the roof and a start-up time"


class Cell(Protocol):
    """What was sealed of a cell, what was found, and what predictors without a model say."""

    sealed: CellPrediction | None
    roof: CellPrediction | None
    roof_and_start: CellPrediction | None
    regime: str | None
    latency_s: float | None
    textbook_regime: str | None
    fitted: bool


def time_right(predicted_s: float | None, measured_s: float | None) -> bool | None:
    """Whether the times are within a factor of two; None where either is not known."""
    return within(predicted_s, measured_s) if predicted_s and measured_s else None


def score(cells: Iterable[Cell]) -> Score:
    """Of the cells whose regime was found and whose time was predicted; those that a constant was fitted on apart."""
    known = [cell for cell in cells if cell.regime and cell.latency_s and cell.sealed and cell.sealed.latency_s]
    judged = [cell for cell in known if not cell.fitted]
    named = [cell for cell in judged if cell.textbook_regime]
    fitted = [cell for cell in known if cell.fitted]
    return Score(
        **_tally(judged, [cell.sealed for cell in judged]).model_dump(),
        both_right=sum(
            cell.sealed.regime == cell.regime and within(cell.sealed.latency_s, cell.latency_s) for cell in judged
        ),
        fitted=_tally(fitted, [cell.sealed for cell in fitted]) if fitted else None,
        textbook_cells=len(named),
        textbook_regimes_right=sum(cell.textbook_regime == cell.regime for cell in named),
        baselines={
            name: _tally(mine, [of(cell) for cell in mine])
            for name, of in ((ROOF, lambda cell: cell.roof), (ROOF_AND_START, lambda cell: cell.roof_and_start))
            if (mine := [cell for cell in judged if of(cell) and of(cell).latency_s])
        },
    )


def _tally(cells: Sequence[Cell], predicted: Sequence[CellPrediction]) -> Tally:
    times = [(one.latency_s, cell.latency_s) for cell, one in zip(cells, predicted, strict=True)]
    return Tally(
        cells=len(cells),
        regimes_right=sum(one.regime == cell.regime for cell, one in zip(cells, predicted, strict=True)),
        times_right=sum(within(*both) for both in times),
        times_close=sum(within(*both, CLOSE_TIMES) for both in times),
        median_error=median([abs(made - found) / found for made, found in times]) if times else None,
    )
