"""gather: the records of one rule on one device, side by side in one file; of peak_flops and of bandwidth."""

from roofline.records.base import read, write
from roofline.records.collection import Collection
from roofline.records.compute import PeakFlopsRecord
from roofline.records.memory import BandwidthRecord
from roofline.run.jobs import job, say


def gather(device: str, kind, paths) -> Collection:
    return Collection(device=device, records=[read(kind, path) for path in paths])


if __name__ == "__main__":
    device = snakemake.wildcards.device
    with job(f"gather {device}", snakemake):
        peaks = gather(device, PeakFlopsRecord, snakemake.input.peaks)
        bandwidths = gather(device, BandwidthRecord, snakemake.input.bandwidths)
        write(peaks, snakemake.output.peaks)
        write(bandwidths, snakemake.output.bandwidths)
        say(f"gather {device}: {len(peaks.records)} compute and {len(bandwidths.records)} memory records side by side")
