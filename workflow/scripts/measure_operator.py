"""measure_operator: one job of an operator, whatever it computes; the workflow has one rule per operator."""

from typing import Any

from roofline.devices import discovery, host
from roofline.measure.operator_job import JobPlan, list_skipped, measure_job
from roofline.measure.protocol import TimingBudget
from roofline.operators import registry
from roofline.operators.base import Job, Operator
from roofline.operators.drawing import draw_shapes
from roofline.operators.predicting import Seals
from roofline.records.base import read
from roofline.records.files import file_sha256, hash_results
from roofline.records.operator_record import OperatorRecord
from roofline.records.seal_records import OperatorPredictionRecord, PredictionRecord
from roofline.run.jobs import Stopwatch, job, seals_of, write_and_say


def measure_operator_job(
    operator: Operator, name: str, planned_job: Job, seals: dict[str, str], settings: dict[str, Any]
) -> OperatorRecord:
    """Measure a job of an operator on the device of this name, and on the peer in `settings` if it takes two.

    `seals` are the paths of the device's and the operator's, and of the calibration. Raises ArithmeticError for a wrong
    result.
    """
    sealed = Seals(read(PredictionRecord, seals["device"]), read(OperatorPredictionRecord, seals["operator"]).constants)
    watch = Stopwatch()
    device, cold = discovery.open_device(name, settings.get("peer")), settings["cache"] == "cold"
    plan = JobPlan(operator, device, planned_job, settings["implementations"], cold, settings["scopes"])
    measurements = measure_job(plan, sealed, TimingBudget(**settings["timing"]))
    notes = [note for case in planned_job.cases for note in operator.notes(device, case)]
    notes += list_skipped(plan)
    return OperatorRecord(
        device=name,
        seals=hash_results(seals.values()),
        **watch.taken(),
        measurements=measurements,
        case=planned_job.path,
        data=operator.data_files(planned_job),
        sources={str(path): file_sha256(path) for path in registry.own_files(operator)},
        notes=list(dict.fromkeys(notes)),
    )


if __name__ == "__main__":
    wildcards, params, inputs = snakemake.wildcards, snakemake.params, snakemake.input
    if discovery.kind_from_name(wildcards.device) == "cpu":
        host.use_all_cores()  # before a user's file loads NumPy
    name = f"{params.operator} {wildcards.device} {wildcards.case}"
    builtin_operator = registry.collect_operators([]).get(params.operator)  # the user's own may fail to import
    implementations = builtin_operator.implementations if builtin_operator else ()
    modules = [module for implementation in implementations for module in implementation.modules]
    settings = params.settings
    planned_job = Job.from_json(settings["job"])
    with job(name, snakemake, modules):
        operator = registry.collect_operators(params.operators)[params.operator]
        if count := settings.get("shapes"):
            planned_job, _ = draw_shapes(operator, hash_results(seals_of(inputs).values()), count)
        record = measure_operator_job(operator, wildcards.device, planned_job, seals_of(inputs), settings)
        write_and_say(record, snakemake.output[0], name)
