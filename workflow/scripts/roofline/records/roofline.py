"""roofline.json, the public format: ceilings and the operators under them. Paths are relative to results/."""

from typing import Annotated, Literal

from pydantic import Field

from roofline.core.axis import BYTES
from roofline.core.formatting import traffic
from roofline.core.terms import Cache, ComputeUnit, DeviceKind, Mix, Regime, RegimeLevel
from roofline.records.base import Interval, NotNegative, Positive, Record
from roofline.records.prediction import CellPrediction

SCHEMA_VERSION = 2


class Axis(Record):
    """The size along which cells of an operator are swept, and joined in pictures."""

    key: str = Field(description="a key of the shape, or bytes: those that a step moves")
    symbol: str
    at_least: int | None = Field(default=None, description="so many values acceptance asks for")

    def words(self, place: float) -> str:
        return traffic(place) if self.key == BYTES else str(place)


class OperatorInfo(Record):
    """What readers of a record need to know of an operator, so that they need not import it."""

    name: str
    title: str
    picture: str = Field(description="results/{picture}.png")
    counted: str = Field(description="which bytes count, in a few words")
    axis: Axis | None = None
    baselines: list[str] = Field(default=[], description="implementations that the others are compared with")
    scopes: dict[str, str] = Field(default={}, description="parts that are timed separately, each in a few words")
    usual_share_of_peak: Interval | None = Field(
        default=None, description="of the compute peak, where the literature names one for a memory-bound cell"
    )


class DeviceEntry(Record):
    kind: DeviceKind
    name: str
    record: str


class ComputeCeiling(Record):
    device: str
    kind: Literal["compute"]
    name: str
    method: Literal["gemm", "fma"]
    unit: ComputeUnit
    tflops: Positive
    ci95: Interval | None
    samples: int | None = Field(default=None, description="timed samples of the burst; null if not known")
    lab_tflops: Positive | None
    on_lab_inputs_tflops: Positive | None = Field(
        default=None, description="the burst's product on operands like lab_tflops', where its own differ"
    )
    burst_tflops: Positive | None = Field(default=None, description="tflops is the higher of this and the sustained")
    sustained_tflops: Positive | None
    vendor_tflops: Positive | None
    fraction_of_vendor: Positive | None
    clock_mhz: Positive | None = Field(default=None, description="of the burst")
    sustained_clock_mhz: Positive | None = None
    inputs: str | None = Field(default=None, description="operands")
    clock_tflops: Positive | None
    fraction_of_clock: Positive | None
    held_back_by: list[str] = Field(default=[], description="throttle reasons under its load, as NVML reports them")
    burst_limited_by: list[str] | None = Field(default=None, description="those during the burst; null if not known")
    sustained_limited_by: list[str] | None = Field(
        default=None, description="those under sustained load; null if not known"
    )
    throttled: bool | None = Field(default=None, description="whether all samples were thermally throttled")
    record: str


class MemoryCeiling(Record):
    device: str
    kind: Literal["memory"]
    name: str
    level: str
    mix: Mix
    gb_per_s: Positive
    ci95: Interval | None
    samples: int | None = Field(default=None, description="timed samples; null if not known")
    sm_clock_mhz: Positive | None = Field(default=None, description="counted inside the kernel, where it is ours")
    vendor_gb_per_s: Positive | None
    fraction_of_vendor: Positive | None
    held_back_by: list[str] = Field(default=[], description="throttle reasons under its load, as NVML reports them")
    throttled: bool | None = Field(default=None, description="whether all samples were thermally throttled")
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
    """An operator above the roof that was declared for it: which roof is wrong, or which cache held the data."""

    device: str
    operator: str
    record: str | None
    fraction_of_roof: NotNegative
    wrong_roof: str | None = Field(description="the ceiling that is too low; null where a cache held the data")
    cache: str | None
    evidence: str
    users_own: bool = Field(default=False, description="counts and time are of the user's `operations`")


class Predicted(Record):
    sealed: CellPrediction | None
    from_ceilings: CellPrediction | None


class SpeedUp(Record):
    """A baseline's time over that of an operator's implementation."""

    latency: Positive
    device_latency: Positive | None = Field(description="null where the device is its own caller")


