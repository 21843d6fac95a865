"""How many sealed predictions are right: the regime, and the time within a factor of two; and what a rule of thumb that
knows no model would have named."""

from collections.abc import Iterable

from roofline.core.prediction import within
from roofline.records.roofline import Operator
from roofline.records.verification import Score


def time_right(predicted_s: float | None, measured_s: float | None) -> bool | None:
    """Whether the times are within a factor of two; None where either is not known."""
    return within(predicted_s, measured_s) if predicted_s and measured_s else None


def score(cells: Iterable[Operator]) -> Score:
    """Of the cells whose regime was found and whose time was predicted."""
    judged = [
        (cell, cell.predicted.sealed.regime == cell.regime, right)
        for cell in cells
        if cell.regime and (right := time_right(_sealed_s(cell), cell.latency_s)) is not None
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


def _sealed_s(cell: Operator) -> float | None:
    return cell.predicted.sealed.latency_s if cell.predicted.sealed else None
