"""roofline.json, the public format and the one table of a run, documented by its field descriptions.

Rows are built once, from records. Paths are relative to results/. Times are seconds: `cpu_time_s` is what a caller
waits, launches included, `gpu_time_s` the kernels alone (null on a CPU). A multiply-add is two FLOPs.
"""

from collections.abc import Iterable
from functools import cached_property
from typing import Annotated, Literal, get_args

from pydantic import ConfigDict, Field

from roofline.core.architectures import Architecture, architecture_of, parse_capability
from roofline.core.cell_prediction import is_within_factor
from roofline.core.grouping import group_by
from roofline.core.repeatability import Doubt
from roofline.core.roofline_model import COMPUTE_BOUND, MEMORY_BOUND
from roofline.core.terms import BYTES_AXIS_KEY, Axis, Regime, RegimeLevel
from roofline.operators.about import About, OwnOperatorRecord, StoredAbout, UnknownAbout, load_abouts
from roofline.records import counters_record, device_record, energy_record, instructions_record
from roofline.records.all_reduce_record import AfterProduct
from roofline.records.bandwidth_record import BandwidthFigures, Loaded, PeerLink, SweepCurve
from roofline.records.bandwidth_record import Plateau as Plateau  # of a sweep; pages import rows alone
from roofline.records.base import Interval, NotNegative, Positive, Record
from roofline.records.compute import LoadPoint, PeakFigures, WorkloadSpec
from roofline.records.operator_record import CellKey, SealedOwnPrediction
from roofline.records.seal_records import CellPrediction

USERS = "operation"  # the operator of the config's `operations`, which have counts and no code

MIXED = "mixed"  # what pages say where a roof takes less than NAMED_SHARE
NAMED_SHARE = 0.6  # of the GPU time, on a CPU of the CPU time: what a roof takes where pages say that it sets the time
REPEAT_SPREAD = "a fraction: the fastest of the timed blocks over the slowest, less 1; null for fewer than two"
DECIDING_VALUE = "the figure that decides: a fraction, a count or watts; null where there is none"
ERROR = "a fraction: predicted over measured, less 1"
MEDIAN_ERROR = "a fraction: the median of |predicted - measured| / measured of the CPU times"
DOUBT = "why the figure is not to be relied on; null where it may be used in ratios and verdicts"


class TableRow(Record):
    """A row of the table; it is built once and never changed."""

    model_config = ConfigDict(frozen=True)


class DeviceRow(TableRow, device_record.DeviceFacts):
    """A device of the run, with its hardware and software, its idle power and its seals."""

    record: str
    peaks_by: Literal["datasheet", "formula"] = Field(description="where its `datasheet_` figures are from")
    idle_power_w: Positive | None = Field(default=None, description="with a context and an empty queue, before loads")
    idle_sm_clock_mhz: NotNegative | None = Field(default=None, description="of the multiprocessors meanwhile")
    seals: dict[str, str] = Field(description="when each was sealed, by its path")
    timed_before_count: int = Field(
        default=0, description="cells that had been timed when the predictions were written again"
    )
    constants_sha256: dict[str, str] = Field(
        default={}, description="by operator: of its sealed constants that no calibration measures"
    )
    violations: list[str] = Field(description="what contradicts the seals: a wrong hash, order, or a missing seal")

    @property
    def architecture(self) -> Architecture:
        """The architecture of a GPU; of a CPU one without tensor cores."""
        return architecture_of(parse_capability(self.hardware.get("compute_capability") or "0.0"))


class VariantRow(TableRow):
    """The ceiling's product with another output, accumulation or operands, timed in one block."""

    product: WorkloadSpec
    inputs: str = Field(description="operands")
    tflops: Positive
    sample_count: int


class LoadRow(TableRow):
    """A sustained load, and how far its mean rate holds."""

    duration_s: Positive
    half_width: NotNegative | None = Field(
        default=None, description="a fraction of the rate: of its 95 % interval, by Student's t of its cycles"
    )
    part_count: int | None = Field(
        default=None, description="cycles of the clock, or quarters, that the interval is of"
    )
    settled_after_s: NotNegative | None = Field(
        description="what counts begins here; of a shorter load the last half counts"
    )
    sm_clock_mhz: Positive | None = Field(description="median of what counts")
    temperature_c: float | None = Field(description="the highest of what counts")
    drift: float | None = Field(description="a fraction: the last cycle, or quarter, over the first, less 1")
    point_count: int = Field(description="moments of the whole curve")


