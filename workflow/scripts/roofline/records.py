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
Mix = Literal["read", "write", "copy", "triad"]
Cache = Literal["cold", "warm"]
Scope = Literal["core", "block"]
ComputeUnit = Literal["tensor_core", "cuda_core", "cpu"]
GapCause = Literal[
    "close",
    "calls",
    "start",
    "clock",
    "own_clock",
    "compute_ceiling",
    "memory_ceiling",
    "share_of_roof",
    "unexplained",
]
Remedy = Literal[
    "tensor_cores", "lower_precision", "fusion", "smaller_cache_dtype", "grouped_queries", "cuda_graph", "larger_batch"
]
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
    latency_s: NotNegative | None = Field(description="the caller's")
    device_latency_s: NotNegative | None = Field(default=None, description="the device's part; null where it is all")
    fraction_of_compute_peak: NotNegative | None


# ---------------------------------------------------------------- what was measured


class Timing(Record):
    """Every sample of one timed block, in seconds, and its median.

    Samples taken while the card was throttled for heat or by its power brake are set apart and counted; where all were,
    the median is theirs and `all_throttled` says so.
    """

    method: str
    warmup: int
    requested: int
    stopped_by: Literal["iterations", "precision", "time_budget"]
    samples_s: list[Positive]
    median_s: Positive
    ci95_s: Interval | None
    throttled_samples_s: list[Positive] = []
    all_throttled: bool = False


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
    device_overhead_s: NotNegative | None = Field(default=None, description="the device's part of that")
    empty_kernel_s: Positive | None = Field(default=None, description="the caller's time of a kernel that does nothing")
    empty_kernel_device_s: Positive | None = Field(default=None, description="the device's part of that")
    layers: int = Field(default=1, description="that one call goes through; times are of one")
    joins: bool = Field(default=False, description="whether blocks share the keys of a head, and are joined")
    turns: int = Field(default=1, description="that a block takes over its tiles, one wait for the memory each")
    waves: float = Field(default=1.0, description="times as many blocks as the card holds at once; 1 where all fit")
    how: str | None = Field(default=None, description="how the kernel divides the work")
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


class Product(Record):
    """What runs to find a compute ceiling: a matrix product, or a register-only kernel."""

    library: str = Field(description="what computes: cupy.matmul, cuBLASLt, numpy.matmul, a kernel of ours")
    shape: dict[str, int] = Field(description="m, n, k of a product; blocks and threads of a kernel")
    layout: str | None = Field(description="which operands are transposed in memory: TN; null if none can be")
    algorithm: str | None = Field(description="among those that the library offers; null where it chooses by itself")
    accumulation: str
    output: str


class Search(Record):
    """How far a search came within its time budget."""

    offered: int
    tried: int
    refused: list[str] = Field(description="what the library offered and then refused to run")


class Candidate(Record):
    """One product that was tried, by a few runs; the finalists by a whole block too."""

    product: Product
    flops: int
    trial_tflops: Positive
    block_tflops: Positive | None = None


class Block(Record):
    """One timed block of a product, on operands of its own, after a rest."""

    product: Product
    inputs: str
    flops: int
    check: Check
    latency: Timing
    tflops: Positive
    ci95: Interval | None
    states: list[DeviceState]
    sm_clock_mhz: Positive | None = Field(description="counted on the multiprocessor over such a block")


class LoadPoint(Record):
    """A moment under sustained load; null where NVML does not tell."""

    at_s: NotNegative
    tflops: Positive
    sm_clock_mhz: NotNegative | None = None
    power_w: NotNegative | None = None
    temperature_c: float | None = None
    throttle_reasons: list[str] | None = None


class Sustained(Record):
    """Load without a pause, and the median once clock and power have settled."""

    product: Product
    seconds: Positive
    settled_after_s: NotNegative | None = Field(description="null where it never settled: then the last third counts")
    tflops: Positive
    ci95: Interval | None
    sm_clock_mhz: Positive | None = Field(description="median once settled")
    power_w: Positive | None = Field(description="median once settled")
    held_back_by: list[str] = Field(description="throttle reasons that NVML named under this load")
    throttled_points: int = Field(description="moments of thermal or power-brake throttling, left out of the median")
    all_throttled: bool
    curve: list[LoadPoint]


