"""predictions: what the seals say of every planned cell, written before the first of them is timed."""

import contextlib
import json
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from roofline.core.formatting import count_words
from roofline.core.terms import UserError
from roofline.devices import discovery, host
from roofline.measure.operator_job import JobPlan, list_kernels, predict_job, predict_planned_cell, predict_variations
from roofline.operators import registry
from roofline.operators.base import Job
from roofline.operators.drawing import draw_shapes
from roofline.operators.gemm.operator import Gemm
from roofline.operators.predicting import Seals
from roofline.records.base import read, write
from roofline.records.compute import PeakFlopsRecord
from roofline.records.files import RESULTS, hash_results, write_text
from roofline.records.operator_record import DrawnShapes, JobRecord, OperatorRecord, PredictedCell, PredictionsRecord
from roofline.records.seal_records import OperatorPredictionRecord, PredictionRecord
from roofline.run.jobs import job, now, say


def predict_cells(
    name: str, seals: dict[str, str], constants: Iterable[str], tasks: list[dict], gemms: dict[str, int]
) -> PredictionsRecord:
    """Predict every planned cell of a device, then compile a GPU's kernels on all cores, while no job holds it.

    `seals` are the paths of the device's seal and of the calibration, `constants` those of the operators' seals.
    `tasks` are the jobs of operators, and `gemms` the sizes of the reference GEMMs by compute ceiling.
    """
    device = discovery.plan_device(name)  # next to what is measured
    sealed = read(PredictionRecord, seals["device"])
    operator_seals = [read(OperatorPredictionRecord, path) for path in constants]
    seals_by_operator = {seal.operator: Seals(sealed, seal.constants) for seal in operator_seals}
    operators = registry.collect_operators({path for task in tasks for path in task["operators"]})
    hashes = hash_results([*seals.values(), *constants])
    cells: list[PredictedCell] = []
    what_if: list[PredictedCell] = []
    kernels: set[tuple] = set()
    for ceiling, size in gemms.items():
        planned_cells = Gemm().plan_cells(device, ceiling, size)  # type: ignore[arg-type]  # planning runs nothing
        kernels.update(*(cell.kernels() for cell in planned_cells))
        predicted = [
            predict_planned_cell(cell, None, seals_by_operator[cell.operator.name], cold=False)
            for cell in planned_cells
        ]
        cells += _add_measured_at(predicted, PeakFlopsRecord, f"{name}/{Gemm.rule}/{ceiling}", hashes)
    drawn: dict[str, DrawnShapes] = {}
    paths = {Path(path).parent.name: path for path in constants}
    for task in tasks:
        operator, planned_job = operators[task["operator"]], Job.from_json(task["job"])
        if count := task.get("shapes"):
            of_operator = hash_results([*seals.values(), paths[operator.rule]])
            planned_job, drawn[operator.rule] = draw_shapes(operator, of_operator, count)
        cold = task["cache"] == "cold"
        chosen = task["implementations"], cold, task["scopes"]
        plan = JobPlan(operator, device, planned_job, *chosen)  # type: ignore[arg-type]  # as above
        kernels |= list_kernels(plan)
        predicted = predict_job(plan, seals_by_operator[operator.name])
        cells += _add_measured_at(predicted, OperatorRecord, f"{name}/{task['operator']}/{planned_job.path}", hashes)
        if not count and operator.name not in {cell.operator for cell in what_if}:
            what_if += predict_variations(plan, seals_by_operator[operator.name])
    device.compile_ahead(kernels)
    return PredictionsRecord(device=name, predicted_at=now(), seals=hashes, cells=cells, what_if=what_if, drawn=drawn)


def _add_measured_at(cells: list[PredictedCell], kind: type[JobRecord], path: str, hashes: dict) -> list[PredictedCell]:
    """Return the cells with the start of their measurement, if a record of it under these seals is there already.

    It is where a size was added to the settings of an earlier run.
    """
    measured_at: dict[tuple, str] = {}
    with contextlib.suppress(OSError, UserError):
        record = read(kind, RESULTS / f"{path}.json")
        if record.seals.items() <= hashes.items():
            measured_at = {measurement.identity: record.started_at for measurement in record.measurements}
    return [cell.model_copy(update={"started_at": measured_at.get(cell.identity)}) for cell in cells]


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
        # Imported by name, so that a change of a page's look makes no prediction stale.
        rendering = import_module("roofline.report.rendering")
        page, first = rendering.render_text("predictions.md.j2", report=record), Path(snakemake.output.first)
        write_text(page, snakemake.output.page)
        if not first.exists() or not any(cell.started_at for cell in record.cells):
            write_text(page, first)
        say(f"predictions {name}: {count_words(len(record.cells), 'cell')}, written to {snakemake.output.page}")