class SustainedRow(LoadRow):
    """The load of a product, with its rates over time."""

    product_flops: int = Field(description="FLOPs of one product")
    first_products_s: list[Positive] = Field(description="seconds of each product of the first 0.1 s")
    curve: list[LoadPoint] = Field(description="at most 120 points")


class EnergyRow(TableRow):
    """The energy of a settled load between two ticks of the energy counter, idle power included."""

    joules_per_flop: Positive | None = None
    joules_per_byte: Positive | None = None
    power_w: Positive | None
    temperature_c: float | None = Field(description="the highest")
    sm_clock_mhz: NotNegative | None
    counter_scope: Literal["card", "module"] = Field(description="what the counter counts: a GH200 counts its CPU too")
    reason: str | None = Field(description="why there are no joules")


class Standing(TableRow):
    """The place of a ceiling among other known cards of the model, each by the median of its runs.

    Rank 1 is the fastest. Cards within the spread between runs share places.
    """

    others: int = Field(description="other known cards that have this ceiling")
    median: Positive = Field(
        description="of the other cards (the lower of two middle ones), in TFLOPS or GB/s as the ceiling"
    )
    lowest: Positive = Field(description="of the other cards, in TFLOPS or GB/s as the ceiling")
    highest: Positive = Field(description="of the other cards, in TFLOPS or GB/s as the ceiling")
    rank: int | None = Field(default=None, description="the place at best; null with few other cards")
    rank_at_worst: int | None = Field(default=None, description="the place at worst; null with few other cards")


class Spreads(TableRow):
    """How far a ceiling differs between runs of one card, and between cards of its model: fractions, highest over
    lowest, less 1. The second is no error of this card's figure."""

    between_runs: NotNegative | None = Field(description="of the card whose runs differ most; null without two runs")
    runs_of: Literal["this card", "other cards"] | None = Field(description="other cards where this has one run alone")
    run_count: int = Field(description="runs of that card")
    between_cards: NotNegative | None = Field(description="of the medians of cards; null if no other card is known")
    card_count: int = Field(description="known cards, this one included")


class ComputeCeiling(TableRow, PeakFigures):
    """The highest FLOP rate that a device was measured to reach with one dtype on one kind of unit."""

    device: str
    kind: Literal["compute"]
    name: str
    dtype: str = Field(description="of the operands")
    product: WorkloadSpec = Field(description="what reached the burst: its library, shape and arithmetic")
    kernel: str | None = Field(
        default=None, description="the kernel that reached the burst, by CUPTI; null if not known"
    )
    library_tflops: Positive | None = Field(
        default=None, description="the best of the vendor's library: the burst, or else a block of the search"
    )
    sample_count: int = Field(description="timed samples of the burst")
    repeat_spread: NotNegative | None = Field(description=REPEAT_SPREAD)
    ridge_flops_per_byte: Positive | None = Field(description="where it meets the device's reads of main memory")
    fraction_of_datasheet: Positive | None = Field(description="tflops over datasheet_tflops")
    burst_fraction_of_datasheet: Positive | None = Field(description="burst_tflops over datasheet_tflops")
    sustained_fraction_of_datasheet: Positive | None = Field(description="sustained_tflops over datasheet_tflops")
    datasheet_at_least: bool = Field(description="of a formula whose clock was that of an idle moment")
    variants: list[VariantRow] = Field(description="the burst's product by other arithmetic, or operands")
    sustained: SustainedRow | None
    energy: EnergyRow | None = Field(default=None, description="under sustained load")
    doubt: Doubt | None = Field(description=DOUBT)
    standing: Standing | None = Field(default=None, description="of the burst; null if no other card is known")
    spreads: Spreads | None = Field(default=None, description="of the burst; null of a doubtful one")
    sustained_standing: Standing | None = Field(default=None, description="of the sustained rate")
    sustained_spreads: Spreads | None = Field(default=None, description="of the sustained rate")
    record: str


