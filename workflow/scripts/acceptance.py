"""acceptance: the stop conditions as a checklist; a 'fail' is shown and kept, and the run goes on."""

from pathlib import Path

from roofline.analysis.acceptance import accept
from roofline.analysis.distribution import standings
from roofline.analysis.results import read_results
from roofline.records.base import read, write
from roofline.records.roofline import Roofline
from roofline.records.verification import Verification
from roofline.run.jobs import job, say
from roofline.run.paths import RESULTS

if __name__ == "__main__":
    with job("acceptance", snakemake):
        inputs = snakemake.input
        roofline, records = read(Roofline, inputs.roofline), read_results(RESULTS, inputs.records)
        found = accept(
            roofline,
            records,
            read(Verification, inputs.verification),
            list(inputs.expected),
            [path for path in inputs.expected if not Path(path).exists()],
            standings(records, roofline),
        )
        write(found, snakemake.output[0])
        counts = {result: sum(c.result == result for c in found.criteria) for result in ("pass", "fail")}
        say(f"acceptance: {counts['pass']} pass, {counts['fail']} fail")
