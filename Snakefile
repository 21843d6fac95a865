# The measured roofline of this machine: the DAG, in the order in which data flows.
#
#     device_query -> prediction, operator_prediction (sealed) -> peak_flops, bandwidth, instructions, one rule per operator
#     -> derive: the table and every page; plot: pictures -> manifest
#
# A measuring rule reads the device record and the seals and writes one record; nothing after it measures.
# What is stale is decided by `params` (settings, device, driver, libraries) and by `input` (records and the
# library modules that a script uses). See docs/reruns.md.

from snakemake.utils import min_version

min_version("9.27")


include: "workflow/common.smk"


report: "workflow/report/workflow.rst"


wildcard_constraints:
    device="|".join(PRESENT),
    operator="|".join(OPERATORS),
    picture="|".join(PICTURES),
    dtype=CEILINGS,


rule all:
    input:
        deliverables(),
        "results/manifest.json",


# What `make spread` measures.
rule ceilings:
    input:
        peak_records(),
        bandwidth_records(),


rule device_query:
    input:
        library=library("device_query", measures=True),
    output:
        "results/{device}/device_query.json",
    log:
        "logs/{device}/device_query.log",
    priority: 4  # as of all seals
    conda:
        "envs/cuda12.yaml"
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
        "workflow/scripts/device_query.py"


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
        "envs/cpu.yaml"
    script:
        "workflow/scripts/prediction.py"


rule operator_prediction:
    input:
        device="results/{device}/device_query.json",
        library=library("operator_prediction", measures=True),
    output:
        "results/{device}/{operator}/prediction.json",
    log:
        "logs/{device}/{operator}/prediction.log",
    priority: 4
    conda:
        "envs/cpu.yaml"
    params:
        operators=lambda wildcards: own_file(wildcards.operator),
    script:
        "workflow/scripts/operator_prediction.py"


rule peak_flops:
    input:
        device="results/{device}/device_query.json",
        prediction="results/{device}/prediction.json",
        constants="results/{device}/peak_flops/prediction.json",
        library=library("peak_flops", measures=True, operator="peak_flops"),
    output:
        "results/{device}/peak_flops/{dtype}.json",
    log:
        "logs/{device}/peak_flops/{dtype}.log",
    priority: 3
    conda:
        "envs/cuda12.yaml"
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
        "workflow/scripts/peak_flops.py"


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
        "envs/cuda12.yaml"
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
        "workflow/scripts/bandwidth.py"


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
        "envs/cuda12.yaml"
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
        "workflow/scripts/instructions.py"


# Asked for by `make health` alone.
rule repeatability:
    input:
        device="results/{device}/device_query.json",
        library=library("repeatability", measures=True, operator="peak_flops"),
    output:
        "results/{device}/repeatability/{dtype}.json",
    log:
        "logs/{device}/repeatability/{dtype}.log",
    conda:
        "envs/cuda12.yaml"
    threads: cores_of
    resources:
        **RESOURCES,
        uses=uses,
    params:
        identity=identity,
        software=software,
        size=CONFIG.peak_flops.size,
        seconds=CONFIG.health.repeat_s,
    script:
        "workflow/scripts/repeatability.py"


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
            "envs/cpu.yaml"
        params:
            operator=OPERATOR,
            operators=own_file(OPERATOR),
            values=prerequisite_values(OPERATOR),
        script:
            "workflow/scripts/prerequisite.py"


for OPERATOR in TIMED:

    rule:
        name:
            OPERATOR
        input:
            device="results/{device}/device_query.json",
            prediction="results/{device}/prediction.json",
            constants=f"results/{{device}}/{OPERATOR}/prediction.json",
            files=files_of(OPERATOR),
            library=library("measure_operator", measures=True, operator=OPERATOR),
        output:
            f"results/{{device}}/{OPERATOR}/{{case}}.json",
        log:
            f"logs/{{device}}/{OPERATOR}/{{case}}.log",
        wildcard_constraints:
            case="|".join(map(re.escape, JOBS[OPERATOR])),
        priority: 1
        conda:
            "envs/cuda12.yaml"
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
            "workflow/scripts/measure_operator.py"


# Title, labels and advice of a user's own operator, so that an archive is rendered without running its code.
rule own_operator:
    input:
        library=library("own_operator"),
    output:
        "results/operators/{operator}.json",
    log:
        "logs/operators/{operator}.log",
    conda:
        "envs/cpu.yaml"
    params:
        operators=lambda wildcards: own_file(wildcards.operator),
        jobs=jobs_of,
    script:
        "workflow/scripts/own_operator.py"


