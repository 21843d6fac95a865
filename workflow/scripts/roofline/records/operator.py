"""Operators as they were measured: one record per job, one measurement per implementation, case and scope."""

from typing import Any, Literal

from pydantic import Field

from roofline.core.formatting import traffic
from roofline.core.terms import Cache, Regime, RegimeLevel
from roofline.records.base import RECORD_VERSION, Interval, NotNegative, Positive, Record
from roofline.records.prediction import CellPrediction, CostTerms
from roofline.records.timing import Check, DeviceState, Timing

BYTES = "bytes"


class Axis(Record):
    """The size along which cells of an operator are swept, and joined in pictures."""

    key: str = Field(description="a key of the shape, or bytes: those that a step moves")
    symbol: str
    at_least: int | None = Field(default=None, description="so many values acceptance asks for")

    def words(self, place: float) -> str:
        return traffic(place) if self.key == BYTES else str(place)


class OperatorInfo(Record):
    """What readers of a record need to know of an operator, so that they need not import it."""

    name: str
    title: str
    picture: str = Field(description="results/{picture}.png")
    counted: str = Field(description="which bytes count, in a few words")
    axis: Axis | None = None
    baselines: list[str] = Field(default=[], description="implementations that the others are compared with")
    scopes: dict[str, str] = Field(default={}, description="parts that are timed separately, each in a few words")
    usual_share_of_peak: Interval | None = Field(
        default=None, description="of the compute peak, where the literature names one for a memory-bound cell"
    )


class DataFile(Record):
    """A file that was measured with, such as weights."""

    path: str
    sha256: str
    generated: bool
    description: str


class Cell(Record):
    """One operator, implementation, case and scope."""

    operator: str
    implementation: str
    preset: str | None
    scope: str | None
    dtype: str
    cache: Cache
    shape: dict[str, int]
    label: str = Field(description="what tells this case from others of its dtype: batch 256, S 1024")


class Measurement(Cell):
    """A cell, timed."""

    series: str = Field(description="the same without the axis: batch 256")
    flops: int
    bytes: int
    compute_ceiling: str
    memory_ceilings: list[str] = Field(description="the declared memory ceiling, best first, until one exists")
    memory_level: RegimeLevel
    costs: CostTerms
    predicted: CellPrediction
    check: Check
    latency: Timing
    device_latency: Timing | None
    overhead_s: NotNegative | None = Field(
        description="the same code on the smallest case: what a call costs, at most what this cell takes"
    )
    device_overhead_s: NotNegative | None = Field(default=None, description="the device's part of that")
    empty_kernel_s: Positive | None = Field(default=None, description="the caller's time of a kernel that does nothing")
    empty_kernel_device_s: Positive | None = Field(default=None, description="the device's part of that")
    warp_instructions: Positive | None = Field(
        default=None, description="of one application, from the kernel's disassembly; null where that is not known"
    )
    per_call: int = Field(default=1, description="times that one call applies the operator; times are of one")
    plan: dict[str, Any] = Field(default={}, description="how the implementation divides the work")
    plan_summary: str | None = Field(default=None, description="the same in words")
    textbook_regime: Regime | None = Field(default=None, description="what a rule of thumb names without a model")
    remedies: dict[Regime, list[str]] = Field(default={}, description="what helps in each regime")
    doubts: list[str] = Field(default=[], description="what does not fit, and is no error")
    states: list[DeviceState]
    sm_clock_mhz: Positive | None = Field(default=None, description="counted over the caller's block")


class JobRecord(Record):
    """What a measuring job writes, whatever it measures."""

    schema_version: Literal[3] = RECORD_VERSION
    device: str
    seals: dict[str, str] = Field(description="SHA-256 of each seal that holds for this job, by its path in results/")
    started_at: str
    elapsed_s: NotNegative
    info: OperatorInfo | None = Field(default=None, description="of the operator measured; null where none is")
    measurements: list[Measurement] = Field(default=[])


class OperatorRecord(JobRecord):
    kind: Literal["operator"] = "operator"
    case: str = Field(description="of the file's path: results/{device}/{rule}/{case}.json")
    data: list[DataFile] = Field(default=[])
    sources: dict[str, str] = Field(default={}, description="SHA-256 of the operator's own files outside the library")
    notes: list[str] = Field(default=[])
