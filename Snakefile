# The measured roofline of this machine: the DAG, in the order in which data flows.
#
#     device_query, operator_prediction, predictions, own_predictions -> peak_flops, bandwidth, instructions, counters,
#     one rule for each operator -> derive: the table, pages and pictures -> manifest
# The first four write seals: predictions, and what they follow from, before anything is measured.
# A result is stale if its `params` (settings, device, driver, libraries) or its inputs (records, library) have changed.

from snakemake.utils import min_version

min_version("9.27")


include: "workflow/rules/common.smk"


wildcard_constraints:
    device="|".join(PLAN.present),
    operator="|".join(OPERATORS),
    dtype="|".join(datasheets.COMPUTE_CEILINGS),


rule all:
    input:
        OUTPUTS,


include: "workflow/rules/measure.smk"
include: "workflow/rules/operators.smk"
include: "workflow/rules/report.smk"


onstart:
    faults_end_the_run(run_lock.hold)
    if CONFIG.counters == "required":
        faults_end_the_run(hardware_counters.require_counters, PLAN.ncu, PLAN.counted_on)
    CONSOLE.announce()


onsuccess:
    CONSOLE.summarise()


onerror:
    CONSOLE.explain_failure()