rule profiler:
    input:
        library=library("profiler", measures=True),
    output:
        "results/{device}/profiler.json",
    log:
        "logs/{device}/profiler.log",
    conda:
        "envs/cuda12.yaml"
    threads: cores_of
    resources:
        **RESOURCES,
        uses=uses,
    params:
        identity=identity,
        ncu=nsight_compute.fingerprint(NCU),
    script:
        "workflow/scripts/profiler.py"


# After all that is timed, by priority: a profiled process is timed by nobody.
rule counters:
    input:
        profiler="results/{device}/profiler.json",
        files=lambda wildcards: list(PROFILED[wildcards.operator][wildcards.case].files),
        library=library("counters", measures=True),
    output:
        "results/{device}/counters/{operator}/{case}.json",
    log:
        "logs/{device}/counters/{operator}/{case}.log",
    wildcard_constraints:
        case="|".join(re.escape(case) for cases in PROFILED.values() for case in cases) or "none",
    conda:
        "envs/cuda12.yaml"
    threads: cores_of
    resources:
        **RESOURCES,
        uses=uses,
    params:
        identity=identity,
        software=software,
        operators=lambda wildcards: own_file(wildcards.operator),
        job=profiled_job,
        cache=profiled_cache,
    script:
        "workflow/scripts/counters.py"


rule distribution:
    input:
        known=lambda wildcards: DISTRIBUTIONS[wildcards.device],
        library=library("distribution"),
    output:
        "results/{device}/distribution.json",
    log:
        "logs/{device}/distribution.log",
    conda:
        "envs/cpu.yaml"
    script:
        "workflow/scripts/distribution.py"


rule derive:
    input:
        records=records(),
        variation=SPREADS,
        library=sources.derivation_files(SCRIPTS),
    output:
        "results/roofline.json",
        "results/verification.md",
        "results/interpretation.md",
        "results/acceptance.json",
        words="results/ROOFLINE.md",
        page=report(
            "results/report.html",
            caption="workflow/report/page.rst",
            category="Roofline",
            labels={"what": "the whole run on one page"},
        ),
    log:
        "logs/derive.log",
    conda:
        "envs/cpu.yaml"
    params:
        asked=asked,
    script:
        "workflow/scripts/derive.py"


rule plot:
    input:
        roofline="results/roofline.json",
        peaks=peak_records(),
        bandwidths=bandwidth_records(),
        library=library("plot"),
    output:
        roofline=report(
            expand("results/roofline.{format}", format=["png", "svg"]),
            caption="workflow/report/roofline.rst",
            category="Roofline",
        ),
        operators=report(
            expand("results/{picture}.png", picture=PICTURES),
            caption="workflow/report/operator.rst",
            category="Operators",
        ),
        sweep=report(
            "results/sweep.png",
            caption="workflow/report/sweep.rst",
            category="Roofline",
            labels={"what": "memory levels found"},
        ),
        instructions=report(
            "results/instruction_roofline.png",
            caption="workflow/report/instruction_roofline.rst",
            category="Roofline",
            labels={"what": "instruction roofline"},
        ),
        load=report(
            "results/load.png",
            caption="workflow/report/load.rst",
            category="Roofline",
            labels={"what": "sustained load"},
        ),
    log:
        "logs/plot.log",
    conda:
        "envs/cpu.yaml"
    params:
        operators=list(PICTURES.values()),
        dpi=CONFIG.plot.dpi,
    script:
        "workflow/scripts/plot.py"


rule manifest:
    input:
        outputs=deliverables(),
        library=library("manifest"),
    output:
        "results/manifest.json",
    log:
        "logs/manifest.log",
    conda:
        "envs/cpu.yaml"
    params:
        settings=complete_settings,
        asked=asked,
        seal_sources=seal_sources,
        usd_per_hour=CONFIG.cost.usd_per_hour,
    script:
        "workflow/scripts/manifest.py"


onstart:
    run_lock.hold()
    run_lock.end_when_unread()
    faults_end_the_run(require_counters)
    console.announce(workflow.dag.needrun_jobs(), CHECKED, workflow.cores)


onsuccess:
    console.summarise(RESULTS)


onerror:
    console.explain()
