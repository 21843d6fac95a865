"""The records of a run, read together, and what was asked of it."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from roofline.core.terms import UserError
from roofline.operators.about import OwnOperatorRecord
from roofline.records.all_reduce_record import AllReducePredictionRecord, AllReduceRecord
from roofline.records.bandwidth_record import BandwidthRecord
from roofline.records.base import Record, read
from roofline.records.calibration_record import CalibrationRecord
from roofline.records.cards import KnownCards
from roofline.records.compute import PeakFlopsRecord
from roofline.records.counters_record import CountersRecord, ProfilerRecord
from roofline.records.device_record import DeviceRecord
from roofline.records.instructions_record import InstructionsRecord
from roofline.records.operator_record import (
    DataFile,
    JobRecord,
    OperatorRecord,
    OwnPredictionsRecord,
    PredictionsRecord,
)
from roofline.records.seal_records import OperatorPredictionRecord, PredictionRecord, Seal

RECORDS: tuple[type[Record], ...] = (DeviceRecord, PredictionRecord, OperatorPredictionRecord, PredictionsRecord)
RECORDS += (CalibrationRecord, PeakFlopsRecord, BandwidthRecord, InstructionsRecord, OperatorRecord)
RECORDS += (ProfilerRecord, CountersRecord, OwnOperatorRecord, OwnPredictionsRecord)
RECORDS += (AllReducePredictionRecord, AllReduceRecord)
KINDS: dict[str, type[Record]] = {record.model_fields["kind"].default: record for record in RECORDS}
KNOWN_CARDS = "known_cards.json"
JobRecordT = TypeVar("JobRecordT", bound=JobRecord)
SealT = TypeVar("SealT", bound=Seal)


@dataclass
class Results:
    """The records of a run in the order in which they were read, each with its path below results/."""

    devices: dict[str, DeviceRecord] = field(default_factory=dict)  # by name
    seals: dict[str, Seal] = field(default_factory=dict)
    measured: list[tuple[str, JobRecord]] = field(default_factory=list)
    predictions: dict[str, PredictionsRecord] = field(default_factory=dict)  # of cells and drawn shapes, by device
    own_predictions: dict[str, OwnPredictionsRecord] = field(default_factory=dict)  # the user's, by device
    profilers: dict[str, ProfilerRecord] = field(default_factory=dict)  # by device
    known_cards: KnownCards = field(default_factory=KnownCards)
    counters: list[tuple[str, CountersRecord]] = field(default_factory=list)
    own_operators: dict[str, OwnOperatorRecord] = field(default_factory=dict)  # the user's, by name

    def of_kind(self, kind: type[JobRecordT]) -> list[tuple[str, JobRecordT]]:
        """Return the measuring jobs' records of one class, with their paths."""
        return [(path, record) for path, record in self.measured if isinstance(record, kind)]

    def seals_of(self, device: str, kind: type[SealT]) -> dict[str, SealT]:
        """Return the seals of one class that a device has, by their paths."""
        return {path: seal for path, seal in self.seals.items() if isinstance(seal, kind) and seal.device == device}

    def timed_records(self) -> list[tuple[str, JobRecord | CalibrationRecord]]:
        """Return the records of measuring jobs, then those of calibrations, with their paths."""
        calibrations = [(path, seal) for path, seal in self.seals.items() if isinstance(seal, CalibrationRecord)]
        return [*self.measured, *calibrations]

    def device_seal(self, device: str) -> PredictionRecord | None:
        """Return the seal of a device's promised ceilings; None if it has none."""
        return next(iter(self.seals_of(device, PredictionRecord).values()), None)

    def constants(self, device: str, operator: str) -> dict[str, float] | None:
        """Return the constants in an operator's seal for a device; None if it has no seal."""
        seals = self.seals_of(device, OperatorPredictionRecord).values()
        return next((seal.constants for seal in seals if seal.operator == operator), None)

    def data_files(self) -> list[DataFile]:
        """Return every file that operators were measured with, once."""
        files = [file for _, record in self.of_kind(OperatorRecord) for file in record.data]
        return list({(file.path, file.sha256): file for file in files}.values())


@dataclass(frozen=True)
class Request:
    """The part of the config that the table follows from besides records.

    `without` names the operators that a device cannot run.
    """

    effort: str | None = None
    dtypes: list[str] = field(default_factory=list)
    shapes: dict[str, list[dict[str, int]]] = field(default_factory=dict)  # by operator; empty if not known
    operations: list[dict[str, Any]] = field(default_factory=list)
    without: list[dict[str, str]] = field(default_factory=list)  # device, operator and reason


def read_results(folder: Path, paths: Iterable[Path | str]) -> Results:
    """Return the records among `paths` below a results folder: those in its subfolders, and known_cards.json.

    Raises UserError for a record of an unknown kind or one that cannot be read, OSError for a missing file.
    """
    results = Results()
    for path in map(Path, paths):
        name = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else ""
        if name == KNOWN_CARDS:
            results.known_cards = read(KnownCards, path)
        if path.suffix != ".json" or len(PurePosixPath(name).parts) < 2:
            continue
        record = read_record(path)
        if isinstance(record, DeviceRecord):
            results.devices[record.device] = record
        elif isinstance(record, Seal):
            results.seals[name] = record
        elif isinstance(record, PredictionsRecord):
            results.predictions[record.device] = record
        elif isinstance(record, OwnPredictionsRecord):
            results.own_predictions[record.device] = record
        elif isinstance(record, OwnOperatorRecord):
            results.own_operators[record.name] = record
        elif isinstance(record, ProfilerRecord):
            results.profilers[record.device] = record
        elif isinstance(record, CountersRecord):
            results.counters.append((name, record))
        elif isinstance(record, JobRecord):
            results.measured.append((name, record))
    return results


def read_record(path: Path) -> Record:
    """Read a record of the kind that it names. Raises UserError for an unknown kind and for anything but a record."""
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise UserError(f"{path}: {str(error).splitlines()[0]}") from None
    kind = content.get("kind") if isinstance(content, dict) else None
    if kind not in KINDS:
        raise UserError(f"{path}: {kind!r} is not a kind of record; allowed: {', '.join(KINDS)}")
    return read(KINDS[kind], path)
