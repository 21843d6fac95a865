"""plot: the rooflines, a picture per operator, memory levels, sustained load and the instruction roofline."""

from pathlib import Path

from roofline.records.base import read
from roofline.records.files import RESULTS
from roofline.run import pictures
from roofline.run.jobs import job, say
from roofline.table.rows import Roofline

if __name__ == "__main__":
    with job("plot", snakemake):
        names = [Path(path).name for path in snakemake.output]
        pictures.draw(RESULTS, read(Roofline, snakemake.input.roofline), snakemake.params.dpi, names)
        say(f"plot: {', '.join(snakemake.output)}")
