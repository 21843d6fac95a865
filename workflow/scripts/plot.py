"""plot: roofline.png and roofline.svg from roofline.json."""

import json
from pathlib import Path

from roofline.report.figures import draw
from roofline.run.jobs import job, say

SVG_DPI = 100  # points and pixels are the same to a reader of SVG; the PNG's dpi must not change it

if __name__ == "__main__":
    with job("plot", snakemake):
        roofline = json.loads(Path(snakemake.input.roofline).read_text(encoding="utf-8"))
        draw(roofline, [Path(path) for path in snakemake.output], snakemake.params.dpi or SVG_DPI)
        say(f"plot: {', '.join(snakemake.output)}")
