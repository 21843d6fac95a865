"""Whether measurements follow from what was sealed before them."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from roofline.analysis.consistency import contradictions
from roofline.analysis.results import Results
from roofline.operators.about import name_of
from roofline.operators.constants import MEASURED
from roofline.records.calibration import CalibrationRecord
from roofline.records.compute import PeakFlopsRecord
from roofline.records.operator import JobRecord, Measurement
from roofline.records.prediction import CellPrediction, OperatorPredictionRecord, Seal, predict_sealed


def moment(text: str | None) -> datetime | None:
    """A moment written as ISO 8601, in UTC where it names no zone; None for what is not one."""
    try:
        when = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def violations(
    found: Results, device: str, sha256: Mapping[str, str], sources: Mapping[str, str] | None = None
) -> list[str]:
    """Whatever contradicts a device's seals; `sha256` holds the hash of every file, by its path below results/, and
    `sources` that of the code that a seal follows from, by the seal's path, as far as it is known."""
    told = []
    if found.device_seal(device) is None and any(record.device == device for _, record in found.measured):
        told.append(f"{device} has no sealed prediction")
    record_path, _ = found.devices.get(device, (None, None))
    for path, seal in found.seals.items():
        if seal.device == device and record_path and sha256[record_path] != seal.device_record_sha256:
            told.append(f"{path} was sealed for another {record_path}")
        if seal.device == device and (sources or {}).get(path, seal.source_sha256) != seal.source_sha256:
            told.append(f"{path} was sealed by other sources than the manifest's")
        if seal.device == device and isinstance(seal, OperatorPredictionRecord):
            told += _against_calibration(path, seal, found.calibration(device))
    for path, record in found.measured:
        if record.device == device:
            told += _of_record(path, record, found, sha256)
    return told


def _against_calibration(
    path: str, seal: OperatorPredictionRecord, measured: CalibrationRecord | None
) -> Iterator[str]:
    """Where constants that were measured of the host are not those that it measured before; earlier runs have none."""
    claimed = {name for name, source in seal.constant_sources.items() if source == MEASURED}
    if measured is None:
        yield from (f"{path} says that {name} was measured, and no calibration is there" for name in sorted(claimed))
        return
    before, after = moment(measured.sealed_at), moment(seal.sealed_at)
    if not before or not after or before > after:
        yield f"{path} was sealed at {seal.sealed_at}, and its host calibrated at {measured.sealed_at}"
    for name in sorted(seal.constants.keys() & measured.constants.keys()):
        if name not in claimed or seal.constants[name] != measured.constants[name]:
            yield f"{path} has another {name} than the calibration"
    yield from (
        f"{path} has a measured {name}, and the calibration has none" for name in claimed - measured.constants.keys()
    )


def _of_record(path: str, record: JobRecord, found: Results, sha256: Mapping[str, str]) -> list[str]:
    told, started = [], moment(record.started_at)
    for seal_path, seal_sha256 in record.seals.items():
        seal = found.seals.get(seal_path)
        if seal is None or sha256.get(seal_path) != seal_sha256:
            told.append(f"{path} was measured under another seal than {seal_path}")
        elif not started or not moment(seal.sealed_at) or started <= moment(seal.sealed_at):
            told.append(f"{path} started at {record.started_at}, and {seal_path} was sealed at {seal.sealed_at}")
    told += [f"{path} does not carry {seal_path}" for seal_path in sorted(_wanted(record, found) - set(record.seals))]
    told += [f"{path}: {what}" for what in [*contradictions(path, record), *_not_the_vendors(record, found)]]
    told += [
        f"{path} holds another prediction of {name_of(measured)} than its seals make"
        for measured in record.measurements
        if measured.predicted != _predicted(record.device, measured, found)
    ]
    return told


def _wanted(record: JobRecord, found: Results) -> set[str]:
    """Paths of the seals that a record follows from: its device's, and those of the operators that it measured, with
    the calibration of their host."""
    operators = {measured.operator for measured in record.measurements}

    def follows_from(seal: Seal) -> bool:
        if isinstance(seal, OperatorPredictionRecord):
            return seal.operator in operators
        return bool(operators) or not isinstance(seal, CalibrationRecord)

    return {path for path, seal in found.seals.items() if seal.device == record.device and follows_from(seal)}


def _not_the_vendors(record: JobRecord, found: Results) -> list[str]:
    """A vendor's figure that is not that of the device record, which was sealed."""
    _, device = found.devices.get(record.device, (None, None))
    if device is None or not isinstance(record, PeakFlopsRecord) or not record.peak:
        return []
    peak = device.vendor.peaks.get(record.dtype)
    promised = peak and peak.tflops
    wrong = record.peak.vendor_tflops != promised
    return [f"vendor_tflops is not the {promised} of the device record"] if wrong else []


def _predicted(device: str, measured: Measurement, found: Results) -> CellPrediction | None:
    """What the seals make of a cell; None where their constants know no such cell."""
    seal, constants = found.device_seal(device), found.constants(device, measured.operator)
    if seal is None or constants is None:
        return None
    try:
        return predict_sealed(
            seal,
            constants,
            flops=measured.flops,
            traffic_bytes=measured.bytes,
            compute_ceiling=measured.compute_ceiling,
            memory_ceilings=measured.memory_ceilings,
            terms=measured.costs,
        )
    except (KeyError, ValueError):
        return None
