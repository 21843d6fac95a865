"""What follows from the records alone: the roofline, what it says of predictions, and its interpretation."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from roofline.interpretation import interpret
from roofline.placing import place_files
from roofline.provenance import RESULTS, Results
from roofline.records import (
    BandwidthRecord,
    Collection,
    DecodeAttnRecord,
    PeakFlopsRecord,
    Record,
    Roofline,
    Verification,
    read,
)
from roofline.verification import verify
from roofline.verification_text import markdown


@dataclass(frozen=True)
class Derived:
    roofline: Roofline
    verification: Verification
    interpretation: str

    def files(self) -> dict[str, Record | str]:
        """What each of its files in results/ is to hold."""
        return {
            "roofline.json": self.roofline,
            "verification.json": self.verification,
            "verification.md": markdown(self.verification),
            "interpretation.md": self.interpretation,
        }


def derive(root: Path, found: Results, operations: list[dict], sha256: dict[str, str]) -> Derived:
    """All of it from the records that were found below root; `sha256` holds the hash of every file of theirs."""
    of_kind = [found.of_kind(kind) for kind in (PeakFlopsRecord, BandwidthRecord, DecodeAttnRecord)]
    roofline = place_files(
        [root / path for path, _ in found.devices.values()],
        *([root / path for path, _ in measured] for measured in of_kind),
        operations,
        root / RESULTS,
    )
    devices = {device: record for device, (_, record) in found.devices.items()}
    return Derived(
        roofline=roofline,
        verification=verify(roofline, found, sha256),
        interpretation=interpret(roofline, devices, *([record for _, record in some] for some in of_kind)),
    )


def gathered(found: Results) -> Iterator[tuple[str, Collection]]:
    """What rule gather puts side by side: a file of results/ for each device and kind of ceiling."""
    for device in found.devices:
        for name, kind in (("peak_flops", PeakFlopsRecord), ("bandwidth", BandwidthRecord)):
            records = [record for _, record in found.of_kind(kind) if record.device == device]
            yield f"{device}/{name}.json", Collection(device=device, records=records)


def differing(root: Path, derived: Derived, found: Results) -> list[str]:
    """Files of results/ that hold something else than follows from the records. Raises CorruptRecord or OSError."""
    told = []
    for name, expected in [*derived.files().items(), *gathered(found)]:
        path = root / RESULTS / name
        text = isinstance(expected, str)
        if (path.read_text(encoding="utf-8") if text else read(type(expected), path)) != expected:
            told.append(f"{RESULTS}/{name}")
    return told
