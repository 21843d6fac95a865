"""distribution: what the repository knows of other cards of a device's model, as it was when the run was made."""

from roofline.analysis.distribution import of_card
from roofline.core.formatting import counted
from roofline.records.base import read, write
from roofline.records.distribution import Distribution
from roofline.run.jobs import job, say

if __name__ == "__main__":
    name = snakemake.wildcards.device
    with job(f"distribution {name}", snakemake):
        found = of_card(read(Distribution, snakemake.input.known))
        write(found, snakemake.output[0])
        cards = len({run.card_id for run in found.runs})
        say(f"distribution {name}: {counted(len(found.runs), 'run')} of {counted(cards, 'card')} of its model")
