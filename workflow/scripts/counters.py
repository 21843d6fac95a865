"""counters: whether Nsight Compute may read a device's counters, and what they counted while a few cells ran."""

import json
from pathlib import Path

from roofline.core.terms import UnsupportedError
from roofline.measure import hardware_counters, ncu
from roofline.records.base import write
from roofline.records.counters_record import CountedCell, CountersRecord, ProfilerRecord
from roofline.records.files import file_sha256
from roofline.records.operator_record import DataFile
from roofline.run.jobs import Stopwatch, job, say


def count_jobs(device: str, tasks: list[dict], path: Path) -> tuple[ProfilerRecord, list[CountersRecord]]:
    """Return the profiler's record, and a record of counters for each task.

    A task has no cells where the device has no implementation, or where counting is refused. The report is at `path`.
    """
    watch, program = Stopwatch(), ncu.find_ncu()
    cells_by_task: list[list[CountedCell]] = [[] for _ in tasks]
    version, refused_reason = None, None if program else ncu.NOT_FOUND_REASON
    if program:
        try:
            version = ncu.read_version(program)
            cells_by_task = hardware_counters.count_cells(program, device, tasks, path)
        except UnsupportedError as reason:
            refused_reason = str(reason)
            path.unlink(missing_ok=True)
    reports, times = [], {"started_at": watch.started_at, "elapsed_s": watch.elapsed_s}
    if any(cells_by_task):
        fields = {"sha256": file_sha256(path), "generated": True, "description": "of Nsight Compute"}
        reports.append(DataFile(path=str(path), **fields))
    records = [CountersRecord(device=device, cells=cells, reports=reports, **times) for cells in cells_by_task]
    return ProfilerRecord(device=device, ncu_version=version, refused_reason=refused_reason), records


if __name__ == "__main__":
    from roofline.report.job_lines import format_job_line  # imports the report, which a counted program does without

    device, params, output = snakemake.wildcards.device, snakemake.params, snakemake.output
    with job(f"counters {device}", snakemake):
        path = Path(output.profiler).parent / "counters" / "kernels.ncu-rep"
        profiler, records = count_jobs(device, [json.loads(task) for task in params.tasks], path)
        for record, path in zip(records, output.counted, strict=True):
            write(record, path)
        write(profiler, output.profiler)
        say(format_job_line([profiler, *records], f"counters {device}"))
