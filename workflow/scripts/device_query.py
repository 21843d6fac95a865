"""device_query: what a device is, with the vendor's figures, and the seal of the ceilings that these promise."""

from roofline.devices import discovery
from roofline.devices.discovery import describe_device
from roofline.measure.sealing import seal_device
from roofline.records.base import write
from roofline.run.jobs import job, now, say_sealed, write_and_say

if __name__ == "__main__":
    name, output = snakemake.wildcards.device, snakemake.output
    with job(f"device_query {name}", snakemake):
        device = discovery.open_device(name)
        record = describe_device(device, snakemake.params.datasheets)
        write_and_say(record, output.device, f"device_query {name}")
        sealed = seal_device(record, now())
        write(sealed, output.prediction)
        say_sealed(f"prediction {name}: {len(sealed.ceilings)} promised ceilings", output.prediction)
