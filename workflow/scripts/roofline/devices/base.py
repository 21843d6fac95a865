"""What every kind of device offers: who it is, how it is measured, and what is run on it to find its ceilings."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from roofline.core.terms import AccessPattern, ComputeUnit, DeviceKind, HostMemory
from roofline.records.compute import WorkloadSpec
from roofline.records.timing_record import Check


@dataclass(frozen=True)
class Identity:
    """What distinguishes one device, with its driver and libraries, from another."""

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

    def rerun_key(self) -> str:
        return f"{self.name} {self.uuid} driver {self.driver} {self.setting}".rstrip()

    def software_key(self) -> str:
        return " ".join(f"{name} {version}" for name, version in sorted(self.software.items()))


@dataclass(frozen=True)
class BandwidthBenchmark:
    """One mix of accesses to one memory level; each is a memory ceiling.

    `grids` are the ways to run it, each a step that goes once over all the bytes: a grid of a kernel, or a number of
    threads. `verify(grid)` runs it on fresh memory, compares the result and says how; raises ArithmeticError if it is
    wrong. `clock_mhz()` is what a kernel of ours counted in its last run. The fastest of `blocks` blocks counts, if
    other users of the host slow it from moment to moment, and each has `least_samples`. `nvlink_share` is relative to
    the NVLink bandwidth of the device in one direction. `cores` is set if fewer than all read.
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
    least_samples: int = 1
    nvlink_share: float | None = None
    cores: int | None = None
    host_memory: HostMemory | None = None
    both_ways: bool = False


@dataclass(frozen=True)
class SweepBenchmark:
    """Reads of one kind over sizes of the working set.

    `step(size_bytes)` is a step that reads it repeatedly, and the bytes of one reader. `levels` has the capacities of a
    reader in bytes; those in `assumed` only name a level. Memory lies beyond `cached_bytes`, what all last-level caches
    hold of the set; None: beyond the last level. The rate of memory is that of sets from `memory_from_bytes` on.
    """

    series: str
    reader: str
    counted: str
    sizes: list[int]
    step: Callable[[int], tuple[Callable[[int], object], int]]
    levels: dict[str, int]
    cached_bytes: int | None = None
    assumed: tuple[str, ...] = ()
    memory_from_bytes: int | None = None


@dataclass(frozen=True)
class Workload:
    """One way to reach a compute ceiling: `step(i)` runs it once, `clear()` overwrites its result, `compare()` checks
    that against float64. `clock_mhz()` is what a kernel of ours counted in its last run, `result` the array that a step
    writes, if it is handed out.
    """

    product: WorkloadSpec
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


class HostCostBenchmark(NamedTuple):
    """A step with its cost. `count`: cores, or a kernel's arguments. `queued`: by the device's clock."""

    name: str
    count: int
    amount: float
    step: Step
    queued: bool = False


class Device(Protocol):
    """A device, opened and ready to measure: devices/{kind}/device.py has one class for each kind.

    Times are in seconds, sizes in bytes. Arrays are those of the device's array library `xp`. What a device inherits
    from here it does not have: a CPU has no queue and reports nothing about itself. A GPU has more than this.
    """

    identity: Identity
    name: str  # gpu0, cpu
    kind: DeviceKind
    xp: Any  # NumPy, or what has its interface
    memory_level: str  # of devices/levels.py, where operands lie that no cache holds
    cache_level: str  # and where those lie that the last-level cache holds
    cache_ceilings: list[str]  # of these, best first
    last_level_cache_bytes: int

    # -- what it is
    def read_hardware(self) -> dict: ...
    def read_software(self) -> dict: ...
    def datasheet_figures(self, hardware: dict, datasheets_path: str) -> dict:
        """The peaks and bandwidth of its datasheet, or of a formula; see records.device.DatasheetFigures."""
        ...

    # -- the ceilings of an operator
    def compute_unit(self, ceiling: str) -> ComputeUnit: ...
    def compute_ceiling_name(self, dtype: str, unit: str) -> str: ...
    def memory_ceiling_names(self, mix: AccessPattern) -> list[str]:
        """Best first."""
        ...

    def emulation_note(self, dtype: str) -> str | None:
        """How it computes in a dtype that it lacks; None if it has it."""

    # -- arrays
    def normal(self, shape: tuple[int, ...], dtype: str, seed: int) -> Any: ...
    def empty(self, shape: tuple[int, ...], dtype: str) -> Any: ...
    def to_device(self, host_array: Any) -> Any: ...
    def to_host(self, array: Any) -> Any: ...
    def poison(self, array: Any) -> None:
        """Overwrite every byte with 0xFF, which no step leaves."""
        ...

    def rolled_copies(self, array: Any, count: int) -> list:
        """`count` arrays of its numbers, no two alike."""
        ...

    def widen(self, array: Any) -> Any: ...

    # -- time
    def synchronize(self) -> None:
        pass

    def time_steps(self, step: Step, count: int, first: int = 0, look: Callable | None = None) -> list[float]:
        """What a caller waits for each of `count` steps issued one after another; `look()` is called while they run, on
        a device that reports something then."""
        ...

    def time_steps_on_device(
        self, step: Step, count: int, first: int = 0, at_once: int | None = None
    ) -> list[float] | None:
        """The device's part of the same, at most `at_once` steps queued together; None of a synchronous device, or
        if it cannot be separated."""

    def host_cost_benchmarks(self) -> Iterable[HostCostBenchmark]:
        """What its operators' calls consist of."""
        ...

    def look_while_busy(self, step: Step, step_s: float, seconds: float, look: Callable) -> None:
        pass

    def compile_ahead(self, kernels: Iterable[tuple]) -> None: ...

    # -- its state
    def read_state(self) -> dict:
        return {}

    def read_energy_j(self) -> float | None:
        """None without a counter."""

    def read_power_w(self) -> float | None: ...

    def measure_timer_ratio(self) -> float | None:
        """The host's clock over this device's, by which its steps are timed; None where they are one."""
        return None

    def block_clock_mhz(self) -> float | None:
        """MHz, counted over the last block of step_times."""

    def identify_kernel(self, step: Step) -> dict: ...
    def count_other_processes(self) -> int | None:
        """On the device; what shares a CPU is seen in devices/host.py."""

    # -- what its ceilings are measured with
    def bandwidth_benchmarks(self, level: str, size_bytes: int | None) -> list[BandwidthBenchmark]: ...
    def sweep_benchmarks(self, points_per_octave: int) -> list[SweepBenchmark]: ...
    def pointer_chase(self, level: str) -> tuple[Step, int, Callable[[], str]] | None:
        """A step of loads from a level that wait for one another, their number, and a check; None if it has none."""

    def candidate_fma_workloads(self, ceiling: str, seed: int) -> Iterable[Workload]: ...
    def rebuild_fma_workload(self, ceiling: str, product: WorkloadSpec, seed: int) -> Workload: ...
