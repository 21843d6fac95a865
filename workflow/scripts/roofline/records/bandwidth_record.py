"""Memory ceilings, and sweeps over the size of the working set."""

from typing import Literal

from pydantic import Field

from roofline.core.terms import AccessPattern, HostMemory
from roofline.records.base import AtLeastOne, Interval, Mhz, Positive, Rate, Record
from roofline.records.energy_record import EnergyPoint, Idle, MemoryLoad
from roofline.records.operator_record import JobRecord
from roofline.records.timing_record import Contention, DeviceState, Search, Timing


class GridTrial(Record):
    """One way to run a stream that was tried: a grid of a kernel, or a number of threads."""

    grid: str
    gb_per_s: Rate


class Bandwidth(Record):
    """One memory ceiling: what a level gives to one mix of accesses."""

    name: str
    level: str
    mix: AccessPattern
    cores: AtLeastOne | None = Field(default=None, description="that read or write, where these are fewer than all")
    host_memory: HostMemory | None = Field(default=None, description="of transfers between host and device")
    both_ways: bool = Field(default=False, description="both directions of a link at once, of which this is the sum")
    counted: str
    bytes: AtLeastOne
    gb_per_s: Rate
    ci95: Interval | None
    vendor_gb_per_s: Rate | None
    fraction_of_vendor: Positive | None
    threads: AtLeastOne | None
    grid: str = Field(description="the fastest of the trials")
    search: Search
    trials: list[GridTrial]
    blocks_gb_per_s: list[Positive] = Field(
        default=[], description="the median of each block in order of time; all else here is of the fastest"
    )
    sm_clock_mhz: Mhz | None = Field(description="counted inside the kernel, where it is ours")
    limited_by: list[str]
    throttled: bool | None
    latency: Timing
    states: list[DeviceState]
    verified: str
    load: MemoryLoad | None = Field(default=None, description="of reads and copies of a GPU's memory, for its energy")


class SweepPoint(Record):
    size_bytes: AtLeastOne
    gb_per_s: Rate


class FoundLevel(Record):
    """A plateau of a sweep, and where it ends."""

    name: str | None = Field(
        description="of a cache, or memory beyond all of them; null where nothing that the device reports matches"
    )
    gb_per_s: Rate
    first_bytes: AtLeastOne
    last_bytes: AtLeastOne
    knee_bytes: AtLeastOne | None = Field(description="where the bandwidth first falls by a tenth: the capacity")
    reported_bytes: AtLeastOne | None = Field(description="the capacity that the device reports for this level")


class SweepRecord(Record):
    """Read bandwidth over sizes of the working set."""

    series: str
    reader: str = Field(description="whose working set a size is: each multiprocessor's, the device's, each core's")
    counted: str
    points: list[SweepPoint]
    levels: list[FoundLevel]
    states: list[DeviceState]
    contention: Contention | None = None


class Peer(Record):
    """The other GPU of a level between two, and how it is reached, as NVML reports."""

    device: str
    uuid: str
    path: Literal["nvlink", "pcie"] | None
    nvlinks: int | None = Field(description="active links to the peer, or to a switch")
    nvlink_version: str | None
    nvlinks_down: list[int] = Field(default=[], description="links that the GPU has and NVML reports as inactive")
    pcie_ancestor: str | None = Field(description="the nearest part of the PCIe tree that both hang on")


class Latency(Record):
    """What a few bytes take."""

    name: str
    what: str
    bytes: AtLeastOne
    timing: Timing = Field(description="a sample is of one such access, or the mean of many that wait for one another")
    verified: str


class Loaded(Record):
    """A GPU under an fp16 GEMM of 4096 for three seconds."""

    device: str
    alone_tflops: Rate
    together_tflops: Rate = Field(description="with the same load on every GPU of the run at once")


class BandwidthRecord(JobRecord):
    kind: Literal["bandwidth"] = "bandwidth"
    level: str
    skipped: str | None = Field(default=None, description="why nothing could be measured")
    peer: Peer | None = Field(default=None, description="of a level between two GPUs")
    latencies: list[Latency] = Field(default=[])
    loaded: list[Loaded] = Field(default=[], description="all GPUs of the run, with its first two")
    idle: Idle | None = Field(default=None, description="before the loads")
    energy_points: list[EnergyPoint] = Field(default=[])
    bandwidths: list[Bandwidth]
    sweeps: list[SweepRecord] = Field(default=[])
