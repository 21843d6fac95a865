"""instructions: the warp instructions per second that a GPU issues, and the limits of loads by their access pattern."""

from roofline.devices import discovery
from roofline.measure.instruction_limits import measure_access_limits, measure_issue_rate
from roofline.records.base import read, write
from roofline.records.device_record import DeviceRecord
from roofline.records.files import below_results, file_sha256
from roofline.records.instructions_record import InstructionsRecord
from roofline.run.jobs import Stopwatch, job, report


def measure_instructions(name: str, seal_path, **options) -> InstructionsRecord:
    watch, device = Stopwatch(), discovery.open_device(name)
    issue = measure_issue_rate(device, **options)
    found = measure_access_limits(device, **options)
    return InstructionsRecord(
        device=name,
        seals={below_results(seal_path): file_sha256(seal_path)},
        **watch.taken(),
        issue=issue,
        walls=found,
    )


if __name__ == "__main__":
    name, params = snakemake.wildcards.device, snakemake.params
    with job(f"instructions {name}", snakemake):
        record = measure_instructions(
            name,
            snakemake.input.prediction,
            warmup=params.warmup,
            iterations=params.iterations,
            time_budget_s=params.time_budget_s,
        )
        write(record, snakemake.output[0])
        report(record, f"instructions {name}", read(DeviceRecord, snakemake.input.device))
