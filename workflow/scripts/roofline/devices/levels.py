"""The memory levels, one row each: what is measured of them, where, and what operators may stand under."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from roofline.core.terms import AccessPattern, DeviceKind


@dataclass(frozen=True)
class MemoryLevel:
    """A level by the name that `bandwidth.levels` and its record have.

    `holds` is the level that its ceilings are of: copies on the device and our kernels both measure `hbm`. `title` is
    how people write that level, `colour` how pictures show its transactions and traffic.
    `roofs` are the ceilings that operators of an access pattern may stand under, best first.
    """

    name: str
    device_kind: DeviceKind | None  # None: every kind
    holds: str
    medium: Literal["memory", "cache", "link"] | None
    title: str = ""
    colour: str = ""
    arrays: int = 0  # of bandwidth.size_mib that it needs at once, if that applies
    transfer: bool = False  # whether its size is bandwidth.transfer_size_mib
    roofs: Mapping[AccessPattern, tuple[str, ...]] = field(default_factory=dict)


_HBM = {"read": ("hbm_read",), "write": ("hbm_write",), "copy": ("hbm_copy",), "triad": ("hbm_triad", "hbm_copy")}
_DRAM = {mix: (f"dram_{mix}", "dram_copy") for mix in ("read", "write", "triad")} | {"copy": ("dram_copy",)}
_D2D = dict.fromkeys(("read", "write", "copy", "triad"), ("d2d",))

MEMORY_LEVELS = (
    MemoryLevel("hbm", "gpu", "hbm", "memory", "HBM", "#D55E00", arrays=3, roofs=_HBM),
    MemoryLevel("d2d", "gpu", "hbm", "memory", "HBM", arrays=2, roofs=_D2D),
    MemoryLevel("l2", "gpu", "l2", "cache", "L2", "#0072B2"),
    MemoryLevel("l1", "gpu", "l1", "cache", "L1", "#009E73"),
    MemoryLevel("shared", "gpu", "shared", "cache", "shared memory", "#CC79A7"),
    MemoryLevel("h2d", "gpu", "pcie", "link", "host link", transfer=True),
    MemoryLevel("d2h", "gpu", "pcie", "link", "host link", transfer=True),
    MemoryLevel("p2p", "gpu", "p2p", "link", "other GPUs", arrays=4),
    MemoryLevel("dram", "cpu", "dram", "memory", "memory", arrays=3, roofs=_DRAM),
    MemoryLevel("sweep", None, "", None),  # finds the caches and their capacities by itself
)
SWEEP_LEVEL = "sweep"
LEVEL_NAMES = tuple(level.name for level in MEMORY_LEVELS)
ARRAYS_NEEDED = {level.name: level.arrays for level in MEMORY_LEVELS if level.arrays}
TRANSFER_LEVELS = tuple(level.name for level in MEMORY_LEVELS if level.transfer)
PEER_LEVEL = "p2p"  # measured once per pair of GPUs
MEASURED_TOGETHER = (
    ("hbm", "d2d"),
    ("l2", "l1", "shared"),
    TRANSFER_LEVELS,
)  # measured by one job: their settings are the same
LEVEL_TITLES = {level.holds: level.title for level in MEMORY_LEVELS if level.title}
LEVEL_COLOURS = {level.holds: level.colour for level in MEMORY_LEVELS if level.colour}
MAIN_MEMORY = {"gpu": "hbm", "cpu": "dram"}
ALL_CORES = "all_cores"  # the sweep of a CPU in which each core has its own set
MEMORY_PLATEAU, CACHE_OR_MEMORY = "memory", "cache or memory"  # the last plateau of a sweep, beyond all caches or not


def level_names(kind: str) -> list[str]:
    """The levels within a device of a kind, in the order in which they are measured."""
    return [one.name for one in MEMORY_LEVELS if one.device_kind in (kind, None) and one.name != PEER_LEVEL]


def group_by_job(asked: Collection[str]) -> list[list[str]]:
    """The levels that each job measures, of those that are asked for."""
    groups = [*MEASURED_TOGETHER, *((name,) for name in asked if not any(name in group for group in MEASURED_TOGETHER))]
    return [some for group in groups if (some := [name for name in group if name in asked])]


def memory_ceiling_names(kind: str, mix: AccessPattern) -> list[str]:
    """The memory ceilings that an operator of an access pattern may stand under on a kind of device, best first."""
    return [name for one in MEMORY_LEVELS if one.device_kind == kind for name in one.roofs.get(mix, ())]


def main_memory_ceiling(kind: DeviceKind, mix: AccessPattern) -> str:
    """Return the name of a device's ceiling of main memory for an access pattern: hbm_read."""
    return f"{MAIN_MEMORY[kind]}_{mix}"


def level_medium(holds: str) -> str:
    """memory, cache or link: what a ceiling's level is; all that is not in the table is a cache."""
    return next((one.medium for one in MEMORY_LEVELS if one.holds == holds and one.medium), "cache")


# The ceilings that the instruction roofline divides into transactions.
TRANSACTION_ROOFS = {"l1": "l1", "shared": "shared", "l2": "l2", "hbm": "hbm_read"}
