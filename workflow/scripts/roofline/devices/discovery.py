"""The devices of this machine, and the record of an opened one.

Each kind of device is a package, `gpu` or `cpu`:

KIND_identity.py: discover(capacities), unsupported_reason(identity, ceiling)    without opening anything
KIND_device.py: CpuDevice(identity) or GpuDevice(identity)                      opened; it is a base.Device
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib import import_module
from types import ModuleType

from roofline.core import levels
from roofline.core.dtypes import COMPUTE_CEILINGS
from roofline.core.levels import PEER
from roofline.core.terms import DEVICE_TRAITS, select_accelerators
from roofline.devices import host
from roofline.devices.base import Device, Identity
from roofline.records.cards import METHOD
from roofline.records.device_record import DeviceRecord

DEVICE_CLASSES = {"cpu": "CpuDevice", "gpu": "GpuDevice"}  # in KIND_device.py, imported only where it is used
PLANNING_CLASSES = {"cpu": "CpuDevice", "gpu": "PlannedGpu"}


def kind_from_name(device: str) -> str:
    """Return the kind of a device by its name: gpu for gpu0, cpu for cpu."""
    return device.rstrip("0123456789")


def memory_levels(device: str, devices: Iterable[str] = ()) -> list[str]:
    """Return the names of a device's memory levels.

    For a GPU they include p2p_NAME, between two GPUs, for each other GPU among the `devices` of this run.
    """
    levels_of_device = levels.target_names(kind_from_name(device))
    gpus = select_accelerators(devices, kind_from_name)
    if device not in gpus:
        return levels_of_device
    return levels_of_device + [f"{PEER}_{peer}" for peer in gpus if peer != device]


def level_name(name: str) -> str:
    """Return the level that a record's name belongs to: p2p for p2p_gpu1."""
    return PEER if peer_name(name) else name


def peer_name(name: str) -> str | None:
    """Return the other GPU of a level between two, gpu1 for p2p_gpu1; None for all other levels."""
    level, _, peer = name.partition("_")
    return peer if level == PEER and peer else None


def discover() -> dict[str, Identity]:
    """Return every device of this machine by its name, GPUs first."""
    return {identity.device: identity for kind in DEVICE_TRAITS for identity in _identity_module(kind).discover()}


def unsupported_reason(identity: Identity, ceiling: str) -> str | None:
    """Return why a device lacks a compute ceiling; None if it has it. Nothing is opened."""
    return _identity_module(identity.kind).unsupported_reason(identity, ceiling)


def open_device(device: str, peer: str | None = None, classes: Mapping[str, str] = DEVICE_CLASSES) -> Device:
    """Open the device of that name, and with it a GPU's peer. Raises LookupError if one is not on this machine."""
    kind = kind_from_name(device)
    present = {identity.device: identity for identity in _identity_module(kind).discover(capacities=False)}
    names = [device, peer] if peer else [device]
    if missing := [name for name in names if name not in present]:
        raise LookupError(f"{' and '.join(missing)} is not on this machine")
    device_class = getattr(import_module(f"roofline.devices.{kind}.{kind}_device"), classes[kind])
    return device_class(*(present[name] for name in names))


def plan_device(device: str) -> Device:
    """Return the device of that name to plan cells on: a GPU has no context, which its other processes would notice."""
    return open_device(device, classes=PLANNING_CLASSES)


def _identity_module(kind: str) -> ModuleType:
    return import_module(f"roofline.devices.{kind}.{kind}_identity")


def describe_device(device: Device, datasheets: str = "config/datasheets.yaml") -> DeviceRecord:
    """Return the record of an opened device, with the vendor's figures for it."""
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
