"""plot: the roofline; each operator's cells against their roofs; memory levels and sustained load, from the records."""

from pathlib import Path

from roofline.analysis.results import read_table
from roofline.records.base import read
from roofline.records.compute import PeakFlopsRecord
from roofline.records.files import RESULTS
from roofline.records.memory import BandwidthRecord
from roofline.run import pictures
from roofline.run.jobs import job, say

if __name__ == "__main__":
    with job("plot", snakemake):
        inputs, output, params = snakemake.input, snakemake.output, snakemake.params
        pictures.draw(
            RESULTS,
            read_table(Path(inputs.roofline)),
            [read(PeakFlopsRecord, path) for path in inputs.peaks],
            [read(BandwidthRecord, path) for path in inputs.bandwidths],
            operators=dict(zip((Path(path).stem for path in output.operators), params.operators, strict=True)),
            dpi=params.dpi,
            instructions=bool(output.instructions),
        )
        say(f"plot: {', '.join(output)}")
