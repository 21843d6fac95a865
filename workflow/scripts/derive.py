"""derive: everything that follows from the records: the table, every page and every picture."""

import json
from pathlib import Path

from roofline.records.base import write
from roofline.records.cards import read_known_cards
from roofline.records.files import RESULTS, below_results, file_sha256
from roofline.report.report_model import Source
from roofline.run import checkout, pictures
from roofline.run.derived import write_derived
from roofline.run.jobs import job, say
from roofline.table.rows import count_passed
from roofline.table.run_records import KNOWN_CARDS, read_results

if __name__ == "__main__":
    with job("derive", snakemake):
        # Predictions are there before anything is measured; as an input they would have tables rebuilt.
        paths = [*snakemake.input.records, *map(str, sorted(RESULTS.glob("*/predictions.json")))]
        found = read_results(RESULTS, paths)
        sha256 = {below_results(path): file_sha256(path) for path in paths}
        gpus = {name: one.name for name, one in found.device_records().items() if one.device_kind == "gpu"}
        known = read_known_cards(gpus)
        found.known_cards = known.devices
        write(known, RESULTS / KNOWN_CARDS)
        source = checkout.describe(Path(snakemake.scriptdir).resolve().parents[1])
        source = Source(source.commit, source.url)
        roofline = write_derived(found, json.loads(snakemake.params.asked), sha256, RESULTS, source)
        names = [Path(path).name for path in snakemake.output.pictures]
        pictures.draw(RESULTS, roofline, snakemake.params.dpi, names)
        say(
            f"derive: {len(roofline.ceilings)} ceilings, {len(roofline.operators)} cells, {count_passed(roofline.checks)}"
        )
