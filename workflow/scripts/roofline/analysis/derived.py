"""Files that follow from the records alone, and whether those on disk do: one mechanism for all of them."""

from collections.abc import Mapping
from pathlib import Path

from roofline.analysis.collect import Asked, Collected, collect
from roofline.analysis.results import Results
from roofline.analysis.verification import verify
from roofline.records.base import Record, read
from roofline.records.collection import Collection
from roofline.records.compute import PeakFlopsRecord
from roofline.records.memory import BandwidthRecord
from roofline.records.verification import Verification


def derive(found: Results, asked: Mapping, sha256: Mapping[str, str]) -> tuple[Collected, Verification]:
    """The roofline with its cells, and the verification; `sha256` has the hash of every record."""
    collected = collect(found, Asked(**asked))
    return collected, verify(collected, found, sha256)


def gathered(found: Results) -> dict[str, Collection]:
    """The ceilings' records side by side: a file for each device and kind."""
    kinds = {"peak_flops": PeakFlopsRecord, "bandwidth": BandwidthRecord}
    return {
        f"{device}/{name}.json": Collection(
            device=device, records=[record for _, record in found.of_kind(kind) if record.device == device]
        )
        for device in found.devices
        for name, kind in kinds.items()
    }


def differing(results: Path, found: Results, asked: Mapping, sha256: Mapping[str, str]) -> list[str]:
    """Derived records that hold something else than follows from the measured ones. Raises CorruptRecord or OSError."""
    collected, verification = derive(found, asked, sha256)
    expected: dict[str, Record] = {"roofline.json": collected.roofline, "verification.json": verification}
    expected |= gathered(found)
    wrong = [name for name, record in expected.items() if read(type(record), results / name) != record]
    return [f"{results.name}/{name}" for name in wrong]
