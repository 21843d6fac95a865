"""The rows of the table as CSV, for spreadsheets and data frames: one line per row, one unit per column."""

import csv
import io
from collections.abc import Iterator, Sequence

from pydantic import BaseModel

from roofline.table.rows import TableRow

Scalar = str | int | float | bool | None
FIRST_COLUMNS = ("device", "kind", "name")


def to_csv(rows: Sequence[TableRow]) -> str:
    """Return a header and a line for each row, the columns that name it first.

    A nested field is a column of its own, such as `sealed.cpu_time_s`. An interval has two columns, `.low` and `.high`.
    Words of a list are joined by "; ": no words and an unknown list are both empty. Other lists, such as the curve of a
    load, are left out. Without rows there are no columns.
    """
    lines = [dict(_columns(row)) for row in rows]
    text = io.StringIO()
    columns = sorted(dict.fromkeys(name for line in lines for name in line), key=lambda name: name not in FIRST_COLUMNS)
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _columns(row: BaseModel, prefix: str = "") -> Iterator[tuple[str, Scalar]]:
    """Yield the name and the value of each column of a row, nested fields after the name of their own field."""
    for name, field in type(row).model_fields.items():
        yield from _columns_of_value(f"{prefix}{name}", getattr(row, name), str(field.annotation))


def _columns_of_value(name: str, value: object, annotation: str) -> Iterator[tuple[str, Scalar]]:
    if isinstance(value, BaseModel):
        yield from _columns(value, f"{name}.")
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _columns_of_value(f"{name}.{key}", inner, "")
    elif "tuple[" in annotation:
        bounds = value if isinstance(value, tuple) else (None, None)
        yield from zip((f"{name}.low", f"{name}.high"), bounds, strict=True)
    elif "list[str]" in annotation:
        yield name, "; ".join(value if isinstance(value, list) else [])
    # A nested field that the row lacks has no column.
    elif isinstance(value, Scalar) and "roofline." not in annotation:
        yield name, value
