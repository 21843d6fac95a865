"""Where every number came from: what manifest.json holds, how it is made, and how files are held against it."""

import hashlib
import json
import platform
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator

from roofline.consistency import contradictions as contradictions_of
from roofline.prediction import predict_sealed, way_of
from roofline.records import (
    SCHEMA_VERSION,
    BandwidthRecord,
    CellPrediction,
    DecodeAttnRecord,
    DeviceKind,
    DeviceRecord,
    JobRecord,
    Measurement,
    NotNegative,
    PeakFlopsRecord,
    PredictionRecord,
    Record,
    read,
)

RESULTS = "results"
KINDS: dict[str, type[Record]] = {
    "device_query": DeviceRecord,
    "prediction": PredictionRecord,
    "peak_flops": PeakFlopsRecord,
    "bandwidth": BandwidthRecord,
    "decode_attn": DecodeAttnRecord,
}


class BrokenProvenance(Exception):
    """Results that do not come from one another as they should: a line, and all faults in it."""


def _stays_inside(path: str) -> str:
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts:
        raise ValueError(f"{path} leads out of the working directory")
    return path


class Sources(Record):
    commit: str | None
    dirty: bool | None
    changed_files: list[str] | None
    known_from: Literal["git", "environment"] | None
    reason: str | None


class Output(Record):
    path: Annotated[str, AfterValidator(_stays_inside)]
    bytes: int
    sha256: str
    rule: str | None
    params: list[str] | None
    started_at: str | None
    ended_at: str | None
    of_this_run: bool | None
    log: str | None


class Environment(Record):
    """Packages by name, and what they ran on. A CPU has neither driver nor CUDA."""

    python: str
    packages: dict[str, str]
    snakemake: str | None
    driver: str | None
    cuda_runtime: str | None
    os: str
    host_cpu: str | None


class Device(Record):
    device: str
    kind: DeviceKind
    name: str
    uuid: str
    memory_total_bytes: int
    software: dict[str, str | None]


class Seal(Record):
    """One device's prediction: every measuring job began after it was sealed, and carries its hash."""

    device: str
    path: str
    sha256: str
    sealed_at: str
    first_measurement_at: str | None
    measurements: int
    violations: list[str]


class Checkpoint(Record):
    preset: str
    path: str
    sha256: str
    generated: bool


class Times(Record):
    """Sums over jobs, of this run and of all that made these results; the span is from this run's first start."""

    run_started_at: str | None
    first_start_at: str | None
    jobs_of_this_run: int | None
    jobs_of_this_run_s: NotNegative | None
    jobs: int
    jobs_s: NotNegative
    jobs_without_times: int
    span_s: NotNegative | None
    usd_per_hour: NotNegative | None
    cost_usd: NotNegative | None


class Manifest(Record):
    schema_version: Literal[1] = SCHEMA_VERSION
    kind: Literal["manifest"] = "manifest"
    created_at: str
    config: dict[str, Any]
    config_sha256: str
    sources: Sources
    environment: Environment
    devices: list[Device]
    seals: list[Seal]
    checkpoints: list[Checkpoint]
    times: Times
    outputs: list[Output]


# ---------------------------------------------------------------- making it


def make_manifest(
    root: Path,
    outputs: Iterable[str],
    job_of: Callable[[str], dict],
    *,
    settings: dict,
    usd_per_hour: float | None,
    run_started_at: str | None,
    created_at: str,
    sources: Sources,
) -> Manifest:
    """The manifest of outputs, given relative to root.

    `job_of` tells of the job that made an output: rule, params, started_at, ended_at, log; {} where unknown.
    Raises BrokenProvenance where a measurement does not follow from its sealed prediction.
    """
    outputs = list(dict.fromkeys(outputs))
    found = read_results(root, outputs)
    checkpoints = found.checkpoints()
    kept = [c.path for c in checkpoints if is_result(c.path) and (root / c.path).is_file()]
    listed = [describe_output(root, path, job_of(path), run_started_at) for path in dict.fromkeys(outputs + kept)]
    sha256 = {output.path: output.sha256 for output in listed}
    seals = [describe_seal(found, device, sha256) for device in found.seals]
    faults = [line for seal in seals for line in seal.violations] + unsealed(found) + changed_checkpoints(found, sha256)
    if faults:
        raise BrokenProvenance("; ".join(faults) + " (remove the file that is named first, and run again)")
    devices = [record for _, record in found.devices.values()]
    return Manifest(
        created_at=created_at,
        config=settings,
        config_sha256=config_sha256(settings),
        sources=sources,
        environment=describe_environment(devices),
        devices=[
            Device(
                device=record.device,
                kind=record.device_kind,
                name=record.name,
                uuid=record.uuid,
                memory_total_bytes=record.memory_total_bytes,
                software=record.software,
            )
            for record in devices
        ],
        seals=seals,
        checkpoints=checkpoints,
        times=add_up(listed, run_started_at, created_at, usd_per_hour),
        outputs=listed,
    )


