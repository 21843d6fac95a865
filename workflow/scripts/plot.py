"""plot: roofline.png and roofline.svg from roofline.json."""

from roofline.records.base import read
from roofline.records.roofline import Roofline
from roofline.report import roofline_figure
from roofline.report.figure_style import save
from roofline.run.jobs import job, say

if __name__ == "__main__":
    with job("plot", snakemake):
        save(roofline_figure.draw(read(Roofline, snakemake.input.roofline)), snakemake.output, snakemake.params.dpi)
        say(f"plot: {', '.join(snakemake.output)}")
