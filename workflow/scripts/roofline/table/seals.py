"""The check that measurements follow from seals that were written before them."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from math import isclose

from roofline.measure.all_reduce_sealing import predict_by_link
from roofline.measure.sealing import MEASURED_SOURCE
from roofline.operators.base import Operator
from roofline.operators.drawing import DRAWN, draw_shapes, drawing_code_sha256, make_seed
from roofline.operators.registry import builtin_operators
from roofline.records.all_reduce_record import AllReducePredictionRecord, AllReduceRecord
from roofline.records.bandwidth_record import BandwidthRecord
from roofline.records.calibration_record import CalibrationRecord
from roofline.records.operator_record import (
    DrawnShapes,
    JobRecord,
    PredictedCell,
    PredictionsRecord,
)
from roofline.records.seal_records import (
    CellPrediction,
    OperatorPredictionRecord,
    Seal,
    prediction_code_sha256,
)
from roofline.table.run_records import Results

ROUNDING = 1e-9  # of predictions that are computed again


def parse_time(text: str | None) -> datetime | None:
    """Return the moment of a time in ISO 8601, as records and logs/jobs.jsonl have it; None for an empty text."""
    return datetime.fromisoformat(text) if text else None


def find_violations(results: Results, device: str, sha256: Mapping[str, str]) -> list[str]:
    """Return a line for everything in a device's records that contradicts its seals: hash, order in time, missing seal.

    `sha256` holds the hash of every file, by its path below results/.
    """
    measured = [(path, record) for path, record in results.measured if record.device == device]
    lines = [line for path, record in measured for line in _check_seals(path, record, results, sha256)]
    lines += _find_unlike_constants(device, results)
    lines += _find_unlike_all_reduces(device, results, sha256)
    if predictions := results.predictions.get(device):
        path = f"{device}/predictions.json"
        lines += _find_unpredicted(path, predictions, results)
        lines += [line for cell in predictions.cells for line in _check_entry(path, device, cell, results)]
        lines += _find_unlike(path, predictions, results)
        lines += _find_unlike_shapes(path, predictions, results, sha256)
    return lines


def hash_fitted_constants(results: Results, device: str) -> dict[str, str]:
    """Return a SHA-256 for each operator of a device, of its constants that the calibration does not measure:
    predictions of runs with the same one are scored together."""
    hashes = {}
    for seal in results.seals_of(device, OperatorPredictionRecord).values():
        sources = seal.constant_sources
        fitted = {name: seal.constants[name] for name in sorted(sources) if sources[name] != MEASURED_SOURCE}
        hashes[seal.operator] = hashlib.sha256(json.dumps(fitted).encode()).hexdigest()
    return hashes


def count_recomputed(results: Results) -> tuple[int, int]:
    """Return how many predictions of a run can be recomputed, and how many not: those without an entry, or of an entry
    that other code has sealed."""
    cells = [cell for predictions in results.predictions.values() for cell in predictions.cells if cell.sealed]
    recomputed = sum(_has_present_entry(cell) for cell in cells)
    all_reduces = [seal for seal in results.seals.values() if isinstance(seal, AllReducePredictionRecord)]
    return recomputed + sum(len(seal.sizes) for seal in all_reduces), len(cells) - recomputed


def _has_present_entry(cell: PredictedCell) -> bool:
    return cell.entry is not None and cell.entry.code_sha256 == prediction_code_sha256()


def _find_unlike_constants(device: str, results: Results) -> Iterator[str]:
    """A line for each seal of an operator with another value of a cost than the calibration measured."""
    for calibration_path, calibration in results.seals_of(device, CalibrationRecord).items():
        for path, seal in results.seals_of(device, OperatorPredictionRecord).items():
            sources = seal.constant_sources
            measured = {name: seal.constants[name] for name in sources if sources[name] == MEASURED_SOURCE}
            if not measured.items() <= calibration.constants.items():
                yield f"{path} does not follow from {calibration_path}"


def _find_unlike_all_reduces(device: str, results: Results, sha256: Mapping[str, str]) -> Iterator[str]:
    """A line for each prediction of all-reduces that does not follow from the record of the link that it names."""
    records = dict(results.of_kind(BandwidthRecord))
    for path, seal in results.seals_of(device, AllReducePredictionRecord).items():
        link = records.get(seal.link_record)
        if link is None or sha256.get(seal.link_record) != seal.link_sha256:
            yield f"{path} was predicted by another record than {seal.link_record}"
            continue
        again, sealed = predict_by_link(link, seal.start_s), {size.size_bytes: size.time_s for size in seal.sizes}
        alike = [isclose(again.get(size, 0.0), time_s, rel_tol=ROUNDING) for size, time_s in sealed.items()]
        if again.keys() != sealed.keys() or not all(alike):
            yield f"{path}: the prediction does not follow from {seal.link_record}"


def _check_entry(path: str, device: str, cell: PredictedCell, results: Results) -> Iterator[str]:
    """A line if a prediction does not follow from its entry, or the entry not from the seal of its operator."""
    if not _has_present_entry(cell) or cell.sealed is None or cell.entry is None:
        return
    name = f"{path}: {cell.operator} {cell.implementation} {cell.dtype} {cell.shape}"
    device_seal, constants = results.device_seal(device), results.constants(device, cell.operator)
    if device_seal and not _are_alike(cell.entry.predict(device_seal), cell.sealed):
        yield f"{name}: the prediction does not follow from its entry"
    if constants is not None and not cell.entry.constants.items() <= constants.items():
        yield f"{name}: its constants are not those of the operator's seal"


def _find_unlike(path: str, predictions: PredictionsRecord, results: Results) -> Iterator[str]:
    """A line for each measured cell whose record holds another prediction, or another entry, than was sealed."""
    cells = {cell.identity: cell for cell in predictions.cells if cell.sealed}
    for record_path, record in results.measured:
        of_device = record.measurements if record.device == predictions.device else []
        for measured in (one for one in of_device if one.identity in cells):
            sealed, entry = cells[measured.identity].sealed, cells[measured.identity].entry
            if sealed and not _are_alike(sealed, measured.sealed):
                yield f"{record_path}: {measured.implementation} {measured.shape}: another prediction than in {path}"
            elif entry and measured.entry_sha256 != entry.sha256:
                yield f"{record_path}: {measured.implementation} {measured.shape}: another entry than in {path}"


def _find_unlike_shapes(
    path: str, predictions: PredictionsRecord, results: Results, sha256: Mapping[str, str]
) -> Iterator[str]:
    """A line for each operator whose drawn shapes do not follow from the seals, or are not those that were measured.
    Shapes that other code drew, or those of a user's operator, are not drawn again; their seed is recomputed."""
    records = dict(results.measured)
    for rule, drawn in predictions.drawn.items():
        hashes = {seal: sha256.get(seal, "missing") for seal in drawn.seals}
        if make_seed(hashes, drawn.code_sha256) != drawn.seed:
            yield f"{path}: the seed of {rule} does not follow from the seals"
        elif operator := _find_drawing_operator(rule, drawn):
            job, expected = draw_shapes(operator, hashes, len(drawn.shapes))
            cases = [(case.preset, case.dtype, case.shape) for case in job.cases]
            record = records.get(f"{predictions.device}/{rule}/{DRAWN}.json")
            measured = {one.identity for one in record.measurements} if record else set()
            planned = {
                cell.identity
                for cell in predictions.cells
                if cell.operator == operator.name and (cell.preset, cell.dtype, cell.shape) in cases
            }
            if expected != drawn or (record and measured != planned):
                yield f"{path}: the shapes of {rule} do not follow from the seals"


