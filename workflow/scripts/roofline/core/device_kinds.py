"""What devices of a kind have in common, whether one is opened or only its record read: a row per kind."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeVar

from roofline.core.contention import Sensitive
from roofline.core.terms import DeviceKind

T = TypeVar("T")


@dataclass(frozen=True)
class Kind:
    accelerator: bool  # a card of its own, with a host link and memory of its own, of which a machine may have several
    synchronous: bool  # a step has ended when its call returns, so that the caller's time is the device's
    sensitive: Sensitive  # which load beside it on the host disturbs a block
    peaks_by: Literal["vendor", "formula"]  # whose figures its compute ceilings are compared with
    reports_power: bool  # and clocks, throttling and errors
    narrowest_bytes: int  # of a number that it computes with
    tensor_cores: bool


KINDS: dict[DeviceKind, Kind] = {  # in the order in which devices are shown
    "gpu": Kind(
        accelerator=True,
        synchronous=False,
        sensitive="caller",
        peaks_by="vendor",
        reports_power=True,
        narrowest_bytes=1,
        tensor_cores=True,
    ),
    "cpu": Kind(
        accelerator=False,
        synchronous=True,
        sensitive="cpu",
        peaks_by="formula",
        reports_power=False,
        narrowest_bytes=4,
        tensor_cores=False,
    ),
}


def accelerators(devices: Iterable[T], kind_of: Callable[[T], DeviceKind]) -> list[T]:
    return [device for device in devices if KINDS[kind_of(device)].accelerator]


def in_order(devices: Iterable[T], kind_of: Callable[[T], DeviceKind]) -> list[T]:
    """The same devices, accelerators before the CPU."""
    return sorted(devices, key=lambda device: list(KINDS).index(kind_of(device)))
