"""Files that follow from the records alone."""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel

from roofline.records.base import write
from roofline.records.files import write_text
from roofline.report.pages import build_pages
from roofline.report.report_model import UNKNOWN_SOURCE, Source, build_report
from roofline.table.load import build_table
from roofline.table.rows import Roofline, TableRow
from roofline.table.run_records import Request, Results

TABLE = "roofline.json"
Scalar = str | int | float | bool | None
FIRST_COLUMNS = ("device", "kind", "name")


def derive(
    results: Results, request: Mapping, sha256: Mapping[str, str], source: Source = UNKNOWN_SOURCE
) -> tuple[Roofline, dict[str, str]]:
    """Return the table, and by their names in results/ the texts of its schema, its rows as CSV, and the pages.

    `request` has the fields of a Request, `sha256` the hash of every record by its path.
    """
    roofline = build_table(results, Request(**request), sha256)
    elapsed_s = {path: record.elapsed_s for path, record in results.timed_records()}
    return roofline, {
        "roofline.schema.json": f"{json.dumps(Roofline.model_json_schema(), indent=1)}\n",
        "ceilings.csv": to_csv(roofline.ceilings),
        "cells.csv": to_csv(roofline.operators),
        **build_pages(build_report(roofline, source, elapsed_s)),
    }


def write_derived(
    results: Results, request: Mapping, sha256: Mapping[str, str], folder: Path, source: Source = UNKNOWN_SOURCE
) -> Roofline:
    """Write the table and the pages into a folder, and return the table."""
    roofline, texts = derive(results, request, sha256, source)
    write(roofline, folder / TABLE)
    for name, text in texts.items():
        write_text(text, folder / name)
    return roofline


# ---------------------------------------------------------------- spreadsheets


def to_csv(rows: Sequence[TableRow]) -> str:
    """Return a header and a line for each row, the columns that name it first.

    Each nested field gets a column, such as `sealed.cpu_time_s`, and an interval gets two, `.low` and `.high`. The
    strings of a list are joined by "; "; an empty list and a missing one look alike. Other lists, such as the curve of
    a load, are left out. Without rows there are no columns.
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
