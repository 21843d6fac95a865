"""The closed vocabularies that records and code share, and what devices of a kind have in common."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

Item = TypeVar("Item")
Array = Any  # of NumPy or CuPy, which share no type
LONGEST_LINE, HEAD = 600, 450  # characters of a line of an error, and those before what is left out


def make_printable(text: str) -> str:
    """Return a name or message from outside on one line, with a space for each unprintable character."""
    return "".join(character if character.isprintable() else " " for character in text)


def shorten_lines(lines: Sequence[str], most: int = 25) -> list[str]:
    """Return the first `most` lines, printable and without the middle of a long one, then how many more there are."""
    shown = []
    for line in lines[:most]:
        whole = len(line) <= LONGEST_LINE
        shown.append(make_printable(line if whole else f"{line[:HEAD]} … {line[HEAD - LONGEST_LINE :]}"))
    return [*shown, *([f"and {len(lines) - most} more"] if len(lines) > most else [])]


class UserError(Exception):
    """An error that the user has to correct, as a few printable lines; it ends the program with status 1.

    A text is one line, whatever the names in it hold.
    """

    def __init__(self, lines: str | list[str]):
        self.lines = shorten_lines([lines] if isinstance(lines, str) else lines)
        super().__init__("\n".join(self.lines))


def describe_error(error: Exception) -> str:
    """Return the message of an error of the user or the system, as a UserError has it."""
    return str(error) if isinstance(error, UserError) else "\n".join(shorten_lines(str(error).splitlines()))


class UnsupportedError(Exception):
    """The device cannot do this, for the reason given: the job, or the candidate of a search, is skipped."""


DeviceKind = Literal["cpu", "gpu"]
Regime = Literal["compute", "memory", "overhead", "implementation"]
RegimeLevel = Literal["hbm", "l2", "shared", "dram"]
AccessPattern = Literal["read", "write", "copy", "triad"]
Cache = Literal["cold", "warm"]
HostMemory = Literal["pinned", "pageable"]
LoadSensitivity = Literal["cpu", "caller", "device"]  # which load on the host disturbs a block: core/disturbance.py
ComputeUnit = Literal["tensor_core", "cuda_core", "cpu"]
QuantityKind = Literal[
    "burst", "sustained", "issue", "memory", "cache", "link", "pageable", "gpu_time", "cpu_time"
]  # what runs are compared by
# A card is judged by these alone: the host has a part in the others.
CARD_QUANTITY_KINDS: tuple[QuantityKind, ...] = ("burst", "sustained", "issue", "memory", "cache", "link")
PEER_KEY_PREFIX = "p2p_"  # of copies, reads and writes between two GPUs
PAIR_KEY_PREFIXES = (PEER_KEY_PREFIX, "all_reduce_")  # of all quantities of two GPUs

KNEE_SHARE = 0.9  # the capacity of a level is used up where the bandwidth has fallen to this share of its plateau
ACCESS_PATTERNS: tuple[AccessPattern, ...] = ("read", "write", "copy", "triad")
BYTES_AXIS_KEY = "bytes"
CACHE_LEVELS = ("l1", "l2", "l3")  # from the cores out; a GPU has the first two


class Axis(NamedTuple):
    """The size along which an operator is swept."""

    key: str  # of the shape; or BYTES_AXIS_KEY, the bytes that a step moves
    symbol: str
    at_least: int | None = None  # number of values that a check requires


@dataclass(frozen=True)
class DeviceTraits:
    """The properties that all devices of a kind have, whether a device is opened or only its record is read."""

    accelerator: bool  # a card with a host link and its own memory; a machine may have several
    synchronous: bool  # a step has ended when its call returns, so that the caller's time is the device's
    load_sensitivity: LoadSensitivity  # which load on the host disturbs a block
    peaks_by: Literal["datasheet", "formula"]  # the source of the figures that its compute ceilings are compared with
    reports_power: bool  # also clocks, throttling and errors
    # The largest relative spread of the blocks of one measurement. A caller's times on a shared host vary more than a
    # GPU's own. The blocks of a compute ceiling all start from the same state, and so may differ by less.
    most_block_spread: float
    most_ceiling_spread: float
    longest_workload_s: float  # of a candidate for a compute ceiling


DEVICE_TRAITS: dict[DeviceKind, DeviceTraits] = {  # in the order in which devices are shown
    "gpu": DeviceTraits(
        accelerator=True,
        synchronous=False,
        load_sensitivity="caller",
        peaks_by="datasheet",
        reports_power=True,
        most_block_spread=0.05,
        most_ceiling_spread=0.02,
        longest_workload_s=2e-3,
    ),
    "cpu": DeviceTraits(
        accelerator=False,
        synchronous=True,
        load_sensitivity="cpu",
        peaks_by="formula",
        reports_power=False,
        most_block_spread=0.20,
        most_ceiling_spread=0.20,
        longest_workload_s=0.2,
    ),
}


def select_accelerators(devices: Iterable[Item], kind_of: Callable[[Item], DeviceKind]) -> list[Item]:
    """Return, in their order, the devices whose kind is an accelerator; `kind_of(device)` gives the kind."""
    return [device for device in devices if DEVICE_TRAITS[kind_of(device)].accelerator]


def order_devices(devices: Iterable[Item], kind_of: Callable[[Item], DeviceKind]) -> list[Item]:
    """Return the same devices with accelerators before the CPU; `kind_of(device)` gives the kind."""
    return sorted(devices, key=lambda device: list(DEVICE_TRAITS).index(kind_of(device)))
