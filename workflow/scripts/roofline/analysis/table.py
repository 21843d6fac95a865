"""roofline.json, the public format and the one table of a run: devices, ceilings, cells, checks. Paths are relative to
results/."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, PrivateAttr

from roofline.core.formatting import listed
from roofline.core.terms import BYTES, Axis, Cache, ComputeUnit, DeviceKind, HostMemory, Mix, Regime, RegimeLevel
from roofline.operators.about import About, Unknown
from roofline.records.base import Interval, NotNegative, Positive, Record
from roofline.records.check import CheckResult
from roofline.records.prediction import CellPrediction

SCHEMA_VERSION = 6
USERS = "operation"  # the operator of the config's `operations`, which have counts and no code


class DeviceEntry(Record):
    kind: DeviceKind
    name: str
    record: str


class Variant(Record):
    """What else the device has for a dtype: the ceiling's shape by another arithmetic, in one block."""

    accumulation: str
    output: str = Field(description="the dtype of the result")
    inputs: str = Field(description="operands")
    tflops: Positive
    ci95: Interval | None
    samples: int


class ComputeCeiling(Record):
    device: str
    kind: Literal["compute"]
    name: str
    method: Literal["gemm", "fma"]
    unit: ComputeUnit
    dtype: str | None = Field(default=None, description="of the operands")
    accumulation: str | None = None
    output: str | None = Field(default=None, description="the dtype of the result")
    tflops: Positive
    ci95: Interval | None
    samples: int | None = Field(default=None, description="timed samples of the burst; null if not known")
    reference_tflops: Positive | None
    on_reference_inputs_tflops: Positive | None = Field(
        default=None, description="the burst's product on operands like the reference GEMM's, where its own differ"
    )
    burst_tflops: Positive | None = Field(default=None, description="tflops is the higher of this and the sustained")
    variants: list[Variant] = Field(default=[], description="the burst's product by other arithmetic, or operands")
    sustained_tflops: Positive | None
    vendor_tflops: Positive | None
    fraction_of_vendor: Positive | None
    vendor_at_least: bool = Field(default=False, description="of a formula whose clock was that of an idle moment")
    no_ratio: str | None = Field(default=None, description="why it is divided by nothing; null where it may be")
    clock_mhz: Positive | None = Field(default=None, description="of the burst")
    sustained_clock_mhz: Positive | None = None
    inputs: str | None = Field(default=None, description="operands")
    clock_tflops: Positive | None
    fraction_of_clock: Positive | None
    limited_by: list[str] = Field(default=[], description="throttle reasons under its load, as NVML reports them")
    burst_limited_by: list[str] | None = Field(default=None, description="those during the burst; null if not known")
    sustained_limited_by: list[str] | None = Field(
        default=None, description="those under sustained load; null if not known"
    )
    throttled: bool | None = Field(default=None, description="whether all samples were thermally throttled")
    rank: int | None = Field(default=None, description="of the burst among the known cards of this model: 1 is fastest")
    known_cards: int | None = Field(default=None, description="among which it is ranked, this one included")
    record: str


class MemoryCeiling(Record):
    device: str
    kind: Literal["memory"]
    name: str
    level: str
    mix: Mix
    cores: int | None = Field(default=None, description="that read or write, where these are fewer than all")
    host_memory: HostMemory | None = Field(default=None, description="of transfers between host and device")
    both_ways: bool = Field(default=False, description="both directions of a link at once, of which this is the sum")
    gb_per_s: Positive
    ci95: Interval | None
    samples: int | None = Field(default=None, description="timed samples; null if not known")
    sm_clock_mhz: Positive | None = Field(default=None, description="counted inside the kernel, where it is ours")
    vendor_gb_per_s: Positive | None
    fraction_of_vendor: Positive | None
    limited_by: list[str] = Field(default=[], description="throttle reasons under its load, as NVML reports them")
    throttled: bool | None = Field(default=None, description="whether all samples were thermally throttled")
    rank: int | None = Field(default=None, description="among the known cards of this model: 1 is fastest")
    known_cards: int | None = Field(default=None, description="among which it is ranked, this one included")
    record: str


class FoundCache(Record):
    """A level that the sweep found: its plateau, and its knee against the capacity that the device reports."""

    device: str
    series: str
    name: str | None
    gb_per_s: Positive
    knee_bytes: int | None
    reported_bytes: int | None
    record: str


class AboveRoof(Record):
    """An operator above a ceiling that was declared for it."""

    device: str
    operator: str = Field(description="in one line: which, how, dtype and shape")
    record: str | None
    fraction_of_roof: NotNegative
    wrong_roof: str = Field(description="the ceiling")
    evidence: str
    users_own: bool = Field(default=False, description="counts and time are of the user's `operations`")


