"""The identity of a device, and the vendor's figures for it."""

from typing import Any, Literal

from pydantic import Field

from roofline.core.terms import ComputeUnit, DeviceKind
from roofline.records.base import AtLeastOne, Positive, Record, RunRecord, Time


class DatasheetPeak(Record):
    """The compute peak of one dtype that the vendor promises, or that follows from its figures."""

    tflops: Positive
    compute_unit: ComputeUnit
    operations_per_clock_per_multiprocessor: Positive | None
    source: str
    verified: bool
    derived: bool


class DatasheetBandwidth(Record):
    """A bandwidth that the vendor promises, with its source."""

    gb_per_s: Positive
    source: str
    verified: bool
    derived: bool


class DatasheetFigures(Record):
    """The figures that the datasheet, or the architecture's formula, promises."""

    peaks_by: Literal["datasheet", "formula"] = Field(
        description="a datasheet of exactly this device, or the formula of its architecture"
    )
    entry: str | None
    reason: str
    boost_clock_mhz: Positive | None
    tensor_clock_mhz: Positive | None
    rate_class: str | None
    power_limit_w: Positive | None
    peaks: dict[str, DatasheetPeak]
    absent: dict[str, str]
    bandwidth: DatasheetBandwidth | None
    nvlink: DatasheetBandwidth | None = Field(default=None, description="all active links, in one direction")


class DeviceFacts(Record):
    """What the record and the row of a device have in common."""

    device_kind: DeviceKind
    name: str
    queried_at: Time
    memory_total_bytes: int
    hardware: dict[str, Any] = Field(description="what this kind of device reports of itself; units in the keys")
    software: dict[str, str | None] = Field(description="versions by library")
    host: dict[str, Any]


class DeviceRecord(RunRecord, DeviceFacts):
    """results/{device}/device_query.json: a device, its host, and the datasheet's figures for it."""

    kind: Literal["device_query"] = "device_query"
    device: str
    uuid: str
    memory_free_bytes: int
    last_level_cache_bytes: int
    timer_ratio: Positive | None = Field(description="the host's clock over a GPU's events, of half a second")
    datasheet: DatasheetFigures
    unsupported: dict[str, str] = Field(description="compute ceilings that this device lacks, with the reason")
    method: AtLeastOne = Field(default=1, description="of measuring ceilings: those of different ones are not compared")
