"""prerequisite: a file that an operator's jobs need, such as seeded weights where the user brings none."""

import json
from pathlib import Path

from roofline.operators import registry
from roofline.run.jobs import job, say

if __name__ == "__main__":
    name = f"{snakemake.rule} {snakemake.wildcards.name}"
    with job(name, snakemake):
        operator = registry.collect_operators(snakemake.params.operators)[snakemake.params.operator]
        assert operator.prerequisite is not None, "this rule is made from it"
        message = operator.prerequisite.make(Path(snakemake.output[0]), json.loads(snakemake.params.values))
        say(f"{name}: {message}")
