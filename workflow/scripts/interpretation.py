"""interpretation: three questions answered from the numbers of this run."""

import json

from roofline.analysis.collect import Asked, collect
from roofline.analysis.results import read_results
from roofline.records.files import write_text
from roofline.report.interpretation import interpret
from roofline.run.jobs import job, say
from roofline.run.paths import RESULTS

if __name__ == "__main__":
    with job("interpretation", snakemake):
        found = read_results(RESULTS, snakemake.input.records)
        roofline = collect(found, Asked(**json.loads(snakemake.params.asked))).roofline
        text = interpret(roofline, found.device_records(), [record for _, record in found.measured])
        write_text(text, snakemake.output[0])
        say("interpretation: three questions answered")
