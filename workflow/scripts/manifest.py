"""manifest: everything needed to repeat the run, with a checksum of every output but itself and the archive."""

import json
import os
from base64 import urlsafe_b64encode
from datetime import UTC, datetime
from pathlib import Path

from roofline import checkout
from roofline.derived import derive, differing
from roofline.provenance import BrokenProvenance, Manifest, make_manifest, read_results
from roofline.records import write
from roofline.reporting import job, now, say

RUN_STARTED = "ROOFLINE_RUN_STARTED"  # left by the Snakefile; jobs inherit it
METADATA = Path(".snakemake", "metadata")


def job_of(output: str, metadata: Path = METADATA) -> dict:
    """What Snakemake keeps of the job that made an output: rule, params, start, end, log; {} where it keeps nothing.

    Its params have no names and are written as Python writes them.
    """
    try:
        kept = json.loads(metadata_path(output, metadata).read_bytes())
        logs = kept.get("log") or [None]
        return {
            "rule": kept.get("rule"),
            "params": [str(value) for value in kept.get("params") or []],
            "started_at": _moment(kept.get("starttime")),
            "ended_at": _moment(kept.get("endtime")),
            "log": logs[0],
        }
    except (OSError, ValueError, AttributeError):
        return {}


def metadata_path(output: str, metadata: Path) -> Path:
    """metadata/<base64 of the path>; a name too long for the file system is cut into folders that begin with @."""
    name = urlsafe_b64encode(output.encode()).decode()
    longest = os.pathconf(metadata, "PC_NAME_MAX") - 1
    parts = [name[i : i + longest] for i in range(0, len(name), longest)]
    return metadata.joinpath(*(f"@{part}" for part in parts[:-1]), parts[-1])


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()


def require_derived(root: Path, manifest: Manifest) -> None:
    """Raises BrokenProvenance where what was made from the records holds something else: a hand has been at it."""
    found = read_results(root, [output.path for output in manifest.outputs])
    hashes = {output.path: output.sha256 for output in manifest.outputs}
    for path in differing(root, derive(root, found, manifest.config["operations"], hashes), found):
        raise BrokenProvenance(f"{path} is not what its records give: remove it and run again")


def line(manifest: Manifest) -> str:
    times = manifest.times
    told = [] if times.span_s is None else [f"{times.span_s:.{1 if times.span_s < 10 else 0}f} s"]
    if times.cost_usd is not None:
        told.append(f"${times.cost_usd:.2f}" if times.cost_usd >= 0.01 else "under $0.01")
    spent = f"; {', '.join(told)}" if told else ""
    return f"manifest: {len(manifest.outputs)} outputs, checksums kept{spent}"


if __name__ == "__main__":
    with job("manifest", snakemake.log[0]):
        manifest = make_manifest(
            Path(),
            list(snakemake.input.outputs),
            job_of,
            settings=json.loads(snakemake.params.settings),
            usd_per_hour=snakemake.params.usd_per_hour,
            run_started_at=os.environ.get(RUN_STARTED),
            created_at=now(),
            sources=checkout.describe(Path()),
        )
        require_derived(Path(), manifest)
        write(manifest, snakemake.output[0])
        say(line(manifest))
