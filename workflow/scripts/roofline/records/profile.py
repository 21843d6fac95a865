"""A user's own program as Nsight Compute profiled it: its kernels, with what was counted of each launch."""

from typing import Literal

from pydantic import Field

from roofline.core.terms import ComputeUnit
from roofline.records.base import AtLeastOne, Mhz, NotNegative, Positive, Record, RunRecord, Seconds, Whole

Dimensions = tuple[AtLeastOne, AtLeastOne, AtLeastOne]
Counts = list[NotNegative]  # one for each launch, in order; empty where a launch has none


class KernelLaunches(Record):
    """The launches of one kernel with one grid and block, in order; a list is empty where a launch was not counted.

    What was compiled several times under one name is several kernels.
    """

    name: str = Field(description="of the function")
    signature: str = Field(description="with template arguments and parameters")
    grid: Dimensions
    block: Dimensions
    launches: list[Whole] = Field(min_length=1, description="their places among the report's kernels")
    duration_s: list[Seconds]
    sm_clock_mhz: list[Mhz]
    cuda_core_flops: dict[str, Counts] = Field(description="by dtype; a multiply-add is two")
    tensor_core_flops: dict[str, Counts] = Field(description="by dtype of the operands, padding included")
    memory_read_bytes: Counts
    memory_write_bytes: Counts
    memory_bytes: Counts = Field(description="where reads and writes were not counted apart")
    l2_bytes: Counts = Field(description="between the L2 and the multiprocessors")
    l1_bytes: Counts = Field(description="global, local and texture; of it what TMA moves is not counted")
    warp_instructions: Counts

    @property
    def flops(self) -> dict[ComputeUnit, dict[str, Counts]]:
        return {"cuda_core": self.cuda_core_flops, "tensor_core": self.tensor_core_flops}


class ProfileRecord(RunRecord):
    """results/profiles/{name}.json, of one report."""

    kind: Literal["profile"] = "profile"
    name: str
    report: str = Field(description="its path, as it was given")
    report_sha256: str
    device_name: str = Field(description="of the card that the program ran on, as the report has it")
    compute_capability: str
    multiprocessors: AtLeastOne
    memory_total_bytes: Positive
    pipes: dict[ComputeUnit, list[str]] = Field(description="dtypes that this architecture's counters tell apart")
    left_out: dict[str, Whole] = Field(description="what else the report holds, by kind: ranges and graphs as a whole")
    kernels: list[KernelLaunches] = Field(min_length=1)