class Predicted(Record):
    sealed: CellPrediction | None
    roof_and_start: CellPrediction | None = Field(
        default=None, description="the promised roof and one start-up time for each kind of implementation"
    )


class SpeedUp(Record):
    """A baseline's time over that of an operator's implementation; both in graphs, or neither."""

    latency: Positive = Field(description="of the caller's times; of two launch-bound cells this compares launch times")
    device_latency: Positive | None = Field(description="null where the device is its own caller")


GapCause = Literal[
    "close",
    "calls",
    "start",
    "clock",
    "own_clock",
    "compute_ceiling",
    "memory_ceiling",
    "share_of_roof",
    "unexplained",
]


class GapPart(Record):
    """What one cause moves of a sealed latency towards the measured one; the parts add up to the gap."""

    cause: GapCause
    seconds: float


class OfCell(Record):
    """A row on an operator's cell. How the cell is titled and labelled comes from about.py, and is in no table."""

    operator: str
    implementation: str | None
    preset: str | None
    scope: str | None
    dtype: str
    cache: Cache | None
    shape: dict[str, int]

    _about: About | None = PrivateAttr(default=None)
    _kind: DeviceKind = PrivateAttr(default="gpu")

    def described(self, about: About | None, kind: DeviceKind) -> Self:
        """The same row, with the text of its operator at hand."""
        self._about, self._kind = about, kind
        return self

    @property
    def title(self) -> str | None:
        return self._about.title if self._about else None

    @property
    def label(self) -> str | None:
        return self._about.label(self) if self._about else None

    @property
    def in_graph(self) -> bool:
        return bool(self._about) and self._about.in_graph(self.implementation)

    @property
    def series(self) -> str | None:
        return self._about.series(self) if self._about else None

    @property
    def full_name(self) -> str:
        """One line's name: what, how, dtype and shape."""
        what = self.title or self.operator.replace("_", " ")
        return " ".join(filter(None, [what, self.scope, self.implementation, self.dtype, self.label, self.preset]))


class Operator(OfCell):
    device: str
    name: str | None = Field(default=None, description="the user's name for an operation of the user's own")
    flops: int | float
    bytes: int | float
    intensity_flops_per_byte: NotNegative | None
    no_traffic: bool
    latency_s: NotNegative | None
    latency_ci95_s: Interval | None
    samples: int | None = Field(default=None, description="timed samples of the latency; null if not known")
    latency_deciles: Positive | None = Field(
        default=None, description="the ninth decile of the latency's samples over the first"
    )
    device_latency_s: NotNegative | None
    device_latency_ci95_s: Interval | None
    attained_tflops: NotNegative | None
    device_attained_tflops: NotNegative | None
    compute_ceiling: str | None
    memory_ceiling: str | None
    no_roof: str | None = Field(default=None, description="why no roof was declared; null where one was")
    roof_tflops: NotNegative | None
    fraction_of_roof: NotNegative | None
    device_fraction_of_roof: NotNegative | None
    fraction_of_compute_peak: NotNegative | None
    regime: Regime | None
    regime_level: RegimeLevel | None
    estimated_time_s: NotNegative | None = None
    roofline_time_s: NotNegative | None = None
    efficiency_percent: NotNegative | None = None
    overhead_s: NotNegative | None = Field(default=None, description="what a call costs on the smallest case")
    predicted: Predicted
    sealed_error: float | None = Field(default=None, description="(predicted - measured) / measured, of the latency")
    sealed_device_error: float | None = Field(default=None, description="the same of the device's time")
    sealed_regime_correct: bool | None = None
    sealed_time_right: bool | None = Field(default=None, description="within a factor of two")
    cause: GapCause = Field(default="unexplained", description="of the sealed latency's error")
    parts: list[GapPart] = Field(default=[], description="of that error, by cause")
    explanation: str = Field(default="", description="the error in one sentence, from what was measured")
    speed_up: dict[str, SpeedUp] = Field(
        default={}, description="times as fast as the operator's baselines on the same device and case, by their names"
    )
    record: str | None

    @property
    def remedies(self) -> list[str]:
        """What helps in the regime found."""
        return self._about.advice(self, self._kind).get(self.regime, []) if self._about else []

    @property
    def lower_ceiling(self) -> Literal["memory", "compute"]:
        """The lower one at this cell's intensity: memory where its share of the compute ceiling is below its share of
        the roof. `shown` takes shares of compute ceilings alone away: a cell with a roof and no share is under one."""
        if not self.compute_ceiling or not self.roof_tflops:
            return "memory"
        if not self.fraction_of_roof:
            return "compute"
        below = self.fraction_of_compute_peak < 0.9999 * self.fraction_of_roof  # equal but for rounding
        return "memory" if self.memory_ceiling and below else "compute"

    def along(self, axis: Axis) -> int | float | None:
        """Its place on the operator's axis; None where it has none."""
        return self.bytes if axis.key == BYTES else self.shape.get(axis.key)

    @property
    def sealed(self) -> CellPrediction | None:
        return self.predicted.sealed

    @property
    def roof_and_start(self) -> CellPrediction | None:
        return self.predicted.roof_and_start

    @property
    def full_name(self) -> str:
        users = self.operator == USERS
        return " ".join(filter(None, [self.name, self.dtype])) if users else super().full_name


