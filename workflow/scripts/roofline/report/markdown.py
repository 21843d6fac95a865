"""Tables in Markdown, by tabulate."""

from collections.abc import Iterable, Sequence

from tabulate import tabulate


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """The first columns are aligned to the left, the others to the right; a column that is empty throughout is left
    out."""
    rows = [list(row) for row in rows]
    kept = [place for place in range(len(columns)) if place < left or any(row[place] not in ("", "-") for row in rows)]
    align = ["left" if place < left else "right" for place in kept]
    shown = [[row[place].replace("|", "\\|") for place in kept] for row in rows]
    return tabulate(shown, [columns[place] for place in kept], "pipe", colalign=align, disable_numparse=True)
