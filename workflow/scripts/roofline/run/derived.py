"""Files that follow from the records alone."""

from collections.abc import Mapping
from pathlib import Path

from roofline.records.base import write
from roofline.records.calibration import CalibrationRecord
from roofline.records.files import write_text
from roofline.report.model import Source, report
from roofline.report.pages import pages
from roofline.table.load import Asked, load
from roofline.table.rows import Roofline
from roofline.table.run_records import Results

TABLE = "roofline.json"


def write_derived(found: Results, asked: Mapping, sha256: Mapping[str, str], folder: Path, source: Source) -> Roofline:
    """Write the table and the pages into a folder. `sha256` has the hash of every record. Returns the table."""
    roofline = load(found, Asked(**asked), sha256)
    write(roofline, folder / TABLE)
    timed = [*found.measured, *((path, one) for path, one in found.seals.items() if isinstance(one, CalibrationRecord))]
    elapsed_s = {path: one.elapsed_s for path, one in timed}
    for name, content in pages(report(roofline, source, elapsed_s)).items():
        write_text(content, folder / name)
    return roofline
