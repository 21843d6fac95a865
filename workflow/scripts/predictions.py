"""predictions: what the seals say of every planned cell, written before the first of them is timed."""

import contextlib
import json
from collections.abc import Iterable
from importlib import import_module

from roofline.core.terms import UserError
from roofline.devices import discovery, host
from roofline.measure.operator_job import Seals, list_kernels, predict_job, predict_planned_cell
from roofline.operators import registry
from roofline.operators.base import Job
from roofline.records.base import read, write
from roofline.records.compute import PeakFlopsRecord
from roofline.records.files import RESULTS, below_results, file_sha256, write_text
from roofline.records.operator_record import JobRecord, OperatorRecord, PredictedCell, PredictionsRecord
from roofline.records.seal_records import OperatorPredictionRecord, PredictionRecord
from roofline.run.jobs import job, now, say

GEMM_RULE = "peak_flops"


def predict_cells(
    name: str, seals: dict[str, str], constants: Iterable[str], tasks: list[dict], gemms: dict[str, int]
) -> PredictionsRecord:
    """`seals` are the paths of the device's and of the calibration; `constants` those of the operators' seals.

    Then a GPU's kernels are compiled, on all cores, while no job holds it.
    """
    device = discovery.open_device(name, context=discovery.kind_from_name(name) == "cpu")  # next to what is measured
    sealed = read(PredictionRecord, seals["device"])
    records = [read(OperatorPredictionRecord, path) for path in constants]
    of_operator = {one.operator: Seals(sealed, one.constants) for one in records}
    operators, cells = registry.collect_operators({path for task in tasks for path in task["operators"]}), []
    needed: set[tuple] = set()
    hashes = {below_results(path): file_sha256(path) for path in [*seals.values(), *constants]}
    for dtype, size in gemms.items():
        planned = operators[GEMM_RULE].plan_cells(device, dtype, size)
        needed.update(*(cell.kernels() for cell in planned))
        found = [predict_planned_cell(cell, None, of_operator[cell.operator.name], cold=False) for cell in planned]
        cells += _add_measured_at(found, PeakFlopsRecord, f"{name}/{GEMM_RULE}/{dtype}", hashes)
    for task in tasks:
        operator, what = operators[task["operator"]], Job.from_json(task["job"])
        how = task["implementations"], task["cache"] == "cold"
        needed |= list_kernels(operator, device, what, *how)
        found = predict_job(operator, device, what, of_operator[operator.name], *how)
        cells += _add_measured_at(found, OperatorRecord, f"{name}/{task['operator']}/{what.path}", hashes)
    device.compile_ahead(needed)
    return PredictionsRecord(device=name, predicted_at=now(), seals=hashes, cells=cells)


def _add_measured_at(cells: list[PredictedCell], kind: type[JobRecord], path: str, hashes: dict) -> list[PredictedCell]:
    """With when they were measured, if that was before this file was written, under these seals: an S was added."""
    known = {}
    with contextlib.suppress(OSError, UserError):
        record = read(kind, RESULTS / f"{path}.json")
        known = {
            one.identity: record.started_at for one in record.measurements if record.seals.items() <= hashes.items()
        }
    return [one.model_copy(update={"started_at": known.get(one.identity)}) for one in cells]


if __name__ == "__main__":
    name, inputs, params = snakemake.wildcards.device, snakemake.input, snakemake.params
    if discovery.kind_from_name(name) == "cpu":
        host.use_all_cores()  # before a user's file loads NumPy
    with job(f"predictions {name}", snakemake):
        seals = {"device": inputs.prediction, "calibration": inputs.calibration}
        record = predict_cells(
            name, seals, inputs.constants, [json.loads(task) for task in params.tasks], dict(params.gemms)
        )
        write(record, snakemake.output.cells)
        # By name: how a page looks makes no prediction stale.
        rendering = import_module("roofline.report.rendering")
        write_text(rendering.render_text("predictions.md.j2", report=record), snakemake.output.page)
        say(f"predictions {name}: {len(record.cells)} cells, written to {snakemake.output.page}")