class MemoryCeiling(TableRow, BandwidthFigures):
    """The bandwidth that a memory level or a link was measured to give to one access pattern."""

    device: str
    kind: Literal["memory"]
    peer: str | None = Field(description="the other GPU of a link between two")
    sample_count: int
    repeat_spread: NotNegative | None = Field(description=REPEAT_SPREAD)
    load_latency_s: Positive | None = Field(default=None, description="of a load that waits for the one before")
    sustained_gb_per_s: Positive | None = Field(default=None, description="over seconds without a pause")
    sustained: LoadRow | None = None
    energy: EnergyRow | None = Field(default=None, description="under sustained load")
    fraction_of_datasheet: Positive | None = Field(description="gb_per_s over datasheet_gb_per_s")
    doubt: Doubt | None = Field(description=DOUBT)
    standing: Standing | None = Field(default=None, description="null if no other card is known")
    spreads: Spreads | None = Field(default=None, description="null of a doubtful one")
    record: str


Ceiling = ComputeCeiling | MemoryCeiling


class EnergyFit(TableRow):
    """Power of a kernel that reads and multiplies on CUDA cores: base + per byte x bytes/s + per FLOP x FLOPs/s."""

    device: str
    dtype: str
    base_power_w: float = Field(description="idle power, and whatever else does not follow the two rates")
    joules_per_byte: float
    joules_per_flop: float
    base_power_half_width_w: NotNegative | None = Field(
        default=None, description="of its 95 % interval, by Student's t of n - 3"
    )
    joules_per_byte_half_width: NotNegative | None = Field(default=None, description="of its 95 % interval")
    joules_per_flop_half_width: NotNegative | None = Field(default=None, description="of its 95 % interval")
    rms_relative_error: NotNegative = Field(description="a fraction: root mean square of the relative residuals")
    residual_standard_error: NotNegative | None = Field(
        default=None, description="a fraction: of the relative residuals, over the n - 3 that the fit leaves free"
    )
    repeats_spread: NotNegative | None = Field(
        default=None, description="a fraction: of power, of a point that was measured twice"
    )
    left_out: list[str] = Field(default=[], description="points that the fit is without, and why")
    sm_clock_mhz: Positive = Field(description="of all points, within 1 %")
    gemm_above_fit_w: Positive | None = Field(default=None, description="of the GEMM on CUDA cores, above the fit")
    gemm_above_fit_joules_per_flop: Positive | None = Field(default=None, description="on-chip data movement")
    points: list[energy_record.PowerPoint] = Field(description="the measured points of the fit")
    record: str


class SweepRow(TableRow, SweepCurve):
    """A sweep of one device."""

    device: str
    record: str


class PeerPath(TableRow, PeerLink):
    """The path from a GPU to another GPU of its host, and the latency of 8 bytes.

    Its bandwidths are memory ceilings.
    """

    device: str
    load_latency_s: Positive | None = Field(description="of a kernel's load of 8 bytes")
    copy_latency_s: Positive | None = Field(description="of the driver's copy of 8 bytes")
    loaded: list[Loaded] = Field(description="each card of the run under load, alone and with all others")
    record: str


class AllReduceSize(TableRow):
    """All-reduces of bf16 of one size: each card has so many bytes, and afterwards the sums of both."""

    size_bytes: int
    kernel: Literal["one_shot", "two_shot"] = Field(description="the fastest of ours")
    blocks: int = Field(description="of its grid")
    threads: int = Field(description="of a block")
    time_s: Positive = Field(description="of an all-reduce in a CUDA graph, by our kernel")
    time_ci95_s: Interval | None = Field(description="of the median, within one block of one run")
    sample_count: int
    gb_per_s: Positive = Field(description="size_bytes over time_s")
    bound_time_s: Positive | None = Field(
        description="by the latency of a load, or by the bytes at half of the link's rate both ways"
    )
    fraction_of_bound: Positive | None = Field(description="bound_time_s over time_s")
    sealed_time_s: Positive | None = Field(description="predicted before the first size was timed")
    sealed_time_error: float | None = Field(description=ERROR)
    nccl_graph_time_s: Positive | None = Field(description="by NCCL in a CUDA graph; null without it, or disturbed")
    nccl_eager_time_s: Positive | None = Field(
        description="by NCCL, launched one by one from a process for each card; null if any all-reduce was disturbed"
    )
    largest_relative_error: NotNegative = Field(description="of our sums from those in fp64")
    doubt: Doubt | None = Field(description=DOUBT)