class PeakFlops(Record):
    method: Literal["gemm", "fma"]
    unit: ComputeUnit
    tflops: Positive = Field(description="the ceiling: the higher of burst and sustained")
    ci95: Interval | None
    lab_tflops: Positive | None = Field(
        description="the square product after the lab's protocol; null for our own kernels"
    )
    burst_tflops: Positive = Field(description="the fastest product of those measured afresh after the search")
    sustained_tflops: Positive | None
    vendor_tflops: Positive | None
    fraction_of_vendor: Positive | None
    clock_mhz: Positive | None = Field(description="of the burst")
    clock_tflops: Positive | None
    fraction_of_clock: Positive | None
    inputs: str
    held_back_by: list[str] = Field(description="throttle reasons around the burst and under sustained load")
    throttled: bool | None = Field(description="whether no sample was free of thermal throttling; null if untold")
    doubts: list[str] = Field(description="what does not fit, and is no error")
    search: Search
    candidates: list[Candidate]
    burst: Block
    outdone: list[Block] = Field(default=[], description="others measured afresh, which gave less than the burst")
    sustained: Sustained | None
    beside: list[Block] = Field(description="the same product with another output or accumulation")
    kernel: Kernel
    lab: Measurement | None
    investigation: Investigation | None


class PeakFlopsRecord(JobRecord):
    kind: Literal["peak_flops"] = "peak_flops"
    dtype: str
    skipped: str | None = Field(description="why this device has no such peak; null when it was measured")
    peak: PeakFlops | None


class GridTrial(Record):
    """One way to run a stream that was tried: a grid of a kernel, or a number of threads."""

    grid: str
    gb_per_s: Positive


class Bandwidth(Record):
    """One memory ceiling: what a level gives to one mix of accesses."""

    name: str
    level: str
    mix: Mix
    counted: str
    bytes: int
    gb_per_s: Positive
    ci95: Interval | None
    vendor_gb_per_s: Positive | None
    fraction_of_vendor: Positive | None
    threads: int | None
    grid: str = Field(description="the fastest of the trials")
    search: Search
    trials: list[GridTrial]
    blocks_gb_per_s: list[Positive] = Field(
        default=[], description="the median of each block in order of time; all else here is of the fastest"
    )
    sm_clock_mhz: Positive | None = Field(description="counted inside the kernel, where it is ours")
    bytes_per_clock_per_multiprocessor: Positive | None = Field(description="on-chip levels, at that clock")
    held_back_by: list[str]
    throttled: bool | None
    latency: Timing
    states: list[DeviceState]
    verified: str


class Envelope(Record):
    """The highest of a level's mixes, once every mix is there."""

    gb_per_s: Positive
    mix: Mix
    of: list[Mix]


class SweepPoint(Record):
    size_bytes: int
    gb_per_s: Positive


class FoundLevel(Record):
    """A plateau of a sweep, and where it ends."""

    name: str | None = Field(description="null where nothing that the device reports matches")
    gb_per_s: Positive
    first_bytes: int
    last_bytes: int
    knee_bytes: int | None = Field(description="the curve crosses the geometric mean of this plateau and the next")
    reported_bytes: int | None = Field(description="the capacity that the device reports for this level")


class Sweep(Record):
    """Read bandwidth over sizes of the working set."""

    series: str
    reader: str = Field(description="whose working set a size is: each multiprocessor's, the device's, each core's")
    counted: str
    points: list[SweepPoint]
    levels: list[FoundLevel]
    states: list[DeviceState]


class BandwidthRecord(JobRecord):
    kind: Literal["bandwidth"] = "bandwidth"
    level: str
    bandwidths: list[Bandwidth]
    envelope: Envelope | None = None
    sweeps: list[Sweep] = []


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
    held_back_by: list[str] = Field(default=[], description="throttle reasons under its load, as NVML names them")
    throttled: bool | None = Field(default=None, description="measured under thermal throttling alone; null if untold")
    record: str


