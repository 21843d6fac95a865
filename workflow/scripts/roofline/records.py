"""What is written and read: typed records, validated both ways.

A record is one JSON file. What is not known is null; NaN and Infinity are refused. Keys carry their unit.
"""

import json
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

SCHEMA_VERSION = 1

DeviceKind = Literal["cpu", "gpu"]
Regime = Literal["compute", "memory", "overhead", "shared_memory"]
RegimeLevel = Literal["hbm", "l2", "dram"]
Cache = Literal["cold", "warm"]
Scope = Literal["core", "block"]
ComputeUnit = Literal["tensor_core", "cuda_core", "cpu"]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Interval = tuple[NotNegative, NotNegative]


R = TypeVar("R", bound="Record")


class CorruptRecord(Exception):
    """A record that cannot be read back: not JSON, or not of its schema. The message is one line."""


class Record(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


# ---------------------------------------------------------------- what a device is


class VendorPeak(Record):
    tflops: Positive
    unit: ComputeUnit
    operations_per_clock_per_multiprocessor: Positive | None
    source: str
    verified: bool
    derived: bool


class VendorBandwidth(Record):
    gb_per_s: Positive
    source: str
    verified: bool
    derived: bool


class VendorFigures(Record):
    """What the datasheet, or the architecture's formula, promises."""

    match: Literal["exact", "formula"]
    entry: str | None
    reason: str
    boost_clock_mhz: Positive | None
    tensor_clock_mhz: Positive | None
    rate_class: str | None
    l2_bytes: NotNegative | None
    power_limit_w: Positive | None
    peaks: dict[str, VendorPeak]
    absent: dict[str, str]
    bandwidth: VendorBandwidth | None


class DeviceRecord(Record):
    schema_version: Literal[1] = SCHEMA_VERSION
    kind: Literal["device_query"] = "device_query"
    device: str
    device_kind: DeviceKind
    name: str
    uuid: str
    memory_total_bytes: int
    memory_free_bytes: int
    last_level_cache_bytes: int
    hardware: dict[str, Any] = Field(description="what this kind of device tells of itself; units in the keys")
    software: dict[str, str | None] = Field(description="versions by library")
    vendor: VendorFigures
    host: dict[str, Any]
    queried_at: str


# ---------------------------------------------------------------- what is promised before timing


class PromisedCeiling(Record):
    kind: Literal["compute", "memory"]
    name: str
    tflops: Positive | None = None
    gb_per_s: Positive | None = None
    source: str
    verified: bool
    derived: bool


class PredictionRecord(Record):
    """The seal: ceilings that the datasheets promise and the constants of the model, before any timing."""

    schema_version: Literal[1] = SCHEMA_VERSION
    kind: Literal["prediction"] = "prediction"
    device: str
    device_kind: DeviceKind
    sealed_at: str
    device_record_sha256: str
    model_source_sha256: str
    ceilings: list[PromisedCeiling]
    constants: dict[str, float]
    constant_sources: dict[str, str]


class CellPrediction(Record):
    regime: Regime
    latency_s: NotNegative | None
    fraction_of_compute_peak: NotNegative | None


# ---------------------------------------------------------------- what was measured


class Timing(Record):
    """Every sample of one timed block, in seconds, and its median."""

    method: str
    warmup: int
    requested: int
    stopped_by: Literal["iterations", "time_budget"]
    samples_s: list[Positive]
    median_s: Positive
    ci95_s: Interval | None


class DeviceState(Record):
    """One reading of the device; null where it does not tell."""

    at_s: float = Field(description="seconds since the measurement began")
    when: Literal["before", "during", "after"]
    sm_clock_mhz: NotNegative | None = None
    memory_clock_mhz: NotNegative | None = None
    power_w: NotNegative | None = None
    temperature_c: float | None = None
    throttle_reasons: list[str] | None = None
    other_processes: int | None = None


class Check(Record):
    """The comparison with float64 arithmetic on the same rounded inputs, made before the timing."""

    compared: str
    error: NotNegative = Field(description="norm of the difference over the norm of the reference")
    tolerance: Positive


class Measurement(Record):
    """One operator, implementation and shape, timed."""

    operator: str
    implementation: str
    preset: str | None
    scope: Scope | None
    dtype: str
    cache: Cache
    shape: dict[str, int]
    flops: int
    bytes: int
    compute_ceiling: str
    memory_ceilings: list[str] = Field(description="the declared memory ceiling, best first, until one exists")
    memory_level: RegimeLevel
    predicted: CellPrediction
    check: Check
    latency: Timing
    device_latency: Timing | None
    overhead_s: NotNegative | None = Field(description="the same code on the smallest shape: what a call costs")
    states: list[DeviceState]
    sm_clock_mhz: Positive | None = Field(default=None, description="counted by a kernel beside such a block")


class Trial(Record):
    """One thing that the investigation of a low peak tried."""

    what: Literal["size", "sustained", "tensor_cores"]
    size: int | None
    tflops: Positive | None
    clocks_mhz: list[float]
    finding: str
    explains: bool | None = Field(description="null where it was not tried, or is not known")


class Investigation(Record):
    reason: str
    trials: list[Trial]
    verdict: Literal["size", "sustained", "tensor_cores", "none"]
    ruled_out: list[str]
    not_ruled_out: list[str] = Field(description="what was not tried, is not known, or holds beside the verdict")


class Kernel(Record):
    name: str | None
    tensor_cores: bool | None
    how_known: str


class JobRecord(Record):
    schema_version: Literal[1] = SCHEMA_VERSION
    device: str
    seal_sha256: str
    started_at: str
    elapsed_s: NotNegative


class PeakFlops(Record):
    method: Literal["gemm", "fma"]
    unit: ComputeUnit
    size: int
    tflops: Positive = Field(description="the ceiling: the highest of the lab's block, its repeat and the trials")
    ci95: Interval | None
    lab_tflops: Positive
    repeat_tflops: Positive
    sustained_tflops: Positive | None
    vendor_tflops: Positive | None
    fraction_of_vendor: Positive | None
    clock_mhz: Positive | None
    clock_tflops: Positive | None
    fraction_of_clock: Positive | None
    kernel: Kernel
    lab: Measurement
    repeat: Measurement
    investigation: Investigation | None


class PeakFlopsRecord(JobRecord):
    kind: Literal["peak_flops"] = "peak_flops"
    dtype: str
    skipped: str | None = Field(description="why this device has no such peak; null when it was measured")
    peak: PeakFlops | None


class Bandwidth(Record):
    name: str
    level: str
    mix: Literal["read", "write", "copy", "triad"]
    counted: str
    bytes: int
    gb_per_s: Positive
    ci95: Interval | None
    vendor_gb_per_s: Positive | None
    fraction_of_vendor: Positive | None
    threads: int | None
    latency: Timing
    states: list[DeviceState]
    verified: str


class BandwidthRecord(JobRecord):
    kind: Literal["bandwidth"] = "bandwidth"
    level: str
    bandwidth: Bandwidth


class Weights(Record):
    path: str
    sha256: str
    generated: bool
    naming: str
    hidden_state: str


class DecodeAttnRecord(JobRecord):
    kind: Literal["decode_attn"] = "decode_attn"
    preset: str
    seq_len: int
    dtype: str
    weights: Weights
    note: str | None
    measurements: list[Measurement]


class Collection(Record):
    """The records of one rule on one device, side by side."""

    schema_version: Literal[1] = SCHEMA_VERSION
    kind: Literal["collection"] = "collection"
    device: str
    records: list[PeakFlopsRecord] | list[BandwidthRecord]


# ---------------------------------------------------------------- roofline.json, the public format


class DeviceEntry(Record):
    kind: DeviceKind
    name: str
    record: str


class ComputeCeiling(Record):
    device: str
    kind: Literal["compute"]
    name: str
    method: Literal["gemm", "fma"]
    unit: ComputeUnit
    tflops: Positive
    ci95: Interval | None
    lab_tflops: Positive | None
    sustained_tflops: Positive | None
    vendor_tflops: Positive | None
    fraction_of_vendor: Positive | None
    clock_tflops: Positive | None
    fraction_of_clock: Positive | None
    record: str


class MemoryCeiling(Record):
    device: str
    kind: Literal["memory"]
    name: str
    level: str
    mix: Literal["read", "write", "copy", "triad"]
    gb_per_s: Positive
    ci95: Interval | None
    vendor_gb_per_s: Positive | None
    fraction_of_vendor: Positive | None
    record: str


class Predicted(Record):
    sealed: CellPrediction | None
    from_ceilings: CellPrediction | None


class Operator(Record):
    device: str
    operator: str
    name: str | None = Field(default=None, description="the user's name for an operation of the user's own")
    implementation: str | None
    preset: str | None
    scope: Scope | None
    dtype: str
    cache: Cache | None
    shape: dict[str, int]
    flops: int | float
    bytes: int | float
    intensity_flops_per_byte: NotNegative | None
    no_traffic: bool
    latency_s: NotNegative | None
    latency_ci95_s: Interval | None
    device_latency_s: NotNegative | None
    device_latency_ci95_s: Interval | None
    attained_tflops: NotNegative | None
    device_attained_tflops: NotNegative | None
    compute_ceiling: str | None
    memory_ceiling: str | None
    roof_tflops: NotNegative | None
    fraction_of_roof: NotNegative | None
    device_fraction_of_roof: NotNegative | None
    fraction_of_compute_peak: NotNegative | None
    regime: Regime | None
    regime_level: RegimeLevel | None
    estimated_time_s: NotNegative | None = None
    roofline_time_s: NotNegative | None = None
    efficiency_percent: NotNegative | None = None
    predicted: Predicted
    record: str | None


class Skipped(Record):
    device: str
    what: Literal["peak_flops", "operation"]
    dtype: str
    name: str | None = Field(default=None, description="of an operation of the user's own")
    reason: str


class Roofline(Record):
    """results/roofline.json: ceilings and the operators under them. Paths are relative to results/."""

    schema_version: Literal[1] = SCHEMA_VERSION
    devices: dict[str, DeviceEntry]
    ceilings: list[Annotated[ComputeCeiling | MemoryCeiling, Field(discriminator="kind")]]
    operators: list[Operator]
    skipped: list[Skipped]


class Criterion(Record):
    device: str | None
    criterion: str
    result: Literal["pass", "fail", "not_applicable"]
    reason: str


class Acceptance(Record):
    schema_version: Literal[1] = SCHEMA_VERSION
    criteria: list[Criterion]


# ---------------------------------------------------------------- reading and writing


def write(record: Record, path: Path | str) -> None:
    """Write a record as JSON, beside its place first and then renamed, so that no half of one is ever seen."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record.model_dump(), indent=1, allow_nan=False)  # mode="json" would make null of NaN
    type(record).model_validate_json(text)
    write_text(_numbers_on_one_line(text) + "\n", path)


def write_text(text: str, path: Path | str) -> None:
    """Write a text file beside its place and rename it."""
    path = Path(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def read(kind: type[R], path: Path | str) -> R:
    """Read a record of a kind. Raises CorruptRecord, in one line, where it is not one."""
    try:
        return kind.model_validate_json(Path(path).read_text(encoding="utf-8"))
    except (ValidationError, UnicodeDecodeError) as error:
        raise CorruptRecord(f"{path}: {_first_line(error)}") from None


def _numbers_on_one_line(text: str) -> str:
    return re.sub(r"\[[\s\d.,eE+-]+\]", lambda numbers: " ".join(numbers.group().split()), text)


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        fault = error.errors()[0]
        place = ".".join(str(part) for part in fault["loc"])
        return f"{place + ': ' if place else ''}{fault['msg']}"
    return str(error).splitlines()[0]
