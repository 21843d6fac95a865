"""repeatability: whether a device gives the same product bit for bit, again and again; of `make health` alone."""

from roofline.run.turn import take_turn

if __name__ == "__main__":
    take_turn(snakemake)

from roofline import devices
from roofline.measure.repeatability import repeat
from roofline.records.base import write
from roofline.records.health import RepeatabilityRecord
from roofline.run.jobs import Stopwatch, job, report


def run(name: str, dtype: str, size: int, seconds: float) -> RepeatabilityRecord:
    watch = Stopwatch()
    found = repeat(devices.open_device(name), dtype, size, seconds)
    return RepeatabilityRecord(
        device=name, dtype=dtype, seals={}, started_at=watch.started_at, elapsed_s=watch.elapsed_s, **found
    )


if __name__ == "__main__":
    name, dtype = snakemake.wildcards.device, snakemake.wildcards.dtype
    with job(f"repeatability {name} {dtype}", snakemake):
        record = run(name, dtype, snakemake.params.size, snakemake.params.seconds)
        write(record, snakemake.output[0])
        report(record, f"repeatability {name} {dtype}")
