"""The manifest of a run: how it is made, and how files are held against it."""

import hashlib
import json
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from roofline.core.formatting import count_words
from roofline.core.terms import UserError, select_accelerators
from roofline.records.base import shared_fields
from roofline.records.device_record import DeviceRecord
from roofline.records.files import RESULTS, file_sha256
from roofline.records.manifest_record import Environment, Manifest, ManifestDevice, Output, Sources, Times
from roofline.records.operator_record import OperatorRecord
from roofline.run.jobs import JOB_KEYS
from roofline.table.run_records import Results, read_results
from roofline.table.seals import find_violations, parse_time

# ---------------------------------------------------------------- making it


class RunTimes(NamedTuple):
    """The times of a run: when it was started, when it makes its manifest, and the seconds of all runs that made any of
    its outputs, by when they were started."""

    started_at: str
    created_at: str
    seconds: Mapping[str, float]


def make_manifest(
    root: Path,
    outputs: Sequence[str],
    jobs: Mapping[str, Mapping],
    run: RunTimes,
    *,
    settings: dict,
    asked: dict,
    sources: Sources,
) -> Manifest:
    """Return the manifest of outputs, whose paths are relative to root.

    `jobs` has the job that made each output: rule, started_at, ended_at, log. Raises UserError if a measurement does
    not follow from its seals.
    """
    results = read_results(root / RESULTS, [root / path for path in outputs])
    data = results.data_files()
    reports = [report for _, record in results.counters for report in record.reports]
    files = [file.path for file in [*data, *reports] if Path(file.path).is_relative_to(RESULTS)]
    paths = [*outputs, *(path for path in files if (root / path).is_file())]
    listed = [describe_output(root, path, jobs.get(path, {}), run.started_at) for path in dict.fromkeys(paths)]
    if faults := broken_seals(results, hashes(listed)):
        raise UserError("; ".join(faults) + " (remove the file that is named first, and run again)")
    devices = list(results.devices.values())
    return Manifest(
        created_at=run.created_at,
        config=settings,
        asked=asked,
        sources=sources,
        config_sha256=hashlib.sha256(json.dumps(settings, sort_keys=True, separators=(",", ":")).encode()).hexdigest(),
        environment=describe_environment(devices),
        devices=[ManifestDevice(**shared_fields(device, ManifestDevice)) for device in devices],
        data=data,
        operators={path: sha for _, record in results.of_kind(OperatorRecord) for path, sha in record.sources.items()},
        times=span(listed, run, settings["cost"]["usd_per_hour"]),
        outputs=listed,
    )


def hashes(outputs: Iterable[Output]) -> dict[str, str]:
    """Return the SHA-256 of each output by its path below results/."""
    return {output.path.removeprefix(f"{RESULTS}/"): output.sha256 for output in outputs}


def describe_amendments(manifest: Manifest) -> list[str]:
    """Return a line for each time at which files were replaced after the run: when, by which commit, how many, why."""
    replaced = Counter((entry.amended_at, entry.commit, entry.reason) for entry in manifest.amended)
    return [
        f"amended at {amended_at} by {commit}: {count_words(count, 'file')}: {reason}"
        for (amended_at, commit, reason), count in replaced.items()
    ]


def first_hash(manifest: Manifest) -> str:
    """Return one SHA-256 of all outputs as their run left them: of those that were amended since, as they were."""
    first = {output.path: output.sha256 for output in manifest.outputs}
    first |= {entry.path: entry.old_sha256 for entry in reversed(manifest.amended)}
    return hashlib.sha256(json.dumps(first, sort_keys=True).encode()).hexdigest()


def broken_seals(results: Results, sha256: Mapping[str, str]) -> list[str]:
    """Return a line for each measurement that does not follow from the seals of its device."""
    return [line for device in results.devices for line in find_violations(results, device, sha256)]


