"""plot: roofline.png and roofline.svg from roofline.json."""

import json
from pathlib import Path

from roofline.figures import draw
from roofline.reporting import job, say

if __name__ == "__main__":
    with job("plot", snakemake.log[0]):
        roofline = json.loads(Path(snakemake.input.roofline).read_text(encoding="utf-8"))
        draw(roofline, [Path(path) for path in snakemake.output], snakemake.params.dpi)
        say(f"plot: {', '.join(snakemake.output)}")
