"""roofline.json as other programs read it: its schema, the promise that goes with its number, and its rows as CSV."""

import csv
import io
import json
import re

import pytest
from pictures import reference
from workflow_run import CHECKOUT

from roofline.report.derived import to_csv
from roofline.table.rows import Roofline

PUBLISHED = CHECKOUT / "docs/roofline.schema.json"
UNITS = "s us ms bytes flops tflops per_s per_byte per_flop per_clock mhz w j c count version"
UNIT = re.compile(rf"(^|_)({'|'.join(UNITS.split())})$|^fraction_|_fraction|_ratio$|_error$")


def broken_promises(published: dict, current: dict) -> list[str]:
    """The fields of a schema that another one lacks or gives another meaning, by their paths."""
    broken = []
    for name, definition in {"Roofline": published, **published["$defs"]}.items():
        now = current if name == "Roofline" else current["$defs"].get(name, {})
        for field, meaning in definition.get("properties", {}).items():
            if now.get("properties", {}).get(field) != meaning:
                broken.append(f"{name}.{field}")
    return broken


@pytest.fixture(scope="module")
def schema() -> dict:
    return Roofline.model_json_schema()


def test_no_field_of_the_published_schema_vanishes_or_changes_under_its_number(schema):
    published = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    assert published["properties"]["schema_version"] == schema["properties"]["schema_version"], "publish it anew"
    assert broken_promises(published, schema) == []
    assert broken_promises(schema, published) == [], "a new field: .venv/bin/python reference/redraw.py"


def numbers(schema: dict):
    """The definition, name and description of every field that may be a number."""
    for name, definition in {"Roofline": schema, **schema["$defs"]}.items():
        for field, meaning in definition.get("properties", {}).items():
            types = {meaning.get("type"), *(option.get("type") for option in meaning.get("anyOf", []))}
            if types & {"number", "integer"}:
                yield name, field, meaning.get("description")


def test_each_number_has_its_unit_in_its_name_or_a_description(schema):
    assert [f"{name}.{field}" for name, field, said in numbers(schema) if not UNIT.search(field) and not said] == []


def test_the_rows_as_csv_have_the_figures_of_the_table():
    table = reference()
    for rows, figures in ((table.ceilings, ("name", "tflops")), (table.operators, ("operator", "cpu_time_s"))):
        lines = list(csv.DictReader(io.StringIO(to_csv(rows))))
        assert len(lines) == len(rows)
        for line, row in zip(lines, rows, strict=True):
            for figure in figures:
                value = getattr(row, figure, None)
                assert line[figure] == ("" if value is None else str(value))
    cell, line = next((cell, line) for cell, line in zip(table.operators, lines, strict=True) if cell.cpu_time_ci95_s)
    assert float(line["sealed.cpu_time_s"]) == cell.sealed.cpu_time_s
    assert (float(line["cpu_time_ci95_s.low"]), float(line["cpu_time_ci95_s.high"])) == cell.cpu_time_ci95_s
