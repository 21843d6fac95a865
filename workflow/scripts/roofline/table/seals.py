"""The check that measurements follow from seals that were written before them."""

from collections.abc import Mapping
from datetime import datetime

from roofline.records.calibration_record import CalibrationRecord
from roofline.records.operator_record import JobRecord, PredictionsRecord
from roofline.records.seal_records import OperatorPredictionRecord, Seal
from roofline.table.run_records import Results


def parse_time(text: str | None) -> datetime | None:
    """Return the moment of a time in ISO 8601, as records and logs/jobs.jsonl have it; None for an empty text."""
    return datetime.fromisoformat(text) if text else None


def find_violations(results: Results, device: str, sha256: Mapping[str, str]) -> list[str]:
    """Return a line for everything in a device's records that contradicts its seals: hash, order in time, missing seal.

    `sha256` holds the hash of every file, by its path below results/.
    """
    measured = [(path, record) for path, record in results.measured if record.device == device]
    lines = [line for path, record in measured for line in _check_seals(path, record, results, sha256)]
    if device in results.predictions:
        path, predictions = results.predictions[device]
        lines += _find_unpredicted(path, predictions, results)
    return lines


def _find_unpredicted(path: str, predictions: PredictionsRecord, results: Results) -> list[str]:
    """A line for each record that began before its cells were predicted, unless the predictions name its start."""
    measured_at = {cell.identity: cell.started_at for cell in predictions.cells if cell.sealed}
    predicted_at = datetime.fromisoformat(predictions.predicted_at)
    lines = []
    for record_path, record in results.measured:
        if record.device != predictions.device or datetime.fromisoformat(record.started_at) > predicted_at:
            continue
        planned = [cell.identity for cell in record.measurements if cell.identity in measured_at]
        is_new = any(measured_at[identity] != record.started_at for identity in planned)
        if is_new and not _clock_was_set_back(record, results):
            times = f"started at {record.started_at}, and {path} was written at {predictions.predicted_at}"
            lines.append(f"{record_path} {times}")
    return lines


def _clock_was_set_back(record: JobRecord, results: Results) -> bool:
    """Return whether a record names an earlier time than a seal whose hash it carries, although it is younger."""
    sealed_at = [results.seals[path].sealed_at for path in record.seals if path in results.seals]
    started_at = datetime.fromisoformat(record.started_at)
    return any(started_at <= datetime.fromisoformat(moment) for moment in sealed_at)


def _check_seals(path: str, record: JobRecord, results: Results, sha256: Mapping[str, str]) -> list[str]:
    """A line for each seal that the record carries with another hash, or that it does not carry and should."""
    lines = []
    for seal_path, seal_sha256 in record.seals.items():
        if seal_path not in results.seals or sha256.get(seal_path) != seal_sha256:
            lines.append(f"{path} was measured under another seal than {seal_path}")
    missing = sorted(_required_seals(record, results) - set(record.seals))
    return lines + [f"{path} does not carry {seal_path}" for seal_path in missing]


def _required_seals(record: JobRecord, results: Results) -> set[str]:
    """The paths of the seals of a record's device, of its operators, and of the calibration of the host."""
    operators = {measured.operator for measured in record.measurements}

    def follows_from(seal: Seal) -> bool:
        if isinstance(seal, OperatorPredictionRecord):
            return seal.operator in operators
        return bool(operators) or not isinstance(seal, CalibrationRecord)

    return {path for path, seal in results.seals.items() if seal.device == record.device and follows_from(seal)}
