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
    """The rate of warps' loads under an access pattern that limits them.

    stride: each lane loads one word from L1, `degree` words from that of the next lane; a transaction is a sector.
    conflict: the same from shared memory; a transaction is a wavefront.
    """

    pattern: Literal["stride", "conflict"]
    degree: int = Field(description="words between lanes of a stride; ways of a bank conflict")
    requests: int = Field(description="loads of a warp in one step")
    transactions_per_request: Positive = Field(description="sectors or wavefronts of a warp's load, by construction")
    requests_per_s: Positive
    sm_clock_mhz: Positive | None
    cycles_per_request: Positive | None = Field(description="cycles of a multiprocessor, at that clock")


class MeasuredAccessLimit(AccessLimit):
    """An access limit with its samples."""

    timing: Timing
    checked_against: str = Field(description="what the result was compared with")


class InstructionsRecord(JobRecord):
    """results/{device}/instructions/rates.json: the issue rate of a GPU and the limits of loads."""

    kind: Literal["instructions"] = "instructions"
    issue: IssueRate
    walls: list[MeasuredAccessLimit]
