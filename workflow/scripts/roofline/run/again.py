"""make AGAIN=1: re-measure disturbed records, and keep the less disturbed of the old record and the new one."""

import shutil
from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterable
from pathlib import Path

from roofline.devices.discovery import kind_from_name
from roofline.records.base import read
from roofline.records.blocks import MeasuredRecord, disturbed_share
from roofline.records.operator_record import JobRecord
from roofline.run.jobs import COPIES
from roofline.table.rows import Roofline
from roofline.table.run_records import read_record

INCOMPLETE = Path(".snakemake", "incomplete")
CALIBRATION = "/calibration.json"  # of a device


def list_disturbed_records(results: Path, record_names: Collection[str]) -> list[str]:
    """Return the paths of those of these records that the last table names as disturbed."""
    table = results / "roofline.json"
    repeatable = read(Roofline, table).records_to_repeat if table.exists() else []
    return [str(results / path) for path in repeatable if path.removesuffix(".json") in record_names]


def copy_aside(results: Path, records: Collection[str], stale: Collection[str]) -> None:
    """Copy these records and those next to them, which their jobs may measure too.

    Stale ones are left out, since what other settings gave is kept in no case. So are records that carry the hash of a
    calibration that is measured again: a new seal does not hold for what was measured before it.
    """
    calibrations = {path for path in records if path.endswith(CALIBRATION)}
    folders = {Path(record).parent for record in records if record not in calibrations}
    folder_records = [path for folder in folders for path in folder.glob("*.json")]
    for path in [*folder_records, *map(Path, calibrations)]:
        record = None if str(path) in stale else read_record(path)
        if not isinstance(record, MeasuredRecord):  # stale, or the seal of an operator
            continue
        sealed = record.seals if isinstance(record, JobRecord) else {}
        if calibrations.isdisjoint(str(results / seal) for seal in sealed):
            aside = COPIES / path.relative_to(results)
            aside.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, aside)


def keep_less_disturbed(results: Path, outputs: Iterable[str]) -> list[Path]:
    """Put the copies of a job's outputs back, unless the new record is less disturbed, and return their paths.

    A copy that was measured under other seals is not put back: a new record of a link predicts its all-reduces anew.
    Nor is a calibration: what follows from it is measured in the state of the new one.
    """
    kept = []
    for path in map(Path, outputs):
        aside = COPIES / path.relative_to(results)
        if aside.exists() and _same_seals(aside, path) and _share(aside) <= _share(path):
            aside.replace(path)
            kept.append(path)
    return kept


def restore_missing(results: Path) -> list[Path]:
    """Put records back whose measurement failed or was interrupted, drop all other copies, and return their paths.

    Each keeps its modification time, so that nothing made from it is stale.
    """
    restored = []
    for aside in sorted(COPIES.rglob("*.json")):
        path = results / aside.relative_to(COPIES)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)  # Snakemake removes the folder of a job that failed
            aside.rename(path)
            # Left by a job that was killed: Snakemake would measure again what is complete now.
            (INCOMPLETE / urlsafe_b64encode(str(path).encode()).decode()).unlink(missing_ok=True)
            restored.append(path)
    shutil.rmtree(COPIES, ignore_errors=True)
    return restored


def _same_seals(aside: Path, path: Path) -> bool:
    old, new = read_record(aside), read_record(path)
    return isinstance(old, JobRecord) and isinstance(new, JobRecord) and old.seals == new.seals


def _share(path: Path) -> float:
    record = read_record(path)
    assert isinstance(record, MeasuredRecord), "jobs of other records are not measured again"
    return disturbed_share(record, kind_from_name(record.device))