class Skipped(Record):
    device: str
    what: Literal["peak_flops", "bandwidth", "operation", "operator"]
    dtype: str
    name: str | None = Field(default=None, description="of a memory level, an operation, or an operator")
    reason: str


class TransactionRoof(Record):
    """Transactions per second that a level gives: a memory ceiling over the bytes of a transaction."""

    level: str
    ceiling: str = Field(description="the memory ceiling that it follows from")
    transaction_bytes: int = Field(description="32, a sector; of shared memory 128, a wavefront")
    transactions_per_s: Positive


class InstructionWall(Record):
    """An access pattern, as measured by a kernel that has nothing else."""

    pattern: Literal["stride", "conflict"]
    of: int = Field(description="words between lanes, or ways of a bank conflict")
    transactions_per_request: Positive = Field(description="by construction")
    requests_per_s: Positive
    cycles_per_request: Positive | None = Field(description="of a multiprocessor")


class PlacedKernel(OfCell):
    """An operator's kernels on the instruction roofline, over the time that the device took without a profiler."""

    warp_instructions: Positive = Field(description="of one application of the operator")
    warp_instructions_per_s: Positive
    lanes_on: NotNegative | None = Field(default=None, description="of 32, per warp instruction; null if not counted")
    transactions: dict[str, NotNegative] = Field(description="by level; one that is not known is not there")
    sectors_per_request: NotNegative | None = Field(default=None, description="of global loads; null if not counted")
    fraction_of_issue: NotNegative = Field(description="of the measured issue rate")
    fraction_of_level: dict[str, NotNegative] = Field(description="of each level's measured transactions per second")
    fraction_of_roof: NotNegative | None = Field(description="of the operator's own roof, by FLOPs and bytes")
    limited_by: str = Field(description="issue or a level, where it is most of what was measured of that; else latency")


class InstructionRoofline(Record):
    """A GPU's: the warp instructions that it issues, transactions per level, walls, and kernels."""

    device: str
    warp_instructions_per_s: Positive
    sm_clock_mhz: Positive | None
    fraction_of_peak: Positive | None = Field(description="of multiprocessors x 4 schedulers x the clock counted")
    samples: int | None = Field(default=None, description="that the rate is the median of")
    levels: list[TransactionRoof]
    walls: list[InstructionWall]
    kernels: list[PlacedKernel] = Field(default=[])
    record: str


class PeerPath(Record):
    """How a GPU reaches another one of its host, and what 8 bytes take; the bandwidths are memory ceilings."""

    device: str
    peer: str
    path: Literal["nvlink", "pcie"] | None = Field(description="null where NVML does not tell")
    nvlinks: int | None = Field(description="active links to the peer, or to a switch")
    nvlink_version: str | None
    nvlinks_down: list[int] = Field(default=[], description="links that the GPU has and NVML reports as inactive")
    latencies_s: dict[str, Positive] = Field(description="of 8 bytes: a kernel's load, the driver's copy")
    record: str

    @property
    def inactive_links(self) -> str:
        """The end of a sentence on the path; empty where all links are active."""
        plural = "s" if len(self.nvlinks_down) > 1 else ""
        return f", link{plural} {listed(map(str, self.nvlinks_down))} inactive" if self.nvlinks_down else ""


class Tally(Record):
    """How good one predictor is."""

    cells: int = 0
    regimes_right: int = 0
    times_right: int = Field(default=0, description="within a factor of two")
    times_close: int = Field(default=0, description="within a factor of 1.25")
    median_error: NotNegative | None = Field(
        default=None, description="of the times: |predicted - measured| / measured"
    )


class Score(Tally):
    """Of the sealed model, over all cells whose regime was found. A prediction is right if its regime is, and its time
    within a factor of two."""

    both_right: int = 0
    roof_and_start: Tally | None = Field(
        default=None, description="the promised roof and a start-up time, as a baseline"
    )


class SealCheck(Record):
    """Whether a device was measured after its prediction was sealed, and as sealed."""

    device: str
    seals: dict[str, str] = Field(description="when each was sealed, by its path")
    first_measurement_at: str | None
    violations: list[str]


class Call(Record):
    """What one call of an implementation costs on the smallest case: the least over the records."""

    device: str
    operator: str
    implementation: str
    scope: str | None
    records: int
    smallest_s: Positive = Field(description="the caller's time of the operator's smallest case")
    smallest_device_s: Positive | None
    empty_kernel_s: Positive | None = Field(description="of a kernel with as many arguments that does nothing")
    empty_kernel_device_s: Positive | None


