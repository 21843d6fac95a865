"""Memory ceilings, and sweeps over the size of the working set."""

from typing import Literal

from pydantic import Field

from roofline.core.terms import AccessPattern, HostMemory
from roofline.records.base import AtLeastOne, Interval, Mhz, Positive, Rate, Record
from roofline.records.energy_record import EnergyPoint, Idle, MemoryLoad
from roofline.records.operator_record import JobRecord
from roofline.records.timing_record import ALL_THROTTLED, Contention, DeviceState, Search, Timing


class GridTrial(Record):
    """One grid of a kernel, or one number of threads, that a bandwidth benchmark was tried with."""

    grid: str
    gb_per_s: Rate


class BandwidthFigures(Record):
    """The figures of a memory ceiling, which its record and its row have in common."""

    name: str
    level: str
    mix: AccessPattern
    cores: AtLeastOne | None = Field(default=None, description="that read or write, where these are fewer than all")
    host_memory: HostMemory | None = Field(default=None, description="of transfers between host and device")
    both_ways: bool = Field(default=False, description="both directions of a link at once, of which this is the sum")
    gb_per_s: Rate
    ci95_gb_per_s: Interval | None
    datasheet_gb_per_s: Rate | None
    sm_clock_mhz: Mhz | None = Field(description="counted inside the kernel, where it is ours")
    throttle_reasons: list[str] = Field(description="under its load, as NVML reports them")
    all_throttled: bool | None = Field(description=ALL_THROTTLED)


class Bandwidth(BandwidthFigures):
    """One memory ceiling: what a level gives to one access pattern, and how it was found."""

    counting_rule: str = Field(description="which bytes count")
    bytes: AtLeastOne
    threads: AtLeastOne | None
    grid: str = Field(description="the fastest of the trials")
    search: Search
    trials: list[GridTrial]
    repeats_gb_per_s: list[Positive] = Field(
        default=[], description="the median of each block in order of time; all else here is of the fastest"
    )
    timing: Timing
    states: list[DeviceState]
    checked_against: str = Field(description="what the result was compared with")
    sustained: MemoryLoad | None = Field(default=None, description="a GPU's reads and copies without a pause")


class SweepPoint(Record):
    """The read bandwidth at one size of the working set."""

    size_bytes: AtLeastOne
    gb_per_s: Rate


class Plateau(Record):
    """A flat part of a sweep, and the knee where it ends, next to the capacity that the device reports."""

    name: str | None = Field(
        description="of a cache, or memory beyond all of them; null where nothing that the device reports matches"
    )
    gb_per_s: Rate
    first_bytes: AtLeastOne
    last_bytes: AtLeastOne
    knee_bytes: AtLeastOne | None = Field(description="where the bandwidth first falls by a tenth: the capacity")
    reported_bytes: AtLeastOne | None = Field(description="the capacity that the device reports for this level")


class SweepCurve(Record):
    """Read bandwidth over sizes of the working set, and the plateaus that it shows."""

    series: str
    reader: str = Field(description="whose working set a size is: each multiprocessor's, the device's, each core's")
    counting_rule: str = Field(description="which bytes count")
    points: list[SweepPoint]
    plateaus: list[Plateau]


class SweepRecord(SweepCurve):
    """A sweep with the readings of the device during it."""

    states: list[DeviceState]
    contention: Contention | None = None


class PeerLink(Record):
    """The link from a GPU to another GPU of its host, as NVML reports it."""

    peer: str = Field(description="the device that is reached, such as gpu1")
    link: Literal["nvlink", "pcie"] | None = Field(description="null if NVML does not report it")
    active_nvlinks: int | None = Field(description="active links to the peer, or to a switch")
    nvlink_version: str | None
    inactive_nvlinks: list[int] = Field(default=[], description="links that the GPU has and NVML reports as inactive")


class Peer(PeerLink):
    """The other GPU of a level between two GPUs, and the link to it."""

    uuid: str
    pcie_ancestor: str | None = Field(description="the nearest part of the PCIe tree that both hang on")


class Latency(Record):
    """The time of an access of a few bytes."""

    name: str
    description: str = Field(description="the access that is timed")
    bytes: AtLeastOne
    timing: Timing = Field(description="a sample is of one such access, or the mean of many that wait for one another")
    checked_against: str


class Loaded(Record):
    """The rate of a GPU under an fp16 GEMM of 4096 for three seconds, alone and with the other GPUs."""

    device: str
    alone_tflops: Rate
    together_tflops: Rate = Field(description="with the same load on every GPU of the run at once")


class BandwidthRecord(JobRecord):
    """results/{device}/bandwidth/{name}.json: the ceilings, sweeps, latencies and energy of one memory level."""

    kind: Literal["bandwidth"] = "bandwidth"
    name: str = Field(description="of the job: a memory level, sweep, or p2p_gpu1")
    skipped_reason: str | None = Field(default=None, description="why nothing could be measured")
    peer: Peer | None = Field(default=None, description="of a level between two GPUs")
    latencies: list[Latency] = Field(default=[])
    loaded: list[Loaded] = Field(default=[], description="all GPUs of the run, with its first two")
    idle: Idle | None = Field(default=None, description="before the loads")
    energy_points: list[EnergyPoint] = Field(default=[])
    bandwidths: list[Bandwidth]
    sweeps: list[SweepRecord] = Field(default=[])
