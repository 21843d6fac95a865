"""plot: roofline.json drawn: the roofline, and for each operator how near its implementations come to their roofs."""

from roofline.records.base import read
from roofline.records.roofline import Roofline
from roofline.report import operator_figure, roofline_figure
from roofline.report.figure_style import save
from roofline.run.jobs import job, say

if __name__ == "__main__":
    with job("plot", snakemake):
        roofline, output, params = read(Roofline, snakemake.input.roofline), snakemake.output, snakemake.params
        save(roofline_figure.draw(roofline), output.roofline, params.dpi)
        for operator, path in zip(params.operators, output.operators, strict=True):
            save(operator_figure.draw(roofline, operator), [path], params.dpi)
        say(f"plot: {', '.join(output)}")
