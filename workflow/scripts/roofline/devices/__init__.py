"""Kinds of device, one package each: `gpu`, `cpu`. Each has

identity.py: discover(capacities), unsupported(identity, ceiling)    without opening anything
device.py: Device(identity)                                          opened; it offers what base.Device says
"""

from collections.abc import Iterable
from importlib import import_module

from roofline.core.terms import KINDS, accelerators
from roofline.devices import levels
from roofline.devices.base import Device, Identity
from roofline.devices.levels import PEER


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


def memory_ceilings(kind: str, mix: str) -> list[str]:
    """That an operator of a mix of accesses stands under on a kind of device, best first."""
    return levels.roofs(kind, mix)


def discover() -> dict[str, Identity]:
    """Every device of this machine by its name, GPUs first."""
    return {identity.device: identity for kind in KINDS for identity in _identity_module(kind).discover()}


def unsupported(identity: Identity, ceiling: str) -> str | None:
    """Why a device has no such compute ceiling; None where it has. Nothing is opened."""
    return _identity_module(identity.kind).unsupported(identity, ceiling)


def open_device(device: str, peer: str | None = None) -> Device:
    """The device of that name, ready to measure, and with it a GPU's peer. Raises LookupError where one is not here."""
    kind = kind_of(device)
    present = {identity.device: identity for identity in _identity_module(kind).discover(capacities=False)}
    named = [device, peer] if peer else [device]
    if missing := [name for name in named if name not in present]:
        raise LookupError(f"{' and '.join(missing)} is not on this machine")
    return import_module(f"roofline.devices.{kind}.device").Device(*(present[name] for name in named))


def _identity_module(kind: str):
    return import_module(f"roofline.devices.{kind}.identity")
