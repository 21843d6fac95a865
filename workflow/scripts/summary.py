"""summary: one self-contained page with the tables and the interpretation, for the report."""

from pathlib import Path

from roofline.analysis.spread import between_runs
from roofline.records.acceptance import Acceptance
from roofline.records.base import read
from roofline.records.files import write_text
from roofline.records.roofline import Roofline
from roofline.report.summary import page
from roofline.run.jobs import job, say

if __name__ == "__main__":
    with job("summary", snakemake):
        roofline = read(Roofline, snakemake.input.roofline)
        text = page(
            roofline,
            read(Acceptance, snakemake.input.acceptance),
            Path(snakemake.input.interpretation).read_text(encoding="utf-8"),
            between_runs({name: device.name for name, device in roofline.devices.items()}),
        )
        write_text(text, snakemake.output[0])
        say(f"summary: {snakemake.output[0]}")
