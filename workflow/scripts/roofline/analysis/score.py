"""How many sealed predictions are right: the regime, and the time within a factor of two; and what a rule of thumb that
knows no model would have named."""

from collections.abc import Iterable
from typing import Protocol

from roofline.analysis.table import Score
from roofline.core.prediction import within
from roofline.records.prediction import CellPrediction


class Cell(Protocol):
    """What was sealed of a cell, what was found, and what its operator's textbook names."""

    sealed: CellPrediction | None
    regime: str | None
    latency_s: float | None
    textbook_regime: str | None


def time_right(predicted_s: float | None, measured_s: float | None) -> bool | None:
    """Whether the times are within a factor of two; None where either is not known."""
    return within(predicted_s, measured_s) if predicted_s and measured_s else None


def score(cells: Iterable[Cell]) -> Score:
    """Of the cells whose regime was found and whose time was predicted."""
    judged = [
        (cell, cell.sealed.regime == cell.regime, right)
        for cell in cells
        if cell.regime and cell.sealed
        if (right := time_right(cell.sealed.latency_s, cell.latency_s)) is not None
    ]
    named = [cell for cell, *_ in judged if cell.textbook_regime]
    return Score(
        cells=len(judged),
        regimes_right=sum(regime for _, regime, _ in judged),
        times_right=sum(time for *_, time in judged),
        both_right=sum(regime and time for _, regime, time in judged),
        textbook_cells=len(named),
        textbook_regimes_right=sum(cell.textbook_regime == cell.regime for cell in named),
    )
