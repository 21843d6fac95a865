"""profile: the kernels of a user's own program, from Nsight Compute's report of it.

Not profile.py: that would come before Python's own module of the name, which cProfile imports.
"""

from pathlib import Path

from roofline.core.formatting import counted
from roofline.measure.profile_report import read_profile, require_card
from roofline.records.base import write
from roofline.run.jobs import job, say

if __name__ == "__main__":
    name = snakemake.wildcards.name
    with job(f"profile {name}", snakemake):
        found = read_profile(Path(snakemake.params.report), name)
        require_card(found, snakemake.params.cards)
        write(found, snakemake.output[0])
        launches = sum(len(one.launches) for one in found.kernels)
        say(f"profile {name}: {launches} launches of {counted(len(found.kernels), 'kernel')} on {found.device_name}")
