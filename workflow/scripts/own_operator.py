"""own_operator: what readers see of a user's own operator, so that its results are shown without running its code."""

import json

from roofline.operators import registry
from roofline.operators.about import describe
from roofline.operators.base import Job
from roofline.records.base import write
from roofline.run.jobs import job, say

if __name__ == "__main__":
    name, params = snakemake.wildcards.operator, snakemake.params
    with job(f"own_operator {name}", snakemake):
        operator = registry.registered(params.operators)[name]
        found = describe(operator, [Job.from_json(one) for one in json.loads(params.jobs)])
        write(found, snakemake.output[0])
        say(f"own_operator {name}: title and labels of {len(found.cases)} cells")
