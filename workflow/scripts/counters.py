"""counters: whether Nsight Compute may read a device's counters, and what they counted while a few cells ran."""

import json
from pathlib import Path

from roofline.core.terms import UnsupportedError
from roofline.measure import hardware_counters, ncu
from roofline.records.base import write
from roofline.records.counters_record import CountersRecord, ProfilerRecord
from roofline.records.files import file_sha256
from roofline.records.operator_record import DataFile
from roofline.run.jobs import Stopwatch, job, report


def count_jobs(device: str, tasks: list[dict], path: Path) -> tuple[ProfilerRecord, list[CountersRecord]]:
    """A record for each task, without cells where the device has no implementation or counting is refused."""
    watch, program = Stopwatch(), ncu.find_ncu()
    cells, version, refused = [], None, None if program else ncu.NOT_FOUND_REASON
    if program:
        try:
            version = ncu.read_version(program)
            cells = hardware_counters.count_cells(program, device, tasks, path)
        except UnsupportedError as reason:
            refused = str(reason)
            path.unlink(missing_ok=True)
    reports = []
    if cells:
        kept = {"path": str(path), "sha256": file_sha256(path)}
        reports = [DataFile(**kept, generated=True, description="of Nsight Compute")]
    records = [
        CountersRecord(
            device=device,
            started_at=watch.started_at,
            elapsed_s=watch.elapsed_s,
            cells=[cells[place]] if cells and cells[place] else [],
            reports=reports,
        )
        for place in range(len(tasks))
    ]
    return ProfilerRecord(device=device, ncu_version=version, refused_reason=refused), records


if __name__ == "__main__":
    device, params, output = snakemake.wildcards.device, snakemake.params, snakemake.output
    with job(f"counters {device}", snakemake):
        path = Path(output.profiler).parent / "counters" / "kernels.ncu-rep"
        profiler, records = count_jobs(device, [json.loads(task) for task in params.tasks], path)
        for record, path in zip(records, output.counted, strict=True):
            write(record, path)
        write(profiler, output.profiler)
        report([profiler, *records], f"counters {device}")
