"""The issue rate and the limits of loads of the instruction roofline, as measured."""

from typing import Literal

from pydantic import Field

from roofline.records.base import Positive, Record
from roofline.records.operator_record import JobRecord
from roofline.records.timing_record import Check, DeviceState, Search, Timing


class IssueRate(Record):
    """Warp instructions per second, issued by every scheduler at once."""

    kernel: str = Field(description="the fastest of the trials: instructions of a round, blocks and threads")
    warp_instructions: int = Field(description="of a step; a loop's own are left out")
    multiprocessors: int
    warp_instructions_per_s: Positive
    sm_clock_mhz: Positive | None = Field(description="counted in the kernel, over its last step")
    search: Search
    check: Check
    timing: Timing
    states: list[DeviceState]


class AccessLimit(Record):
    """What limits the loads of warps by their access pattern.

    stride: words between lanes that load one word each from L1; a transaction is a sector. conflict: the same from
    shared memory, a transaction is a wavefront.
    """

    pattern: Literal["stride", "conflict"]
    degree: int = Field(description="of a stride the words between lanes, of a bank conflict its ways")
    requests: int = Field(description="of a step: loads of a warp")
    transactions_per_request: Positive = Field(description="by construction")
    requests_per_s: Positive
    sm_clock_mhz: Positive | None
    cycles_per_request: Positive | None = Field(description="of a multiprocessor, at that clock")


class MeasuredAccessLimit(AccessLimit):
    """An access limit with its samples."""

    timing: Timing
    checked_against: str = Field(description="what the result was compared with")


class InstructionsRecord(JobRecord):
    """results/{device}/instructions/rates.json"""

    kind: Literal["instructions"] = "instructions"
    issue: IssueRate
    walls: list[MeasuredAccessLimit]
