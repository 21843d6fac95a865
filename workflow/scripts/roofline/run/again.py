"""make AGAIN=1: re-measure disturbed records, and keep the less disturbed of the old record and the new one."""

import shutil
from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterable
from pathlib import Path

from roofline.records.base import read
from roofline.records.blocks import MeasuredRecord, disturbed_share
from roofline.records.device_record import DeviceRecord
from roofline.table.rows import Roofline
from roofline.table.run_records import read_record

NOTHING_DISTURBED = "nothing to measure again: no record was disturbed, calibrations aside"
ASIDE = Path("previous", "again")
INCOMPLETE = Path(".snakemake", "incomplete")


def list_disturbed_records(results: Path, record_names: Collection[str]) -> list[str]:
    """Return the paths of those of these records that the last table names as disturbed."""
    table = results / "roofline.json"
    repeatable = read(Roofline, table).records_to_repeat if table.exists() else []
    return [str(results / path) for path in repeatable if path.removesuffix(".json") in record_names]


def set_aside(results: Path, records: Iterable[str]) -> None:
    """Move records out of the way, so that Snakemake finds them missing: before a job it would delete them."""
    for path in map(Path, records):
        aside = results / ASIDE / path.relative_to(results)
        aside.parent.mkdir(parents=True, exist_ok=True)
        path.rename(aside)


def restore_less_disturbed(results: Path) -> list[Path]:
    """Put records back that were set aside, unless the new one is less disturbed, and return their paths.

    Each keeps its modification time, so that nothing made from it is stale.
    """
    restored = []
    for aside in sorted((results / ASIDE).rglob("*.json")):
        path = results / aside.relative_to(results / ASIDE)
        if not path.exists() or _share(results, aside) <= _share(results, path):
            path.parent.mkdir(parents=True, exist_ok=True)  # Snakemake removes the folder of a job that failed
            aside.rename(path)
            # Left by a job that was killed: Snakemake would measure again what is complete now.
            (INCOMPLETE / urlsafe_b64encode(str(path).encode()).decode()).unlink(missing_ok=True)
            restored.append(path)
    shutil.rmtree(results / ASIDE, ignore_errors=True)
    return restored


def _share(results: Path, path: Path) -> float:
    record = read_record(path)
    assert isinstance(record, MeasuredRecord), "no other is set aside"
    device = read(DeviceRecord, results / record.device / "device_query.json")
    return disturbed_share(record, device.device_kind)
