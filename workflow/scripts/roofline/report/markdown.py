"""Tables of words, as data and as Markdown, by tabulate; and spans of code as HTML."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape
from tabulate import tabulate


class MarkdownTable(NamedTuple):
    """The first columns are aligned to the left, the others to the right. As text it is Markdown."""

    columns: list[str]
    rows: list[list[str]]
    left: int = 1

    def __str__(self) -> str:
        align = ["left" if place < self.left else "right" for place in range(len(self.columns))]
        shown = [list(map(escape_pipes, row)) for row in self.rows]
        return tabulate(shown, self.columns, "pipe", colalign=align, disable_numparse=True)


def drop_empty_columns(columns: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> MarkdownTable:
    """A table without those columns to the right that are empty throughout."""
    rows = [list(row) for row in rows]
    kept = [place for place in range(len(columns)) if place < left or any(row[place] not in ("", "-") for row in rows)]
    return MarkdownTable([columns[place] for place in kept], [[row[place] for place in kept] for row in rows], left)


def escape_pipes(text: str) -> str:
    return text.replace("|", "\\|")


def escape_tags(text: str) -> str:
    """Text of a user's, say, in Markdown: what would begin a tag is shown."""
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text)


def code_to_html(text: str) -> Markup:
    """A sentence as HTML, escaped, with what is between backticks as code."""
    return Markup(re.sub(r"`(.+?)`", r"<code>\1</code>", str(escape(join_percent(text)))))


def join_percent(text: str) -> str:
    """A figure and its per cent on one line."""
    return text.replace(" %", "\u00a0%")
