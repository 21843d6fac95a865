"""Kinds of device, one module each, named as in results: `cpu`, `gpu`.

Each module offers the same few things:

    discover(capacities) -> list[Identity]   what is here, without loading arrays or making a context
    MEMORY_LEVELS                      the jobs of rule bandwidth that this kind has
    unsupported(identity, ceiling)     why it has no such compute ceiling, without opening it
    Device(identity)                   opens one; its methods are:
        hardware(), software(), vendor(hardware, datasheets_path)   what it is and what it promises
        unsupported(ceiling) -> str | None        why there is no such compute ceiling here
        compute_unit(dtype) / compute_ceiling(dtype)
        normal(shape, dtype, seed) -> array       standard normal random numbers, rounded to the dtype
        array(host_array), to_host(array)
        copies(array, count) -> [array]           each in memory of its own
        widened(array)                            as the device computes it: emulated dtypes in fp32
        synchronize()
        step_times(step, count, first=0) -> [s]   what the caller gets, an event a step; steps are handed their number
        device_times(step, count) -> [s] | None   the device's part alone
        state() -> dict                           clocks, power, temperature, throttling; {} where unknown
        streams(level, size_bytes) -> [Stream]    the memory ceilings of one level
        sweeps(points_an_octave) -> [SweepSeries]
        lab_product(dtype, size, seed) -> Workload | None            the square product by the array library
        peak_candidates(ceiling, size, most_flops, seed) -> [Workload]   ways to that compute ceiling
        peak_workload(ceiling, size, product, seed) -> Workload      one of them, on fresh operands
        beside(ceiling, product, seed) -> [[Workload]]               the same with another output or accumulation
        product_of_shape(dtype, shape) -> Workload   a product of that shape, where the device has cuBLASLt
        watched_times(step, count, first, look) -> [s]   as step_times, and looks while the device runs
        load_times(step, count, seconds, look)    load without a pause: (s since the start, s a step) of each chunk
        clock_under(step, count, step_s, look) -> MHz | None   the clock over a block of steps
        while_busy(step, step_s, seconds, look)   looks while steps run
        kernel_of(step) -> dict                   the kernel that ran, where it can be known
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module

from roofline.records import Check, Product

KINDS = ("gpu", "cpu")


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


class Unsupported(Exception):
    """A compute ceiling that a device turns out not to have. The message is the reason, in one line."""


@dataclass(frozen=True)
class Stream:
    """One mix of accesses to one memory level; each is a memory ceiling.

    `grids` are the ways to run it, by a description each: a grid of a kernel, or a number of threads; each is a step,
    which goes once over all the bytes. `verify(grid)` runs it that way on fresh memory and compares what came of it
    with what must; it says how, and raises ArithmeticError where it differs. `clock_mhz()` is what the kernel itself
    counted in its last run; None where the kernel is not ours. It is timed in so many `blocks` at most, of which the
    fastest counts: several where what else runs on the host slows it from moment to moment.
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
    """One way to reach a compute ceiling: `step(i)` runs it once, `check()` compares its result with float64.

    `clock_mhz()` is what the kernel itself counted in its last run; None where the kernel is not ours.
    """

    product: Product
    flops: int
    step: Callable[[int], object]
    check: Callable[[], Check]
    clock_mhz: Callable[[], float | None] = lambda: None
    inputs: str = "standard normal numbers, rounded to the dtype"


def kind_of(device: str) -> str:
    return device.rstrip("0123456789")


def module_of(kind: str):
    return import_module(f"roofline.devices.{kind}")


def memory_levels(device: str) -> tuple[str, ...]:
    return module_of(kind_of(device)).MEMORY_LEVELS


def discover() -> dict[str, Identity]:
    """Every device of this machine by its name, GPUs first."""
    return {identity.device: identity for kind in KINDS for identity in module_of(kind).discover()}


def unsupported(device: str, ceiling: str) -> str | None:
    """Why a device of this machine has no such compute ceiling; None where it has."""
    module = module_of(kind_of(device))
    return module.unsupported(_identity(module, device), ceiling)


def open_device(device: str):
    """The device of that name, ready to measure."""
    module = module_of(kind_of(device))
    return module.Device(_identity(module, device))


def _identity(module, device: str) -> Identity:
    for identity in module.discover(capacities=False):
        if identity.device == device:
            return identity
    raise LookupError(f"{device} is not on this machine")
