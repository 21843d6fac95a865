"""The devices of this machine, and what an opened one is.

Each kind of device is a package, `gpu` or `cpu`:

identity.py: discover(capacities), unsupported(identity, ceiling)    without opening anything
device.py: Device(identity)                                          opened; it offers what base.Device says
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from importlib import import_module

from roofline.core.dtypes import CEILINGS
from roofline.core.terms import KINDS, accelerators
from roofline.devices import host, levels
from roofline.devices.base import Device, Identity
from roofline.devices.levels import PEER
from roofline.records.cards import METHOD
from roofline.records.device_record import DeviceRecord


def kind_of(device: str) -> str:
    return device.rstrip("0123456789")


def memory_levels(device: str, chosen: Iterable[str] = ()) -> list[str]:
    """The memory levels of a device: `p2p`, between two GPUs, for each other one that is chosen to be measured."""
    own, cards = levels.names_of(kind_of(device)), accelerators(chosen, kind_of)
    return own + [f"{PEER}_{other}" for other in cards if device in cards and other != device]


def level_of(name: str) -> str:
    """The level that a record's name is of: p2p of p2p_gpu1."""
    return PEER if peer_of(name) else name


def peer_of(name: str) -> str | None:
    """The other GPU of a level between two, gpu1 of p2p_gpu1; None of all other levels."""
    level, _, peer = name.partition("_")
    return peer if level == PEER and peer else None


def discover() -> dict[str, Identity]:
    """Every device of this machine by its name, GPUs first."""
    return {identity.device: identity for kind in KINDS for identity in _identity_module(kind).discover()}


def unsupported(identity: Identity, ceiling: str) -> str | None:
    """Why a device has no such compute ceiling; None where it has. Nothing is opened."""
    return _identity_module(identity.kind).unsupported(identity, ceiling)


def open_device(device: str, peer: str | None = None, context: bool = True) -> Device:
    """The device of that name, ready to measure, and with it a GPU's peer. Raises LookupError where one is not here.

    Without `context` nothing can be run on a GPU, which other processes do not notice.
    """
    kind = kind_of(device)
    present = {identity.device: identity for identity in _identity_module(kind).discover(capacities=False)}
    named = [device, peer] if peer else [device]
    if missing := [name for name in named if name not in present]:
        raise LookupError(f"{' and '.join(missing)} is not on this machine")
    return import_module(f"roofline.devices.{kind}.{kind}_device").Device(
        *(present[name] for name in named), **({} if context else {"context": False})
    )


def _identity_module(kind: str):
    return import_module(f"roofline.devices.{kind}.{kind}_identity")


def describe(device, datasheets: str = "config/datasheets.yaml") -> DeviceRecord:
    """What an opened device is, with the vendor's figures for it."""
    identity, hardware = device.identity, device.hardware()
    return DeviceRecord(
        device=device.name,
        device_kind=device.kind,
        name=identity.name,
        uuid=identity.uuid,
        memory_total_bytes=identity.memory_total_bytes,
        memory_free_bytes=identity.memory_free_bytes,
        last_level_cache_bytes=device.last_level_cache_bytes,
        hardware=hardware,
        timer_ratio=device.timer_ratio(),
        software=device.software(),
        vendor=device.vendor(hardware, datasheets),
        unsupported={name: reason for name in CEILINGS if (reason := unsupported(identity, name))},
        host=host.describe(),
        queried_at=datetime.now(UTC).isoformat(),
        method=METHOD,
    )
