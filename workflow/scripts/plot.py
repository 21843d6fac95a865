"""plot: the roofline; each operator's cells against their roofs; memory levels and sustained load."""

from pathlib import Path

from roofline.records.base import read
from roofline.records.files import RESULTS
from roofline.run import pictures
from roofline.run.jobs import job, say
from roofline.table.rows import Roofline

if __name__ == "__main__":
    with job("plot", snakemake):
        inputs, output, params = snakemake.input, snakemake.output, snakemake.params
        pictures.draw(
            RESULTS,
            read(Roofline, inputs.roofline),
            operators=dict(zip((Path(path).stem for path in output.operators), params.operators, strict=True)),
            dpi=params.dpi,
            instructions=bool(output.instructions),
        )
        say(f"plot: {', '.join(output)}")
