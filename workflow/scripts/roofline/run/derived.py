"""Files that follow from the records alone."""

from collections.abc import Mapping

from roofline.records.base import Record
from roofline.report.model import report
from roofline.report.rendering import html_page, text_page
from roofline.table.load import Asked, load
from roofline.table.rows import Acceptance
from roofline.table.run_records import Results

TABLE = "roofline.json"
PAGES = ("ROOFLINE.md", "interpretation.md", "verification.md")


def derive(found: Results, asked: Mapping, sha256: Mapping[str, str]) -> dict[str, Record | str]:
    """What each derived file of results/ holds; `sha256` has the hash of every record."""
    wanted = Asked(**asked)
    roofline = load(found, wanted, sha256)
    made = report(roofline, sha256)
    return {
        TABLE: roofline,
        "acceptance.json": Acceptance(checks=roofline.checks),
        "report.html": html_page(made),
        **{page: text_page(f"{page}.j2", made) for page in PAGES},
    }
