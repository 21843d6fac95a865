"""counters: whether Nsight Compute may read a device's counters, and what they counted while a few cells ran."""

from roofline.run.turn import take_turn

if __name__ == "__main__":
    take_turn(snakemake)

import json
import tempfile
from pathlib import Path

from roofline.devices import discovery
from roofline.measure import nsight_compute
from roofline.records.base import write
from roofline.records.counters import CountersRecord, ProfilerRecord
from roofline.records.files import file_sha256
from roofline.records.operator import DataFile
from roofline.run.counters import count, probe
from roofline.run.jobs import Stopwatch, job, report


def run(device: str, tasks: list[dict], folder: Path) -> tuple[ProfilerRecord, list[CountersRecord]]:
    """Nothing is counted where the kernels of known counts cannot be."""
    watch, program = Stopwatch(), nsight_compute.find()
    identity = discovery.discover()[device]
    capability = tuple(int(part) for part in identity.compute_capability.split("."))
    counted, walls, refused = [], [], None if program else nsight_compute.MISSING
    if program:
        counted, walls = count(program, device, tasks, capability, folder)
    if program and not walls:
        try:
            with tempfile.TemporaryDirectory() as scratch:
                walls = probe(program, device, Path(scratch))
        except nsight_compute.Refused as error:
            refused = str(error)
    ncu = nsight_compute.version(program) if program else None
    records = [
        CountersRecord(
            device=device,
            started_at=watch.started_at,
            elapsed_s=watch.elapsed_s,
            ncu=ncu,
            refused=refused or found.refused,
            cells=[] if refused else found.cells,
            reports=[
                DataFile(path=str(path), sha256=file_sha256(path), generated=True, description="of Nsight Compute")
                for path in ([] if refused else found.reports)
            ],
        )
        for found in counted
    ]
    return ProfilerRecord(device=device, ncu=ncu, refused=refused, walls=walls), records


if __name__ == "__main__":
    device, params, output = snakemake.wildcards.device, snakemake.params, snakemake.output
    with job(f"counters {device}", snakemake):
        folder = Path(output.profiler).parent / "counters"
        profiler, records = run(device, [json.loads(task) for task in params.tasks], folder)
        for record, path in zip(records, output.counted, strict=True):
            write(record, path)
        write(profiler, output.profiler)
        report([profiler, *records], f"counters {device}")