def _find_drawing_operator(rule: str, drawn: DrawnShapes) -> Operator | None:
    """The operator of the library whose present code drew these shapes; None if other code did."""
    operators = (operator for operator in builtin_operators() if operator.rule == rule)
    return next((one for one in operators if drawing_code_sha256(one) == drawn.code_sha256), None)


def count_redrawn(results: Results) -> tuple[int, int]:
    """Return how many sets of drawn shapes of a run are drawn again, and how many not, since other code drew them."""
    sets = [pair for predictions in results.predictions.values() for pair in predictions.drawn.items()]
    redrawn = sum(_find_drawing_operator(*pair) is not None for pair in sets)
    return redrawn, len(sets) - redrawn


def _are_alike(a: CellPrediction, b: CellPrediction) -> bool:
    """Return whether two predictions are equal, their numbers within ROUNDING."""
    pairs = [(getattr(a, name), getattr(b, name)) for name in CellPrediction.model_fields]
    return all(
        isclose(one, other, rel_tol=ROUNDING) if isinstance(one, float) and isinstance(other, float) else one == other
        for one, other in pairs
    )


def _find_unpredicted(path: str, predictions: PredictionsRecord, results: Results) -> Iterator[str]:
    """A line for each record that began before its cells were predicted, unless the predictions name its start."""
    measured_at = {cell.identity: cell.started_at for cell in predictions.cells if cell.sealed}
    predicted_at = datetime.fromisoformat(predictions.predicted_at)
    for record_path, record in results.measured:
        if record.device != predictions.device or datetime.fromisoformat(record.started_at) > predicted_at:
            continue
        planned = [cell.identity for cell in record.measurements if cell.identity in measured_at]
        is_new = any(measured_at[identity] != record.started_at for identity in planned)
        if is_new and not _clock_was_set_back(record, results):
            times = f"started at {record.started_at}, and {path} was written at {predictions.predicted_at}"
            yield f"{record_path} {times}"


def _clock_was_set_back(record: JobRecord, results: Results) -> bool:
    """Return whether a record names an earlier time than a seal whose hash it carries, although it is younger."""
    sealed_at = [results.seals[path].sealed_at for path in record.seals if path in results.seals]
    started_at = datetime.fromisoformat(record.started_at)
    return any(started_at <= datetime.fromisoformat(moment) for moment in sealed_at)


def _check_seals(path: str, record: JobRecord, results: Results, sha256: Mapping[str, str]) -> Iterator[str]:
    """A line for each seal that the record carries with another hash, or that it does not carry and should."""
    for seal_path, seal_sha256 in record.seals.items():
        if seal_path not in results.seals or sha256.get(seal_path) != seal_sha256:
            yield f"{path} was measured under another seal than {seal_path}"
    for seal_path in sorted(_required_seals(record, results) - set(record.seals)):
        yield f"{path} does not carry {seal_path}"


def _required_seals(record: JobRecord, results: Results) -> set[str]:
    """The paths of the seals of a record's device, of its operators, and of the calibration of the host."""
    operators = {measured.operator for measured in record.measurements}

    def follows_from(seal: Seal) -> bool:
        if isinstance(seal, OperatorPredictionRecord):
            return seal.operator in operators
        if isinstance(seal, AllReducePredictionRecord):
            return isinstance(record, AllReduceRecord) and record.peer.peer == seal.peer
        return bool(operators) or not isinstance(seal, CalibrationRecord)

    return {path for path, seal in results.seals.items() if seal.device == record.device and follows_from(seal)}
