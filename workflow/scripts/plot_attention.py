"""plot_attention: how near each implementation of decode attention comes to its roof, over the bytes of a step."""

from pathlib import Path

from roofline import attention_figure
from roofline.figures import save
from roofline.records import DecodeAttnRecord, Roofline, read
from roofline.reporting import job, say

if __name__ == "__main__":
    with job("plot_attention", snakemake.log[0]):
        records = [read(DecodeAttnRecord, path) for path in snakemake.input.attention]
        figure = attention_figure.draw(read(Roofline, snakemake.input.roofline), records)
        save(figure, [Path(snakemake.output[0])], snakemake.params.dpi)
        say(f"plot_attention: {snakemake.output[0]}")