class MemoryCeiling(Record):
    device: str
    kind: Literal["memory"]
    name: str
    level: str
    mix: Mix
    gb_per_s: Positive
    ci95: Interval | None
    vendor_gb_per_s: Positive | None
    fraction_of_vendor: Positive | None
    held_back_by: list[str] = Field(default=[], description="throttle reasons under its load, as NVML names them")
    throttled: bool | None = Field(default=None, description="measured under thermal throttling alone; null if untold")
    record: str


class FoundCache(Record):
    """A level that the sweep found: its plateau, and its knee against the capacity that the device reports."""

    device: str
    series: str
    name: str | None
    gb_per_s: Positive
    knee_bytes: int | None
    reported_bytes: int | None
    record: str


class AboveRoof(Record):
    """An operator above the roof that was declared for it: which roof is wrong, or which cache held the data."""

    device: str
    operator: str
    record: str | None
    fraction_of_roof: NotNegative
    wrong_roof: str | None = Field(description="the ceiling that is too low; null where a cache held the data")
    cache: str | None
    evidence: str


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
    levels: list[FoundCache] = []
    above_roof: list[AboveRoof] = []
    skipped: list[Skipped]


class Criterion(Record):
    device: str | None
    criterion: str
    result: Literal["pass", "fail", "not_applicable"]
    reason: str


class Acceptance(Record):
    schema_version: Literal[1] = SCHEMA_VERSION
    criteria: list[Criterion]


# ---------------------------------------------------------------- verification.json


class GapPart(Record):
    """What one cause moves of a sealed latency towards the measured one; the parts add up to the gap."""

    cause: GapCause
    seconds: float


class VerificationEntry(Record):
    """One operator: what was predicted beside what was measured. Errors are (predicted - measured) / measured."""

    device: str
    operator: str
    implementation: str | None
    preset: str | None
    scope: Scope | None
    dtype: str
    cache: Cache | None
    shape: dict[str, int]
    sealed: CellPrediction | None
    from_ceilings: CellPrediction | None
    latency_s: NotNegative | None
    device_latency_s: NotNegative | None
    fraction_of_compute_peak: NotNegative | None
    regime: Regime | None = Field(description="found; null for want of a ceiling")
    regime_level: RegimeLevel | None
    sealed_error: float | None
    from_ceilings_error: float | None
    sealed_device_error: float | None
    from_ceilings_device_error: float | None
    sealed_named_rightly: bool | None
    from_ceilings_named_rightly: bool | None
    cause: GapCause
    parts: list[GapPart]
    gap: str = Field(description="the gap of the sealed latency in one sentence, from what was measured")
    remedies: list[Remedy]
    record: str | None


class ErrorStatistics(Record):
    """Of absolute errors, as shares of what was measured."""

    cells: int
    median: NotNegative
    worst: NotNegative


class Accuracy(Record):
    """How well one way to predict did over some cells."""

    regimes: int = Field(description="cells of which a regime was both predicted and found")
    named_rightly: int
    share_named_rightly: NotNegative | None
    latency: ErrorStatistics | None
    device_latency: ErrorStatistics | None


class VerificationGroup(Record):
    device: str
    implementations: list[str]
    regime: Regime | Literal["all", "not_found"]
    cells: int
    sealed: Accuracy
    from_ceilings: Accuracy


class SealCheck(Record):
    """Whether a device was measured after its prediction was sealed, and as sealed."""

    device: str
    sealed_at: str
    first_measurement_at: str | None
    violations: list[str]


class Call(Record):
    """What an implementation of attention takes at least, for one layer: medians over the records."""

    device: str
    implementation: str
    scope: Scope
    records: int
    smallest_s: Positive = Field(description="the caller's time of the smallest cell, S = 1 at batch 1")
    smallest_device_s: Positive | None
    empty_kernel_s: Positive | None = Field(description="of a kernel with as many arguments that does nothing")
    empty_kernel_device_s: Positive | None


class Verification(Record):
    """results/verification.json: every prediction beside its measured counterpart."""

    schema_version: Literal[1] = SCHEMA_VERSION
    seals: list[SealCheck]
    summary: list[VerificationGroup]
    calls: list[Call]
    entries: list[VerificationEntry]


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