def describe_output(root: Path, path: str, job: dict, run_started_at: str | None) -> Output:
    known = {key: job.get(key) for key in ("rule", "params", "started_at", "ended_at", "log")}
    run, start = moment(run_started_at), moment(known["started_at"])
    return Output(
        path=path,
        bytes=(root / path).stat().st_size,
        sha256=file_sha256(root / path),
        of_this_run=start >= run if start and run else None,
        **known,
    )


def add_up(outputs: list[Output], run_started_at: str | None, created_at: str, usd_per_hour: float | None) -> Times:
    """Seconds of the jobs behind outputs, each job once however many outputs it has, and the span's cost in USD.

    Without the run's start, what belongs to this run is not known: null.
    """
    jobs: dict[str, tuple[datetime, datetime, bool | None]] = {}
    for output in outputs:
        start, end = moment(output.started_at), moment(output.ended_at)
        if start and end:
            key = output.log or output.path
            earlier = jobs.get(key, (start, end, None))
            jobs[key] = (min(start, earlier[0]), max(end, earlier[1]), output.of_this_run)
    without = {o.log or o.path for o in outputs if not moment(o.started_at) or not moment(o.ended_at)} - set(jobs)
    run, of_this_run = moment(run_started_at), [job for job in jobs.values() if job[2]]
    # A run that made the manifest alone anew has no other start than its own.
    first = min((start for start, _, _ in of_this_run), default=run) if run else None
    span_s = _seconds(first, moment(created_at)) if first else None
    return Times(
        run_started_at=run.isoformat() if run else None,
        first_start_at=first.isoformat() if first else None,
        jobs_of_this_run=len(of_this_run) if run else None,
        jobs_of_this_run_s=_total(of_this_run) if run else None,
        jobs=len(jobs),
        jobs_s=_total(jobs.values()),
        jobs_without_times=len(without),
        span_s=span_s,
        usd_per_hour=usd_per_hour,
        cost_usd=usd_per_hour * span_s / 3600 if usd_per_hour is not None and span_s is not None else None,
    )


def _total(jobs) -> float:
    return round(sum(_seconds(start, end) for start, end, _ in jobs), 3)


def _seconds(start: datetime, end: datetime) -> float:
    return max(0.0, round((end - start).total_seconds(), 3))


def moment(text: str | None) -> datetime | None:
    """A moment written as ISO 8601, in UTC where it does not say; None for what is not one."""
    try:
        when = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def describe_environment(devices: list[DeviceRecord]) -> Environment:
    packages = {dist.name: dist.version for dist in metadata.distributions() if dist.name}
    gpu = next((record.software for record in devices if record.device_kind == "gpu"), {})
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


def config_sha256(settings: dict) -> str:
    """The hash of settings whatever the order of their keys."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def file_sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_result(path: str) -> bool:
    return PurePosixPath(path).parts[:1] == (RESULTS,)


# ---------------------------------------------------------------- what the records say of one another


@dataclass
class Results:
    """The records among some outputs, in their order, each with its path."""

    devices: dict[str, tuple[str, DeviceRecord]] = field(default_factory=dict)
    seals: dict[str, tuple[str, PredictionRecord]] = field(default_factory=dict)
    measured: list[tuple[str, JobRecord]] = field(default_factory=list)

    def of_kind(self, kind: type[JobRecord]) -> list[tuple[str, JobRecord]]:
        return [(path, record) for path, record in self.measured if isinstance(record, kind)]

    def checkpoints(self) -> list[Checkpoint]:
        """Every file of weights that was measured with, once."""
        used = {}
        for _, record in self.of_kind(DecodeAttnRecord):
            weights = record.weights
            used[record.preset, weights.path, weights.sha256] = Checkpoint(
                preset=record.preset, path=weights.path, sha256=weights.sha256, generated=weights.generated
            )
        return list(used.values())


def read_results(root: Path, paths: Iterable[str]) -> Results:
    """The records among paths relative to root. Raises CorruptRecord, or OSError for a file that is not there."""
    found = Results()
    for path in paths:
        kind = KINDS.get(_kind(root / path))
        if kind is None:
            continue
        record = read(kind, root / path)
        if isinstance(record, DeviceRecord):
            found.devices[record.device] = (path, record)
        elif isinstance(record, PredictionRecord):
            found.seals[record.device] = (path, record)
        else:
            found.measured.append((path, record))
    return found


def _kind(path: Path) -> str | None:
    if path.suffix != ".json":
        return None
    try:
        content = json.loads(path.read_bytes())
    except ValueError:
        return None
    return content.get("kind") if isinstance(content, dict) else None


def describe_seal(found: Results, device: str, sha256: dict[str, str]) -> Seal:
    """One device's seal and whatever contradicts it; `sha256` holds the hash of every output."""
    path, seal = found.seals[device]
    measured = [(where, record) for where, record in found.measured if record.device == device]
    sealed_at = moment(seal.sealed_at)
    violations = []
    record_path, record = found.devices.get(device, (None, None))
    if record and sha256[record_path] != seal.device_record_sha256:
        violations.append(f"{path} was sealed for another {record_path}")
    for where, record in measured:
        began = moment(record.started_at)
        if record.seal_sha256 != sha256[path]:
            violations.append(f"{where} was measured under another seal than {path}")
        violations += [f"{where}: {what}" for what in contradictions_of(record)]
        violations += [
            f"{where} holds another prediction of {name} than {path} makes"
            for name, measured_cell in _cells(record)
            if measured_cell.predicted != _predicted(seal, measured_cell)
        ]
        if not sealed_at or not began or began <= sealed_at:
            violations.append(f"{where} began at {record.started_at}, and {path} was sealed at {seal.sealed_at}")
    return Seal(
        device=device,
        path=path,
        sha256=sha256[path],
        sealed_at=seal.sealed_at,
        first_measurement_at=min((record.started_at for _, record in measured), default=None, key=_moment_or_never),
        measurements=len(measured),
        violations=violations,
    )


