"""collect: every record of every device into roofline.json."""

import json

from roofline.analysis.collect import Asked, collect
from roofline.analysis.results import read_results
from roofline.records.base import write
from roofline.run.jobs import job, say
from roofline.run.paths import RESULTS

if __name__ == "__main__":
    with job("collect", snakemake):
        found = read_results(RESULTS, snakemake.input.records)
        roofline = collect(found, Asked(**json.loads(snakemake.params.asked))).roofline
        write(roofline, snakemake.output[0])
        say(f"collect: {len(roofline.ceilings)} ceilings, {len(roofline.operators)} operators")
