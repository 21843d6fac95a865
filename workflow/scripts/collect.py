"""collect: every record of every device into roofline.json."""

import json
from pathlib import Path

from roofline.placing import place_files
from roofline.records import write
from roofline.reporting import job, say

if __name__ == "__main__":
    with job("collect", snakemake.log[0]):
        roofline = place_files(
            snakemake.input.devices,
            snakemake.input.peaks,
            snakemake.input.bandwidths,
            snakemake.input.attention,
            json.loads(snakemake.params.operations),
            Path(snakemake.output[0]).parent,
        )
        write(roofline, snakemake.output[0])
        say(f"collect: {len(roofline.ceilings)} ceilings, {len(roofline.operators)} operators")
