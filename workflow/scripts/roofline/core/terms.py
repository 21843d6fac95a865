"""The closed vocabularies that records and code share."""

from typing import Literal

DeviceKind = Literal["cpu", "gpu"]
Regime = Literal["compute", "memory", "overhead", "implementation"]
RegimeLevel = Literal["hbm", "l2", "dram"]
Mix = Literal["read", "write", "copy", "triad"]
Cache = Literal["cold", "warm"]
ComputeUnit = Literal["tensor_core", "cuda_core", "cpu"]

MIXES: tuple[Mix, ...] = ("read", "write", "copy", "triad")
