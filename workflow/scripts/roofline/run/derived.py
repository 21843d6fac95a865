"""Files that follow from the records alone."""

from collections.abc import Mapping
from pathlib import Path

from roofline.analysis.collect import Asked
from roofline.analysis.load import load
from roofline.analysis.results import Results
from roofline.analysis.table import Acceptance, Roofline
from roofline.records.base import Record, write
from roofline.records.files import write_text
from roofline.report.model import report
from roofline.report.rendering import html_page, text_page

TABLE = "roofline.json"
PAGES = ("ROOFLINE.md", "interpretation.md", "verification.md")


def derive(found: Results, asked: Mapping, sha256: Mapping[str, str]) -> dict[str, Record | str]:
    """What each derived file of results/ holds; `sha256` has the hash of every record."""
    wanted = Asked(**asked)
    roofline = load(found, wanted, sha256)
    made = report(found, roofline, sha256)
    return {
        TABLE: roofline,
        "acceptance.json": Acceptance(checks=roofline.checks),
        "report.html": html_page(made),
        **{page: text_page(f"{page}.j2", made) for page in PAGES},
    }


def write_derived(found: Results, asked: Mapping, sha256: Mapping[str, str], folder: Path) -> Roofline:
    """Write the derived files into a folder. Returns the table."""
    files = derive(found, asked, sha256)
    for name, content in files.items():
        (write_text if isinstance(content, str) else write)(content, folder / name)
    return files[TABLE]
