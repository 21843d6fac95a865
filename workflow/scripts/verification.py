"""verification: every prediction beside its measured counterpart, and what explains the error."""

import json

from roofline.analysis.collect import Asked, collect
from roofline.analysis.results import read_results
from roofline.analysis.verification import verify
from roofline.records.base import write
from roofline.records.files import file_sha256, write_text
from roofline.report.verification_page import markdown, score_words
from roofline.run.jobs import job, say
from roofline.run.paths import RESULTS, below_results

if __name__ == "__main__":
    with job("verification", snakemake):
        paths = snakemake.input.records
        found = read_results(RESULTS, paths)
        collected = collect(found, Asked(**json.loads(snakemake.params.asked)))
        verified = verify(collected, found, {below_results(path): file_sha256(path) for path in paths})
        write(verified, snakemake.output.numbers)
        write_text(markdown(verified, collected.roofline.faults), snakemake.output.words)
        words = score_words(verified.score) if verified.score.cells else "no prediction has a measured counterpart"
        say(f"verification: {words}")
