"""Whether measurements follow from what was sealed before them."""

from collections.abc import Mapping
from datetime import datetime

from roofline.records.calibration_record import CalibrationRecord
from roofline.records.operator_record import JobRecord, PredictionsRecord
from roofline.records.seal_records import OperatorPredictionRecord, Seal
from roofline.table.run_records import Results


def parse_time(text: str | None) -> datetime | None:
    """Of a time in ISO 8601, as records and logs/jobs.jsonl have it."""
    return datetime.fromisoformat(text) if text else None


def find_violations(found: Results, device: str, sha256: Mapping[str, str]) -> list[str]:
    """Whatever contradicts a device's seals; `sha256` holds the hash of every file, by its path below results/."""
    mine = [(path, record) for path, record in found.measured if record.device == device]
    lines = [line for path, record in mine for line in _of_record(path, record, found, sha256)]
    if device in found.predictions:
        lines += _not_predicted_before(*found.predictions[device], found)
    return lines


def _not_predicted_before(path: str, predictions: PredictionsRecord, found: Results) -> list[str]:
    """Records that began before their cells were predicted, but for those that the predictions say were there."""
    measured_at = {one.identity: one.started_at for one in predictions.cells if one.sealed}
    lines = []
    for record_path, record in found.measured:
        if record.device == predictions.device and parse_time(record.started_at) <= parse_time(
            predictions.predicted_at
        ):
            planned = [one.identity for one in record.measurements if one.identity in measured_at]
            if not _set_back(record, found) and any(measured_at[one] != record.started_at for one in planned):
                times = f"started at {record.started_at}, and {path} was written at {predictions.predicted_at}"
                lines.append(f"{record_path} {times}")
    return lines


def _set_back(record: JobRecord, found: Results) -> bool:
    """Whether the clock was: the record carries the hash of a seal, and so is younger than it, and says otherwise."""
    seals = [found.seals[path] for path in record.seals if path in found.seals]
    return any(parse_time(record.started_at) <= parse_time(seal.sealed_at) for seal in seals)


def _of_record(path: str, record: JobRecord, found: Results, sha256: Mapping[str, str]) -> list[str]:
    lines = []
    for seal_path, seal_sha256 in record.seals.items():
        seal = found.seals.get(seal_path)
        if seal is None or sha256.get(seal_path) != seal_sha256:
            lines.append(f"{path} was measured under another seal than {seal_path}")
    return lines + [
        f"{path} does not carry {seal_path}" for seal_path in sorted(_wanted(record, found) - set(record.seals))
    ]


def _wanted(record: JobRecord, found: Results) -> set[str]:
    """Paths of the seals of a record: of its device, of its operators, and of the calibration of the host."""
    operators = {measured.operator for measured in record.measurements}

    def follows_from(seal: Seal) -> bool:
        if isinstance(seal, OperatorPredictionRecord):
            return seal.operator in operators
        return bool(operators) or not isinstance(seal, CalibrationRecord)

    return {path for path, seal in found.seals.items() if seal.device == record.device and follows_from(seal)}
