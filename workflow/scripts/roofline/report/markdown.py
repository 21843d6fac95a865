"""Tables of words, as data and as Markdown, by tabulate; and spans of code as HTML."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup, escape
from tabulate import tabulate


class MarkdownTable(NamedTuple):
    """A table of texts, which as text is Markdown. Columns are aligned to the left or, after those, to the right."""

    columns: list[str]
    rows: list[list[str]]
    left_columns: int = 1  # the number of columns on the left, which are aligned to it

    def __str__(self) -> str:
        align = ["left" if place < self.left_columns else "right" for place in range(len(self.columns))]
        escaped = [list(map(escape_pipes, row)) for row in self.rows]
        return tabulate(escaped, self.columns, "pipe", colalign=align, disable_numparse=True)


def drop_empty_columns(columns: Sequence[str], rows: Sequence[Sequence[str]], left_columns: int = 1) -> MarkdownTable:
    """Return a table without the columns that are empty throughout; the first `left_columns` stay."""
    filled = {place for row in rows for place, text in enumerate(row) if text not in ("", "-")}
    places = [place for place in range(len(columns)) if place < left_columns or place in filled]
    shown_rows = [[row[place] for place in places] for row in rows]
    return MarkdownTable([columns[place] for place in places], shown_rows, left_columns)


def escape_pipes(text: str) -> str:
    """Return a text for a cell of a Markdown table, in which a pipe ends the cell."""
    return text.replace("|", "\\|")


def escape_tags(text: str) -> str:
    """Return a text for Markdown in which no HTML tag begins."""
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text)


def code_to_html(text: str) -> Markup:
    """Return a sentence as HTML, escaped, in which text between backticks is code."""
    unbroken = text.replace(" %", "\u00a0%")  # no line ends between a figure and its per cent sign
    return Markup(re.sub(r"`(.+?)`", r"<code>\1</code>", str(escape(unbroken))))
