"""measure_operator: one job of an operator, whatever it computes; the workflow has one rule per operator."""

from roofline.devices import discovery, host
from roofline.measure.operator_job import Options, Seals, list_skipped, measure_job
from roofline.operators import registry
from roofline.operators.base import Job, Operator
from roofline.records.base import read, write
from roofline.records.device_record import DeviceRecord
from roofline.records.files import below_results, file_sha256
from roofline.records.operator_record import OperatorRecord
from roofline.records.seal_records import OperatorPredictionRecord, PredictionRecord
from roofline.run.jobs import Stopwatch, job, report, seals_of


def measure_operator_job(
    operator: Operator, name: str, what: Job, seals: dict[str, str], options: Options
) -> OperatorRecord:
    """`seals` are the paths of the device's and the operator's, and of the calibration."""
    sealed = Seals(read(PredictionRecord, seals["device"]), read(OperatorPredictionRecord, seals["operator"]).constants)
    watch = Stopwatch()
    device = discovery.open_device(name)
    found = measure_job(operator, device, what, sealed, options)
    notes = dict.fromkeys(note for case in what.cases for note in operator.notes(device, case))
    notes |= dict.fromkeys(list_skipped(operator, device, what, options))
    return OperatorRecord(
        device=name,
        seals={below_results(path): file_sha256(path) for path in seals.values()},
        **watch.taken(),
        measurements=found,
        case=what.path,
        data=operator.data_files(what),
        sources={str(path): file_sha256(path) for path in registry.own_files(operator)},
        notes=list(notes),
    )


if __name__ == "__main__":
    wildcards, params, inputs = snakemake.wildcards, snakemake.params, snakemake.input
    if discovery.kind_from_name(wildcards.device) == "cpu":
        host.use_all_cores()  # before a user's file loads NumPy
    name = f"{params.operator} {wildcards.device} {wildcards.case}"
    known = registry.collect_operators([]).get(params.operator)  # the user's own may fail to import
    with job(name, snakemake, [module for one in known.implementations for module in one.modules] if known else ()):
        record = measure_operator_job(
            registry.collect_operators(params.operators)[params.operator],
            wildcards.device,
            Job.from_json(params.job),
            seals_of(inputs),
            Options(
                params.implementations, params.cache == "cold", params.warmup, params.iterations, params.time_budget_s
            ),
        )
        write(record, snakemake.output[0])
        report(record, name, read(DeviceRecord, inputs.device))
