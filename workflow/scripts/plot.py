"""plot: the roofline; each operator's cells against their roofs; memory levels and sustained load, from the records."""

from roofline.records.base import read
from roofline.records.compute import PeakFlopsRecord
from roofline.records.memory import BandwidthRecord
from roofline.records.roofline import Roofline
from roofline.report import load_figure, operator_figure, roofline_figure, sweep_figure
from roofline.report.figure_style import save
from roofline.run.jobs import job, say

if __name__ == "__main__":
    with job("plot", snakemake):
        inputs, output, params = snakemake.input, snakemake.output, snakemake.params
        roofline = read(Roofline, inputs.roofline)
        peaks = [read(PeakFlopsRecord, path) for path in inputs.peaks]
        bandwidths = [read(BandwidthRecord, path) for path in inputs.bandwidths]
        save(roofline_figure.draw(roofline), output.roofline, params.dpi)
        for operator, path in zip(params.operators, output.operators, strict=True):
            save(operator_figure.draw(roofline, operator), [path], params.dpi)
        save(sweep_figure.draw(bandwidths), [output.sweep], params.dpi)
        save(load_figure.draw(peaks), [output.load], params.dpi)
        say(f"plot: {', '.join(output)}")