class AllReduceRow(TableRow):
    """All-reduces between a GPU and another, over their link."""

    device: str
    peer: str
    sizes: list[AllReduceSize]
    median_sealed_error: NotNegative | None = Field(
        description="a fraction: the median of |predicted - measured| / measured of the sizes without a doubt"
    )
    after_product: AfterProduct | None = Field(
        description="each after a product of matrices; null if any all-reduce was disturbed"
    )
    nccl_version: str | None
    nccl_skipped_reason: str | None = Field(description="why NCCL was not timed")
    record: str


class SpeedUp(TableRow):
    """A baseline's time over that of an operator's implementation; both in graphs, or neither."""

    cpu_time_ratio: Positive = Field(description="of CPU times; of two launch-bound cells this compares launch times")
    gpu_time_ratio: Positive | None = Field(description="of GPU times; null on a CPU")


# Launch overhead, start-up, a ceiling that is not as promised, the share of the roof that was attained.
Cause = Literal["launch", "start", "ceiling", "share"]


class TimeShares(TableRow):
    """What a time goes to: fractions that add up to 1."""

    roof: NotNegative = Field(description="what the slowest roof allows: FLOPs, or bytes of the slowest level")
    overhead: NotNegative = Field(description="launches and start, as far as the roof does not hide them")
    rest: float = Field(description="what neither explains")


class CellKeyRow(TableRow, CellKey):
    """A cell of a device. Its title and labels are in about.py, and in no table."""

    device: str


def case_key(device: str, cell: CellKey) -> tuple:
    """Return what all implementations of one case share: device, operator, preset, scope, dtype, cache and shape."""
    return device, cell.operator, cell.preset, cell.scope, cell.dtype, cell.cache, *sorted(cell.shape.items())


