"""prediction: the ceilings that the datasheets promise, sealed before anything is timed."""

from roofline.prediction import seal
from roofline.records import DeviceRecord, read, write
from roofline.reporting import job, now, say

if __name__ == "__main__":
    name = snakemake.wildcards.device
    with job(f"prediction {name}", snakemake.log[0]):
        sealed = seal(read(DeviceRecord, snakemake.input.device), snakemake.input.device, now())
        write(sealed, snakemake.output[0])
        say(f"prediction {name}: {len(sealed.ceilings)} promised ceilings sealed")
