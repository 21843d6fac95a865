"""Files that follow from the records alone."""

import json
from collections.abc import Mapping
from pathlib import Path

from roofline.records.base import write
from roofline.records.files import write_text
from roofline.report.answers import judge_answers
from roofline.report.interpretation import write_paragraphs
from roofline.report.pages import build_pages
from roofline.report.report_model import UNKNOWN_SOURCE, Source, build_report
from roofline.report.spreadsheet import to_csv
from roofline.table.load import Request, build_table
from roofline.table.rows import Roofline
from roofline.table.run_records import Results

TABLE = "roofline.json"


def derive(
    results: Results, request: Mapping, sha256: Mapping[str, str], source: Source = UNKNOWN_SOURCE
) -> tuple[Roofline, dict[str, str]]:
    """Return the table, and by their names in results/ the texts of its schema, its rows as CSV, and the pages.

    `request` has the fields of a Request, `sha256` the hash of every record by its path.
    """
    roofline = build_table(results, Request(**request), sha256)
    roofline = judge_answers(roofline, write_paragraphs(build_report(roofline)))
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
