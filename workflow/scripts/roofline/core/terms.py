"""The closed vocabularies that records and code share."""

from typing import Literal


class Faults(Exception):
    """What a user has to mend, a line each."""

    def __init__(self, lines: list[str]):
        super().__init__("\n".join(lines))
        self.lines = lines


DeviceKind = Literal["cpu", "gpu"]
Regime = Literal["compute", "memory", "overhead", "implementation"]
RegimeLevel = Literal["hbm", "l2", "shared", "dram"]
Mix = Literal["read", "write", "copy", "triad"]
Cache = Literal["cold", "warm"]
HostMemory = Literal["pinned", "pageable"]
ComputeUnit = Literal["tensor_core", "cuda_core", "cpu"]
QuantityKind = Literal[
    "burst", "sustained", "issue", "memory", "cache", "link", "pageable", "device_time", "caller_time"
]  # what runs are compared by

KNEE = 0.9  # of a level's bandwidth: where it has fallen to this, the level's capacity is used up
MIXES: tuple[Mix, ...] = ("read", "write", "copy", "triad")
