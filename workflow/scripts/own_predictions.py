"""own_predictions: what the user predicts of cells, sealed before this run measures any of them."""

import contextlib
import json
from pathlib import Path

from roofline.core.formatting import count_words
from roofline.core.terms import UserError
from roofline.measure.sealing import seal_own_prediction
from roofline.records.base import read, write
from roofline.records.files import RESULTS
from roofline.records.operator_record import JobRecord, OwnPrediction, OwnPredictionsRecord
from roofline.run.jobs import job, now, say
from roofline.table.rows import Roofline
from roofline.table.run_records import read_record


def seal_predictions(device: str, lines: list[dict], path: Path) -> OwnPredictionsRecord:
    """Return the seal of these predictions: those that the earlier seal at `path` has as well stay as they are there.

    Each line is a prediction and the name of the record in which its cell is, or will be, measured.
    """
    earlier, sealed_at = [], now()
    with contextlib.suppress(OSError, UserError):
        earlier = read(OwnPredictionsRecord, path).cells
    cells = []
    for line in lines:
        prediction = OwnPrediction(**line["prediction"])
        cells.append(seal_own_prediction(prediction, earlier, sealed_at, find_start(prediction, line["record"])))
    return OwnPredictionsRecord(device=device, cells=cells)


def find_start(prediction: OwnPrediction, record_name: str) -> str | None:
    """Return when the record was begun that holds this cell, or that it was timed in the last run whose record is gone;
    None if neither is known."""
    with contextlib.suppress(OSError, UserError):
        record = read_record(RESULTS / f"{record_name}.json")
        assert isinstance(record, JobRecord), "cells are in records of measuring jobs"
        if prediction.planned_identity in {measurement.planned_identity for measurement in record.measurements}:
            return record.started_at
    with contextlib.suppress(OSError, UserError):
        table = read(Roofline, RESULTS / "roofline.json")
        if any(cell.planned_identity == prediction.planned_identity for cell in table.measured_cells):
            return table.devices[record_name.partition("/")[0]].queried_at
    return None


if __name__ == "__main__":
    device, path = snakemake.wildcards.device, Path(snakemake.output[0])
    with job(f"own_predictions {device}", snakemake):
        record = seal_predictions(device, json.loads(snakemake.params.lines), path)
        write(record, path)
        late = sum(cell.started_at is not None for cell in record.cells)
        timed_before = f", {late} of them after they were timed" if late else ""
        say(f"own_predictions {device}: {count_words(len(record.cells), 'cell')} of yours sealed{timed_before}")
