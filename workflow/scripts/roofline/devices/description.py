"""What an opened device is: its record."""

from datetime import UTC, datetime

from roofline import devices
from roofline.devices import host
from roofline.devices.datasheets import CEILINGS
from roofline.records.device import DeviceRecord


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
        software=device.software(),
        vendor=device.vendor(hardware, datasheets),
        unsupported={name: reason for name in CEILINGS if (reason := devices.unsupported(identity, name))},
        host=host.describe(),
        queried_at=datetime.now(UTC).isoformat(),
    )
