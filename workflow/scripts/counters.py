"""counters: what the hardware counted while a few cells of an operator ran under Nsight Compute."""

from roofline.run.turn import take_turn

if __name__ == "__main__":
    take_turn(snakemake)

from pathlib import Path

from roofline import devices
from roofline.measure import nsight_compute
from roofline.records.base import read, write
from roofline.records.counters import CountersRecord, ProfilerRecord
from roofline.records.files import file_sha256
from roofline.records.operator import DataFile
from roofline.run.counters import count
from roofline.run.jobs import Stopwatch, job, report


def run(profiler: ProfilerRecord, task: dict, stem: Path) -> CountersRecord:
    """Not attempted where profiling was refused."""
    watch, refused, cells, reports = Stopwatch(), profiler.refused, [], []
    identity = devices.discover()[profiler.device]
    capability = tuple(int(part) for part in identity.compute_capability.split("."))
    if refused is None:
        try:
            cells, reports = count(nsight_compute.find(), task, capability, stem)
        except (nsight_compute.Refused, nsight_compute.BadReport) as error:
            refused = str(error)
    return CountersRecord(
        device=profiler.device,
        started_at=watch.started_at,
        elapsed_s=watch.elapsed_s,
        ncu=profiler.ncu,
        refused=refused,
        cells=cells,
        reports=[
            DataFile(path=str(path), sha256=file_sha256(path), generated=True, description="of Nsight Compute")
            for path in reports
        ],
    )


if __name__ == "__main__":
    wildcards, params, output = snakemake.wildcards, snakemake.params, Path(snakemake.output[0])
    name = f"counters {wildcards.device} {wildcards.operator} {wildcards.case}"
    with job(name, snakemake):
        task = {
            "device": wildcards.device,
            "operator": wildcards.operator,
            "operators": params.operators,
            "job": params.job,
            "cold": params.cache == "cold",
        }
        record = run(read(ProfilerRecord, snakemake.input.profiler), task, output.with_suffix(""))
        write(record, output)
        report(record, name)
