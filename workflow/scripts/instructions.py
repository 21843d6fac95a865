"""instructions: the warp instructions per second that a GPU issues, and the limits of loads by their access pattern."""

from roofline.devices import discovery
from roofline.devices.base import is_gpu
from roofline.measure.instruction_limits import measure_access_limits, measure_issue_rate
from roofline.measure.protocol import TimingBudget
from roofline.records.files import hash_results
from roofline.records.instructions_record import InstructionsRecord
from roofline.run.jobs import Stopwatch, job, write_and_say


def measure_instructions(name: str, seal_path: str, budget: TimingBudget) -> InstructionsRecord:
    """Measure the issue rate and the access limits of a GPU. Raises ArithmeticError for a wrong result."""
    watch, device = Stopwatch(), discovery.open_device(name)
    assert is_gpu(device), "the rule is of GPUs alone"
    issue = measure_issue_rate(device, budget)
    limits = list(measure_access_limits(device, budget))
    return InstructionsRecord(device=name, seals=hash_results([seal_path]), **watch.taken(), issue=issue, walls=limits)


if __name__ == "__main__":
    name = snakemake.wildcards.device
    with job(f"instructions {name}", snakemake):
        budget = TimingBudget(**snakemake.params.settings["timing"])
        record = measure_instructions(name, snakemake.input.prediction, budget)
        write_and_say(record, snakemake.output[0], f"instructions {name}")
