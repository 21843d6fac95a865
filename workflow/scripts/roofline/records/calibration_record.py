"""The costs of work on this host, per call, byte or number: measured before any operator, and carried by its seals."""

from typing import Annotated, Literal

from pydantic import Field

from roofline.records.base import AtLeastOne, Positive, Record, Seconds
from roofline.records.seal_records import Multiple, Seal
from roofline.records.timing_record import Contention


class HostCost(Record):
    """A timed block of a cost of the host: each sample is of `amount` calls, bytes or numbers."""

    constant: str = Field(description="of the constant, with its unit")
    count: AtLeastOne = Field(description="of cores, or of a kernel's arguments")
    amount: Positive
    samples_s: Annotated[list[Positive], Field(min_length=1)]
    median_s: Positive


class CalibrationRecord(Seal):
    """A seal that was measured: it is sealed once all of its blocks are timed."""

    kind: Literal["calibration"] = "calibration"
    elapsed_s: Seconds
    contention: Contention | None = None
    host_costs: Annotated[list[HostCost], Field(min_length=1)]
    constants: dict[str, Multiple] = Field(description="what follows from the blocks (measure/calibration.py)")