class Operator(Record):
    device: str
    operator: str
    title: str | None = Field(default=None, description="of the operator")
    name: str | None = Field(default=None, description="the user's name for an operation of the user's own")
    implementation: str | None
    preset: str | None
    scope: str | None
    dtype: str
    cache: Cache | None
    shape: dict[str, int]
    label: str | None = Field(default=None, description="what tells this case from others of its dtype")
    series: str | None = Field(default=None, description="the same without the operator's axis")
    flops: int | float
    bytes: int | float
    intensity_flops_per_byte: NotNegative | None
    no_traffic: bool
    latency_s: NotNegative | None
    latency_ci95_s: Interval | None
    samples: int | None = Field(default=None, description="timed samples of the latency; null if not known")
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
    textbook_regime: Regime | None = Field(default=None, description="what a rule of thumb names without a model")
    predicted: Predicted
    remedies: list[str] = Field(default=[], description="what helps in the regime found")
    speed_up: dict[str, SpeedUp] = Field(
        default={}, description="times as fast as the operator's baselines on the same device and case, by their names"
    )
    record: str | None

    def along(self, axis: Axis) -> int | float | None:
        """Its place on the operator's axis; None where it has none."""
        return self.bytes if axis.key == BYTES else self.shape.get(axis.key)

    @property
    def sealed(self) -> CellPrediction | None:
        return self.predicted.sealed

    @property
    def full_name(self) -> str:
        """One line's name: what, how, dtype and shape."""
        what = self.name or self.title or self.operator.replace("_", " ")
        how = None if self.operator == "operation" else self.implementation
        return " ".join(filter(None, [what, self.scope, how, self.dtype, self.label, self.preset]))


class Skipped(Record):
    device: str
    what: Literal["peak_flops", "bandwidth", "operation", "operator"]
    dtype: str
    name: str | None = Field(default=None, description="of a memory level, an operation, or an operator")
    reason: str


class Fault(Record):
    """A criterion of acceptance by which a device, or how it was measured, is not sound; with the cause."""

    device: str
    criterion: str
    reason: str
    records: list[str] = Field(default=[], description="to measure again, where what failed may be another time's")


class TransactionRoof(Record):
    """Transactions per second that a level gives: a memory ceiling over the bytes of a transaction."""

    level: str
    ceiling: str = Field(description="the memory ceiling that it follows from")
    transaction_bytes: int = Field(description="32, a sector; of shared memory 128, a wavefront")
    transactions_per_s: Positive


class InstructionWall(Record):
    """An access pattern, or share of lanes, as measured by a kernel that has nothing else."""

    pattern: Literal["stride", "conflict", "predication"]
    of: int = Field(description="words between lanes, ways of a bank conflict, or active lanes of 32")
    transactions_per_request: Positive | None = Field(description="by construction; null of predication")
    counted: Positive | None = Field(default=None, description="the same, or active lanes, as ncu counted it")
    requests_per_s: Positive
    cycles_per_request: Positive | None = Field(description="of a multiprocessor")


class PlacedKernel(Record):
    """An operator's kernels on the instruction roofline, over the time that the device took without a profiler."""

    operator: str
    implementation: str | None
    preset: str | None
    scope: str | None
    dtype: str
    cache: Cache | None
    shape: dict[str, int]
    name: str = Field(description="in a line")
    known_from: Literal["counters", "disassembly"]
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
    not_counted: str | None = Field(default=None, description="why ncu counted none of the walls")
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


class Roofline(Record):
    """results/roofline.json: ceilings and the operators under them. Paths are relative to results/."""

    schema_version: Literal[2] = SCHEMA_VERSION
    devices: dict[str, DeviceEntry]
    ceilings: list[Annotated[ComputeCeiling | MemoryCeiling, Field(discriminator="kind")]]
    operators: list[Operator]
    levels: list[FoundCache] = Field(default=[])
    above_roof: list[AboveRoof] = Field(default=[])
    skipped: list[Skipped]
    faults: list[Fault] = Field(default=[], description="what makes a device's figures doubtful")
    operator_info: dict[str, OperatorInfo] = Field(default={}, description="by the operators' names")
    instructions: list[InstructionRoofline] = Field(default=[], description="of each GPU that was measured")
    peers: list[PeerPath] = Field(default=[], description="between GPUs of the host, where several were measured")
