# The measured roofline of this machine: the DAG, in the order in which data flows.
#
#     device_query, operator_prediction (both write seals) -> peak_flops, bandwidth, instructions, one rule per operator
#     -> derive: the table, pages and pictures -> manifest
# A measuring rule reads the device record and the seals and writes its records; nothing after it measures.
# Stale is what other `params` (settings, device, driver, libraries) or `input` (records, library modules) made.

from snakemake.utils import min_version

min_version("9.27")


include: "workflow/rules/common.smk"


wildcard_constraints:
    device="|".join(CELLS.present),
    operator="|".join(OPERATORS),
    dtype="|".join(datasheets.COMPUTE_CEILINGS),


rule all:
    input:
        OUTPUTS,


include: "workflow/rules/measure.smk"
include: "workflow/rules/operators.smk"
include: "workflow/rules/report.smk"


onstart:
    run_lock.hold()
    if CONFIG.counters == "required":
        faults_end_the_run(hardware_counters.require_counters, CELLS.ncu, CELLS.counted_on)
    CONSOLE.announce()


onsuccess:
    CONSOLE.summarise()


onerror:
    CONSOLE.explain_failure()
