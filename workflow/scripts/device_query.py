"""device_query: what the device is, with the vendor's figures for it."""

from roofline.run.turn import take_turn

if __name__ == "__main__":
    take_turn()

from roofline import devices
from roofline.core.formatting import number
from roofline.devices import host
from roofline.devices.datasheets import CEILINGS
from roofline.records.base import write
from roofline.records.device import DeviceRecord
from roofline.run.jobs import faults_told, job, now, say


def query(name: str, datasheets_path: str) -> DeviceRecord:
    """Open a device and describe it. Raises RuntimeError, in one line, where it cannot be opened."""
    device = devices.open_device(name)
    identity, hardware = device.identity, device.hardware()
    return DeviceRecord(
        device=name,
        device_kind=identity.kind,
        name=identity.name,
        uuid=identity.uuid,
        memory_total_bytes=identity.memory_total_bytes,
        memory_free_bytes=identity.memory_free_bytes,
        last_level_cache_bytes=device.last_level_cache_bytes,
        hardware=hardware,
        software=device.software(),
        vendor=device.vendor(hardware, datasheets_path),
        unsupported={name: reason for name in CEILINGS if (reason := devices.unsupported(identity, name))},
        host=host.describe(),
        queried_at=now(),
    )


if __name__ == "__main__":
    name = snakemake.wildcards.device
    with job(f"device_query {name}", snakemake):
        record = query(name, snakemake.params.datasheets)
        write(record, snakemake.output[0])
        size = f"{number(record.memory_total_bytes / 1e9)} GB ({record.vendor.match})"
        say(f"device_query {name}: {record.name}, {size}" + faults_told(record, []))
