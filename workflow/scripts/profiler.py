"""profiler: whether Nsight Compute may read a device's counters, found by counting kernels of known counts."""

from roofline.run.turn import take_turn

if __name__ == "__main__":
    take_turn(snakemake)

import tempfile
from pathlib import Path

from roofline.measure import nsight_compute
from roofline.records.base import write
from roofline.records.counters import ProfilerRecord
from roofline.run.counters import probe
from roofline.run.jobs import job, report


def query(device: str) -> ProfilerRecord:
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


if __name__ == "__main__":
    name = snakemake.wildcards.device
    with job(f"profiler {name}", snakemake):
        record = query(name)
        write(record, snakemake.output[0])
        report(record, f"profiler {name}")