def describe_output(root: Path, path: str, job: Mapping, run_started_at: str) -> Output:
    """Return the entry of an output in the manifest, with the job that made it."""
    started_at = parse_time(job.get("started_at"))
    return Output(
        path=path,
        bytes=(root / path).stat().st_size,
        sha256=file_sha256(root / path),
        of_this_run=started_at >= datetime.fromisoformat(run_started_at) if started_at else None,
        **{key: job.get(key) for key in JOB_KEYS},
    )


def span(outputs: list[Output], run: RunTimes, usd_per_hour: float | None) -> Times:
    """Return the seconds from the first job of this run to the manifest, those of all jobs and all runs, and their cost
    in USD."""
    starts = [parse_time(output.started_at) for output in outputs if output.of_this_run]
    # A run that made only the manifest began when it was started.
    first = min(filter(None, starts), default=datetime.fromisoformat(run.started_at))
    seconds = max(0.0, (datetime.fromisoformat(run.created_at) - first).total_seconds())
    total_s = sum(run.seconds.values())
    # Each job writes one log, and may write several outputs.
    jobs = {(row.log, row.started_at): (parse_time(row.started_at), parse_time(row.ended_at)) for row in outputs}
    job_seconds = [(end - start).total_seconds() for start, end in jobs.values() if start and end]
    return Times(
        first_start_at=first.isoformat(),
        span_s=seconds,
        usd_per_hour=usd_per_hour,
        cost_usd=usd_per_hour * seconds / 3600 if usd_per_hour is not None else None,
        jobs_s=sum(job_seconds),
        run_count=len(run.seconds),
        total_span_s=total_s,
        total_cost_usd=usd_per_hour * total_s / 3600 if usd_per_hour is not None else None,
    )


def describe_spending(times: Times) -> str | None:
    """Return how many runs made what is here, their minutes and their price; None if that is not known."""
    if not times.run_count or times.total_span_s is None:
        return None
    price = f", ${times.total_cost_usd:.2f}" if times.total_cost_usd is not None else ""
    between = "; the time between runs is not counted" if times.run_count > 1 else ""
    return f"{count_words(times.run_count, 'run')}, {times.total_span_s / 60:.1f} minutes{price}{between}"


def describe_environment(devices: list[DeviceRecord]) -> Environment:
    """Return the versions of Python, its packages, the driver and the operating system."""
    fields = [distribution.metadata for distribution in metadata.distributions()]
    packages = {package["Name"]: package["Version"] for package in fields if package["Name"]}
    gpu = next((gpu.software for gpu in select_accelerators(devices, lambda record: record.device_kind)), {})
    host = next((record.host for record in devices), {})
    return Environment(
        python=platform.python_version(),
        packages=dict(sorted(packages.items(), key=lambda package: package[0].lower())),
        snakemake=packages.get("snakemake"),
        driver=gpu.get("driver"),
        cuda_runtime=gpu.get("cuda_runtime"),
        os=host.get("os") or platform.platform(),
        host_cpu=host.get("cpu"),
    )


# ---------------------------------------------------------------- holding files against it


def differing_files(root: Path, outputs: Iterable[Output]) -> list[str]:
    """Return a line for each of these outputs that is missing under root or not as listed."""
    lines = []
    for output in outputs:
        path = root / output.path
        if not path.is_file():
            lines.append(f"{output.path}: missing, and the manifest lists it")
        elif path.stat().st_size != output.bytes or file_sha256(path) != output.sha256:
            newer = path.stat().st_mtime > (root / RESULTS / "manifest.json").stat().st_mtime
            advice = "; it is newer: if it was measured since, run make" if newer else ""
            lines.append(f"{output.path}: its checksum is not the one in the manifest{advice}")
    return lines


def unlisted_files(root: Path, manifest: Manifest) -> list[str]:
    """Return the paths of results under root that the manifest does not list, apart from the manifest itself."""
    listed = {output.path for output in manifest.outputs} | {f"{RESULTS}/manifest.json"}
    paths = (path.relative_to(root).as_posix() for path in (root / RESULTS).rglob("*") if path.is_file())
    return sorted(path for path in paths if path not in listed)
