"""The memory levels, and the targets of bandwidth measurements: where bytes lie, and what is asked for.

Several targets may measure one level: copies by the driver (`d2d`) and our kernels (`hbm`) both give ceilings of HBM.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from roofline.core.grouping import group_by
from roofline.core.terms import ACCESS_PATTERNS, AccessPattern, DeviceKind

Roofs = Mapping[AccessPattern, tuple[str, ...]]


@dataclass(frozen=True)
class Level:
    """Where bytes lie: the level of ceilings, sweeps and regimes, from the registers out."""

    name: str
    title: str  # as people write it
    medium: Literal["memory", "cache", "link"]
    layer: str = ""  # of the memory pyramid of a GPU, which levels of one store share
    capacity_key: str = ""  # of the device's hardware
    per_multiprocessor: bool = False  # that capacity is of each multiprocessor
    shown: tuple[str, ...] = ()  # ceilings that the pyramid shows, those of the host link in order of direction
    transaction_roof: str = ""  # the ceiling that the instruction roofline divides into transactions
    transaction_bytes: int = 32  # a sector; of shared memory a wavefront of all 32 banks


@dataclass(frozen=True)
class Target:
    """What `bandwidth.levels` may ask for: one record each. The targets of a job are measured by one process."""

    name: str
    device_kind: DeviceKind | None  # None: every kind
    level: str  # of its ceilings
    job: str
    arrays: int = 0  # of bandwidth.size_mib that it needs at once, if it uses that size
    uses_transfer_size: bool = False  # its size is bandwidth.transfer_size_mib
    # The ceilings that operators of an access pattern may be under, best first.
    roofs: Roofs = field(default_factory=dict)
    needs_clusters: bool = False  # an architecture without them skips it with the reason


# A GPU's last cache, and its ceiling of reads that several blocks make at about the same time.
LAST_CACHE, L2_SHARED_BY_NEIGHBOURS = "l2", "l2_shared_by_neighbours"
_NEAREST, _SHARED_BYTES = "L1 and shared memory", "shared_memory_per_multiprocessor_bytes"
_TOTAL = "memory_total_bytes"
_CLUSTERS = tuple(f"dsmem_{blocks}" for blocks in (2, 4, 8, 16))
_LEVEL_ROWS = (
    Level("l1", "L1", "cache", _NEAREST, _SHARED_BYTES, True, ("l1",), "l1"),
    Level("shared", "shared memory", "cache", _NEAREST, _SHARED_BYTES, True, ("shared",), "shared", 128),
    Level("dsmem", "shared memory of a cluster", "cache", "distributed shared memory", shown=_CLUSTERS),
    Level("l2", "L2", "cache", "L2", "l2_bytes", False, ("l2", L2_SHARED_BY_NEIGHBOURS), "l2"),
    Level("l3", "L3", "cache"),
    Level("hbm", "HBM", "memory", "device memory", _TOTAL, shown=("hbm_read", "d2d"), transaction_roof="hbm_read"),
    Level("dram", "memory", "memory", "memory", _TOTAL, shown=("dram_read",)),
    Level("pcie", "host link", "link", "host link", shown=("h2d", "d2h")),
    Level("p2p", "other GPUs", "link"),
)
LEVELS = {level.name: level for level in _LEVEL_ROWS}

_HBM: Roofs = {
    "read": ("hbm_read",),
    "write": ("hbm_write",),
    "copy": ("hbm_copy",),
    "triad": ("hbm_triad", "hbm_copy"),
}
_DRAM: Roofs = {mix: tuple(dict.fromkeys((f"dram_{mix}", "dram_copy"))) for mix in ACCESS_PATTERNS}
_D2D: Roofs = dict.fromkeys(ACCESS_PATTERNS, ("d2d",))
_TARGET_ROWS = (
    Target("hbm", "gpu", level="hbm", job="hbm", arrays=3, roofs=_HBM),
    Target("d2d", "gpu", level="hbm", job="hbm", arrays=2, roofs=_D2D),
    Target("l2", "gpu", level="l2", job="l2"),
    Target("l1", "gpu", level="l1", job="l2"),
    Target("shared", "gpu", level="shared", job="l2"),
    Target("dsmem", "gpu", level="dsmem", job="l2", needs_clusters=True),
    Target("h2d", "gpu", level="pcie", job="h2d", uses_transfer_size=True),
    Target("d2h", "gpu", level="pcie", job="h2d", uses_transfer_size=True),
    Target("p2p", "gpu", level="p2p", job="p2p", arrays=4),
    Target("all_reduce", "gpu", level="p2p", job="all_reduce"),
    Target("dram", "cpu", level="dram", job="dram", arrays=3, roofs=_DRAM),
    Target("sweep", None, level="", job="sweep"),  # finds the caches and their capacities by itself
)
TARGETS = {target.name: target for target in _TARGET_ROWS}
TARGET_NAMES = tuple(TARGETS)
ARRAYS_NEEDED = {target.name: target.arrays for target in _TARGET_ROWS if target.arrays}
TRANSFER_TARGETS = tuple(target.name for target in _TARGET_ROWS if target.uses_transfer_size)
LEVEL_TITLES = {level.name: level.title for level in _LEVEL_ROWS}
TRANSACTION_ROOFS = {level.name: level.transaction_roof for level in _LEVEL_ROWS if level.transaction_roof}
SWEEP, HOST_LINK = "sweep", "pcie"
PEER = "p2p"  # measured once per ordered pair of GPUs
ALL_REDUCE = "all_reduce"  # measured of each GPU and the next one
BETWEEN_GPUS = (PEER, ALL_REDUCE)  # with the other GPU in their records' names
MAIN_MEMORY: dict[DeviceKind, str] = {"gpu": "hbm", "cpu": "dram"}
FROM_HOST, DRIVER_COPY = "h2d", "d2d"  # ceilings that sentences and pictures name
ALL_CORES = "all_cores"  # the sweep of a CPU in which each core has its own set
# The last plateau of a sweep: beyond all caches, or perhaps not.
MEMORY_PLATEAU, CACHE_OR_MEMORY = "memory", "cache or memory"


def target_names(kind: DeviceKind) -> list[str]:
    """Return the names of the targets within a device of a kind, in the order in which they are measured."""
    of_kind = [target.name for target in _TARGET_ROWS if target.device_kind in (kind, None)]
    return [name for name in of_kind if name not in BETWEEN_GPUS]


def group_by_job(asked_targets: Collection[str]) -> list[list[str]]:
    """Return the targets that each job measures, from those that are asked for."""
    ordered = [name for name in TARGETS if name in asked_targets]
    between_gpus = [name for name in asked_targets if name not in TARGETS]  # p2p_gpu1
    jobs = group_by([*ordered, *between_gpus], lambda name: TARGETS[name].job if name in TARGETS else name)
    return list(jobs.values())


def memory_ceiling_names(kind: str, mix: AccessPattern) -> list[str]:
    """Return the names of the ceilings that an access pattern may be under on a kind of device, best first."""
    return [name for target in _TARGET_ROWS if target.device_kind == kind for name in target.roofs.get(mix, ())]


def main_memory_ceiling(kind: DeviceKind, mix: AccessPattern) -> str:
    """Return the name of a device's ceiling of main memory for an access pattern: hbm_read."""
    return f"{MAIN_MEMORY[kind]}_{mix}"


def fewest_transactions(traffic_bytes: float, level: str) -> float:
    """Return the fewest transactions that move `traffic_bytes` at a memory level."""
    return traffic_bytes / LEVELS[level].transaction_bytes


def level_medium(level: str) -> Literal["memory", "cache", "link"]:
    """Return memory, cache or link for the level of a ceiling; a level that is not in the table is a cache."""
    return LEVELS[level].medium if level in LEVELS else "cache"