def _predicted(seal: PredictionRecord, cell: Measurement) -> CellPrediction | None:
    """What the seal makes of a cell; None where its constants know no such cell."""
    try:
        return predict_sealed(
            seal,
            flops=cell.flops,
            traffic_bytes=cell.bytes,
            compute_ceiling=cell.compute_ceiling,
            way=way_of(cell),
        )
    except KeyError:
        return None


def _cells(record) -> list[tuple[str, Measurement]]:
    """Every timed cell of a record, with a name."""
    if isinstance(record, PeakFlopsRecord):
        return [("gemm", record.peak.lab)] if record.peak and record.peak.lab else []
    if isinstance(record, DecodeAttnRecord):
        return [(f"{m.operator}_{m.implementation}_{m.scope}", m) for m in record.measurements]
    return []


def _moment_or_never(text: str) -> datetime:
    return moment(text) or datetime.max.replace(tzinfo=UTC)


def unsealed(found: Results) -> list[str]:
    return [f"{where} has no sealed prediction" for where, record in found.measured if record.device not in found.seals]


def changed_checkpoints(found: Results, sha256: dict[str, str]) -> list[str]:
    """Weights among the outputs that are not the file that was measured with."""
    return [
        f"{c.path} is not the file that was measured with"
        for c in found.checkpoints()
        if c.path in sha256 and sha256[c.path] != c.sha256
    ]


# ---------------------------------------------------------------- holding files against it


def differing_files(root: Path, manifest: Manifest) -> list[str]:
    """A line for every output under root that is missing or not as listed."""
    told = []
    for output in manifest.outputs:
        path = root / output.path
        if not path.is_file():
            told.append(f"{output.path}: missing, and the manifest lists it")
        elif path.stat().st_size != output.bytes or file_sha256(path) != output.sha256:
            told.append(f"{output.path}: its checksum is not the one in the manifest")
    return told


def unlisted_files(root: Path, manifest: Manifest) -> list[str]:
    """Results under root that the manifest does not list, itself aside."""
    listed = {output.path for output in manifest.outputs} | {f"{RESULTS}/manifest.json"}
    there = (path.relative_to(root).as_posix() for path in (root / RESULTS).rglob("*") if path.is_file())
    return sorted(path for path in there if path not in listed)


def contradictions(root: Path, manifest: Manifest) -> list[str]:
    """What the records under root say against the manifest's account of seals, weights and settings."""
    found = read_results(root, [output.path for output in manifest.outputs])
    sha256 = {output.path: output.sha256 for output in manifest.outputs}
    seals = {device: describe_seal(found, device, sha256) for device in found.seals}
    told = [line for seal in seals.values() for line in seal.violations]
    listed = {seal.device: seal for seal in manifest.seals}
    told += [
        f"the manifest's seal of {device} is not that of the files"
        for device in sorted({*seals, *listed})
        if device not in seals or device not in listed or _unlike(seals[device], listed[device])
    ]
    if config_sha256(manifest.config) != manifest.config_sha256:
        told.append("the manifest's settings do not have the hash that it gives")
    return told + unsealed(found) + changed_checkpoints(found, sha256)


def _unlike(one: Seal, other: Seal) -> bool:
    return one.model_dump(exclude={"violations"}) != other.model_dump(exclude={"violations"})
