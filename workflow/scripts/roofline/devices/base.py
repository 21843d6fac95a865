"""What every kind of device offers: who it is, how it is measured, and what is run on it to find its ceilings."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeGuard

from roofline.core.architectures import Architecture, Capability
from roofline.core.terms import AccessPattern, ComputeUnit, DeviceKind, HostMemory
from roofline.core.units import KIB
from roofline.records.compute import WorkloadSpec
from roofline.records.timing_record import Check

Step = Callable[[int], object]  # called with the number of the step, so that it can rotate among buffers
# A step of dependent loads, their number, and a check that returns what was compared or raises ArithmeticError.
PointerChase = tuple[Step, int, Callable[[], str]]
LoadKernel = Callable[..., Any]  # CudaDevice.load_kernel
LoadChunks = Iterator[tuple[float, list[float], float | None]]  # seconds since the start, per step, and MHz of each

RESERVED_SHARED_BYTES = KIB  # of shared memory, which CUDA takes for each resident block


@dataclass
class LoadLimit:
    """When a load ends. Who measures it may move its end while it goes on."""

    seconds: float  # since its start


@dataclass(frozen=True)
class Identity:
    """The facts that distinguish one device, with its driver and libraries, from another."""

    device: str
    kind: DeviceKind
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

    def require_capability(self) -> str:
        """Return the compute capability of a GPU. Raises ValueError where there is none."""
        if not self.compute_capability:
            raise ValueError(f"the compute capability of {self.device} is not known")
        return self.compute_capability

    def rerun_key(self) -> str:
        """Return name, UUID, driver and settings as one line.

        It is the param `identity` of every measuring rule: a change of this text re-measures everything on the device.
        """
        return f"{self.name} {self.uuid} driver {self.driver} {self.setting}".rstrip()

    def software_key(self) -> str:
        """Return the library versions as one line sorted by name: the param `software`, whose change re-measures."""
        return " ".join(f"{name} {version}" for name, version in sorted(self.software.items()))


@dataclass(frozen=True)
class BandwidthBenchmark:
    """One access pattern on one memory level; each is a memory ceiling.

    `steps_by_grid` has the ways to run it, each a step that goes once over all the bytes: by the grid of a kernel, or
    by the number of threads. `verify(grid)` runs it on fresh memory, compares the result and returns what it compared;
    it raises ArithmeticError for a wrong result. `counting_rule` says in words which bytes count.
    """

    name: str
    level: str
    mix: AccessPattern
    counting_rule: str
    counted_bytes: int
    steps_by_grid: dict[str, Step]
    verify: Callable[[str], str]
    threads_of_grid: Callable[[str], int | None] = lambda grid: None
    clock_mhz: Callable[[], float | None] = lambda: None  # counted by our kernel in its last run
    most_timed_blocks: int = 1  # more than one if others slow it from moment to moment: the fastest block counts
    least_samples: int = 1  # in each block
    nvlink_share: float | None = None  # of the NVLink bandwidth of the device in one direction
    cores: int | None = None  # None if all cores read
    host_memory: HostMemory | None = None
    both_ways: bool = False


@dataclass(frozen=True)
class SweepBenchmark:
    """Reads of one kind over sizes of the working set.

    `step(size_bytes)` returns a step that reads a set of this size repeatedly, and the bytes that one reader reads in
    it. `levels` has the capacities of the cache levels for one reader, in bytes.
    """

    series: str
    reader: str
    counting_rule: str
    sizes: list[int]
    step: Callable[[int], tuple[Step, int]]
    levels: dict[str, int]
    cached_bytes: int | None = None  # all last-level caches hold so much: memory lies beyond; None: beyond `levels`
    assumed: tuple[str, ...] = ()  # levels whose capacity is assumed: it names a plateau and is not recorded
    memory_from_bytes: int | None = None  # the rate of memory is that of sets from this size on


@dataclass(frozen=True)
class Workload:
    """One way to reach a compute ceiling.

    `step(i)` runs it once, `clear()` overwrites its result, and `compare()` checks the result against float64.
    """

    product: WorkloadSpec
    flops: int
    step: Step
    clear: Callable[[], object]
    compare: Callable[[], Check]
    clock_mhz: Callable[[], float | None] = lambda: None  # counted by our kernel in its last run
    inputs: str = "standard normal numbers, rounded to the dtype"
    result: object = None  # the array that a step writes, if it is handed out

    def run_and_check(self) -> Check:
        """Run a step on a cleared result and compare it. Raises ArithmeticError where the result is wrong."""
        self.clear()
        self.step(0)
        return self.compare()


@dataclass(frozen=True)
class HostCostBenchmark:
    """A step that shows one cost of the host."""

    name: str
    count: int  # cores, or arguments of a kernel
    amount: float  # units of the cost in one step
    step: Step
    queued: bool = False  # timed by the device's clock


@dataclass(frozen=True)
class IssueKernel:
    """One way to keep all schedulers busy: a step issues `warp_instructions` warp instructions."""

    name: str
    warp_instructions: int
    step: Step
    check: Callable[[], Check]


@dataclass(frozen=True)
class AccessLimitKernel:
    """One access pattern.

    A step makes `requests` requests; `verify()` raises ArithmeticError if a word that was loaded is wrong. `degree` is
    the stride in words, or the number of lanes that want one bank.
    """

    pattern: str
    degree: int
    requests: int
    transactions_per_request: int
    step: Step
    verify: Callable[[], str]


class EnergyKernel(NamedTuple):
    """One point of the energy roofline: what it reads and computes, and how it is run and checked."""

    dtype: str
    multiply_adds_per_number: int
    blocks_per_multiprocessor: int
    flops_per_byte: float
    bytes: int  # of one pass
    run: Callable[[int, int], None]  # with the number of passes, and of the step, which does not matter
    verify: Callable[[], None]  # raises ArithmeticError


@dataclass(frozen=True)
class GpuLimits:
    """What a GPU grants a kernel, for plans that divide work among blocks before anything is compiled."""

    multiprocessors: int
    shared_per_block: int  # bytes that a block may have at most
    shared_per_sm: int  # bytes for all blocks of a multiprocessor, with RESERVED_SHARED_BYTES of each
    capability: Capability


class PlannedDevice(Protocol):
    """A device whose cells can be planned, opened or not: what it is, and the ceilings of an operator."""

    identity: Identity
    name: str  # gpu0, cpu
    kind: DeviceKind
    xp: Any  # NumPy, or a library with its interface
    memory_level: str  # a name in core/levels.py: the level of operands that no cache holds
    cache_level: str  # the level of operands that the last-level cache holds
    cache_ceilings: list[str]  # the ceilings for such operands, best first
    last_level_cache_bytes: int

    def compute_unit(self, ceiling: str) -> ComputeUnit:
        """Return the kind of unit that computes at a compute ceiling."""

    def compute_ceiling_name(self, dtype: str, unit: str) -> str:
        """Return the name of the compute ceiling that an operator of this dtype on this unit is under.

        A CPU ignores the unit, and gives fp32 for the dtypes that it emulates.
        """

    def memory_ceiling_names(self, mix: AccessPattern, cores: int | None = None) -> list[str]:
        """Return the names of the memory ceilings that an access pattern may be under, best first.

        Those of a CPU depend on how many of its cores are used; None: all.
        """

    def emulation_note(self, dtype: str) -> str | None:
        """Return a line that says how the device computes in a dtype that it lacks; None if it has the dtype."""

    def compile_ahead(self, kernels: Iterable[tuple]) -> None:
        """Compile kernels, each given as the arguments of `load_kernel`. A CPU does nothing."""
        return


class Device(PlannedDevice, Protocol):
    """A device, opened and ready to measure: devices/{kind}/{kind}_device.py has one class for each kind.

    Times are in seconds, sizes in bytes. Arrays are those of the device's array library `xp`. Every kind
    defines all methods, except those whose text says what a device without the feature returns: a CPU has no queue and
    reports nothing about itself. A GPU has more methods than this.
    """

    # -- what it is
    def read_hardware(self) -> dict:
        """Return what the device reports of itself, by name with its unit: `hardware` of the device record."""

    def read_software(self) -> dict:
        """Return the versions of the libraries and drivers in use: `software` of the device record."""

    def datasheet_figures(self, hardware: dict, datasheets_path: str) -> dict:
        """Return the peaks and bandwidth of its datasheet, or of a formula, as fields of DatasheetFigures."""

    # -- arrays
    def normal(self, shape: tuple[int, ...], dtype: str, seed: int) -> Any:
        """Return an array of standard normal numbers rounded to the dtype, the same for the same seed.

        Their standard deviation is the dtype's, 32 for int8. A GPU gives fp8 as an array of bytes.
        """

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return an array of a dtype whose content is not set."""

    def to_device(self, host_array: Any) -> Any:
        """Return a host array on the device. A CPU returns the array itself."""

    def to_host(self, array: Any) -> Any:
        """Return a device's array on the host. A CPU returns the array itself."""

    def poison(self, array: Any) -> None:
        """Overwrite every byte with 0xFF, which no step leaves."""

    def rolled_copies(self, array: Any, count: int) -> list:
        """Return `count` arrays of the numbers of `array`, each begun at another place, in one allocation."""

    def widen(self, array: Any) -> Any:
        """Return the array in fp32 where the device cannot compute in its dtype, else the array itself.

        A GPU widens stacks of bf16 matrices alone, which CuPy does not multiply.
        """

    # -- time
    def synchronize(self) -> None:
        """Wait until the device has done all that is queued."""
        return

    def time_steps(self, step: Step, count: int, first: int = 0, read_during: Callable | None = None) -> list[float]:
        """Return the seconds that a caller waits for each of `count` steps issued one after another, from `first` on.

        A GPU calls `read_during()` while they run.
        """

    def time_steps_on_device(
        self, step: Step, count: int, first: int = 0, at_once: int | None = None
    ) -> list[float] | None:
        """Return the device's own seconds of each of `count` steps.

        They are queued behind a kernel that holds the stream, at most `at_once` (32) together, and fewer where so many
        cannot be queued within 0.5 s. None on a synchronous device, or if even a few steps cannot.
        """
        return None

    def host_cost_benchmarks(self) -> Iterable[HostCostBenchmark]:
        """Return benchmarks of the pieces that the calls of its operators consist of."""

    def look_while_busy(self, step: Step, step_s: float, seconds: float, read_during: Callable) -> None:
        """Queue about `seconds` of steps of `step_s` seconds, call `read_during()` while they run, and wait for them.

        A CPU does nothing.
        """
        return

    # -- its state
    def read_state(self) -> dict:
        """Return a reading by the field names of DeviceState; empty where the device reports nothing about itself."""
        return {}

    def read_energy_j(self) -> float | None:
        """Return the joules used since the driver was loaded; None without a counter."""
        return None

    def read_power_w(self) -> float | None:
        """Return the power in watts; None where the device does not report it."""
        return None

    def measure_timer_ratio(self) -> float | None:
        """Return the host's clock over the clock by which this device's steps are timed; None if they are one clock."""
        return None

    def block_clock_mhz(self) -> float | None:
        """Return the clock counted over the last block of `time_steps`, in MHz; None where it was not counted."""
        return None

    def identify_kernel(self, step: Step) -> dict:
        """Return the fields of the record KernelIdentity: name, whether it uses tensor cores, and how that is known.

        A name or a use that is not known is None. A GPU runs the step once under CUPTI, outside all timing. Never
        raises.
        """

    def count_other_processes(self) -> int | None:
        """Return the number of other processes on a GPU; None if not known, and on a CPU: see devices/host.py."""
        return None

    # -- what its ceilings are measured with
    def bandwidth_benchmarks(self, level: str, size_bytes: int | None) -> list[BandwidthBenchmark]:
        """Return the bandwidth benchmarks of a level, and allocate their arrays of `size_bytes` each.

        None: as large as the level needs. Benchmarks of a GPU's caches ignore the size, those of its host link need it.
        """

    def sweep_benchmarks(self, points_per_octave: int) -> list[SweepBenchmark]:
        """Return the sweeps over working sets that find the memory levels of the device."""

    def pointer_chase(self, level: str) -> PointerChase | None:
        """Return a step of dependent loads from a level, their number, and a check; None for a level without one."""
        return None

    def candidate_fma_workloads(self, ceiling: str, seed: int) -> Iterable[Workload]:
        """Return the register-only loops of multiply-adds that may reach a ceiling."""

    def rebuild_fma_workload(self, ceiling: str, product: WorkloadSpec, seed: int) -> Workload:
        """Return the candidate that a record describes, on new numbers."""


