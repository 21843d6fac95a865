"""The devices of this machine, and what an opened one is.

Each kind of device is a package, `gpu` or `cpu`:

KIND_identity.py: discover(capacities), unsupported_reason(identity, ceiling)    without opening anything
KIND_device.py: CpuDevice(identity) or CudaDevice(identity)                      opened; it is a base.Device
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from importlib import import_module

from roofline.core.dtypes import COMPUTE_CEILINGS
from roofline.core.terms import DEVICE_TRAITS, select_accelerators
from roofline.devices import host, levels
from roofline.devices.base import Device, Identity
from roofline.devices.levels import PEER_LEVEL
from roofline.records.cards import METHOD
from roofline.records.device_record import DeviceRecord

# By kind, the module and the class of an opened device: a module is imported only where it is used.
DEVICE_CLASSES = {
    "cpu": ("roofline.devices.cpu.cpu_device", "CpuDevice"),
    "gpu": ("roofline.devices.gpu.gpu_device", "CudaDevice"),
}


def kind_from_name(device: str) -> str:
    return device.rstrip("0123456789")


def memory_levels(device: str, chosen: Iterable[str] = ()) -> list[str]:
    """The memory levels of a device: `p2p`, between two GPUs, for each other one that is chosen to be measured."""
    own, cards = levels.level_names(kind_from_name(device)), select_accelerators(chosen, kind_from_name)
    return own + [f"{PEER_LEVEL}_{other}" for other in cards if device in cards and other != device]


def level_name(name: str) -> str:
    """The level that a record's name is of: p2p of p2p_gpu1."""
    return PEER_LEVEL if peer_name(name) else name


def peer_name(name: str) -> str | None:
    """The other GPU of a level between two, gpu1 of p2p_gpu1; None of all other levels."""
    level, _, peer = name.partition("_")
    return peer if level == PEER_LEVEL and peer else None


def discover() -> dict[str, Identity]:
    """Every device of this machine by its name, GPUs first."""
    return {identity.device: identity for kind in DEVICE_TRAITS for identity in _identity_module(kind).discover()}


def unsupported_reason(identity: Identity, ceiling: str) -> str | None:
    """Why a device has no such compute ceiling; None where it has. Nothing is opened."""
    return _identity_module(identity.kind).unsupported_reason(identity, ceiling)


def open_device(device: str, peer: str | None = None, context: bool = True) -> Device:
    """The device of that name, ready to measure, and with it a GPU's peer. Raises LookupError where one is not here.

    Without `context` nothing can be run on a GPU, which other processes do not notice.
    """
    kind = kind_from_name(device)
    present = {identity.device: identity for identity in _identity_module(kind).discover(capacities=False)}
    named = [device, peer] if peer else [device]
    if missing := [name for name in named if name not in present]:
        raise LookupError(f"{' and '.join(missing)} is not on this machine")
    module, name_of_class = DEVICE_CLASSES[kind]
    device_class = getattr(import_module(module), name_of_class)
    return device_class(*(present[name] for name in named), **({} if context else {"context": False}))


def _identity_module(kind: str):
    return import_module(f"roofline.devices.{kind}.{kind}_identity")


def describe_device(device, datasheets: str = "config/datasheets.yaml") -> DeviceRecord:
    """What an opened device is, with the vendor's figures for it."""
    identity, hardware = device.identity, device.read_hardware()
    return DeviceRecord(
        device=device.name,
        device_kind=device.kind,
        name=identity.name,
        uuid=identity.uuid,
        memory_total_bytes=identity.memory_total_bytes,
        memory_free_bytes=identity.memory_free_bytes,
        last_level_cache_bytes=device.last_level_cache_bytes,
        hardware=hardware,
        timer_ratio=device.measure_timer_ratio(),
        software=device.read_software(),
        datasheet=device.datasheet_figures(hardware, datasheets),
        unsupported={name: reason for name in COMPUTE_CEILINGS if (reason := unsupported_reason(identity, name))},
        host=host.describe_host(),
        queried_at=datetime.now(UTC).isoformat(),
        method=METHOD,
    )
