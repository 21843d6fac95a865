"""plot_ceilings: the memory levels that the sweeps found, and what sustained load does to clock, power and rate."""

from pathlib import Path

from roofline import load_figure, sweep_figure
from roofline.figures import save
from roofline.records import BandwidthRecord, PeakFlopsRecord, read
from roofline.reporting import job, say

if __name__ == "__main__":
    with job("plot_ceilings", snakemake.log[0]):
        bandwidths = [read(BandwidthRecord, path) for path in snakemake.input.bandwidths]
        peaks = [read(PeakFlopsRecord, path) for path in snakemake.input.peaks]
        output, dpi = snakemake.output, snakemake.params.dpi
        save(sweep_figure.draw(bandwidths), [Path(output.sweep)], dpi)
        save(load_figure.draw(peaks), [Path(output.load)], dpi)
        say(f"plot_ceilings: {output.sweep}, {output.load}")
