"""interpretation: three questions answered from the numbers of this run."""

import json

from roofline.analysis import host_cards
from roofline.analysis.collect import Asked, collect
from roofline.analysis.distribution import standings
from roofline.analysis.results import read_results
from roofline.analysis.spread import between_runs
from roofline.records.files import write_text
from roofline.report.interpretation import interpret
from roofline.run.jobs import job, say
from roofline.run.paths import RESULTS

if __name__ == "__main__":
    with job("interpretation", snakemake):
        found = read_results(RESULTS, snakemake.input.records)
        roofline = collect(found, Asked(**json.loads(snakemake.params.asked))).roofline
        devices = found.device_records()
        spreads = between_runs({name: device.name for name, device in devices.items()})
        others = standings(found, roofline)
        beside = host_cards.sentences(host_cards.groups(found, roofline))
        text = interpret(roofline, devices, [record for _, record in found.measured], spreads, others, beside)
        write_text(text, snakemake.output[0])
        say("interpretation: what the figures say, results/interpretation.md")
