"""The records of a run, read together."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TypeVar

from roofline.core.terms import UserError
from roofline.operators.about import OwnOperatorRecord
from roofline.records.bandwidth_record import BandwidthRecord
from roofline.records.base import Record, read
from roofline.records.calibration_record import CalibrationRecord
from roofline.records.cards import Cards, KnownCards
from roofline.records.compute import PeakFlopsRecord
from roofline.records.counters_record import CountedCell, CountersRecord, ProfilerRecord
from roofline.records.device_record import DeviceRecord
from roofline.records.instructions_record import InstructionsRecord
from roofline.records.operator_record import DataFile, JobRecord, OperatorRecord, PredictionsRecord
from roofline.records.seal_records import OperatorPredictionRecord, PredictionRecord, Seal

KINDS: dict[str, type[Record]] = {
    kind.model_fields["kind"].default: kind
    for kind in (
        DeviceRecord,
        PredictionRecord,
        OperatorPredictionRecord,
        PredictionsRecord,
        CalibrationRecord,
        PeakFlopsRecord,
        BandwidthRecord,
        InstructionsRecord,
        OperatorRecord,
        ProfilerRecord,
        CountersRecord,
        OwnOperatorRecord,
    )
}
KNOWN_CARDS = "known_cards.json"
J = TypeVar("J", bound=JobRecord)


@dataclass
class Results:
    """Records in the order in which they were read, each with its path below results/."""

    devices: dict[str, tuple[str, DeviceRecord]] = field(default_factory=dict)
    seals: dict[str, Seal] = field(default_factory=dict)
    measured: list[tuple[str, JobRecord]] = field(default_factory=list)
    predictions: dict[str, tuple[str, PredictionsRecord]] = field(default_factory=dict)  # by device
    profilers: dict[str, ProfilerRecord] = field(default_factory=dict)  # by device
    known_cards: dict[str, Cards] = field(default_factory=dict)  # of its model, by device
    counters: list[tuple[str, CountersRecord]] = field(default_factory=list)
    own_operators: dict[str, OwnOperatorRecord] = field(default_factory=dict)  # the user's, by name

    def of_kind(self, kind: type[J]) -> list[tuple[str, J]]:
        return [(path, record) for path, record in self.measured if isinstance(record, kind)]

    def counted_on(self, device: str) -> list[CountedCell]:
        """What ncu counted of operators' cells, as of one application each."""
        return [cell for _, record in self.counters if record.device == device for cell in record.cells]

    def device_records(self) -> dict[str, DeviceRecord]:
        return {name: record for name, (_, record) in self.devices.items()}

    def device_seal(self, device: str) -> PredictionRecord | None:
        return self.seals.get(f"{device}/prediction.json")

    def constants(self, device: str, operator: str) -> dict[str, float] | None:
        """Of an operator's seal; None where there is none."""
        seals = [seal for seal in self.seals.values() if isinstance(seal, OperatorPredictionRecord)]
        return next((one.constants for one in seals if (one.device, one.operator) == (device, operator)), None)

    def data_files(self) -> list[DataFile]:
        """Every file that was measured with, once."""
        used = {(one.path, one.sha256): one for _, record in self.of_kind(OperatorRecord) for one in record.data}
        return list(used.values())


def read_results(results: Path, paths: Iterable[Path | str]) -> Results:
    """The records among files below a results folder: those in a device's folder, and known_cards.json.

    Raises UserError for a record of an unknown kind or one that cannot be read, OSError for a missing file.
    """
    found = Results()
    for path in map(Path, paths):
        name = path.relative_to(results).as_posix() if path.is_relative_to(results) else ""
        if name == KNOWN_CARDS:
            found.known_cards = read(KnownCards, path).devices
        if path.suffix != ".json" or len(PurePosixPath(name).parts) < 2:
            continue
        record = read_record(path)
        if isinstance(record, DeviceRecord):
            found.devices[record.device] = (name, record)
        elif isinstance(record, Seal):
            found.seals[name] = record
        elif isinstance(record, PredictionsRecord):
            found.predictions[record.device] = (name, record)
        elif isinstance(record, OwnOperatorRecord):
            found.own_operators[record.name] = record
        elif isinstance(record, ProfilerRecord):
            found.profilers[record.device] = record
        elif isinstance(record, CountersRecord):
            found.counters.append((name, record))
        else:
            found.measured.append((name, record))
    return found


def read_record(path: Path) -> Record:
    """A record of whatever kind it says. Raises UserError where it says none that is known."""
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise UserError(f"{path}: {str(error).splitlines()[0]}") from None
    kind = content.get("kind") if isinstance(content, dict) else None
    if kind not in KINDS:
        raise UserError(f"{path}: {kind!r} is not a kind of record; allowed: {', '.join(KINDS)}")
    return read(KINDS[kind], path)