class GpuPair(Protocol):
    """A GPU and its peer, with arrays on both."""

    def bandwidth_benchmarks(self) -> list[BandwidthBenchmark]:
        """Return the transfers between the two."""

    def pointer_chase(self) -> PointerChase:
        """Return a chain of loads of one from the other's memory."""

    def small_copy_step(self) -> tuple[Step, Callable[[], str]]:
        """Return a step that copies 8 bytes to the peer, and a check that returns what was compared."""


class CudaDevice(Device, Protocol):
    """A GPU that runs CUDA C++. Its methods take and return CuPy's objects."""

    peer: Identity | None
    capability: Capability
    architecture: Architecture
    properties: dict[str, int]  # CUDA's device attributes by their names
    multiprocessors: int
    max_threads: int  # of a multiprocessor
    limits: GpuLimits
    supports_overlap: bool  # a launch may begin before the previous one has ended
    is_hopper: bool  # it has the instructions that only Hopper has
    stream: Any

    # -- kernels and graphs
    def load_kernel(self, source: Path | str, name: str, defines: tuple[str, ...] = ()) -> Any:
        """Return a kernel of a .cu file, compiled for this card with macros. A bare file name is one for ceilings."""

    def compiled(self, code: str, name: str, defines: tuple[str, ...] = ()) -> Any:
        """Return a kernel of CUDA C++ code, compiled for this card. Raises RuntimeError with NVRTC's messages."""

    def make_launcher(
        self, kernel: Any, grid: tuple, block: tuple, shared_bytes: int, overlap: bool
    ) -> Callable[[tuple], None]:
        """Return a function that launches a kernel with a tuple of arguments."""

    def capture_launches(self, kernel: Any, grid: tuple, block: tuple, launches: list[tuple], shared_bytes: int) -> Any:
        """Return a CUDA graph of launches of a kernel, one for each tuple of arguments."""

    def capture_graph(self, queue: Callable[[], object]) -> Any:
        """Return a CUDA graph of what a function queues on the device's stream, which runs nothing meanwhile."""

    # -- load and counters
    def time_load_chunks(self, step: Step, count: int, limit: LoadLimit, chunks_timed_singly: int = 0) -> LoadChunks:
        """Load the device until its limit, and yield seconds since the start, per step, and MHz of each chunk."""

    def kernel_clock_mhz(self) -> float | None:
        """Return the MHz that the last kernel of ours counted while it ran."""

    def run_under_profiler(self, queue: Callable[[], object]) -> None:
        """Run what a function queues under a profiler, after a kernel of ours that marks its beginning."""

    def make_issue_kernels(self) -> list[IssueKernel]:
        """Return the ways to keep all schedulers busy."""

    def make_access_limit_kernels(self) -> list[AccessLimitKernel]:
        """Return the access patterns whose limits are measured."""

    def make_energy_kernels(self) -> Iterator[EnergyKernel]:
        """Yield the points of the energy roofline."""

    # -- memory, links and peers
    def current(self) -> AbstractContextManager:
        """Return a block within which this card is CUDA's current device, as it must be where methods of a peer run."""

    def open_peer(self) -> "CudaDevice":
        """Return the peer, with a stream of its own. Raises UnsupportedError where memory may not be shared."""

    def copy(self, source: Any, destination: Any) -> None:
        """Queue a copy by the driver on the device's stream."""

    def count_differences(self, first: Any, second: Any, count: Any) -> None:
        """Add the number of 32-bit words in which two arrays differ to `count`, an array of one uint64."""

    def read_host_link(self) -> dict:
        """Return generation and width of the PCIe link now."""

    def read_memory_errors(self) -> dict:
        """Return the counts of memory errors that NVML reports now, by their keys in the device record."""

    def describe_peer_path(self) -> dict:
        """Return how this card and its peer are connected, by the fields of the record Peer."""

    def open_peer_pair(self, size_bytes: int | None) -> GpuPair:
        """Return this card and its peer, with arrays of `size_bytes` on both; None: as large as needed.

        Raises UnsupportedError where one may not access the other's memory.
        """


def is_gpu(device: Device) -> TypeGuard[CudaDevice]:
    """Return whether a device is a GPU, which has the methods of CudaDevice."""
    return device.kind == "gpu"


def fill_rolled_copies(copies: Any, array: Any, indices: Iterable[int]) -> None:
    """Fill those of the stacked `copies` that have these indices: the numbers of `array`, begun at another one each."""
    numbers, rows = array.reshape(-1), copies.reshape(len(copies), array.size)
    for index in indices:
        start = (index + 1) * array.size // (len(copies) + 1)
        rows[index, start:] = numbers[: array.size - start]
        rows[index, :start] = numbers[array.size - start :]
