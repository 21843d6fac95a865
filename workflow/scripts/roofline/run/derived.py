"""Files that follow from the records alone."""

from collections.abc import Mapping
from pathlib import Path

from roofline.records.base import write
from roofline.records.files import write_text
from roofline.report.model import report
from roofline.report.pages import pages
from roofline.table.load import Asked, load
from roofline.table.rows import Roofline
from roofline.table.run_records import Results

TABLE = "roofline.json"


def write_derived(
    found: Results, asked: Mapping, sha256: Mapping[str, str], folder: Path, source: Mapping[str, str | None]
) -> Roofline:
    """Write the table and the pages into a folder. `sha256` has the hash of every record, `source` the commit and the
    URL of the sources. Returns the table."""
    roofline = load(found, Asked(**asked), sha256)
    write(roofline, folder / TABLE)
    for name, content in pages(report(roofline, source)).items():
        write_text(content, folder / name)
    return roofline
