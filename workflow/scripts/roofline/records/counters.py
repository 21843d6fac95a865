"""What the hardware counted: whether a device's counters may be read, and a record for each profiled job."""

from typing import Literal

from pydantic import Field

from roofline.records.base import NotNegative, Positive, Record, RunRecord
from roofline.records.instructions import CountedWall
from roofline.records.operator import Cell, DataFile


class ProfilerRecord(RunRecord):
    """results/{device}/profiler.json: the profiler that is there, whether it may read the counters, and what it counts
    of kernels whose counts are known by construction."""

    kind: Literal["profiler"] = "profiler"
    device: str
    ncu: str | None = Field(description="the version of Nsight Compute's command line")
    refused: str | None = Field(description="why nothing is counted, in one line; null where counters are read")
    walls: list[CountedWall] = Field(default=[], description="of the instruction roofline")


class Flops(Record):
    """FLOPs by pipe: instructions that threads executed, an add or a multiply as one and a multiply-add as two; of
    packed fp16 twice that; of tensor cores as they count them, padding included."""

    fp64: NotNegative | None = None
    fp32: NotNegative | None = None
    fp16: NotNegative | None = None
    tensor: NotNegative | None = None

    @property
    def total(self) -> float | None:
        known = [value for value in (self.fp64, self.fp32, self.fp16, self.tensor) if value is not None]
        return sum(known) if known else None


class CountedCell(Cell):
    """One cell's counters, as of one application of the operator; null is what was not counted."""

    declared_read_bytes: NotNegative
    declared_write_bytes: NotNegative
    kept_read_bytes: NotNegative = Field(default=0, description="declared reads that the last-level cache may serve")
    kept_read_why: str | None = None
    declared_flops: NotNegative
    kernel_flops: Flops | None = Field(default=None, description="by the kernel's FLOP formula, where it has one")
    kernel_flops_why: str | None = Field(default=None, description="what it counts beyond the declared FLOPs")
    steps: int = Field(description="launched one after another while the counters ran")
    written_caches: NotNegative | None = Field(
        default=None, description="declared writes of all steps, in last-level caches: fewer may stay in the cache"
    )
    launches: int | None = Field(default=None, description="kernels of these steps, where each was counted by itself")
    kernels: list[str] = Field(default=[], description="their names")
    replay: Literal["range", "kernel"] = Field(
        default="range", description="range: all steps counted together; kernel: each kernel, its caches flushed before"
    )
    dram_read_bytes: NotNegative | None = None
    dram_write_bytes: NotNegative | None = None
    l2_read_sectors: NotNegative | None = None
    l2_write_sectors: NotNegative | None = None
    l2_read_hit_sectors: NotNegative | None = Field(default=None, description="that were in the L2 when asked for")
    l2_read_miss_sectors: NotNegative | None = None
    l1_load_sectors: NotNegative | None = None
    l1_load_requests: NotNegative | None = None
    l1_store_sectors: NotNegative | None = None
    l1_store_requests: NotNegative | None = None
    shared_load_wavefronts: NotNegative | None = None
    shared_load_requests: NotNegative | None = None
    shared_store_wavefronts: NotNegative | None = None
    shared_store_requests: NotNegative | None = None
    warp_instructions: NotNegative | None = None
    thread_instructions: NotNegative | None = None
    predicated_on_thread_instructions: NotNegative | None = None
    flops: Flops = Flops()
    tensor_pipe_active_fraction: NotNegative | None = Field(default=None, description="of the cycles while profiled")
    achieved_occupancy_fraction: NotNegative | None = None
    duration_s: Positive | None = Field(default=None, description="under the profiler; never used as a measured time")
    not_counted: dict[str, str] = Field(default={}, description="why, by the field's name")


class CountersRecord(RunRecord):
    """results/{device}/counters/{operator's rule}/{case}.json, beside the reports that it was read from."""

    kind: Literal["counters"] = "counters"
    device: str
    started_at: str
    elapsed_s: NotNegative
    ncu: str | None
    refused: str | None = Field(description="why nothing was counted, in one line")
    cells: list[CountedCell] = Field(default=[])
    reports: list[DataFile] = Field(default=[], description="Nsight Compute's")
