"""manifest: everything needed to repeat the run, with a checksum of every output but itself and the archive."""

import json
import os
from pathlib import Path

from roofline.records.base import write
from roofline.records.manifest_record import Manifest
from roofline.run import checkout
from roofline.run.jobs import RUN_STARTED, job, job_times, now, run_seconds, say, seconds_of_run
from roofline.run.make_manifest import RunTimes, describe_spending, make_manifest


def summary_line(manifest: Manifest) -> str:
    """Return the line of the job: the number of outputs, and the time and cost of the run where they are known."""
    times, spent = manifest.times, []
    if times.span_s is not None:
        digits = 1 if times.span_s < 10 else 0
        spent.append(f"{times.span_s:.{digits}f} s")
    if times.cost_usd is not None:
        spent.append(f"${times.cost_usd:.2f}" if times.cost_usd >= 0.01 else "under $0.01")
    line = f"manifest: {len(manifest.outputs)} outputs, checksums kept"
    line = f"{line}; {', '.join(spent)}" if spent else line
    return f"{line}; in all {describe_spending(times)}" if (times.run_count or 0) > 1 else line


if __name__ == "__main__":
    with job("manifest", snakemake):
        outputs, started_at = list(snakemake.input.outputs), os.environ[RUN_STARTED]
        run = RunTimes(started_at, now(), run_seconds(outputs) | {started_at: seconds_of_run() or 0.0})
        settings, asked = json.loads(snakemake.params.settings), json.loads(snakemake.params.asked)
        sources = checkout.describe(Path(snakemake.scriptdir).resolve().parents[1])
        manifest = make_manifest(Path(), outputs, job_times(), run, settings=settings, asked=asked, sources=sources)
        write(manifest, snakemake.output[0])
        say(summary_line(manifest))
