"""The memory levels, one row each: what is measured, on which device, and the ceilings that operators are under."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from roofline.core.terms import AccessPattern, DeviceKind


@dataclass(frozen=True)
class MemoryLevel:
    """A memory level by its name in `bandwidth.levels` and in its record.

    `title` is how people write the level of its ceilings, `colour` how pictures show its transactions and traffic.
    """

    name: str
    device_kind: DeviceKind | None  # None: every kind
    ceiling_level: str  # the level of its ceilings: copies on the device and our kernels both measure `hbm`
    medium: Literal["memory", "cache", "link"] | None
    title: str = ""
    colour: str = ""
    arrays: int = 0  # number of arrays of bandwidth.size_mib that it needs at once, if it uses that size
    uses_transfer_size: bool = False  # its size is bandwidth.transfer_size_mib
    # The ceilings that operators of an access pattern may be under, best first.
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
    MemoryLevel("h2d", "gpu", "pcie", "link", "host link", uses_transfer_size=True),
    MemoryLevel("d2h", "gpu", "pcie", "link", "host link", uses_transfer_size=True),
    MemoryLevel("p2p", "gpu", "p2p", "link", "other GPUs", arrays=4),
    MemoryLevel("dram", "cpu", "dram", "memory", "memory", arrays=3, roofs=_DRAM),
    MemoryLevel("sweep", None, "", None),  # finds the caches and their capacities by itself
)
SWEEP_LEVEL = "sweep"
LEVEL_NAMES = tuple(level.name for level in MEMORY_LEVELS)
ARRAYS_NEEDED = {level.name: level.arrays for level in MEMORY_LEVELS if level.arrays}
TRANSFER_LEVELS = tuple(level.name for level in MEMORY_LEVELS if level.uses_transfer_size)
PEER_LEVEL = "p2p"  # measured once per pair of GPUs
# The levels that one job measures: their settings are the same.
MEASURED_TOGETHER = (("hbm", "d2d"), ("l2", "l1", "shared"), TRANSFER_LEVELS)
LEVEL_TITLES = {level.ceiling_level: level.title for level in MEMORY_LEVELS if level.title}
LEVEL_COLOURS = {level.ceiling_level: level.colour for level in MEMORY_LEVELS if level.colour}
MAIN_MEMORY = {"gpu": "hbm", "cpu": "dram"}
ALL_CORES = "all_cores"  # the sweep of a CPU in which each core has its own set
# The last plateau of a sweep: beyond all caches, or perhaps not.
MEMORY_PLATEAU, CACHE_OR_MEMORY = "memory", "cache or memory"
# The ceilings that the instruction roofline divides into transactions.
TRANSACTION_ROOFS = {"l1": "l1", "shared": "shared", "l2": "l2", "hbm": "hbm_read"}


def level_names(kind: str) -> list[str]:
    """Return the names of the levels within a device of a kind, in the order in which they are measured."""
    return [level.name for level in MEMORY_LEVELS if level.device_kind in (kind, None) and level.name != PEER_LEVEL]


def group_by_job(asked_levels: Collection[str]) -> list[list[str]]:
    """Return the levels that each job measures, from those that are asked for."""
    single_levels = [(name,) for name in asked_levels if not any(name in group for group in MEASURED_TOGETHER)]
    groups = [*MEASURED_TOGETHER, *single_levels]
    asked_groups = [[name for name in group if name in asked_levels] for group in groups]
    return [group for group in asked_groups if group]


def memory_ceiling_names(kind: str, mix: AccessPattern) -> list[str]:
    """Return the names of the ceilings that an access pattern may be under on a kind of device, best first."""
    return [name for level in MEMORY_LEVELS if level.device_kind == kind for name in level.roofs.get(mix, ())]


def main_memory_ceiling(kind: DeviceKind, mix: AccessPattern) -> str:
    """Return the name of a device's ceiling of main memory for an access pattern: hbm_read."""
    return f"{MAIN_MEMORY[kind]}_{mix}"


def level_medium(ceiling_level: str) -> str:
    """Return memory, cache or link for the level of a ceiling; a level that is not in the table is a cache."""
    for level in MEMORY_LEVELS:
        if level.ceiling_level == ceiling_level and level.medium:
            return level.medium
    return "cache"