class CountedEntry(OfCell):
    """A profiled cell: what was declared beside what the hardware counted, of one step."""

    device: str
    declared_read_bytes: NotNegative
    declared_write_bytes: NotNegative
    read_bytes: NotNegative | None
    write_bytes: NotNegative | None = Field(description="to the L2, by multiprocessors")
    declared_flops: NotNegative
    kernel_flops: NotNegative | None = Field(description="by the kernel's FLOP formula")
    flops: NotNegative | None
    tensor_pipe_active_fraction: NotNegative | None
    achieved_occupancy_fraction: NotNegative | None = None
    regime: Regime | None = Field(description="that was found of the timed cell; null where it was not timed")
    reads_agree: bool | None = Field(description="within 5 % or 1 MB, whichever is more")
    writes_agree: bool | None
    flops_agree: bool | None = Field(description="with the kernel's FLOP formula, or else the declared, within 2 %")
    explanation: str
    record: str


class NotCounted(Record):
    """Why the counters of a device were not read."""

    device: str
    reason: str


class Roofline(Record):
    """results/roofline.json: ceilings and the operators under them. Paths are relative to results/."""

    schema_version: Literal[6] = SCHEMA_VERSION
    devices: dict[str, DeviceEntry]
    ceilings: list[Annotated[ComputeCeiling | MemoryCeiling, Field(discriminator="kind")]]
    operators: list[Operator]
    levels: list[FoundCache] = Field(default=[])
    above_roof: list[AboveRoof] = Field(default=[])
    skipped: list[Skipped]
    checks: list[CheckResult] = Field(default=[])
    instructions: list[InstructionRoofline] = Field(default=[], description="of each GPU that was measured")
    peers: list[PeerPath] = Field(default=[], description="between GPUs of the host, where several were measured")
    seals: list[SealCheck] = Field(default=[])
    score: Score = Score()
    calls: list[Call] = Field(default=[])
    counted: list[CountedEntry] = Field(default=[], description="what the hardware counted of a few cells")
    not_counted: list[NotCounted] = Field(default=[])
    _abouts: dict[str, About] = PrivateAttr(default_factory=dict)

    def described(self, abouts: Mapping[str, About]) -> Self:
        """The same table, with the text of its operators at hand: titles, labels and advice are in no table."""
        placed = [kernel for one in self.instructions for kernel in one.kernels]
        rows = [one for one in (*self.operators, *self.counted) if one.operator != USERS]
        names = dict.fromkeys(one.operator for one in (*rows, *placed))
        self._abouts = {name: abouts.get(name) or Unknown(name) for name in names}
        for one in rows:
            one.described(self._abouts[one.operator], self.devices[one.device].kind)
        for one in placed:
            one.described(self._abouts[one.operator], "gpu")
        return self

    @property
    def faults(self) -> list[CheckResult]:
        """What makes a device's figures doubtful."""
        return [one for one in self.checks if one.result == "fail" and one.doubts_figures]

    def all_doubtful(self, device: str) -> bool:
        """Whether a failure makes every figure of a device doubtful, and not those of some records alone."""
        return any(fault.device == device and not fault.records for fault in self.faults)

    @property
    def disturbed(self) -> set[str]:
        """Records in which a check failed: figures of theirs alone are doubtful."""
        return {record for fault in self.faults for record in fault.records}

    @property
    def repeatable(self) -> list[str]:
        """Those that `make AGAIN=1` measures again: no calibration, which all that was predicted follows from."""
        return sorted(record for record in self.disturbed if not record.endswith("/calibration.json"))

    @property
    def operator_info(self) -> dict[str, About]:
        """The text of the operators that were measured, by their names."""
        return self._abouts

    @property
    def titles(self) -> dict[str, str]:
        return {name: about.title for name, about in self._abouts.items()}

    def shown(self) -> "Roofline":
        """For pages and pictures: without shares of compute ceilings that did not settle (`no_ratio`)."""
        unsettled = {(c.device, c.name) for c in self.ceilings if c.kind == "compute" and c.no_ratio}
        none = {"fraction_of_roof": None, "device_fraction_of_roof": None}
        return self.model_copy(
            update={
                "operators": [
                    one.model_copy(update=none)
                    if (one.device, one.compute_ceiling) in unsettled and one.lower_ceiling == "compute"
                    else one
                    for one in self.operators
                ]
            }
        )

    @property
    def entries(self) -> list[Operator]:
        """The cells that were measured by this run, and not by the user."""
        return [one for one in self.operators if one.record]


class Acceptance(Record):
    """acceptance.json: the checks of the table alone."""

    schema_version: Literal[6] = SCHEMA_VERSION
    checks: list[CheckResult]
