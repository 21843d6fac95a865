"""The user's own predictions, held against the measured cells next to those of the sealed model."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from statistics import median

from roofline.core.cell_prediction import is_within_factor
from roofline.core.grouping import group_by
from roofline.records.base import shared_fields
from roofline.records.operator_record import OwnPrediction, SealedOwnPrediction
from roofline.records.seal_records import CellPrediction
from roofline.table.cell_rows import prediction_error
from roofline.table.rows import CellRow, OwnPredictionRow, OwnScore, OwnTally, PredictionErrors
from roofline.table.run_records import Results

LATE = "added or changed after the cell was timed"
NOT_MEASURED = "the cell was not measured"


def build_own_rows(results: Results, cells: Iterable[CellRow]) -> Iterator[OwnPredictionRow]:
    """Yield a row for each of the user's predictions, with its errors and the model's if it is scored."""
    starts = {path: datetime.fromisoformat(record.started_at) for path, record in results.measured}
    measured = {(cell.device, cell.planned_identity): cell for cell in cells if cell.record}
    for device, record in results.own_predictions.items():
        for own in record.cells:
            cell = measured.get((device, own.planned_identity))
            reason = _find_reason(own, cell, starts) if cell else NOT_MEASURED
            errors = _find_errors(own, own, cell) if cell and not reason else None
            model_errors = _find_errors(own, cell.sealed, cell) if errors and cell and cell.sealed else None
            fields = {**shared_fields(own, SealedOwnPrediction), "device": device, "not_scored_reason": reason}
            yield OwnPredictionRow(**fields, errors=errors, model_errors=model_errors)


def _find_reason(own: SealedOwnPrediction, cell: CellRow, starts: Mapping[str, datetime]) -> str | None:
    """Return why the prediction of a measured cell is not scored; None if it is. `starts` has the start of each job."""
    if own.started_at is not None or datetime.fromisoformat(own.sealed_at) >= starts[str(cell.record)]:
        return LATE
    return cell.doubt or cell.roof_doubt


def _find_errors(own: OwnPrediction, prediction: OwnPrediction | CellPrediction, cell: CellRow) -> PredictionErrors:
    """Return the errors of a prediction, the user's or the model's, in what the user predicts of the cell.

    A share is one of the measured ceiling. The model's own is of the promised peak: its FLOP rate is compared instead.
    """
    if prediction is cell.sealed:
        share_error = prediction_error(cell.sealed_tflops, cell.attained_tflops)
    else:
        share_error = prediction_error(prediction.fraction_of_compute_peak, cell.fraction_of_compute_peak)
    return PredictionErrors(
        regime_right=prediction.regime == cell.regime if own.regime and cell.regime else None,
        cpu_time_error=prediction_error(prediction.cpu_time_s, cell.cpu_time_s) if own.cpu_time_s else None,
        fraction_of_compute_peak_error=share_error if own.fraction_of_compute_peak else None,
    )


def score_own(rows: Sequence[OwnPredictionRow]) -> dict[str, OwnScore]:
    """Return the score of the user's predictions and of the model's for the same cells, by device."""
    scores = {}
    for device, rows_of_device in group_by(rows, lambda row: row.device).items():
        errors = [row.errors for row in rows_of_device if row.errors]
        scores[device] = OwnScore(
            cell_count=len(errors),
            not_scored_count=len(rows_of_device) - len(errors),
            regime_count=sum(row.regime_right is not None for row in errors),
            time_count=sum(row.cpu_time_error is not None for row in errors),
            share_count=sum(row.fraction_of_compute_peak_error is not None for row in errors),
            own=_tally(errors),
            model=_tally([row.model_errors for row in rows_of_device if row.model_errors]),
        )
    return scores


def _tally(errors: Sequence[PredictionErrors]) -> OwnTally:
    time_errors = [row.cpu_time_error for row in errors if row.cpu_time_error is not None]
    share_errors = [row.fraction_of_compute_peak_error for row in errors]
    return OwnTally(
        regimes_right=sum(bool(row.regime_right) for row in errors),
        times_right=sum(is_within_factor(1 + error, 1) for error in time_errors),
        shares_right=sum(is_within_factor(1 + error, 1) for error in share_errors if error is not None),
        median_cpu_time_error=median(list(map(abs, time_errors))) if time_errors else None,
    )
