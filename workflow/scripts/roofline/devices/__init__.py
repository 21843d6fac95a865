"""Kinds of device, one module each, named as in results: `cpu`, `gpu`.

Each module offers the same few things:

    discover() -> list[Identity]       what is here, without loading arrays or making a context
    COPY_LEVELS                        the copies that this kind has, each a memory ceiling
    Device(identity)                   opens one; its methods are:
        hardware(), software(), vendor(hardware, datasheets_path)   what it is and what it promises
        unsupported(dtype) -> str | None          why there is no GEMM of a dtype here
        compute_unit(dtype) / compute_ceiling(dtype)
        normal(shape, dtype, seed) -> array       standard normal random numbers, rounded to the dtype
        array(host_array), to_host(array)
        widened(array)                            as the device computes it: emulated dtypes in fp32
        synchronize()
        step_times(step, count, first=0) -> [s]   what the caller gets, an event a step; steps are handed their number
        device_times(step, count) -> [s] | None   the device's part alone
        state() -> dict                           clocks, power, temperature, throttling; {} where unknown
        copy_path(level, size_bytes) -> CopyPath
        clock_under(step, count, step_s, look) -> MHz | None   the clock over a block of steps
        while_busy(step, step_s, seconds, look)   looks while steps run
        kernel_of(step) -> dict                   the kernel that ran, where it can be known
"""

from dataclasses import dataclass, field
from importlib import import_module

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

    def fingerprint(self) -> str:
        return f"{self.name} {self.uuid} driver {self.driver} {self.setting}".rstrip()

    def software_versions(self) -> str:
        return " ".join(f"{name} {version}" for name, version in sorted(self.software.items()))


@dataclass(frozen=True)
class CopyPath:
    """One way between memories: `step(i)` copies once, `verify()` compares every byte, and says how."""

    level: str
    counted: str
    counted_bytes: int
    step: object
    verify: object
    threads: int | None = None


def kind_of(device: str) -> str:
    return device.rstrip("0123456789")


def module_of(kind: str):
    return import_module(f"roofline.devices.{kind}")


def copy_levels(device: str) -> tuple[str, ...]:
    return module_of(kind_of(device)).COPY_LEVELS


def discover() -> dict[str, Identity]:
    """Every device of this machine by its name, GPUs first."""
    return {identity.device: identity for kind in KINDS for identity in module_of(kind).discover()}


def open_device(device: str):
    """The device of that name, ready to measure."""
    module = module_of(kind_of(device))
    for identity in module.discover():
        if identity.device == device:
            return module.Device(identity)
    raise LookupError(f"{device} is not on this machine")
