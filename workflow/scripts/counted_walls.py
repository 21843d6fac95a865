"""counted_walls: what Nsight Compute counts of the walls of the instruction roofline, where it is there and may."""

from roofline.run.turn import take_turn

if __name__ == "__main__":
    take_turn()

import tempfile
from pathlib import Path

from roofline.core.formatting import percent
from roofline.devices.gpu import wall_counts
from roofline.devices.gpu.wall_counts import NotCounted
from roofline.records.base import write
from roofline.records.files import file_sha256
from roofline.records.instructions import CountedWallsRecord
from roofline.run.jobs import Stopwatch, job, say
from roofline.run.paths import below_results

NO_NCU = "Nsight Compute's ncu is not on this machine (NCU names another)"


def run(name: str, seal_path, ncu: str | None) -> CountedWallsRecord:
    watch, found, refused = Stopwatch(), [], None
    try:
        if not ncu:
            raise NotCounted(NO_NCU)
        with tempfile.TemporaryDirectory(prefix="roofline-") as folder:
            report = Path(folder, "walls.ncu-rep")
            wall_counts.profile(ncu, name, report)
            found = wall_counts.counted(wall_counts.launches(report))
    except NotCounted as reason:
        refused = str(reason)
    return CountedWallsRecord(
        device=name,
        seals={below_results(seal_path): file_sha256(seal_path)},
        started_at=watch.started_at,
        elapsed_s=watch.elapsed_s,
        refused=refused,
        walls=found,
    )


def line(record: CountedWallsRecord) -> str:
    if record.refused:
        return f"counted_walls {record.device}: not counted, {record.refused}"
    furthest = max((abs(wall.apart) for wall in record.walls if wall.apart is not None), default=0.0)
    return f"counted_walls {record.device}: {len(record.walls)} walls, within {percent(furthest)} of their construction"


if __name__ == "__main__":
    name = snakemake.wildcards.device
    with job(f"counted_walls {name}", snakemake):
        record = run(name, snakemake.input.prediction, snakemake.params.ncu)
        write(record, snakemake.output[0])
        say(line(record))
