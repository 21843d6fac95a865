"""manifest.json: everything needed to repeat a run, with a checksum of every output but itself and the archive."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field

from roofline.core.terms import DeviceKind
from roofline.records.base import NotNegative, Record, RunRecord, Time
from roofline.records.operator_record import DataFile


class Sources(Record):
    """The sources that a run was made by: their commit, and the files that differ from it."""

    commit: str | None
    dirty: bool | None
    changed_files: list[str] | None
    known_from: Literal["git"] | None
    reason: str | None
    url: str | None = Field(default=None, description="of the repository, if it is public")


class Output(Record):
    """A file of a run, with its checksum and the job that wrote it."""

    path: str
    bytes: int
    sha256: str
    rule: str | None
    started_at: Time | None
    ended_at: Time | None
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


class ManifestDevice(Record):
    """A device of the run as it identifies itself, and the versions of its libraries."""

    device: str
    device_kind: DeviceKind
    name: str
    uuid: str
    memory_total_bytes: int
    software: dict[str, str | None]


class Times(Record):
    """The time and cost from the first job of the run that made this file to its end; null if not known."""

    first_start_at: Time | None
    span_s: NotNegative | None
    usd_per_hour: NotNegative | None
    cost_usd: NotNegative | None
    jobs_s: NotNegative | None = Field(default=None, description="of all jobs that made what is here, added up")
    run_count: int | None = Field(default=None, description="runs that made what is here, this one included")
    total_span_s: NotNegative | None = Field(default=None, description="of all of them, without the time between runs")
    total_cost_usd: NotNegative | None = Field(default=None, description="at the price of now")


class Amendment(Record):
    """A file of an archive that was replaced after its run, and why."""

    path: str
    old_sha256: str
    new_sha256: str
    commit: str = Field(description="of the code that wrote the new file")
    amended_at: Time
    reason: str


class _PlotSettings(BaseModel):
    dpi: Annotated[float, Field(ge=1, le=1000)]


class _UsedSettings(BaseModel):
    """The settings that are read of the configuration of a run, whose other sections belong to its operators."""

    effort: str | None = None
    plot: _PlotSettings


def _check_used(config: dict[str, Any]) -> dict[str, Any]:
    _UsedSettings.model_validate(config)
    return config


class Manifest(RunRecord):
    """results/manifest.json: configuration, sources, environment, devices and outputs of a run."""

    kind: Literal["manifest"] = "manifest"
    created_at: Time
    config: Annotated[dict[str, Any], AfterValidator(_check_used)]
    config_sha256: str
    asked: dict[str, Any] = Field(description="what roofline.json follows from besides the records")
    sources: Sources
    environment: Environment
    devices: list[ManifestDevice]
    data: list[DataFile] = Field(description="files that were measured with, such as weights")
    operators: dict[str, str] = Field(description="SHA-256 of the user's own operators, by the paths of their files")
    times: Times
    outputs: list[Output]
    amended: list[Amendment] = Field(default=[], description="files that were replaced after the run, in order of time")
