"""Templates of the report: sentences, pages as Markdown, and the page as HTML."""

import re
from inspect import getmembers, isfunction
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from roofline.core import formatting
from roofline.report import words
from roofline.report.markdown import MarkdownTable, code_to_html, drop_empty_columns, escape_pipes, escape_tags

TEMPLATES = Path(__file__).parent / "templates"
PLOTLY = TEMPLATES / "plotly-cartesian.min.js"  # plotly.js 4.1.1 under MIT, of npm's plotly.js-cartesian-dist-min
# Templates may use every function of these two modules as a filter.
FILTERS = dict([*getmembers(formatting, isfunction), *getmembers(words, isfunction)])


def bold_to_html(text: str) -> Markup:
    """Return a sentence as HTML, escaped, in which text between ** is strong."""
    return Markup(re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", str(code_to_html(text))))


def _environment(html: bool) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,  # a name that nothing has is an error, and not an empty string
        autoescape=html,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=(lambda value: code_to_html(value) if type(value) is str else value) if html else None,
    )
    environment.globals["doubts"] = words.DOUBTS
    environment.filters |= FILTERS | {"escape_pipes": escape_pipes, "bold_to_html": bold_to_html}
    return environment


TEXT, HTML = _environment(html=False), _environment(html=True)


def render_macro(template: str, name: str, facts: object) -> list[str]:
    """Return the lines of a macro that are not empty, without blanks around them."""
    text = getattr(TEXT.get_template(template).module, name)(facts)
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def render_table(name: str, facts: object, left_columns: int) -> MarkdownTable:
    """Return the table of a macro of tables.j2, without the columns that are empty after the first `left_columns`."""
    text = getattr(TEXT.get_template("tables.j2").module, name)(facts)
    headings, _, body = text.strip().partition("\n")
    columns = headings.split(" | ")
    rows = [[" ".join(cell.split()) for cell in row.splitlines()] for row in body.split("\n\n") if row.strip()]
    filled_rows = [row + ["-"] * (len(columns) - len(row)) for row in rows]
    return drop_empty_columns(columns, filled_rows, left_columns)


def render_text(template: str, **facts: Any) -> str:
    """Return a page in Markdown."""
    return escape_tags(TEXT.get_template(template).render(**facts))


def render_html(**facts: Any) -> str:
    """Return report.html, which needs no other file but pictures."""
    return HTML.get_template("report.html.j2").render(**facts, plotly=Markup(PLOTLY.read_text(encoding="utf-8")))