class CellRow(CellKeyRow):
    """An operator's implementation on one case, under the two ceilings that were declared for it before.

    An operation of the user's own is a cell too: it has counts and perhaps a time, and null for all that a measurement
    of this run would add.
    """

    name: str | None = Field(default=None, description="the user's name for an operation of the user's own")
    graph: bool = Field(description="whether a graph launches its kernels")
    flops: int | float
    bytes: int | float
    intensity_flops_per_byte: NotNegative | None = Field(description="null without traffic")
    cpu_time_s: NotNegative | None = Field(description="null of an operation that the user did not time")
    cpu_time_ci95_s: Interval | None = Field(default=None, description="of the median, within one block of one run")
    cpu_time_decile_ratio: Positive | None = Field(default=None, description="the ninth decile over the first")
    gpu_time_s: NotNegative | None = Field(default=None, description="null on a CPU")
    gpu_time_ci95_s: Interval | None = Field(default=None, description="of the median, within one block of one run")
    sample_count: int | None = Field(default=None, description="of the CPU time; null of a user's own operation")
    cores_used: NotNegative | None = Field(default=None, description="that the CPU time kept busy, as a mean")
    attained_tflops: NotNegative | None
    gpu_attained_tflops: NotNegative | None = None
    attained_gb_per_s: NotNegative | None = Field(default=None, description="bytes over the CPU time")
    compute_ceiling: str | None
    memory_ceiling: str | None
    lower_ceiling: Literal["compute", "memory"] = Field(description="the lower one at this cell's intensity")
    no_roof_reason: str | None = Field(default=None, description="why no roof was declared; null where one was")
    roof_tflops: NotNegative | None
    fraction_of_roof: NotNegative | None = Field(description="attained over roof; without FLOPs, of the bandwidth")
    gpu_fraction_of_roof: NotNegative | None = Field(default=None, description="the same by the GPU time")
    fraction_of_compute_peak: NotNegative | None = Field(description="attained_tflops over the compute ceiling")
    fraction_of_exceeded_ceiling: Positive | None = Field(description="above 1 even at the slow end of its interval")
    regime: Regime | None = Field(description="null where a ceiling was not measured")
    regime_level: RegimeLevel | None = Field(description="the memory that sets the time, where memory does")
    gpu_time_shares: TimeShares | None = Field(default=None, description="null on a CPU, or without a roof")
    cpu_time_shares: TimeShares | None = Field(default=None, description="null without a roof")
    overhead_s: NotNegative | None = Field(default=None, description="what a call costs on the smallest case")
    start_s: NotNegative | None = Field(default=None, description="the GPU time of the smallest case")
    estimated_time_s: NotNegative | None = Field(default=None, description="of the user's: FLOPs over its roof")
    roofline_time_s: NotNegative | None = Field(default=None, description="of the user's: the longer of its two limits")
    roof_fraction_of_compute_peak: NotNegative | None = Field(default=None, description="of the user's: roof over peak")
    sealed: CellPrediction | None = Field(default=None, description="written and hashed before the cell was timed")
    sealed_tflops: NotNegative | None = Field(default=None, description="FLOPs over the sealed CPU time")
    promised_roof_s: NotNegative | None = Field(default=None, description="the roof by the datasheet's rates")
    baseline_prediction: CellPrediction | None = Field(default=None, description="by datasheet roof and start-up time")
    sealed_cpu_time_error: float | None = Field(default=None, description="a fraction: predicted over measured, less 1")
    sealed_gpu_time_error: float | None = Field(default=None, description="a fraction: predicted over measured, less 1")
    sealed_regime_right: bool | None = None
    cause: Cause | None = Field(
        default=None, description="of the sealed CPU time's error, the largest one; null within 1 %"
    )
    cause_s: float | None = Field(default=None, description="what that adds to the sealed CPU time")
    cause_reason: str | None = Field(default=None, description="what was measured of it, and assumed; null if no datum")
    speed_up: dict[str, SpeedUp] = Field(description="over the operator's baselines on the same device and case")
    notes: list[str] = Field(description="what the implementation reports of itself")
    doubt: Doubt | None = Field(description=f"{DOUBT}: of its times")
    roof_doubt: Doubt | None = Field(description=f"{DOUBT}: of its lower ceiling, and so of its shares")
    record: str | None = Field(default=None, description="null of an operation of the user's own")

    @property
    def reliable_fraction_of_roof(self) -> float | None:
        """The attained fraction of the roof; None if the cell or its lower ceiling is doubtful."""
        return None if self.doubt or self.roof_doubt else self.fraction_of_roof

    @property
    def shown_regime(self) -> str | None:
        """The regime as pages name it: `mixed` where the roof that sets it takes less than 60 % of the GPU time,
        or on a CPU of the CPU time."""
        shares = self.gpu_time_shares or self.cpu_time_shares
        named_by_roof = self.regime in (COMPUTE_BOUND, MEMORY_BOUND)
        return MIXED if named_by_roof and shares and shares.roof < NAMED_SHARE else self.regime

    @property
    def sealed_time_right(self) -> bool | None:
        """True if the sealed CPU time is within a factor of two of the measured one; None if either is not known."""
        if not self.sealed or not self.sealed.cpu_time_s or not self.cpu_time_s:
            return None
        return is_within_factor(self.sealed.cpu_time_s, self.cpu_time_s)

    @property
    def own_time_s(self) -> float | None:
        """The GPU time in seconds, or the CPU time of a cell without a GPU time."""
        return self.gpu_time_s or self.cpu_time_s

    def axis_value(self, axis: Axis) -> int | float:
        """Return the size along the operator's axis, in bytes or as in `shape`; 0 if the cell has none."""
        return self.bytes if axis.key == BYTES_AXIS_KEY else self.shape.get(axis.key, 0)


class Skipped(TableRow):
    """A ceiling, operation or operator that was asked for and could not be measured, with the reason."""

    device: str
    kind: Literal["peak_flops", "bandwidth", "operation", "operator"]
    name: str = Field(description="of a compute ceiling, a memory job, an operation, or an operator")
    reason: str


class PlacedKernel(CellKeyRow):
    """An operator's kernels on the instruction roofline, over the time that the GPU took without a profiler."""

    warp_instructions: Positive = Field(description="of one application of the operator")
    warp_instructions_per_s: Positive
    active_lanes: NotNegative | None = Field(description="lanes of 32 per warp instruction; null if not counted")
    transactions: dict[str, NotNegative] = Field(description="of one application, by level, if it was counted")
    fraction_of_issue: NotNegative = Field(description="of the measured issue rate")
    fraction_of_level: dict[str, NotNegative] = Field(description="of each level's measured transactions per second")
    fraction_of_roof: NotNegative | None = Field(description="of the operator's own roof, by FLOPs and bytes")
    limit: str = Field(description="issue or a level, where it is most of what was measured of that; else latency")


