"""The closed vocabularies that records and code share, and what devices of a kind have in common."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

T = TypeVar("T")
Array = Any  # of NumPy or CuPy, which share no type


def make_printable(text: str) -> str:
    """A name or message from outside on one line, without what a terminal would obey."""
    return "".join(one if one.isprintable() else " " for one in text)


class UserError(Exception):
    """What a user has to correct, a line each; it ends the program with status 1."""

    def __init__(self, lines: str | list[str]):
        self.lines = [*map(make_printable, lines.splitlines() if isinstance(lines, str) else lines)]
        super().__init__("\n".join(self.lines))


class UnsupportedError(Exception):
    """Why a device cannot do something: the job, or the candidate of a search, is skipped."""


DeviceKind = Literal["cpu", "gpu"]
Regime = Literal["compute", "memory", "overhead", "implementation"]
RegimeLevel = Literal["hbm", "l2", "shared", "dram"]
AccessPattern = Literal["read", "write", "copy", "triad"]
Cache = Literal["cold", "warm"]
HostMemory = Literal["pinned", "pageable"]
LoadSensitivity = Literal["cpu", "caller", "device"]  # to load on the host: see core/disturbance.py
ComputeUnit = Literal["tensor_core", "cuda_core", "cpu"]
QuantityKind = Literal[
    "burst", "sustained", "issue", "memory", "cache", "link", "pageable", "gpu_time", "cpu_time"
]  # what runs are compared by

KNEE_SHARE = 0.9  # of a level's bandwidth: where it has fallen to this, the level's capacity is used up
ACCESS_PATTERNS: tuple[AccessPattern, ...] = ("read", "write", "copy", "triad")
BYTES_AXIS_KEY = "bytes"
CACHE_LEVELS = ("l1", "l2", "l3")  # from the cores out; a GPU has the first two


class Axis(NamedTuple):
    """The size along which an operator is swept."""

    key: str  # of the shape, or bytes: those that a step moves
    symbol: str
    at_least: int | None = None  # values that a check asks for


@dataclass(frozen=True)
class DeviceTraits:
    """What devices of a kind have in common, whether one is opened or only its record read."""

    accelerator: bool  # its own card, with a host link and its own memory, of which a machine may have several
    synchronous: bool  # a step has ended when its call returns, so that the caller's time is the device's
    sensitive: LoadSensitivity  # which load next to it on the host disturbs a block
    peaks_by: Literal["datasheet", "formula"]  # whose figures its compute ceilings are compared with
    reports_power: bool  # and clocks, throttling and errors
    narrowest_bytes: int  # of a number that it computes with
    tensor_cores: bool


DEVICE_TRAITS: dict[DeviceKind, DeviceTraits] = {  # in the order in which devices are shown
    "gpu": DeviceTraits(
        accelerator=True,
        synchronous=False,
        sensitive="caller",
        peaks_by="datasheet",
        reports_power=True,
        narrowest_bytes=1,
        tensor_cores=True,
    ),
    "cpu": DeviceTraits(
        accelerator=False,
        synchronous=True,
        sensitive="cpu",
        peaks_by="formula",
        reports_power=False,
        narrowest_bytes=4,
        tensor_cores=False,
    ),
}


def select_accelerators(devices: Iterable[T], kind_of: Callable[[T], DeviceKind]) -> list[T]:
    return [device for device in devices if DEVICE_TRAITS[kind_of(device)].accelerator]


def order_devices(devices: Iterable[T], kind_of: Callable[[T], DeviceKind]) -> list[T]:
    """The same devices, accelerators before the CPU."""
    return sorted(devices, key=lambda device: list(DEVICE_TRAITS).index(kind_of(device)))
