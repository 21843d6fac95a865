"""Samples, readings of the device around them, and the check of a result."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from roofline.core import statistics
from roofline.records.base import Interval, NotNegative, Positive, Record, require_same, require_same_interval


class Timing(Record):
    """Every sample of one timed block, in seconds, and its median.

    Samples taken while the card was throttled for heat or by its power brake are set apart and counted; where all were,
    the median is theirs and `all_throttled` says so.
    """

    method: str
    warmup: int
    requested: int
    stopped_by: Literal["iterations", "precision", "time_budget"]
    samples_s: Annotated[list[Positive], Field(min_length=1)]
    median_s: Positive
    ci95_s: Interval | None
    throttled_samples_s: list[Positive] = Field(default=[])
    all_throttled: bool = False

    @model_validator(mode="after")
    def _of_its_samples(self) -> Self:
        require_same("median_s", self.median_s, statistics.median(self.samples_s))
        require_same_interval("ci95_s", self.ci95_s, statistics.median_interval(self.samples_s))
        return self

    def require_rate(self, work: float, name: str, rate: float, ci95: Interval | None) -> None:
        """Raises ValueError where a rate and its interval are not so much work over these times."""
        require_same(name, rate, work / self.median_s)
        require_same_interval("ci95", ci95, self.ci95_s and (work / self.ci95_s[1], work / self.ci95_s[0]))


class DeviceState(Record):
    """One reading of the device; null where it reports nothing."""

    at_s: float = Field(description="seconds since the measurement began")
    when: Literal["before", "during", "after"]
    sm_clock_mhz: NotNegative | None = None
    memory_clock_mhz: NotNegative | None = None
    power_w: NotNegative | None = Field(default=None, description="null where not refreshed since the last reading")
    power_reading: Literal["instant", "average"] | None = Field(
        default=None, description="NVML's instantaneous power, or of older drivers its average of up to a second"
    )
    temperature_c: float | None = None
    throttle_reasons: list[str] | None = None
    other_processes: int | None = None


class Check(Record):
    """The comparison with float64 arithmetic on the same rounded inputs, made before the timing."""

    compared: str
    error: NotNegative = Field(description="norm of the difference over the norm of the reference")
    error_after: NotNegative | None = Field(default=None, description="of what the timed steps left")
    tolerance: Positive

    @model_validator(mode="after")
    def _within_tolerance(self) -> Self:
        if self.error > self.tolerance:
            raise ValueError(f"error is {self.error:g}, above the tolerance {self.tolerance:g}")
        return self


class Search(Record):
    """How far a search came within its time budget."""

    offered: int
    tried: int
    refused: list[str] = Field(description="what the library offered and then refused to run")
