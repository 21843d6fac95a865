"""The devices of this machine, and the record of an opened one.

Each kind of device is a package, `gpu` or `cpu`:

KIND_identity.py: discover(capacities), unsupported_reason(identity, ceiling)    without opening anything
KIND_device.py: open_device(identity), plan_device(identity)                    a base.Device, a base.PlannedDevice
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from importlib import import_module
from types import ModuleType

from roofline.core import levels
from roofline.core.dtypes import COMPUTE_CEILINGS
from roofline.core.terms import DEVICE_TRAITS, DeviceKind, select_accelerators
from roofline.devices import host
from roofline.devices.base import Device, Identity, PlannedDevice
from roofline.records.cards import METHOD
from roofline.records.device_record import DeviceRecord

_KINDS: dict[str, DeviceKind] = {kind: kind for kind in DEVICE_TRAITS}


def kind_from_name(device: str) -> DeviceKind:
    """Return the kind of a device by its name: gpu for gpu0, cpu for cpu. Raises KeyError for a name of no kind."""
    return _KINDS[device.rstrip("0123456789")]


def memory_levels(device: str, devices: Iterable[str] = ()) -> list[str]:
    """Return the names of a device's memory levels.

    For a GPU they include p2p_NAME, between two GPUs, for each other GPU among the `devices` of this run, and
    all_reduce_NAME for the next one; two GPUs have one all-reduce.
    """
    levels_of_device = levels.target_names(kind_from_name(device))
    gpus = select_accelerators(devices, kind_from_name)
    if device not in gpus:
        return levels_of_device
    levels_of_device += [f"{levels.PEER}_{peer}" for peer in gpus if peer != device]
    place = gpus.index(device)
    if len(gpus) > 2 or place + 1 < len(gpus):
        levels_of_device.append(f"{levels.ALL_REDUCE}_{gpus[(place + 1) % len(gpus)]}")
    return levels_of_device


def level_name(name: str) -> str:
    """Return the level that a record's name belongs to: p2p for p2p_gpu1."""
    return name.rpartition("_")[0] if peer_name(name) else name


def peer_name(name: str) -> str | None:
    """Return the other GPU of a level between two, gpu1 for p2p_gpu1; None for all other levels."""
    level, _, peer = name.rpartition("_")
    return peer if level in levels.BETWEEN_GPUS and peer else None


def discover() -> dict[str, Identity]:
    """Return every device of this machine by its name, GPUs first."""
    return {identity.device: identity for kind in DEVICE_TRAITS for identity in _module(kind, "identity").discover()}


def unsupported_reason(identity: Identity, ceiling: str) -> str | None:
    """Return why a device lacks a compute ceiling; None if it has it. Nothing is opened."""
    return _module(identity.kind, "identity").unsupported_reason(identity, ceiling)


def open_device(device: str, peer: str | None = None) -> Device:
    """Open the device of that name, and with it a GPU's peer. Raises LookupError if one is not on this machine."""
    identities = _find_identities([device, peer] if peer else [device])
    return _module(kind_from_name(device), "device").open_device(*identities)


def plan_device(device: str) -> PlannedDevice:
    """Return the device of that name to plan cells on: a GPU has no context, which its other processes would notice."""
    return _module(kind_from_name(device), "device").plan_device(*_find_identities([device]))


def _find_identities(names: list[str]) -> list[Identity]:
    """Return the identities of devices of one kind. Raises LookupError if one is not on this machine."""
    identities = _module(kind_from_name(names[0]), "identity").discover(capacities=False)
    present = {identity.device: identity for identity in identities}
    if missing := [name for name in names if name not in present]:
        raise LookupError(f"{' and '.join(missing)} is not on this machine")
    return [present[name] for name in names]


def _module(kind: DeviceKind, name: str) -> ModuleType:
    """Return devices/KIND/KIND_NAME.py, imported only where it is used."""
    return import_module(f"roofline.devices.{kind}.{kind}_{name}")


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
