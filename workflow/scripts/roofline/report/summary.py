"""A self-contained HTML page of one run: ceilings, operators, checklist and interpretation."""

from pathlib import Path

import jinja2

from roofline.analysis.spread import Spreads
from roofline.core.formatting import duration, number, percent, starred
from roofline.core.statistics import half_width
from roofline.records.acceptance import Acceptance
from roofline.records.roofline import Roofline
from roofline.report.markdown import html
from roofline.report.screen import above_roof_words
from roofline.report.tables import FEW_SAMPLES, compared, compute_rows, level_rows, memory_rows

TEMPLATES = Path(__file__).parent / "templates"


def page(roofline: Roofline, acceptance: Acceptance, interpretation: str, spreads: Spreads | None = None) -> str:
    """The page's HTML; `interpretation` is Markdown, `spreads` are those between runs that are known."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"number": number, "percent": percent, "duration": duration, "starred": starred}
    environment.filters |= {"half_width": half_width}
    return environment.get_template("summary.html.j2").render(
        roofline=roofline,
        acceptance=acceptance,
        interpretation=html(interpretation),
        ceilings={
            name: compute_rows(roofline, name, spreads) + memory_rows(roofline, name, spreads)
            for name in roofline.devices
        },
        few_samples=FEW_SAMPLES,
        levels={name: level_rows(roofline, name) for name in roofline.devices},
        compared={name: [html(table) for table in compared(roofline, name)] for name in roofline.devices},
        above_roof_words=above_roof_words,
    )
