"""Templates of the report: sentences, pages as Markdown, and the page as HTML."""

import re
from pathlib import Path

import jinja2
from markupsafe import Markup

from roofline.core import formatting
from roofline.report import words
from roofline.report.markdown import in_table, with_code, without_html

TEMPLATES = Path(__file__).parent / "templates"
STYLE, SCRIPT = "report.css.j2", "report.js.j2"  # parts of report.html.j2
PLOTLY = "plotly-cartesian.min.js"  # plotly.js 4.1.1 under MIT, of npm's plotly.js-cartesian-dist-min
FORMATS = ("duration", "flops_unit", "listed", "number", "percent")
WORDS = ("among", "bandwidth", "datasheet_word", "limits", "rate", "regime_counts", "score_words", "shares")
WORDS += ("energy_words", "picojoules", "standing_words")
FILTERS = {name: getattr(formatting, name) for name in FORMATS} | {
    name: getattr(words, name) for name in (*WORDS, "signed", "span", "span_percent")
}


def strong(text: str) -> Markup:
    """What is between ** as strong."""
    return Markup(re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", str(with_code(text))))


def _environment(html: bool) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=html,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=(lambda value: with_code(value) if type(value) is str else value) if html else None,
    )
    environment.filters |= FILTERS | {"in_table": in_table, "strong": strong}
    return environment


TEXT, HTML = _environment(html=False), _environment(html=True)


def macro(template: str, name: str, facts: dict) -> list[str]:
    """The lines of a macro that are not empty."""
    text = getattr(TEXT.get_template(template).module, name)(facts)
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def text_page(template: str, **facts) -> str:
    return without_html(TEXT.get_template(template).render(**facts))


def html_page(**facts) -> str:
    parts = {"style": _part(STYLE), "script": _part(SCRIPT), "plotly": _part(PLOTLY)}
    return HTML.get_template("report.html.j2").render(**facts, **parts)


def _part(name: str) -> Markup:
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))
