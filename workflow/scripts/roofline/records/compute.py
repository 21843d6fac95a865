"""Compute ceilings: the candidates, the burst, sustained load, and the investigation of a low peak."""

from typing import Annotated, Literal

from pydantic import Field

from roofline.core.terms import ComputeUnit
from roofline.records.base import AtLeastOne, Interval, Positive, Rate, Record
from roofline.records.energy_record import LoadFigures, LoadMoment
from roofline.records.operator_record import JobRecord
from roofline.records.timing_record import ALL_THROTTLED, Check, Contention, DeviceState, Search, Timing


class WorkloadSpec(Record):
    """The work that a compute ceiling is found with: a matrix product, or a register-only kernel."""

    library: str = Field(description="what computes: cupy.matmul, cuBLASLt, numpy.matmul, a kernel of ours")
    shape: dict[str, AtLeastOne] = Field(description="m, n, k of a product; blocks and threads of a kernel")
    layout: str | None = Field(description="which operands are transposed in memory: TN; null if none can be")
    algorithm: str | None = Field(description="among those that the library offers; null where it chooses by itself")
    accumulation: str
    output: str


class InvestigationTrial(Record):
    """One hypothesis that the investigation of a low peak tried, and its finding."""

    hypothesis: Literal["size", "sustained", "tensor_cores"]
    tflops: Rate | None = None
    sm_clocks_mhz: list[float] = Field(default=[])
    finding: str
    explains: bool | None = Field(description="null where it was not tried, or is not known")


class Investigation(Record):
    """The search for the cause of a low peak: its trials, and the verdict on what explains it."""

    reason: str
    trials: list[InvestigationTrial]
    verdict: Literal["size", "sustained", "tensor_cores", "none"]
    ruled_out: list[str] = Field(description="of other causes: the power limit and the rate class of the card")


class KernelIdentity(Record):
    """The name of the kernel that reached a ceiling, and whether it uses tensor cores; null if not known."""

    name: str | None
    tensor_cores: bool | None
    how_known: str


class Candidate(Record):
    """One product that the search timed: by a few runs, and finalists by more."""

    product: WorkloadSpec
    flops: AtLeastOne
    trial_tflops: Rate
    flops_per_cycle: Positive | None = Field(description="what candidates are ranked by; null without a counted clock")


class WorkloadBlock(Record):
    """One timed block of a product, after a rest and a warm-up."""

    product: WorkloadSpec
    inputs: str
    flops: AtLeastOne
    check: Check
    timing: Timing
    tflops: Rate = Field(description="FLOPs over the mean sample, on a CPU over the median")
    states: list[DeviceState]
    sm_clock_mhz: Positive | None = Field(description="counted on the multiprocessors over this very block")


class NotRepeated(Record):
    """A candidate that fell out because its repeats did not agree."""

    product: WorkloadSpec
    repeats_tflops: list[Rate]


class LoadPoint(LoadMoment):
    """A moment of a product without a pause."""

    tflops: Rate


class Sustained(LoadFigures):
    """Load without a pause, and its rate over whole cycles of power control once it had settled."""

    product: WorkloadSpec
    tflops: Rate
    ci95_tflops: Interval | None
    power_w: Positive | None = Field(description="median of what counts")
    power_reading: Literal["instant", "average"] | None = None
    throttled_points: int = Field(description="moments of thermal or power-brake throttling, left out")
    starved_points: int = Field(description="moments left out because the device had no work")
    all_throttled: bool = Field(description="whether heat or the power brake held back every moment of the load")
    first_products_s: list[Positive] = Field(default=[], description="of the first 0.1 s, each product's time")
    curve: Annotated[list[LoadPoint], Field(min_length=1)]
    contention: Contention | None = None


class PeakFigures(Record):
    """The figures of a compute ceiling, which its record and its row have in common."""

    workload: Literal["gemm", "fma"]
    compute_unit: ComputeUnit
    inputs: str = Field(description="operands")
    tflops: Rate = Field(description="the ceiling: the higher of burst and sustained")
    burst_tflops: Rate = Field(description="the median of the repeats")
    sustained_tflops: Rate | None
    reference_tflops: Rate | None = Field(description="of the reference GEMM; null for a kernel in registers")
    datasheet_tflops: Rate | None = Field(description="the peak of the datasheet; by formula for a CPU")
    sm_clock_mhz: Positive | None = Field(description="of the burst")
    fraction_of_clock: Positive | None = Field(description="the burst over what the units could do at that clock")
    throttle_reasons: list[str] = Field(description="of the burst and of sustained load, as NVML reports them")
    burst_throttle_reasons: list[str] | None = Field(default=None, description="null if not known: too short a burst")
    sustained_throttle_reasons: list[str] | None = Field(default=None, description="null if not known")
    all_throttled: bool | None = Field(description=ALL_THROTTLED)
    remarks: list[str] = Field(description="what does not fit, but is not an error")
    investigation: Investigation | None = Field(description="of a peak that seemed low")


class PeakFlops(PeakFigures):
    """One compute ceiling, and how it was found."""

    search: Search
    candidates: list[Candidate]
    not_repeated: list[NotRepeated] = Field(description="faster candidates, which fell out")
    repeats: list[WorkloadBlock] = Field(
        description="timed blocks that start alike; under sustained load the last one is its opening"
    )
    sustained: Sustained | None
    variants: list[WorkloadBlock] = Field(description="the same product with another output or accumulation")
    kernel: KernelIdentity

    @property
    def burst(self) -> WorkloadBlock:
        """The repeat of median rate; of an even number the faster one of the two."""
        return sorted(self.repeats, key=lambda block: block.tflops)[len(self.repeats) // 2]


class PeakFlopsRecord(JobRecord):
    """results/{device}/peak_flops/{name}.json: one compute ceiling, or why the device has none."""

    kind: Literal["peak_flops"] = "peak_flops"
    name: str = Field(description="of the compute ceiling, such as fp16 or fp32_fma")
    skipped_reason: str | None = Field(
        description="why this device turned out to have no such peak; null when it was measured"
    )
    peak: PeakFlops | None
