# The device and its seals, then ceilings. Rules that measure inherit from `device_query`. Their script is a param of a
# type that Snakemake does not remember: no result goes stale with it.


rule device_query:
    input:
        library=PARAMS.library("device_query"),
    output:
        device="results/{device}/device_query.json",
        prediction="results/{device}/prediction.json",
        calibration="results/{device}/calibration.json",
    log:
        "logs/{device}/device_query.log",
    priority: 1000  # as of all seals: they run before anything is measured
    conda:
        ENVIRONMENT
    threads: cores_of
    resources:
        **PARAMS.resources,
    params:
        identity=PARAMS.identity,
        script=Path("device_query.py"),
        datasheet=PARAMS.datasheet,
        datasheets=str(DATASHEETS),
    script:
        "../scripts/{params.script}"


use rule device_query as peak_flops with:
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
        script=Path("peak_flops.py"),
        settings=PARAMS.peak_settings,


if FMAS := [dtype for dtype in CONFIG.peak_flops.dtypes if dtype.endswith("_fma") and CELLS.gpus]:

    ruleorder: peak_flops_fma > peak_flops

    use rule peak_flops as peak_flops_fma with:
        output:
            files(f"{{device}}/peak_flops/{dtype}" for dtype in FMAS),
        log:
            "logs/{device}/peak_flops/fma.log",
        wildcard_constraints:
            device="|".join(CELLS.gpus),


for LEVELS in levels.group_by_job(dict.fromkeys(cell.rpartition("/")[2] for cell in CELLS.bandwidths())):
    OF_LEVEL = RuleParams(CELLS, SCRIPTS, DATASHEETS, LEVELS[0])

    rule:
        name:
            f"bandwidth_{LEVELS[0]}"
        input:
            device="results/{device}/device_query.json",
            prediction="results/{device}/prediction.json",
            library=PARAMS.library("bandwidth"),
            loaded=OF_LEVEL.loaded,
        output:
            files(f"{{device}}/bandwidth/{level}" for level in LEVELS),
        log:
            f"logs/{{device}}/bandwidth/{LEVELS[0]}.log",
        priority: 2
        conda:
            ENVIRONMENT
        threads: cores_of
        resources:
            **OF_LEVEL.resources,
        params:
            identity=OF_LEVEL.identity,
            settings=OF_LEVEL.bandwidth_settings,
        script:
            "../scripts/bandwidth.py"


use rule device_query as instructions with:
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
        script=Path("instructions.py"),
        settings={"timing": timing(CONFIG.bandwidth)},


# One process for all: it starts longer under the profiler than it counts. That process, and not the job, holds the GPU.
use rule device_query as counters with:
    input:
        calibration="results/{device}/calibration.json",
        files=sorted({file for _, job in CELLS.counted for file in job.files}),
        library=PARAMS.library("counters", *sorted({rule for rule, _ in CELLS.counted})),
        program=str(SCRIPTS / "counter_program.py"),
    output:
        profiler="results/{device}/profiler.json",
        counted=files(f"{{device}}/counters/{rule}/{job.path}" for rule, job in CELLS.counted),
    log:
        "logs/{device}/counters.log",
    priority: 0
    resources:
        **PARAMS.limited,
    params:
        script=Path("counters.py"),
        datasheet=None,
        ncu=ncu.installation_key(CELLS.ncu),
        tasks=PARAMS.tasks(),
