"""What every kind of device offers: who it is, how it is measured, and what is run on it to find its ceilings."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

from roofline.core.terms import ComputeUnit, DeviceKind, HostMemory, Mix
from roofline.records.compute import Product
from roofline.records.timing import Check


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
    device's NVLink bandwidth in one direction what the stream may use: 2 where it uses all links both ways. `cores` is
    set where fewer than all read, `host_memory` of transfers from and to the host.
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
    blocks: int = 1
    nvlink_share: float | None = None
    cores: int | None = None
    host_memory: HostMemory | None = None
    both_ways: bool = False


@dataclass(frozen=True)
class SweepSeries:
    """Reads of one kind over sizes of the working set.

    `step(size_bytes)` is a step that reads it again and again, with the bytes that it reads for a reader in all;
    `levels` names what the device reports: {name: capacity in bytes of a reader}. A capacity in `assumed` is not
    reported: it serves to name the level, and no page shows it. `cached_bytes` is what all last-level
    caches together may hold of a reader's set: beyond it lies memory. None where the last level of `levels` tells.
    """

    series: str
    reader: str
    counted: str
    sizes: list[int]
    step: Callable[[int], tuple[Callable[[int], object], int]]
    levels: dict[str, int]
    cached_bytes: int | None = None
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Workload:
    """One way to reach a compute ceiling: `step(i)` runs it once, `compare()` holds what it left against float64.

    `clear()` overwrites the result with what no step leaves. `clock_mhz()` is what the kernel itself counted in its
    last run; None where the kernel is not ours. `result` is the array that a
    step writes, where it is handed out.
    """

    product: Product
    flops: int
    step: Callable[[int], object]
    clear: Callable[[], object]
    compare: Callable[[], Check]
    clock_mhz: Callable[[], float | None] = lambda: None
    inputs: str = "standard normal numbers, rounded to the dtype"
    result: object = None

    def check(self) -> Check:
        """Run it once on a cleared result. Raises ArithmeticError where the result is wrong."""
        self.clear()
        self.step(0)
        return self.compare()


Step = Callable[[int], object]  # handed the number of the step, so that it can rotate among buffers


class HostWork(NamedTuple):
    """A step by which to time what work costs the host: so many calls, threads, bytes or scores. `count` is of cores or
    of a kernel's arguments."""

    name: str
    count: int
    amount: float
    step: Step


@runtime_checkable
class Device(Protocol):
    """A device, opened and ready to measure: devices/{kind}/device.py has one class for each kind.

    Times are in seconds, sizes in bytes. Arrays are those of the device's array library `xp`.
    """

    identity: Identity
    name: str  # gpu0, cpu
    kind: DeviceKind
    xp: Any  # NumPy, or what has its interface
    memory_level: str  # of devices/levels.py, where operands lie that no cache holds
    cache_level: str  # and where those lie that the last-level cache holds
    cache_ceilings: list[str]  # that these stand under, best first
    last_level_cache_bytes: int

    # -- what it is
    def hardware(self) -> dict: ...
    def software(self) -> dict: ...
    def vendor(self, hardware: dict, datasheets_path: str) -> dict:
        """The peaks and bandwidth that its vendor promises, or a formula; see records.device.VendorFigures."""
        ...

    # -- which ceilings an operator stands under
    def compute_unit(self, ceiling: str) -> ComputeUnit: ...
    def compute_ceiling(self, dtype: str, unit: str) -> str: ...
    def memory_ceilings(self, mix: Mix) -> list[str]:
        """Best first."""
        ...

    def emulation_note(self, dtype: str) -> str | None:
        """How it computes in a dtype that it lacks; None where it has it."""
        ...

    # -- arrays
    def normal(self, shape: tuple[int, ...], dtype: str, seed: int) -> Any: ...
    def empty(self, shape: tuple[int, ...], dtype: str) -> Any: ...
    def array(self, host_array: Any) -> Any: ...
    def to_host(self, array: Any) -> Any: ...
    def poison(self, array: Any) -> None:
        """Overwrite every byte with 0xFF, which no step leaves."""
        ...

    def rolled(self, array: Any, count: int) -> list:
        """So many arrays of its numbers, none like another."""
        ...

    def widened(self, array: Any) -> Any: ...

    # -- time
    def synchronize(self) -> None: ...
    def step_times(self, step: Step, count: int, first: int = 0) -> list[float]:
        """Of each of `count` steps issued one after another, what a caller gets."""
        ...

    def device_times(self, step: Step, count: int, first: int = 0, at_once: int | None = None) -> list[float] | None:
        """The device's part of the same, at most `at_once` steps queued together; None of a synchronous device, or
        where it cannot be told apart."""
        ...

    def watched_times(self, step: Step, count: int, first: int, look: Callable) -> list[float]:
        """As step_times, with look() called while they run."""
        ...

    def host_costs(self) -> Iterable[HostWork]:
        """What its operators' calls consist of."""
        ...

    def while_busy(self, step: Step, step_s: float, seconds: float, look: Callable) -> None: ...

    # -- its state
    def state(self) -> dict: ...
    def clock_of_block(self) -> float | None:
        """MHz, counted over the last block of step_times; None where it reports none."""
        ...

    def kernel_of(self, step: Step) -> dict: ...
    def other_processes(self) -> int | None: ...

    # -- what its ceilings are measured with
    def streams(self, level: str, size_bytes: int | None) -> list[Stream]: ...
    def sweeps(self, points_per_octave: int) -> list[SweepSeries]: ...
    def fma_candidates(self, ceiling: str, seed: int) -> Iterable[Workload]: ...
    def fma_workload(self, ceiling: str, product: Product, seed: int) -> Workload: ...


@runtime_checkable
class Accelerator(Device, Protocol):
    """What a card offers beyond that: a queue of its own, a host link, errors and counters."""

    multiprocessors: int

    def copy(self, source: Any, destination: Any) -> None: ...
    def count_differences(self, a: Any, b: Any, count: Any) -> None: ...
    def link(self) -> dict: ...
    def memory_errors(self) -> dict: ...
    def load_times(self, *arguments: Any, **options: Any) -> Any:
        """Of sustained load, point by point; see measure/sustained.py."""
        ...

    def path_to_peer(self) -> dict: ...
    def with_peer(self, size_bytes: int | None) -> Any: ...
    def issue_kernels(self) -> list: ...
    def wall_kernels(self) -> list: ...
    def profile(self, queue: Callable[[], object]) -> None: ...
