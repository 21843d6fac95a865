"""own_operator: what readers see of a user's own operator, so that its results are shown without running its code."""

from roofline.operators import registry
from roofline.operators.about import describe_own_operator
from roofline.records.base import write
from roofline.run.jobs import job, say

if __name__ == "__main__":
    name = snakemake.wildcards.operator
    with job(f"own_operator {name}", snakemake):
        operator = registry.collect_operators(snakemake.params.operators)[name]
        write(describe_own_operator(operator), snakemake.output[0])
        say(f"own_operator {name}: title and advice")
