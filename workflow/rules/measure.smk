# Ceilings. Each rule reads the device record and the seals and writes one record. Rules that measure inherit from
# `calibration`. Their script is a param of a type that Snakemake does not remember: no result goes stale with it.


rule calibration:
    input:
        device="results/{device}/device_query.json",
        library=PARAMS.library("calibration"),
    output:
        "results/{device}/calibration.json",
    log:
        "logs/{device}/calibration.log",
    priority: 1000  # as of all seals: they run before anything is measured
    conda:
        ENVIRONMENT
    threads: cores_of
    resources:
        **PARAMS.resources,
    params:
        **PARAMS.measuring,
        script=Path("calibration.py"),
    script:
        "../scripts/{params.script}"


use rule calibration as device_query with:
    input:
        library=PARAMS.library("device_query"),
    output:
        "results/{device}/device_query.json",
    log:
        "logs/{device}/device_query.log",
    params:
        script=Path("device_query.py"),
        datasheet=PARAMS.datasheet,
        datasheets=str(DATASHEETS),


rule prediction:
    input:
        device="results/{device}/device_query.json",
        library=sources.library_files(SCRIPTS / "prediction.py"),
    output:
        "results/{device}/prediction.json",
    log:
        "logs/{device}/prediction.log",
    priority: 1000
    conda:
        ENVIRONMENT
    threads: workflow.cores
    script:
        "../scripts/prediction.py"


use rule calibration as peak_flops with:
    input:
        calibration="results/{device}/calibration.json",
        device="results/{device}/device_query.json",
        prediction="results/{device}/prediction.json",
        constants="results/{device}/peak_flops/prediction.json",
        library=PARAMS.library("peak_flops", "peak_flops"),
    output:
        "results/{device}/peak_flops/{dtype}.json",
    log:
        "logs/{device}/peak_flops/{dtype}.log",
    priority: 3
    params:
        **timing(CONFIG.peak_flops),
        script=Path("peak_flops.py"),
        size=CONFIG.peak_flops.size,
        sustained_s=PARAMS.sustained_s,


use rule calibration as bandwidth with:
    input:
        device="results/{device}/device_query.json",
        prediction="results/{device}/prediction.json",
        library=PARAMS.library("bandwidth"),
        loaded=PARAMS.loaded,
    output:
        "results/{device}/bandwidth/{level}.json",
    log:
        "logs/{device}/bandwidth/{level}.log",
    priority: 2
    params:
        **timing(CONFIG.bandwidth),
        script=Path("bandwidth.py"),
        size_mib=PARAMS.of_levels("size_mib", levels.ARRAYS),
        transfer_size_mib=PARAMS.of_levels("transfer_size_mib", levels.TRANSFERS),
        sweep_points=PARAMS.of_levels("sweep_points", [levels.SWEEP]),
        mixes=PARAMS.mixes,
        cards=PARAMS.measured_on,


use rule calibration as instructions with:
    input:
        device="results/{device}/device_query.json",
        prediction="results/{device}/prediction.json",
        library=PARAMS.library("instructions"),
    output:
        "results/{device}/instructions/rates.json",
    log:
        "logs/{device}/instructions/rates.log",
    priority: 2
    params:
        **timing(CONFIG.bandwidth),
        script=Path("instructions.py"),


# After all that is timed, by priority. One process for all: it starts longer under the profiler than it counts.
use rule calibration as counters with:
    input:
        files=sorted({file for _, job in CELLS.counted for file in job.files}),
        library=PARAMS.library("counters", *sorted({rule for rule, _ in CELLS.counted})),
        program=str(SCRIPTS / "profiled.py"),
    output:
        profiler="results/{device}/profiler.json",
        counted=files(f"{{device}}/counters/{rule}/{job.path}" for rule, job in CELLS.counted),
    log:
        "logs/{device}/counters.log",
    priority: 0
    params:
        script=Path("counters.py"),
        ncu=ncu.fingerprint(CELLS.ncu),
        tasks=PARAMS.tasks(),