class InstructionRoofline(TableRow):
    """The instruction roofline of a GPU: its issue rate, transactions per level, walls, and kernels."""

    device: str
    warp_instructions_per_s: Positive
    sm_clock_mhz: Positive | None
    fraction_of_issue_peak: Positive | None = Field(description="of multiprocessors x 4 schedulers x the clock counted")
    sample_count: int = Field(description="that the rate is the median of")
    doubt: Doubt | None = Field(description=DOUBT)
    transactions_per_s: dict[str, Positive] = Field(description="by level: GB/s over 32 bytes, or 128 of shared memory")
    walls: list[instructions_record.AccessLimit]
    kernels: list[PlacedKernel]
    record: str


class Counted(CellKeyRow, counters_record.CountFigures):
    """A profiled cell: what was declared next to what the hardware counted, of one step."""

    sm_write_bytes: NotNegative | None = Field(description="to the L2, by multiprocessors")
    formula_flops: NotNegative | None = Field(description="by the kernel's FLOP formula")
    counted_flops: NotNegative | None
    regime: Regime | None = Field(description="that was found of the timed cell; null where it was not timed")
    reads_agree: bool | None = Field(description="within 5 % or 1 MB, whichever is more")
    writes_agree: bool | None = Field(description="the same")
    flops_agree: bool | None = Field(description="with the kernel's FLOP formula, within 2 %")
    record: str

    @property
    def limited_by_memory(self) -> bool:
        """True if the cell is cold and memory-bound: its traffic sets its time, so that it must be as declared."""
        return self.cache == "cold" and self.regime == "memory"


class NotCounted(TableRow):
    """A device whose counters were not read, with the reason."""

    device: str
    refused_reason: str


RowOfDevice = Ceiling | CellKeyRow | PeerPath | InstructionRoofline | NotCounted
Result = Literal["pass", "note", "fail", "not_applicable"]


class CheckResult(TableRow):
    """One check of a device or of a run, with its verdict."""

    device: str
    check: str = Field(description="what must hold")
    result: Result
    reason: str = Field(description="what was found; why it could not be judged")
    action: str | None = Field(default=None, description="what to do; null where nothing is to be done")
    value: float | None = Field(default=None, description=DECIDING_VALUE)
    limit: float | None = Field(default=None, description="the limit that the value is held to, in the same unit")
    doubts_figures: bool = Field(default=False, description="whether a failure makes the device's figures doubtful")
    records: list[str] = Field(default=[], description="to measure again, where what failed may be over by then")


def count_passed(checks: Iterable[CheckResult]) -> str:
    """Return in words how many checks passed, of those that either passed or failed."""
    results = [check.result for check in checks]
    passed, failed = results.count("pass"), results.count("fail")
    return f"{passed} of {passed + failed} checks passed"


class Tally(TableRow):
    """The score of one predictor over cells without a doubt."""

    cell_count: int
    regimes_right: int = Field(description="cells whose regime was predicted")
    times_right: int = Field(description="cells whose CPU time was predicted within a factor of two")
    times_close: int = Field(description="cells whose CPU time was predicted within a factor of 1.25")
    median_cpu_time_error: NotNegative | None = Field(description=MEDIAN_ERROR)


# Predictors without the model: the promised roof and a start per kind of implementation; two constants for each
# implementation, fitted on these cells; earlier runs of the model of card; runs of another model; a run by another run.
Predictor = Literal["roof", "fit", "earlier_runs", "other_model", "repeat"]
Time = Literal["cpu_time", "gpu_time"]
TIMES: tuple[Time, ...] = get_args(Time)


class Baseline(TableRow):
    """One time of a device's cells by a predictor without the model, next to the sealed model on the same cells."""

    device: str
    predictor: Predictor
    runs: str | None = Field(default=None, description="the known runs that it rests on, in words")
    time: Time
    cell_count: int
    median_error: NotNegative = Field(description="a fraction: the median of |predicted - measured| / measured")
    times_close: int = Field(description="cells that were predicted within a factor of 1.25")
    model_median_error: NotNegative = Field(description="a fraction: of the sealed model on these cells")
    model_times_close: int = Field(description="cells that the sealed model predicted within a factor of 1.25")


