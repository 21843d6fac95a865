"""summary: one self-contained page with the tables and the interpretation, for the report."""

from pathlib import Path

from roofline.records import Acceptance, Roofline, read, write_text
from roofline.reporting import job, say
from roofline.summary import page

if __name__ == "__main__":
    with job("summary", snakemake.log[0]):
        text = page(
            read(Roofline, snakemake.input.roofline),
            read(Acceptance, snakemake.input.acceptance),
            Path(snakemake.input.interpretation).read_text(encoding="utf-8"),
        )
        write_text(text, snakemake.output[0])
        say(f"summary: {snakemake.output[0]}")
