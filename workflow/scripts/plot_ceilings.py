"""plot_ceilings: the memory levels that the sweeps found, and what sustained load does to clock, power and rate."""

from roofline import load_figure, sweep_figure
from roofline.records import BandwidthRecord, PeakFlopsRecord, read
from roofline.reporting import job, say

if __name__ == "__main__":
    with job("plot_ceilings", snakemake.log[0]):
        sweeps = [read(BandwidthRecord, path) for path in snakemake.input.bandwidths]
        peaks = [read(PeakFlopsRecord, path) for path in snakemake.input.peaks]
        sweep_figure.save(sweeps, snakemake.output.sweep, snakemake.params.dpi)
        load_figure.save(peaks, snakemake.output.load, snakemake.params.dpi)
        say(f"plot_ceilings: {snakemake.output.sweep}, {snakemake.output.load}")
