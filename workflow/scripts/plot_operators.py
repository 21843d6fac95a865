"""plot_operators: for each operator, how near each implementation comes to its roof, over the bytes of a step."""

from roofline.records.base import read
from roofline.records.roofline import Roofline
from roofline.report import operator_figure
from roofline.report.figure_style import save
from roofline.run.jobs import job, say

if __name__ == "__main__":
    with job("plot_operators", snakemake):
        roofline = read(Roofline, snakemake.input.roofline)
        for operator, path in zip(snakemake.params.operators, snakemake.output, strict=True):
            save(operator_figure.draw(roofline, operator), [path], snakemake.params.dpi)
        say(f"plot_operators: {', '.join(snakemake.output)}")
