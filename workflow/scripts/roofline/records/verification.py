"""verification.json: every prediction beside its measured counterpart."""

from typing import Literal

from pydantic import Field

from roofline.core.terms import Cache, Regime, RegimeLevel
from roofline.records.base import NotNegative, Positive, Record
from roofline.records.prediction import CellPrediction
from roofline.records.roofline import SCHEMA_VERSION

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
    scope: str | None
    dtype: str
    cache: Cache | None
    shape: dict[str, int]
    label: str | None
    sealed: CellPrediction | None
    from_ceilings: CellPrediction | None
    latency_s: NotNegative | None
    device_latency_s: NotNegative | None
    fraction_of_compute_peak: NotNegative | None
    regime: Regime | None = Field(description="found; null for want of a ceiling")
    regime_level: RegimeLevel | None
    no_roof: str | None = Field(default=None, description="why no roof was declared; null where one was")
    sealed_error: float | None
    from_ceilings_error: float | None
    sealed_device_error: float | None
    from_ceilings_device_error: float | None
    sealed_regime_correct: bool | None
    from_ceilings_regime_correct: bool | None
    sealed_time_right: bool | None = Field(default=None, description="within a factor of two")
    from_ceilings_time_right: bool | None = None
    textbook_regime: Regime | None = Field(default=None, description="what a rule of thumb names without a model")
    cause: GapCause
    parts: list[GapPart]
    explanation: str = Field(description="the gap of the sealed latency in one sentence, from what was measured")
    remedies: list[str]
    record: str | None


class ErrorStatistics(Record):
    """Of absolute errors, as shares of what was measured."""

    cells: int
    median: NotNegative
    worst: NotNegative


class Accuracy(Record):
    """How well one way to predict did over some cells."""

    regimes: int = Field(description="cells of which a regime was both predicted and found")
    regimes_correct: int
    share_correct: NotNegative | None
    times_right: int = Field(default=0, description="of these cells, within a factor of two")
    both_right: int = Field(default=0, description="regime and time")
    latency: ErrorStatistics | None
    device_latency: ErrorStatistics | None


class Score(Record):
    """Of all cells whose regime was found. A prediction is right where its regime is and its time within a factor of
    two; the textbook's rule of thumb names a regime alone."""

    cells: int = 0
    regimes_right: int = 0
    times_right: int = 0
    both_right: int = 0
    textbook_cells: int = Field(default=0, description="of which the operator says what the rule of thumb names")
    textbook_regimes_right: int = 0


class VerificationGroup(Record):
    device: str
    operator: str
    implementation: str | None
    regime: Regime | Literal["all", "not_found"]
    cells: int
    sealed: Accuracy
    from_ceilings: Accuracy


class SealCheck(Record):
    """Whether a device was measured after its prediction was sealed, and as sealed."""

    device: str
    seals: dict[str, str] = Field(description="when each was sealed, by its path")
    first_measurement_at: str | None
    violations: list[str]


class Call(Record):
    """What one call of an implementation costs on the smallest case: the least over the records."""

    device: str
    operator: str
    implementation: str
    scope: str | None
    records: int
    smallest_s: Positive = Field(description="the caller's time of the operator's smallest case")
    smallest_device_s: Positive | None
    empty_kernel_s: Positive | None = Field(description="of a kernel with as many arguments that does nothing")
    empty_kernel_device_s: Positive | None


class CountedEntry(Record):
    """A profiled cell: what was declared beside what the hardware counted, of one step."""

    device: str
    operator: str
    implementation: str
    preset: str | None
    scope: str | None
    dtype: str
    cache: Cache
    label: str
    declared_read_bytes: NotNegative
    declared_write_bytes: NotNegative
    written_caches: NotNegative | None = Field(
        default=None, description="declared writes while the counters ran, in last-level caches"
    )
    read_bytes: NotNegative | None
    write_bytes: NotNegative | None
    declared_flops: NotNegative
    kernel_flops: NotNegative | None = Field(description="by the kernel's FLOP formula")
    flops: NotNegative | None
    tensor_pipe_active_fraction: NotNegative | None
    achieved_occupancy_fraction: NotNegative | None = None
    regime: Regime | None = Field(description="that was found of the timed cell; null where it was not timed")
    reads_agree: bool | None = Field(description="within 2 % or 1 MB, whichever is more")
    writes_agree: bool | None
    flops_agree: bool | None = Field(description="with the kernel's FLOP formula, or else the declared, within 2 %")
    explanation: str
    record: str


class NotCounted(Record):
    """Why a device's counters were not read; of a record's cells, where it was one."""

    device: str
    record: str | None
    reason: str


class Verification(Record):
    """results/verification.json: every prediction beside its measured counterpart."""

    schema_version: Literal[2] = SCHEMA_VERSION
    titles: dict[str, str] = Field(default={}, description="of operators, by their names")
    seals: list[SealCheck]
    score: Score = Score()
    summary: list[VerificationGroup]
    calls: list[Call]
    entries: list[VerificationEntry]
    counted: list[CountedEntry] = Field(default=[], description="what the hardware counted of a few cells")
    not_counted: list[NotCounted] = Field(default=[])
