"""A self-contained HTML page of one run: ceilings, operators, checklist and interpretation."""

from pathlib import Path

import jinja2

from roofline.core.formatting import duration, number, percent
from roofline.records.acceptance import Acceptance
from roofline.records.roofline import Roofline
from roofline.report.markdown import html
from roofline.report.screen import above_roof_words
from roofline.report.tables import compute_rows, level_rows, memory_rows

TEMPLATES = Path(__file__).parent / "templates"


def page(roofline: Roofline, acceptance: Acceptance, interpretation: str) -> str:
    """The page's HTML; `interpretation` is Markdown."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"number": number, "percent": percent, "duration": duration}
    return environment.get_template("summary.html.j2").render(
        roofline=roofline,
        acceptance=acceptance,
        interpretation=html(interpretation),
        ceilings={name: compute_rows(roofline, name) + memory_rows(roofline, name) for name in roofline.devices},
        levels={name: level_rows(roofline, name) for name in roofline.devices},
        above_roof_words=above_roof_words,
    )
