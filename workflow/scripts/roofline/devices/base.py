"""What every kind of device has in common: who it is, and what is run on it to find its ceilings."""

from collections.abc import Callable
from dataclasses import dataclass, field

from roofline.records.device import CoreCount
from roofline.records.product import Product
from roofline.records.timing import Check


class Unsupported(Exception):
    """A ceiling or operator that a device turns out not to have. The message is the reason, in one line."""


class Refused(Exception):
    """A candidate that a library offered and then does not run. The message is one line."""


@dataclass(frozen=True)
class Identity:
    """What tells one device, with its driver and libraries, from another."""

    device: str
    kind: str
    name: str
    uuid: str
    driver: str | None
    memory_total_bytes: int
    memory_free_bytes: int
    last_level_cache_bytes: int = 0
    compute_capability: str | None = None
    software: dict[str, str | None] = field(default_factory=dict)
    fault: str | None = None
    setting: str = ""
    multiprocessors: int | None = None
    nvml: bool = True

    def fingerprint(self) -> str:
        return f"{self.name} {self.uuid} driver {self.driver} {self.setting}".rstrip()

    def software_versions(self) -> str:
        return " ".join(f"{name} {version}" for name, version in sorted(self.software.items()))


@dataclass(frozen=True)
class Stream:
    """One mix of accesses to one memory level; each is a memory ceiling.

    `grids` are the ways to run it, each a step by a short description: a grid of a kernel, or a number of threads. A
    step goes once over all the bytes. `verify(grid)` runs it that way on fresh memory and compares what came of it with
    what must; it says how, and raises ArithmeticError where it differs. `clock_mhz()` is what the kernel itself counted
    in its last run; None where the kernel is not ours. The stream is timed in up to `blocks` blocks of which the
    fastest counts: several where other users of the host slow it from moment to moment. `nvlink_share` is of the
    device's NVLink bandwidth in one direction what the stream may use: 2 where it uses all links both ways.
    """

    name: str
    level: str
    mix: str
    counted: str
    counted_bytes: int
    grids: dict[str, Callable[[int], object]]
    verify: Callable[[str], str]
    threads: Callable[[str], int | None] = lambda grid: None
    clock_mhz: Callable[[], float | None] = lambda: None
    on_chip: bool = False
    blocks: int = 1
    nvlink_share: float | None = None


@dataclass(frozen=True)
class SweepSeries:
    """Reads of one kind over sizes of the working set.

    `step(size_bytes)` is a step that reads it again and again, with the bytes that it reads for a reader in all;
    `levels` names what the device reports: {name: capacity in bytes of a reader}.
    """

    series: str
    reader: str
    counted: str
    sizes: list[int]
    step: Callable[[int], tuple[Callable[[int], object], int]]
    levels: dict[str, int]


@dataclass(frozen=True)
class Workload:
    """One way to reach a compute ceiling: `step(i)` runs it once, `compare()` holds what it left against float64.

    `clear()` overwrites the result with what no step leaves. `clock_mhz()` is what the kernel itself counted in its
    last run; None where the kernel is not ours. `cores()` counts a CPU's physical cores by this load. `result` is the
    array that a step writes, where it is handed out.
    """

    product: Product
    flops: int
    step: Callable[[int], object]
    clear: Callable[[], object]
    compare: Callable[[], Check]
    clock_mhz: Callable[[], float | None] = lambda: None
    inputs: str = "standard normal numbers, rounded to the dtype"
    cores: Callable[[], CoreCount | None] = lambda: None
    result: object = None

    def check(self) -> Check:
        """Run it once on a cleared result. Raises ArithmeticError where the result is wrong."""
        self.clear()
        self.step(0)
        return self.compare()
