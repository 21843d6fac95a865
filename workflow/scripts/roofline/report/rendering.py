"""Templates of the report: sentences, pages as Markdown, and the page as HTML."""

from pathlib import Path

import jinja2
from markupsafe import Markup

from roofline.core import statistics
from roofline.core.formatting import duration, listed, number, percent
from roofline.report.charts import SYMBOLS, colour
from roofline.report.markdown import in_table, with_code, without_html
from roofline.report.tables import measure_again, spans_percent

TEMPLATES = Path(__file__).parent / "templates"
STYLE, SCRIPT = "report.css.j2", "report.js.j2"  # parts of report.html.j2
PLOTLY = "plotly-cartesian.min.js"  # plotly.js 4.1.1 under MIT, of npm's plotly.js-cartesian-dist-min
SIGNS = dict(zip(SYMBOLS, "●◆■▲▼★✚✖⬟⬢", strict=True))  # as text


def _environment(html: bool) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=html,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=(lambda value: with_code(value) if type(value) is str else value) if html else None,
    )
    environment.filters |= {"colour": colour, "sign": SIGNS.get, "listed": listed, "percent": percent}
    environment.filters |= {
        "duration": duration,
        "number": number,
        "in_table": in_table,
        "measure_again": measure_again,
        "spans_percent": spans_percent,
    }
    environment.globals["fewest"] = statistics.FEWEST_SAMPLES
    return environment


TEXT, HTML = _environment(html=False), _environment(html=True)


def sentences(name: str, facts: dict) -> str:
    """By the macro of this name in answers.j2."""
    return getattr(TEXT.get_template("answers.j2").module, name)(facts).strip()


def text_page(template: str, report) -> str:
    return without_html(TEXT.get_template(template).render(report=report))


def html_page(report) -> str:
    parts = {"style": part(STYLE), "script": part(SCRIPT), "plotly": part(PLOTLY)}
    return HTML.get_template("report.html.j2").render(report=report, **parts)


def part(name: str) -> Markup:
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))
