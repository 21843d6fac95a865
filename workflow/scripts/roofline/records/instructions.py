"""The ceilings and walls of the instruction roofline, as measured."""

from typing import Literal

from pydantic import Field

from roofline.records.base import Interval, Positive, Record
from roofline.records.operator import JobRecord
from roofline.records.timing import Check, DeviceState, Search, Timing

Pattern = Literal["stride", "conflict", "predication"]


class IssueRate(Record):
    """Warp instructions per second, issued by every scheduler at once."""

    kernel: str = Field(description="the fastest of the trials: instructions of a round, blocks and threads")
    counted: str
    warp_instructions: int = Field(description="of a step; a loop's own are left out")
    multiprocessors: int
    warp_instructions_per_s: Positive
    ci95: Interval | None
    sm_clock_mhz: Positive | None = Field(description="counted in the kernel, over its last step")
    peak_per_s: Positive | None = Field(description="multiprocessors x 4 schedulers x that clock")
    fraction_of_peak: Positive | None
    search: Search
    check: Check
    latency: Timing
    states: list[DeviceState]


class Wall(Record):
    """One access pattern, or share of lanes, and what it makes of a warp's instructions.

    stride: words between lanes that load one word each from L1; a transaction is a sector. conflict: the same from
    shared memory, a transaction is a wavefront. predication: lanes of 32 whose predicate is set; nothing is loaded.
    """

    pattern: Pattern
    of: int = Field(description="words between lanes, ways of the conflict, or active lanes")
    requests: int = Field(description="of a step: loads of a warp, or predicated instructions")
    transactions_per_request: Positive | None = Field(description="by construction; null of predication")
    requests_per_s: Positive
    ci95: Interval | None
    sm_clock_mhz: Positive | None
    cycles_per_request: Positive | None = Field(description="of a multiprocessor, at that clock")
    latency: Timing
    verified: str


class InstructionsRecord(JobRecord):
    """results/{device}/instructions/rates.json"""

    kind: Literal["instructions"] = "instructions"
    issue: IssueRate
    walls: list[Wall]
