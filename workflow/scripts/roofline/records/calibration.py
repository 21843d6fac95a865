"""What work costs this host, per call, byte or number: measured before any operator, and carried by its seals."""

from typing import Annotated, Literal

from pydantic import Field

from roofline.core import host_costs
from roofline.records.base import AtLeastOne, NotNegative, Positive, Record, Seconds, Whole
from roofline.records.prediction import Multiple, Seal
from roofline.records.timing import Contention


class HostCost(Record):
    """A timed block: so many calls, bytes or numbers in each sample."""

    name: str = Field(description="of the constant, with its unit")
    count: AtLeastOne = Field(description="of cores, threads, a product's rows or a kernel's arguments")
    amount: Positive
    calls: NotNegative = Field(default=0, description="of NumPy, by all cores together, that are no part of the cost")
    threads: Whole = Field(default=0, description="that were handed the work, where that is no part of the cost")
    samples_s: Annotated[list[Positive], Field(min_length=1)]
    median_s: Positive

    @property
    def block(self) -> host_costs.Block:
        return host_costs.Block(self.name, self.count, self.amount, self.median_s, self.calls, self.threads)


class CalibrationRecord(Seal):
    """A seal that was measured: sealed once all of its blocks were timed."""

    kind: Literal["calibration"] = "calibration"
    elapsed_s: Seconds
    contention: Contention | None = None
    blocks: Annotated[list[HostCost], Field(min_length=1)]
    constants: dict[str, Multiple] = Field(description="what follows from the blocks (core/host_costs.py)")
