"""Markdown: tables, by tabulate, and the little of it that our own pages use as HTML."""

import re
from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape
from tabulate import tabulate

CELL_BORDER = re.compile(r"(?<!\\)\|")


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """The first columns are aligned to the left, the others to the right; a column that is empty throughout is left
    out."""
    rows = [list(row) for row in rows]
    kept = [place for place in range(len(columns)) if place < left or any(row[place] not in ("", "-") for row in rows)]
    align = ["left" if place < left else "right" for place in kept]
    shown = [[row[place].replace("|", "\\|") for place in kept] for row in rows]
    return tabulate(shown, [columns[place] for place in kept], "pipe", colalign=align, disable_numparse=True)


def html(text: str) -> Markup:
    """Headings, paragraphs with words in bold, and tables of such text as HTML."""
    return Markup("\n").join(_block(block.strip()) for block in text.split("\n\n") if block.strip())


def _block(block: str) -> Markup:
    if block.startswith("#"):
        return Markup("<h2>{}</h2>").format(_inline(block.lstrip("# ")))
    if block.startswith("|"):
        return _table(block.splitlines())
    return Markup("<p>{}</p>").format(_inline(block))


def _table(lines: list[str]) -> Markup:
    head, rule, *rows = ([cell.strip() for cell in CELL_BORDER.split(line)[1:-1]] for line in lines)
    kinds = [' class="n"' if mark.endswith(":") else "" for mark in rule]
    shown = [_row(row, kinds, "td") for row in rows]
    return Markup("<table>\n{}\n</table>").format(Markup("\n").join([_row(head, kinds, "th"), *shown]))


def _row(cells: list[str], kinds: list[str], tag: str) -> Markup:
    made = (f"<{tag}{kind}>{_inline(cell)}</{tag}>" for kind, cell in zip(kinds, cells, strict=True))
    return Markup(f"<tr>{''.join(made)}</tr>")


def _inline(text: str) -> Markup:
    shown = re.sub(r"\\([|*])", r"\1", str(escape(text)))
    shown = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", shown)
    shown = re.sub(r"`(.+?)`", r"<code>\1</code>", shown)
    return Markup(re.sub(r"(?<!\w)\*(\w+)\*", r"<em>\1</em>", shown))
