"""Samples, readings of the device around them, and the check of a result."""

from typing import Annotated, Literal

from pydantic import Field

from roofline.core.dtypes import require_close
from roofline.records.base import (
    AtLeastOne,
    Cores,
    Interval,
    Mhz,
    NotNegative,
    Positive,
    Record,
    Seconds,
    Share,
    UpToOne,
    Whole,
)

ALL_THROTTLED = "whether heat or the power brake held back a whole block, as far as read; null if not reported"


class Contention(Record):
    """The other load during a timed block; null where the system does not tell."""

    wall_s: Seconds = Field(description="of the block")
    cores: AtLeastOne = Field(description="that this process may run on")
    own_cores: Cores = Field(description="CPU time of this process over the wall time")
    other_cores: Cores | None = Field(description="CPU time of all other processes on these cores, likewise")
    run_cores: Cores | None = Field(
        default=None, description="CPU time of this run's other processes, likewise, which is not in other_cores"
    )
    waiting_share: UpToOne | None = Field(description="of our threads' time, what they waited for a core")
    stolen_share: UpToOne | None = Field(description="of the cores' time, what the hypervisor gave to others")
    quota_throttled_share: NotNegative | None = Field(description="of the wall time, what the CPU quota held us back")
    other_processes: Whole | None = Field(description="on the GPU, before or after the block")
    hidden_cores: Cores | None = Field(
        default=None, description="CPU time on these cores of processes that are not visible; null for short blocks"
    )
    attempts: Annotated[int, Field(ge=1, le=100)] = Field(
        default=1, description="blocks timed: the first undisturbed one is kept, else the fastest"
    )


class Timing(Record):
    """Every sample of one timed block, in seconds, and its median."""

    timed_by: str = Field(description="the method, in words")
    warmup: Whole
    requested: AtLeastOne
    stopped_by: Literal["iterations", "precision", "time_budget"]
    samples_s: Annotated[list[Positive], Field(min_length=1)]
    median_s: Positive
    ci95_s: Interval | None
    all_throttled: bool = Field(
        default=False, description="whether heat or the power brake held the block back, by a reading under or after it"
    )
    sm_clock_mhz: Mhz | None = Field(default=None, description="counted over these steps, or most of them")
    contention: Contention | None = None


class DeviceState(Record):
    """One reading of the device; null where it reports nothing."""

    at_s: Seconds = Field(description="since the measurement began")
    when: Literal["before", "during", "after"]
    sm_clock_mhz: Mhz | None = None
    memory_clock_mhz: Mhz | None = None
    power_w: Annotated[float, Field(ge=0, le=1e5)] | None = Field(
        default=None, description="null where not refreshed since the last reading"
    )
    power_reading: Literal["instant", "average"] | None = Field(
        default=None, description="NVML's instantaneous power, or of older drivers its average of up to a second"
    )
    temperature_c: Annotated[float, Field(ge=-100, le=300)] | None = None
    throttle_reasons: list[str] | None = None
    other_processes: Whole | None = None
    pcie_generation: Annotated[int, Field(ge=1, le=20)] | None = Field(
        default=None, description="of the host link, while it was in use"
    )
    pcie_width: Annotated[int, Field(ge=1, le=64)] | None = Field(default=None, description="its lanes, likewise")


class Check(Record):
    """The comparison with float64 arithmetic on the same rounded inputs, made before the timing."""

    compared: str
    relative_error: NotNegative = Field(description="norm of the difference over the norm of the reference")
    relative_error_after: NotNegative | None = Field(default=None, description="of what the timed steps left")
    tolerance: Share


def make_check(label: str, error: float, tolerance: float, compared: str) -> Check:
    """Return the check of a result. Raises ArithmeticError with `label` for an error above the tolerance."""
    require_close(label, error, tolerance)
    return Check(compared=compared, relative_error=error, tolerance=tolerance)


class Search(Record):
    """The progress of a search within its time budget."""

    offered: Whole
    tried: Whole
    refused: list[str] = Field(description="what the library offered and then refused to run")
