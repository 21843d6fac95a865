"""derive: everything that follows from the records: the table, and every page."""

import json

from roofline.analysis.results import KNOWN_CARDS, read_results
from roofline.records.base import write
from roofline.records.cards import known_cards
from roofline.records.files import file_sha256, write_text
from roofline.run.derived import derive
from roofline.run.jobs import job, say
from roofline.run.paths import RESULTS, below_results

if __name__ == "__main__":
    with job("derive", snakemake):
        # Predictions are there before anything is measured; as an input they would have tables made again.
        paths = [*snakemake.input.records, *map(str, sorted(RESULTS.glob("*/predictions.json")))]
        found = read_results(RESULTS, paths)
        sha256 = {below_results(path): file_sha256(path) for path in paths}
        gpus = {name: one.name for name, one in found.device_records().items() if one.device_kind == "gpu"}
        known = known_cards(gpus)
        found.known_cards = known.devices
        write(known, RESULTS / KNOWN_CARDS)
        files = derive(found, json.loads(snakemake.params.asked), sha256)
        for name, content in files.items():
            (write_text if isinstance(content, str) else write)(content, RESULTS / name)
        roofline = files["roofline.json"]
        results = [one.result for one in roofline.checks]
        say(
            f"derive: {len(roofline.ceilings)} ceilings, {len(roofline.operators)} cells, "
            f"{results.count('pass')} checks passed, {results.count('fail')} failed"
        )
