rule device_query:
    input:
        library=library("device_query.py"),
    output:
        device="results/{device}/device_query.json",
        prediction="results/{device}/prediction.json",
    log:
        "logs/{device}/device_query.log",
    priority: 1000  # as of all seals: what can be sealed is, before anything is measured
    conda:
        ENVIRONMENT
    threads: cores_of
    resources:
        **(exclusive() | {"measuring": ALONE}),
    params:
        identity=partial(identity, ""),
        datasheet=lambda wildcards: PLAN.datasheet_sha256(wildcards.device, DATASHEETS),
        datasheets=str(DATASHEETS),
    script:
        "../scripts/device_query.py"


# It runs alone, like all seals, and anew if the GPUs change that are measured next to its own: calls may cost more then.
rule calibration:
    input:
        device="results/{device}/device_query.json",
        library=library("calibration.py"),
    output:
        "results/{device}/calibration.json",
    log:
        "logs/{device}/calibration.log",
    priority: 1000
    conda:
        ENVIRONMENT
    threads: cores_of
    resources:
        **(exclusive() | {"measuring": ALONE}),
    params:
        identity=partial(identity, ""),
        next_to=lambda wildcards: PLAN.measured_next_to(wildcards.device),
    script:
        "../scripts/calibration.py"


rule peak_flops:
    input:
        device="results/{device}/device_query.json",
        prediction="results/{device}/prediction.json",
        calibration="results/{device}/calibration.json",
        constants="results/{device}/peak_flops/prediction.json",  # by operator_prediction
        library=library("peak_flops.py"),
    output:
        "results/{device}/peak_flops/{dtype}.json",
    log:
        "logs/{device}/peak_flops/{dtype}.log",
    priority: 3
    conda:
        ENVIRONMENT
    threads: cores_of
    resources:
        **exclusive(),
    params:
        identity=partial(identity, ""),
        settings=peak_settings,
    script:
        "../scripts/peak_flops.py"


# All ceilings of a GPU that stay in its registers in one job: each takes less time than its process takes to start.
if FMAS := [dtype for dtype in CONFIG.peak_flops.dtypes if dtype.endswith("_fma") and PLAN.gpus]:

    ruleorder: peak_flops_fma > peak_flops

    use rule peak_flops as peak_flops_fma with:
        output:
            files(f"{{device}}/peak_flops/{dtype}" for dtype in FMAS),
        log:
            "logs/{device}/peak_flops/fma.log",
        wildcard_constraints:
            device="|".join(PLAN.gpus),


# Levels that one job measures open the card once.
MEMORY = [name.rpartition("/")[2] for name in PLAN.bandwidths() if name not in PLAN.all_reduces()]
for LEVELS in levels.group_by_job(dict.fromkeys(MEMORY)):

    rule:
        name:
            f"bandwidth_{LEVELS[0]}"
        input:
            device="results/{device}/device_query.json",
            prediction="results/{device}/prediction.json",
            library=library("bandwidth.py"),
            loaded=partial(load_program, LEVELS[0]),
        output:
            files(f"{{device}}/bandwidth/{level}" for level in LEVELS),
        log:
            f"logs/{{device}}/bandwidth/{LEVELS[0]}.log",
        priority: 2
        conda:
            ENVIRONMENT
        threads: cores_of
        resources:
            **exclusive(LEVELS[0]),
        params:
            identity=partial(identity, LEVELS[0]),
            settings=lambda wildcards, level=LEVELS[0]: PLAN.bandwidth_settings(wildcards.device, level),
        script:
            "../scripts/bandwidth.py"


# Both cards, after the record of their link, by which the prediction is sealed before.
for LEVEL in dict.fromkeys(name.rpartition("/")[2] for name in PLAN.all_reduces()):

    rule:
        name:
            f"prediction_{LEVEL}"
        input:
            link=f"results/{{device}}/bandwidth/{levels.PEER}_{discovery.peer_name(LEVEL)}.json",
            library=library("all_reduce_prediction.py"),
        output:
            f"results/{{device}}/{LEVEL}/prediction.json",
        log:
            f"logs/{{device}}/{LEVEL}/prediction.log",
        priority: 1000
        conda:
            ENVIRONMENT
        resources:
            measuring=ALONE,
        script:
            "../scripts/all_reduce_prediction.py"

    rule:
        name:
            LEVEL
        input:
            device="results/{device}/device_query.json",
            prediction="results/{device}/prediction.json",
            own_prediction=f"results/{{device}}/{LEVEL}/prediction.json",
            library=library("all_reduce.py"),
            program=str(SCRIPTS / "nccl_server.py"),
        output:
            f"results/{{device}}/bandwidth/{LEVEL}.json",
        log:
            f"logs/{{device}}/bandwidth/{LEVEL}.log",
        priority: 2
        conda:
            ENVIRONMENT
        resources:
            **exclusive(LEVEL),
        params:
            identity=partial(identity, LEVEL),
            nccl=find_nccl_version(),
        script:
            "../scripts/all_reduce.py"


rule instructions:
    input:
        device="results/{device}/device_query.json",
        prediction="results/{device}/prediction.json",
        library=library("instructions.py"),
    output:
        "results/{device}/instructions/rates.json",
    log:
        "logs/{device}/instructions/rates.log",
    priority: 2
    conda:
        ENVIRONMENT
    resources:
        **exclusive(),
    params:
        identity=partial(identity, ""),
        settings={"timing": timing(CONFIG.bandwidth)},
    script:
        "../scripts/instructions.py"


# One process for all, which takes the GPU's lock itself: it starts longer under the profiler than it counts.
rule counters:
    input:
        calibration="results/{device}/calibration.json",
        predictions=ancient("results/{device}/predictions.json"),  # its profiled kernels have times: it starts after the seals
        files=sorted({file for _, job in PLAN.counted for file in job.files}),
        library=library("counters.py", *sorted({rule for rule, _ in PLAN.counted})),
        program=str(SCRIPTS / "counter_program.py"),
    output:
        profiler="results/{device}/profiler.json",
        counted=files(f"{{device}}/counters/{rule}/{job.path}" for rule, job in PLAN.counted),
    log:
        "logs/{device}/counters.log",
    conda:
        ENVIRONMENT
    resources:
        **slots(),
    params:
        identity=partial(identity, ""),
        ncu=ncu.installation_key(PLAN.ncu),
        tasks=PLAN.counted_tasks(),
    script:
        "../scripts/counters.py"
