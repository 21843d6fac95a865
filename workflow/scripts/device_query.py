"""device_query: what the device is, with the vendor's figures for it."""

from roofline.devices import discovery
from roofline.devices.discovery import describe
from roofline.records.base import write
from roofline.records.device import DeviceRecord
from roofline.run.jobs import job, report


def query(name: str, datasheets_path: str) -> DeviceRecord:
    """Open a device and describe it. Raises RuntimeError, in one line, where it cannot be opened."""
    return describe(discovery.open_device(name), datasheets_path)


if __name__ == "__main__":
    name = snakemake.wildcards.device
    with job(f"device_query {name}", snakemake):
        record = query(name, snakemake.params.datasheets)
        write(record, snakemake.output[0])
        report(record, f"device_query {name}", record)
