"""Files that follow from the records alone."""

import json
from collections.abc import Mapping
from pathlib import Path

from roofline.records.base import Record, write
from roofline.records.calibration_record import CalibrationRecord
from roofline.records.files import write_text
from roofline.report.pages import build_pages
from roofline.report.report_model import UNKNOWN, Source, build_report
from roofline.report.spreadsheet import to_csv
from roofline.table.load import Request, build_table
from roofline.table.rows import Roofline
from roofline.table.run_records import Results

TABLE = "roofline.json"


def derive(
    found: Results, asked: Mapping, sha256: Mapping[str, str], source: Source = UNKNOWN
) -> dict[str, Record | str]:
    """Return the table, its schema, its rows as CSV, and the pages, by their names in results/.

    `sha256` has the hash of every record.
    """
    roofline = build_table(found, Request(**asked), sha256)
    calibrations = [(path, one) for path, one in found.seals.items() if isinstance(one, CalibrationRecord)]
    elapsed_s = {path: one.elapsed_s for path, one in [*found.measured, *calibrations]}
    return {
        TABLE: roofline,
        "roofline.schema.json": f"{json.dumps(Roofline.model_json_schema(), indent=1)}\n",
        "ceilings.csv": to_csv(roofline.ceilings),
        "cells.csv": to_csv(roofline.operators),
        **build_pages(build_report(roofline, source, elapsed_s)),
    }


def write_derived(
    found: Results, asked: Mapping, sha256: Mapping[str, str], folder: Path, source: Source = UNKNOWN
) -> Roofline:
    """Write the table and the pages into a folder. Returns the table."""
    derived = derive(found, asked, sha256, source)
    for name, content in derived.items():
        (write_text if isinstance(content, str) else write)(content, folder / name)
    return derived[TABLE]
