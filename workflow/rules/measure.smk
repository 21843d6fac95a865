# Each rule reads the device record and the seals and writes one record.


rule device_query:
    input:
        library=library("device_query", measures=True),
    output:
        "results/{device}/device_query.json",
    log:
        "logs/{device}/device_query.log",
    priority: 4  # as of all seals
    conda:
        ENVIRONMENT
    threads: cores_of
    resources:
        **RESOURCES,
        uses=uses,
    params:
        identity=identity,
        software=software,
        datasheet=datasheet,
        datasheets=str(DATASHEETS),
    script:
        "../scripts/device_query.py"


rule prediction:
    input:
        device="results/{device}/device_query.json",
        library=library("prediction"),
    output:
        "results/{device}/prediction.json",
    log:
        "logs/{device}/prediction.log",
    priority: 4
    conda:
        ENVIRONMENT
    script:
        "../scripts/prediction.py"


# What calls, and on a CPU bytes and numbers, cost the host: its operators' seals carry it.
rule calibration:
    input:
        device="results/{device}/device_query.json",
        library=library("calibration", measures=True),
    output:
        "results/{device}/calibration.json",
    log:
        "logs/{device}/calibration.log",
    priority: 4
    conda:
        ENVIRONMENT
    threads: cores_of
    resources:
        **RESOURCES,
        uses=uses,
    params:
        identity=identity,
        software=software,
    script:
        "../scripts/calibration.py"


rule operator_prediction:
    input:
        calibration="results/{device}/calibration.json",
        device="results/{device}/device_query.json",
        library=library("operator_prediction", measures=True),
    output:
        "results/{device}/{operator}/prediction.json",
    log:
        "logs/{device}/{operator}/prediction.log",
    priority: 4
    conda:
        ENVIRONMENT
    params:
        operators=lambda wildcards: own_file(wildcards.operator),
    script:
        "../scripts/operator_prediction.py"


rule peak_flops:
    input:
        calibration="results/{device}/calibration.json",
        device="results/{device}/device_query.json",
        prediction="results/{device}/prediction.json",
        constants="results/{device}/peak_flops/prediction.json",
        library=library("peak_flops", measures=True, operators=["peak_flops"]),
    output:
        "results/{device}/peak_flops/{dtype}.json",
    log:
        "logs/{device}/peak_flops/{dtype}.log",
    priority: 3
    conda:
        ENVIRONMENT
    threads: cores_of
    resources:
        **RESOURCES,
        uses=uses,
    params:
        identity=identity,
        software=software,
        size=CONFIG.peak_flops.size,
        warmup=CONFIG.peak_flops.warmup,
        iterations=CONFIG.peak_flops.iterations,
        time_budget_s=CONFIG.peak_flops.time_budget_s,
        sustained_s=sustained_s,
    script:
        "../scripts/peak_flops.py"


rule bandwidth:
    input:
        device="results/{device}/device_query.json",
        prediction="results/{device}/prediction.json",
        library=library("bandwidth", measures=True),
    output:
        "results/{device}/bandwidth/{level}.json",
    log:
        "logs/{device}/bandwidth/{level}.log",
    priority: 2
    conda:
        ENVIRONMENT
    threads: cores_of
    resources:
        **RESOURCES,
        uses=uses,
    params:
        identity=identity,
        software=software,
        size_mib=of_levels("size_mib", settings.ARRAYS),
        transfer_size_mib=of_levels("transfer_size_mib", settings.TRANSFERS),
        sweep_points=of_levels("sweep_points", ["sweep"]),
        warmup=CONFIG.bandwidth.warmup,
        iterations=CONFIG.bandwidth.iterations,
        time_budget_s=CONFIG.bandwidth.time_budget_s,
    script:
        "../scripts/bandwidth.py"


