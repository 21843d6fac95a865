"""gather: the records of one rule on one device, side by side in one file; of peak_flops and of bandwidth."""

from roofline.records import BandwidthRecord, Collection, PeakFlopsRecord, read, write
from roofline.reporting import job, say


def gather(device: str, kind, paths) -> Collection:
    return Collection(device=device, records=[read(kind, path) for path in paths])


if __name__ == "__main__":
    device = snakemake.wildcards.device
    with job(f"gather {device}", snakemake.log[0]):
        peaks = gather(device, PeakFlopsRecord, snakemake.input.peaks)
        bandwidths = gather(device, BandwidthRecord, snakemake.input.bandwidths)
        write(peaks, snakemake.output.peaks)
        write(bandwidths, snakemake.output.bandwidths)
        say(f"gather {device}: {len(peaks.records)} compute and {len(bandwidths.records)} memory records side by side")
