"""Compute ceilings: what was tried, the burst, sustained load, and the investigation of a low peak."""

from typing import Annotated, Literal

from pydantic import Field

from roofline.core.terms import ComputeUnit
from roofline.records.base import Interval, NotNegative, Positive, Record
from roofline.records.operator import JobRecord
from roofline.records.product import Product
from roofline.records.timing import Check, DeviceState, Search, Timing


class Trial(Record):
    """One thing that the investigation of a low peak tried."""

    what: Literal["size", "sustained", "tensor_cores"]
    size: int | None
    tflops: Positive | None
    clocks_mhz: list[float]
    finding: str
    explains: bool | None = Field(description="null where it was not tried, or is not known")


class Investigation(Record):
    reason: str
    trials: list[Trial]
    verdict: Literal["size", "sustained", "tensor_cores", "none"]
    ruled_out: list[str]
    not_ruled_out: list[str] = Field(description="what was not tried, is not known, or holds beside the verdict")


class Kernel(Record):
    name: str | None
    tensor_cores: bool | None
    how_known: str


class Candidate(Record):
    """One product that was tried, by a few runs; the finalists by a whole block too."""

    product: Product
    flops: int
    trial_tflops: Positive
    block_tflops: Positive | None = None


class Block(Record):
    """One timed block of a product, on operands of its own, after a rest."""

    product: Product
    inputs: str
    flops: int
    check: Check
    latency: Timing
    tflops: Positive
    ci95: Interval | None
    states: list[DeviceState]
    sm_clock_mhz: Positive | None = Field(description="counted on the multiprocessor over such a block")


class CoreCount(Record):
    """Physical cores of a CPU, by pairing threads that run multiply-adds: two of one core get half of it each."""

    threads: int
    listed: int = Field(description="physical cores by the kernel, which a virtual machine may be told wrong")
    physical: int | None = Field(default=None, description="as counted; null where that is inconclusive")
    ports: int | None = Field(default=None, description="multiply-adds that a core begins in a clock, as counted")
    flops_per_clock: Positive | None = Field(default=None, description="of one core: ports x lanes x 2")
    reason: str | None = Field(default=None, description="why a figure is null")


class LoadPoint(Record):
    """A moment under sustained load; null where NVML reports nothing."""

    at_s: NotNegative
    tflops: Positive
    sm_clock_mhz: NotNegative | None = None
    power_w: NotNegative | None = None
    temperature_c: float | None = None
    throttle_reasons: list[str] | None = None


class Sustained(Record):
    """Load without a pause, and the median once clock and power have settled."""

    product: Product
    seconds: Positive
    settled_after_s: NotNegative | None = Field(description="null where it never settled: then the last third counts")
    tflops: Positive
    ci95: Interval | None
    sm_clock_mhz: Positive | None = Field(description="median once settled")
    power_w: Positive | None = Field(description="median once settled")
    limited_by: list[str] = Field(description="throttle reasons that NVML reported under this load")
    throttled_points: int = Field(description="moments of thermal or power-brake throttling, left out of the median")
    all_throttled: bool
    curve: Annotated[list[LoadPoint], Field(min_length=1)]


class PeakFlops(Record):
    method: Literal["gemm", "fma"]
    unit: ComputeUnit
    tflops: Positive = Field(description="the ceiling: the higher of burst and sustained")
    ci95: Interval | None
    reference_tflops: Positive | None = Field(
        description="the reference GEMM's, which stands in `measurements`; null for our own kernels"
    )
    burst_tflops: Positive = Field(
        description="the fastest product of those re-measured after the search; on a CPU, the reference GEMM counts"
    )
    sustained_tflops: Positive | None
    vendor_tflops: Positive | None
    fraction_of_vendor: Positive | None
    clock_mhz: Positive | None = Field(description="of the burst")
    clock_tflops: Positive | None
    fraction_of_clock: Positive | None
    cores: CoreCount | None = Field(default=None, description="of register-only loops on a CPU")
    inputs: str
    limited_by: list[str] = Field(description="throttle reasons around the burst and under sustained load")
    throttled: bool | None = Field(description="whether every sample was thermally throttled; null if not reported")
    doubts: list[str] = Field(description="what does not fit, and is no error")
    search: Search
    candidates: list[Candidate]
    burst: Block
    slower_remeasurements: list[Block] = Field(default=[])
    sustained: Sustained | None
    variants: list[Block] = Field(description="the same product with another output, accumulation or other inputs")
    kernel: Kernel
    investigation: Investigation | None


class PeakFlopsRecord(JobRecord):
    kind: Literal["peak_flops"] = "peak_flops"
    dtype: str
    skipped: str | None = Field(
        description="why this device turned out to have no such peak; null when it was measured"
    )
    peak: PeakFlops | None