rule instructions:
    input:
        device="results/{device}/device_query.json",
        prediction="results/{device}/prediction.json",
        library=library("instructions", measures=True),
    output:
        "results/{device}/instructions/rates.json",
    log:
        "logs/{device}/instructions/rates.log",
    priority: 2
    conda:
        ENVIRONMENT
    threads: cores_of
    resources:
        **RESOURCES,
        uses=uses,
    params:
        identity=identity,
        software=software,
        warmup=CONFIG.bandwidth.warmup,
        iterations=CONFIG.bandwidth.iterations,
        time_budget_s=CONFIG.bandwidth.time_budget_s,
    script:
        "../scripts/instructions.py"


for OPERATOR in WITH_PREREQUISITE:

    rule:
        name:
            TIMED[OPERATOR].prerequisite.rule
        input:
            library=library("prerequisite", more=[source_of(TIMED[OPERATOR].prerequisite.make)]),
        output:
            TIMED[OPERATOR].prerequisite.pattern,
        log:
            f"logs/{TIMED[OPERATOR].prerequisite.rule}/{{name}}.log",
        priority: 4  # what is timed waits for it, and what is profiled comes after that
        conda:
            ENVIRONMENT
        params:
            operator=OPERATOR,
            operators=own_file(OPERATOR),
            values=prerequisite_values(OPERATOR),
        script:
            "../scripts/prerequisite.py"


for OPERATOR in TIMED:

    rule:
        name:
            OPERATOR
        input:
            calibration="results/{device}/calibration.json",
            device="results/{device}/device_query.json",
            prediction="results/{device}/prediction.json",
            constants=f"results/{{device}}/{OPERATOR}/prediction.json",
            files=files_of(OPERATOR),
            library=library("measure_operator", measures=True, operators=[OPERATOR]),
        output:
            f"results/{{device}}/{OPERATOR}/{{case}}.json",
        log:
            f"logs/{{device}}/{OPERATOR}/{{case}}.log",
        wildcard_constraints:
            case="|".join(map(re.escape, JOBS[OPERATOR])) or "none",
        priority: 1
        conda:
            ENVIRONMENT
        threads: cores_of
        resources:
            **RESOURCES,
            uses=uses,
        params:
            identity=identity,
            software=software,
            operator=OPERATOR,
            operators=own_file(OPERATOR),
            job=job_of(OPERATOR),
            implementations=implementations_of(OPERATOR),
            cache=getattr(CONFIG, OPERATOR).cache,
            warmup=getattr(CONFIG, OPERATOR).warmup,
            iterations=getattr(CONFIG, OPERATOR).iterations,
            time_budget_s=getattr(CONFIG, OPERATOR).time_budget_s,
        script:
            "../scripts/measure_operator.py"


# Title, labels and advice of a user's own operator, so that an archive is rendered without running its code.
rule own_operator:
    input:
        library=library("own_operator"),
    output:
        "results/operators/{operator}.json",
    log:
        "logs/operators/{operator}.log",
    conda:
        ENVIRONMENT
    params:
        operators=lambda wildcards: own_file(wildcards.operator),
        jobs=jobs_of,
    script:
        "../scripts/own_operator.py"


# After all that is timed, by priority: a profiled process is timed by nobody. One process for all operators: it takes
# longer to start under the profiler than to count.
rule counters:
    input:
        files=sorted({file for _, job in COUNTED for file in job.files}),
        library=library("counters", measures=True, operators=sorted({rule for rule, _ in COUNTED})),
    output:
        profiler="results/{device}/profiler.json",
        counted=[f"results/{{device}}/counters/{rule}/{job.path}.json" for rule, job in COUNTED],
    log:
        "logs/{device}/counters.log",
    conda:
        ENVIRONMENT
    threads: cores_of
    resources:
        **RESOURCES,
        uses=uses,
    params:
        identity=identity,
        software=software,
        ncu=nsight_compute.fingerprint(NCU),
        tasks=[counted_task(rule, job) for rule, job in COUNTED],
    script:
        "../scripts/counters.py"
