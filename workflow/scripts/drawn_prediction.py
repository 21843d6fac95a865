"""drawn_prediction: shapes of an operator that follow from the seals, and what these say of them before timing."""

from roofline.core.formatting import count_words
from roofline.devices import discovery
from roofline.measure.operator_job import JobPlan, Seals, list_kernels, predict_job
from roofline.operators import registry
from roofline.operators.base import Operator
from roofline.operators.drawing import draw_shapes
from roofline.records.base import read, write
from roofline.records.files import below_results, file_sha256
from roofline.records.operator_record import DrawnShapes, PredictionsRecord
from roofline.records.seal_records import OperatorPredictionRecord, PredictionRecord
from roofline.run.jobs import job, now, say, seals_of


def predict_drawn(operator: Operator, name: str, seals: dict[str, str], count: int, task: dict) -> PredictionsRecord:
    """Draw so many shapes of an operator, predict their cells on a device, and compile their kernels.

    `seals` are the paths of the device's and the operator's, and of the calibration; `task` says how to measure cells.
    """
    device = discovery.plan_device(name)
    hashes = {below_results(path): file_sha256(path) for path in seals.values()}
    drawing = draw_shapes(operator, hashes, count)
    chosen = task["implementations"], task["cache"] == "cold", task["scopes"]
    plan = JobPlan(operator, device, drawing.job, *chosen)  # type: ignore[arg-type]  # planning runs nothing
    sealed = Seals(read(PredictionRecord, seals["device"]), read(OperatorPredictionRecord, seals["operator"]).constants)
    cells = predict_job(plan, sealed)
    device.compile_ahead(list_kernels(plan))
    drawn = DrawnShapes(
        rule=operator.rule, seed=drawing.seed, code_sha256=drawing.code_sha256, job=drawing.job.to_json()
    )
    return PredictionsRecord(device=name, predicted_at=now(), seals=hashes, cells=cells, drawn=drawn)


if __name__ == "__main__":
    name, rule, params = snakemake.wildcards.device, snakemake.wildcards.operator, snakemake.params
    with job(f"drawn_prediction {name} {rule}", snakemake):
        operator = registry.collect_operators(params.operators)[rule]
        record = predict_drawn(operator, name, seals_of(snakemake.input), params.shapes, params.task)
        write(record, snakemake.output[0])
        say(f"drawn_prediction {name} {rule}: {count_words(len(record.cells), 'cell')} of shapes drawn from the seals")