class Score(Tally):
    """The score of the sealed model, next to those of baselines."""

    both_right: int = Field(description="cells of which both the regime and the CPU time were right")
    baseline_tally: Tally | None = Field(description="the promised roof and a start-up time")
    baselines: list[Baseline] = Field(default=[], description="of each device, each time and predictor")


class PredictionErrors(TableRow):
    """The errors of a prediction of a cell, in what the user predicts of it; all else is null."""

    regime_right: bool | None
    cpu_time_error: float | None = Field(description=ERROR)
    fraction_of_compute_peak_error: float | None = Field(description=ERROR)


class OwnPredictionRow(CellKeyRow, SealedOwnPrediction):
    """A cell as the user predicts it, with the errors of that and of the sealed model."""

    not_scored_reason: str | None = Field(description="null where it is scored")
    errors: PredictionErrors | None = Field(description="null where it is not scored")
    model_errors: PredictionErrors | None = Field(description="the sealed model's in the same")


class OwnTally(TableRow):
    """The numbers of right predictions, the user's or the model's for the same cells."""

    regimes_right: int = Field(description="cells whose regime was predicted")
    times_right: int = Field(description="cells whose CPU time was predicted within a factor of two")
    shares_right: int = Field(description="cells whose share of the compute peak was predicted within a factor of two")
    median_cpu_time_error: NotNegative | None = Field(description=MEDIAN_ERROR)


class OwnScore(TableRow):
    """The score of the user's predictions on a device, next to that of the sealed model for the same."""

    cell_count: int = Field(description="predictions that are scored")
    not_scored_count: int
    regime_count: int = Field(description="of those that are scored, those of a regime")
    time_count: int = Field(description="the same of a CPU time")
    share_count: int = Field(description="the same of a share of the compute peak")
    own: OwnTally
    model: OwnTally


class AskedCell(CellKeyRow):
    """A cell of no job, as the seals predict it, for a reader who asks what if."""

    flops: NotNegative
    bytes: NotNegative
    cpu_time_s: Positive
    regime: Regime


