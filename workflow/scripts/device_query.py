"""device_query: what the device is, with the vendor's figures for it."""

from roofline import devices, host
from roofline.records import DeviceRecord, write
from roofline.reporting import job, now, number, say


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
        host=host.describe(),
        queried_at=now(),
    )


if __name__ == "__main__":
    name = snakemake.wildcards.device
    with job(f"device_query {name}", snakemake.log[0]):
        record = query(name, snakemake.params.datasheets)
        write(record, snakemake.output[0])
        say(f"device_query {name}: {record.name}, {number(record.memory_total_bytes / 1e9)} GB ({record.vendor.match})")
