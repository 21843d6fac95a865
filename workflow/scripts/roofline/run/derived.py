"""Files that follow from the records alone, and whether those on disk do: one mechanism for all of them."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from roofline.analysis import host_cards
from roofline.analysis.acceptance import accept
from roofline.analysis.collect import Asked, collect
from roofline.analysis.distribution import standings
from roofline.analysis.results import Results
from roofline.analysis.spread import between_runs
from roofline.analysis.verification import verify
from roofline.records.base import Record, read
from roofline.records.collection import Collection
from roofline.records.compute import PeakFlopsRecord
from roofline.records.memory import BandwidthRecord
from roofline.report import page
from roofline.report.interpretation import interpret
from roofline.report.story import story
from roofline.report.verification_page import markdown
from roofline.run.paths import judged


def derive(
    found: Results, asked: Mapping, sha256: Mapping[str, str], outputs: Iterable[str]
) -> dict[str, Record | str]:
    """What each derived file of results/ holds; `sha256` has the hash of every record, `outputs` what a run leaves."""
    collected = collect(found, Asked(**asked))
    roofline, verification = collected.roofline, verify(collected, found, sha256)
    devices = found.device_records()
    spreads = between_runs({name: device.name for name, device in devices.items()})
    others = standings(found, roofline)
    beside = host_cards.sentences(host_cards.groups(found, roofline))
    words = interpret(roofline, devices, [record for _, record in found.measured], spreads, others, beside)
    acceptance = accept(roofline, found, verification, judged(outputs), [], others)
    told = story(found, roofline, verification, acceptance, spreads, sha256, others)
    files: dict[str, Record | str] = {
        "roofline.json": roofline,
        "verification.json": verification,
        "verification.md": markdown(verification, roofline.faults),
        "interpretation.md": words,
        "acceptance.json": acceptance,
        "report.html": page.html(told),
        "ROOFLINE.md": page.markdown(told),
    }
    kinds = {"peak_flops": PeakFlopsRecord, "bandwidth": BandwidthRecord}
    for device in devices:
        for name, kind in kinds.items():
            records = [record for _, record in found.of_kind(kind) if record.device == device]
            files[f"{device}/{name}.json"] = Collection(device=device, records=records)
    return files


def differing(results: Path, files: Mapping[str, Record | str]) -> list[str]:
    """Derived files that hold something else than follows from the records. Raises CorruptRecord or OSError."""
    return [
        f"{results.name}/{name}" for name, expected in files.items() if _content(results / name, expected) != expected
    ]


def _content(path: Path, expected: Record | str) -> Record | str:
    return path.read_text(encoding="utf-8") if isinstance(expected, str) else read(type(expected), path)