class Roofline(TableRow):
    """The table of a run as an object: results/roofline.json."""

    schema_version: Literal[9] = 9
    devices: dict[str, DeviceRow]
    ceilings: list[Annotated[Ceiling, Field(discriminator="kind")]]
    operators: list[CellRow]
    drawn: list[CellRow] = Field(default=[], description="of shapes that were drawn after the predictions were sealed")
    sweeps: list[SweepRow]
    peers: list[PeerPath] = Field(description="between GPUs of the host, where several were measured")
    all_reduces: list[AllReduceRow] = Field(default=[], description="of each GPU and the next one")
    energy_fits: list[EnergyFit] = Field(default=[], description="of each GPU and dtype whose points were measured")
    instructions: list[InstructionRoofline] = Field(description="of each GPU that was measured")
    counters: list[Counted] = Field(description="what the hardware counted of a few cells")
    refused_counters: list[NotCounted]
    what_if: list[AskedCell] = Field(default=[], description="predictions that a reader of report.html chooses from")
    skipped: list[Skipped]
    score: Score
    drawn_score: Score | None = Field(default=None, description="of drawn shapes; null where none were measured")
    own_predictions: list[OwnPredictionRow] = Field(default=[], description="the user's, scored or not")
    own_scores: dict[str, OwnScore] = Field(default={}, description="of the user's predictions, by device")
    own_operators: list[OwnOperatorRecord] = Field(description="what a reader sees of the user's own")
    checks: list[CheckResult]

    def ceiling(self, device: str, name: str | None) -> Ceiling | None:
        """Return the ceiling of this name on a device; None if it was not measured."""
        return next((row for row in self.ceilings if (row.device, row.name) == (device, name)), None)

    def compute_ceilings(self, device: str) -> list[ComputeCeiling]:
        """Return the compute ceilings of a device."""
        return [row for row in self.ceilings if row.kind == "compute" and row.device == device]

    def memory_ceilings(self, device: str) -> list[MemoryCeiling]:
        """Return the memory ceilings of a device."""
        return [row for row in self.ceilings if row.kind == "memory" and row.device == device]

    @property
    def fastest_all_reduces(self) -> dict[str, list[tuple[AllReduceRow, AllReduceSize]]]:
        """Each size of each card by the faster of its two pairs, so that a slow card does not slow its neighbour's
        figure; a pair without a doubt comes first. {} if there are no three cards."""
        cards = dict.fromkeys(card for row in self.all_reduces for card in (row.device, row.peer))
        if len(cards) < 3:
            return {}
        fastest = {}
        for card in cards:
            pairs = [(row, size) for row in self.all_reduces if card in (row.device, row.peer) for size in row.sizes]
            by_size = group_by(pairs, lambda pair: pair[1].size_bytes).values()
            fastest[card] = [
                max(of_size, key=lambda pair: (not pair[1].doubt, pair[1].gb_per_s)) for of_size in by_size
            ]
        return fastest

    def find_cell(self, row: OwnPredictionRow) -> CellRow | None:
        """Return the measured cell that the user predicts; None if it was not measured."""
        cells = (cell for cell in self.measured_cells if cell.device == row.device)
        return next((cell for cell in cells if cell.planned_identity == row.planned_identity), None)

    @property
    def measured_cells(self) -> list[CellRow]:
        """The cells that this run measured, without operations of the user's own."""
        return [cell for cell in self.operators if cell.record]

    @cached_property
    def operator_info(self) -> dict[str, About]:
        """The title, axis, labels and advice of each operator of this run, by its name."""
        abouts = load_abouts() | {operator.name: StoredAbout(operator) for operator in self.own_operators}
        names = dict.fromkeys(
            cell.operator for cell in (*self.operators, *self.drawn, *self.counters) if cell.operator != USERS
        )
        return {name: abouts.get(name) or UnknownAbout(name) for name in names}

    def title(self, operator: str) -> str:
        """Return the title of an operator of this run, or else its name with spaces for underscores."""
        return self.operator_info[operator].title if operator in self.operator_info else operator.replace("_", " ")

    def label(self, cell: CellKeyRow) -> str:
        """Return the words that distinguish a case from others of its preset and dtype."""
        return self.operator_info[cell.operator].label(cell) if cell.operator in self.operator_info else ""

    def series(self, cell: CellKeyRow) -> str:
        """Return the label of a case without its size along the operator's axis."""
        return self.operator_info[cell.operator].series(cell) if cell.operator in self.operator_info else ""

    def scope_label(self, cell: CellKey) -> str | None:
        """Return the scope of a cell where cells of its operator differ in it, else None."""
        scopes = {other.scope for other in self.operators if other.operator == cell.operator}
        return cell.scope if len(scopes) > 1 else None

    def title_with_scope(self, cell: CellKey) -> str:
        """Return the title of a cell's operator, with the scope where cells differ in it."""
        scope = self.scope_label(cell)
        return f"{self.title(cell.operator)} ({scope})" if scope else self.title(cell.operator)

    def full_name(self, cell: CellKeyRow) -> str:
        """Return operator, scope, implementation, dtype, shape and preset of a cell in one line."""
        if isinstance(cell, CellRow) and cell.operator == USERS:
            return f"{cell.name} {cell.dtype}"
        about = self.operator_info.get(cell.operator) or UnknownAbout(cell.operator)
        return about.full_name(cell, self.scope_label(cell))

    def remedies(self, cell: CellRow) -> list[str]:
        """Return the advice of the cell's operator for its regime; [] if there is none."""
        about, device = self.operator_info.get(cell.operator), self.devices[cell.device]
        if not about or not cell.regime:
            return []
        return about.advice(cell, device.device_kind, device.architecture).get(cell.regime, [])

    @property
    def doubting_failures(self) -> list[CheckResult]:
        """The failed checks that make figures doubtful."""
        return [check for check in self.checks if check.result == "fail" and check.doubts_figures]

    @property
    def disturbed_records(self) -> list[str]:
        """The records of figures that a failed check names: without calibrations, which doubt predictions alone."""
        records = {record for failure in self.doubting_failures for record in failure.records}
        return sorted(record for record in records if not record.endswith("/calibration.json"))

    @property
    def records_to_repeat(self) -> list[str]:
        """The records that `make AGAIN=1` measures again: those that a failed check names, and disturbed calibrations,
        which doubt no figure but every prediction."""
        checks = [check for check in self.checks if check.doubts_figures and check.result in ("fail", "note")]
        return sorted({record for check in checks for record in check.records})
