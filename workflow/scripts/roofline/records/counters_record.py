"""Hardware counters: whether a device's counters may be read, and a record for each profiled job."""

from typing import Literal

from pydantic import Field

from roofline.records.base import NotNegative, Record, RunRecord, Time
from roofline.records.operator_record import CellRecord, DataFile


class ProfilerRecord(RunRecord):
    """results/{device}/profiler.json: the version of the profiler, and whether it may read the counters."""

    kind: Literal["profiler"] = "profiler"
    device: str
    ncu_version: str | None = Field(description="the version of Nsight Compute's command line")
    refused_reason: str | None = Field(description="why nothing is counted, in one line; null where counters are read")


class Flops(Record):
    """FLOPs by pipe, from the instructions that threads executed.

    An add or a multiply counts one, a multiply-add two, packed fp16 twice that. Tensor cores count their FLOPs
    themselves, padding included.
    """

    fp64: NotNegative | None = None
    fp32: NotNegative | None = None
    fp16: NotNegative | None = None
    tensor: NotNegative | None = None

    def of_pipe(self, pipe: str) -> float | None:
        """Return the FLOPs of one pipe; None if they were not counted. Raises KeyError for another name."""
        flops: dict[str, float | None] = self.model_dump()
        return flops[pipe]

    @property
    def total(self) -> float | None:
        """The FLOPs of all pipes that were counted; None if none was."""
        counted = [value for value in (self.fp64, self.fp32, self.fp16, self.tensor) if value is not None]
        return sum(counted) if counted else None


class CountFigures(Record):
    """What was declared of a profiled cell, and counts of it that need no conversion; null is what was not counted."""

    declared_read_bytes: NotNegative
    declared_write_bytes: NotNegative
    declared_flops: NotNegative
    dram_read_bytes: NotNegative | None = None
    tensor_pipe_active_fraction: NotNegative | None = Field(default=None, description="of the cycles while profiled")
    achieved_occupancy_fraction: NotNegative | None = Field(default=None, description="active warps of those that fit")
    not_counted: dict[str, str] = Field(default={}, description="why, by the counter's name")


class CountedCell(CellRecord, CountFigures):
    """The counters of one cell, for one step; null is what was not counted."""

    formula_flops_by_pipe: Flops | None = Field(
        default=None, description="by the kernel's FLOP formula, where it has one"
    )
    formula_flops_reason: str | None = Field(default=None, description="what it counts beyond the declared FLOPs")
    kernels: list[str] = Field(default=[], description="each counted by itself, behind emptied caches")
    l2_read_sectors: NotNegative | None = None
    l2_write_sectors: NotNegative | None = Field(default=None, description="with those from partition to partition")
    sm_write_sectors: NotNegative | None = Field(default=None, description="that multiprocessors wrote to the L2")
    l2_read_hit_sectors: NotNegative | None = Field(default=None, description="that were in the L2 when asked for")
    l2_read_miss_sectors: NotNegative | None = None
    l1_load_sectors: NotNegative | None = None
    l1_load_requests: NotNegative | None = None
    l1_store_sectors: NotNegative | None = None
    shared_load_wavefronts: NotNegative | None = None
    shared_store_wavefronts: NotNegative | None = None
    warp_instructions: NotNegative | None = None
    predicated_on_thread_instructions: NotNegative | None = None
    counted_flops_by_pipe: Flops = Flops()


class CountersRecord(RunRecord):
    """results/{device}/counters/{operator's rule}/{case}.json, next to the report that it was read from."""

    kind: Literal["counters"] = "counters"
    device: str
    started_at: Time
    elapsed_s: NotNegative
    cells: list[CountedCell] = Field(default=[])
    reports: list[DataFile] = Field(default=[], description="Nsight Compute's")
