"""prediction: the ceilings that the datasheet promises, sealed."""

from roofline.measure.sealing import seal_device
from roofline.records.base import read, write
from roofline.records.device import DeviceRecord
from roofline.records.files import file_sha256
from roofline.run.jobs import job, now, say

if __name__ == "__main__":
    name = snakemake.wildcards.device
    with job(f"prediction {name}", snakemake):
        sealed = seal_device(read(DeviceRecord, snakemake.input.device), now())
        write(sealed, snakemake.output[0])
        digits = file_sha256(snakemake.output[0])[:12]
        say(f"prediction {name}: {len(sealed.ceilings)} promised ceilings, sealed as {digits}")
