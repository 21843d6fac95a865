"""Kinds of device, one package each: `gpu`, `cpu`. Each has

    identity.py: discover(capacities), MEMORY_LEVELS, unsupported(identity, ceiling)    without opening anything
    device.py: Device(identity)                                                         opened, ready to measure

A Device offers:

    hardware(), software(), vendor(hardware, datasheets_path)       what it is and what its vendor promises
    compute_unit(ceiling)                                           tensor_core, cuda_core or cpu
    compute_ceiling(dtype, unit), memory_ceilings(mix)              what operators of a dtype, unit and mix stand under
    memory_level, cache_level, cache_ceilings, last_level_cache_bytes
    normal(shape, dtype, seed), empty(shape, dtype), array(host_array), to_host(array), poison(array), widened(array)
    synchronize(), step_times(), watched_times(), device_times(), load_times(), while_busy()        time
    state(), clock_of_block(), kernel_of()                          clocks, power, throttling; the kernel that ran
    other_processes(), link()                                       who else uses it; its host link, on a GPU
    streams(level, size_bytes), sweeps(points_per_octave)           memory ceilings
    issue_kernels(), wall_kernels()                                 the instruction roofline, on a GPU
    fma_candidates(ceiling, seed), fma_workload(ceiling, product, seed)         compute ceilings in registers
"""

from importlib import import_module

from roofline.devices.base import Identity

KINDS = ("gpu", "cpu")


def kind_of(device: str) -> str:
    return device.rstrip("0123456789")


def memory_levels(device: str) -> tuple[str, ...]:
    return _identity_module(kind_of(device)).MEMORY_LEVELS


def memory_ceilings(kind: str, mix: str) -> list[str]:
    """That an operator of a mix of accesses stands under on a kind of device, best first."""
    return _identity_module(kind).MEMORY_CEILINGS[mix]


def discover() -> dict[str, Identity]:
    """Every device of this machine by its name, GPUs first."""
    return {identity.device: identity for kind in KINDS for identity in _identity_module(kind).discover()}


def unsupported(identity: Identity, ceiling: str) -> str | None:
    """Why a device has no such compute ceiling; None where it has. Nothing is opened."""
    return _identity_module(identity.kind).unsupported(identity, ceiling)


def open_device(device: str):
    """The device of that name, ready to measure. Raises LookupError where it is not on this machine."""
    kind = kind_of(device)
    for identity in _identity_module(kind).discover(capacities=False):
        if identity.device == device:
            return import_module(f"roofline.devices.{kind}.device").Device(identity)
    raise LookupError(f"{device} is not on this machine")


def _identity_module(kind: str):
    return import_module(f"roofline.devices.{kind}.identity")
