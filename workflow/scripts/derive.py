"""derive: everything that follows from the records: the table, every page and every picture."""

import json
import os
from functools import partial
from pathlib import Path

from roofline.records.base import write
from roofline.records.files import RESULTS, hash_results
from roofline.report import pictures
from roofline.report.derived import write_derived
from roofline.report.report_model import Source
from roofline.run import checkout, previous_results
from roofline.run.ending import end_with_parent
from roofline.run.jobs import job, say
from roofline.table.known_cards import find_known_cards
from roofline.table.rows import count_passed
from roofline.table.run_records import KNOWN_CARDS, read_results

if __name__ == "__main__":
    with job("derive", snakemake):
        # Predictions are written before anything is measured. As an input they would have tables rebuilt.
        paths = [*snakemake.input.records, *map(str, sorted(RESULTS.glob("*/predictions.json")))]
        results = read_results(RESULTS, paths)
        results.known_cards = find_known_cards(results)
        write(results.known_cards, RESULTS / KNOWN_CARDS)
        sources = checkout.describe(Path(snakemake.scriptdir).resolve().parents[1])
        source = Source(sources.commit, sources.url, changed_files=sources.changed_files or ())
        roofline = write_derived(results, json.loads(snakemake.params.asked), hash_results(paths), RESULTS, source)
        names = [Path(path).name for path in snakemake.output.pictures]
        pictures.draw(RESULTS, roofline, snakemake.params.dpi, names, partial(end_with_parent, os.getpid()))
        previous_results.remove_old_pictures(RESULTS, names)
        counts = f"{len(roofline.ceilings)} ceilings, {len(roofline.operators)} cells"
        say(f"derive: {counts}, {count_passed(roofline.checks)}")
