"""gather: the records of one rule on one device, side by side in one file."""

from roofline.records import BandwidthRecord, Collection, PeakFlopsRecord, read, write
from roofline.reporting import job, say

KINDS = {"peak_flops": PeakFlopsRecord, "bandwidth": BandwidthRecord}


def gather(device: str, what: str, paths) -> Collection:
    return Collection(device=device, records=[read(KINDS[what], path) for path in paths])


if __name__ == "__main__":
    device, what = snakemake.wildcards.device, snakemake.wildcards.what
    with job(f"gather {device} {what}", snakemake.log[0]):
        collection = gather(device, what, snakemake.input.records)
        write(collection, snakemake.output[0])
        say(f"gather {device} {what}: {len(collection.records)} side by side")
