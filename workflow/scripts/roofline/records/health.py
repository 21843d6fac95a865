"""What `make health` leaves: what was looked at, what was found, and what to do."""

from typing import Literal

from pydantic import Field

from roofline.records.base import NotNegative, Positive, Record
from roofline.records.check import CheckResult
from roofline.records.operator import JobRecord

HealthStatus = Literal["healthy", "not healthy", "cannot tell"]


class RepeatabilityRecord(JobRecord):
    """results/{device}/repeatability/{dtype}.json: one product computed again and again, every result compared with
    the first, bit for bit. The results lie in so many copies across the device's memory."""

    kind: Literal["repeatability"] = "repeatability"
    dtype: str
    product: str
    first_error: NotNegative | None = Field(description="of the first against float64; null where it is wrong")
    tolerance: Positive | None
    products: int = Field(description="computed, kept and compared")
    seconds: NotNegative
    memory_bytes: int = Field(description="over which the results were spread")
    wrong_words: int = Field(description="32-bit words that differed from the first result's")
    wrong_places: int = Field(description="copies in which some did")
    fault: str | None = Field(default=None, description="why the first result is wrong")
    corrected_errors: int | None = Field(default=None, description="of the memory meanwhile; null if not counted")
    memory_errors: dict[str, int | bool | None] = Field(description="as NVML reports them after the load")


class Unused(Record):
    """Who used a GPU while this project did not; null where NVML does not tell."""

    processes: int | None
    utilisation: NotNegative | None = Field(description="share of the time in which some kernel ran")
    memory_used_share: NotNegative | None


class Xid(Record):
    """An error that NVIDIA's driver reported of a card."""

    code: int
    when: Literal["before", "during"]
    age_s: NotNegative | None = Field(default=None, description="of one in the kernel's log")
    text: str = ""


class HealthFigure(Record):
    name: str
    value: Positive
    unit: str
    clock_mhz: Positive | None = Field(description="counted, or under sustained load by NVML; null if not known")


class CardHealth(Record):
    device: str
    name: str
    uuid: str
    status: HealthStatus
    checks: list[CheckResult]
    figures: list[HealthFigure] = Field(default=[])
    unused: Unused | None = None
    xids: list[Xid] | None = Field(default=None, description="null where they cannot be read")


class HealthRecord(Record):
    """results/health.json."""

    schema_version: Literal[2] = 2
    kind: Literal["health"] = "health"
    started_at: str
    ended_at: str
    elapsed_s: NotNegative
    commit: str | None = Field(default=None, description="of this project; null if not known")
    status: HealthStatus
    cards: list[CardHealth]
