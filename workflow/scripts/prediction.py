"""prediction: the ceilings that the datasheet promises, sealed."""

from roofline.measure.device_seal import seal_device
from roofline.records.base import read, write
from roofline.records.device import DeviceRecord
from roofline.run.jobs import job, now, say

if __name__ == "__main__":
    name = snakemake.wildcards.device
    with job(f"prediction {name}", snakemake):
        device, sources = snakemake.input.device, snakemake.input.library
        sealed = seal_device(read(DeviceRecord, device), device, sources, now())
        write(sealed, snakemake.output[0])
        say(f"prediction {name}: {len(sealed.ceilings)} promised ceilings sealed")
