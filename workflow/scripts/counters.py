"""counters: whether Nsight Compute may read a device's counters, and what they counted while a few cells ran."""

from roofline.run.turn import take_turn

if __name__ == "__main__":
    take_turn(snakemake)

import json
import tempfile
from pathlib import Path

from roofline import devices
from roofline.measure import nsight_compute
from roofline.records.base import write
from roofline.records.counters import CountersRecord, ProfilerRecord
from roofline.records.files import file_sha256
from roofline.records.operator import DataFile
from roofline.run.counters import Found, count, probe
from roofline.run.jobs import Stopwatch, job, report


def query(device: str) -> ProfilerRecord:
    """By counting kernels of known counts."""
    program = nsight_compute.find()
    if program is None:
        return ProfilerRecord(device=device, ncu=None, refused=nsight_compute.MISSING)
    walls, refused = [], None
    try:
        with tempfile.TemporaryDirectory() as folder:
            walls = probe(program, device, Path(folder))
    except nsight_compute.Refused as error:
        refused = str(error)
    return ProfilerRecord(device=device, ncu=nsight_compute.version(program), refused=refused, walls=walls)


def run(profiler: ProfilerRecord, tasks: list[dict], folder: Path) -> list[CountersRecord]:
    """Not attempted where profiling was refused."""
    watch = Stopwatch()
    identity = devices.discover()[profiler.device]
    capability = tuple(int(part) for part in identity.compute_capability.split("."))
    if profiler.refused or not tasks:
        counted = [Found([], [], profiler.refused) for _ in tasks]
    else:
        counted = count(nsight_compute.find(), profiler.device, tasks, capability, folder)
    return [
        CountersRecord(
            device=profiler.device,
            started_at=watch.started_at,
            elapsed_s=watch.elapsed_s,
            ncu=profiler.ncu,
            refused=found.refused,
            cells=found.cells,
            reports=[
                DataFile(path=str(path), sha256=file_sha256(path), generated=True, description="of Nsight Compute")
                for path in found.reports
            ],
        )
        for found in counted
    ]


if __name__ == "__main__":
    device, params, output = snakemake.wildcards.device, snakemake.params, snakemake.output
    with job(f"counters {device}", snakemake):
        profiler = query(device)
        records = run(profiler, [json.loads(task) for task in params.tasks], Path(output.profiler).parent / "counters")
        for record, path in zip(records, output.counted, strict=True):
            write(record, path)
        write(profiler, output.profiler)
        report([profiler, *records], f"counters {device}")
