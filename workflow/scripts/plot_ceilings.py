"""plot_ceilings: the memory levels that the sweeps found, and what sustained load does to clock, power and rate."""

from roofline.records.base import read
from roofline.records.compute import PeakFlopsRecord
from roofline.records.memory import BandwidthRecord
from roofline.report import load_figure, sweep_figure
from roofline.report.figure_style import save
from roofline.run.jobs import job, say

if __name__ == "__main__":
    with job("plot_ceilings", snakemake):
        bandwidths = [read(BandwidthRecord, path) for path in snakemake.input.bandwidths]
        peaks = [read(PeakFlopsRecord, path) for path in snakemake.input.peaks]
        output, dpi = snakemake.output, snakemake.params.dpi
        save(sweep_figure.draw(bandwidths), [output.sweep], dpi)
        save(load_figure.draw(peaks), [output.load], dpi)
        say(f"plot_ceilings: {output.sweep}, {output.load}")
