# Operators: what seals and files they need, and one rule for each. Rules made in a loop cannot inherit.


rule operator_prediction:
    input:
        calibration="results/{device}/calibration.json",
        device="results/{device}/device_query.json",
        library=PARAMS.library("operator_prediction"),
    output:
        "results/{device}/{operator}/prediction.json",
    log:
        "logs/{device}/{operator}/prediction.log",
    priority: 1000
    conda:
        ENVIRONMENT
    resources:
        measuring=MEASURING_SLOTS,
    params:
        operators=lambda wildcards: PARAMS.own_file(wildcards.operator),
    script:
        "../scripts/operator_prediction.py"


rule predictions:
    input:
        calibration="results/{device}/calibration.json",
        device="results/{device}/device_query.json",
        prediction="results/{device}/prediction.json",
        constants=lambda wildcards: PARAMS.operator_seals(wildcards.device),
        library=PARAMS.library("predictions", *OPERATORS),
    output:
        cells="results/{device}/predictions.json",
        page="results/{device}/predictions.md",
    log:
        "logs/{device}/predictions.log",
    priority: 1000
    conda:
        ENVIRONMENT
    resources:
        measuring=MEASURING_SLOTS,
    params:
        tasks=PARAMS.planned,
        gemms=PARAMS.gemms,
    script:
        "../scripts/predictions.py"


for PREREQUISITE, OPERATOR in PREREQUISITES:

    rule:
        name:
            PREREQUISITE.rule
        input:
            library=sources.library_files(SCRIPTS / "prerequisite.py", more=(Path(inspect.getfile(PREREQUISITE.make)),)),
        output:
            PREREQUISITE.pattern,
        log:
            f"logs/{PREREQUISITE.rule}/{{name}}.log",
        priority: 1000
        conda:
            ENVIRONMENT
        params:
            operator=OPERATOR,
            operators=PARAMS.own_file(OPERATOR),
            values=lambda wildcards, make=PREREQUISITE.params: json.dumps(make(CONFIG, wildcards.name), sort_keys=True),
        script:
            "../scripts/prerequisite.py"


for OPERATOR in CELLS.timed:

    rule:
        name:
            OPERATOR
        input:
            calibration="results/{device}/calibration.json",
            device="results/{device}/device_query.json",
            prediction="results/{device}/prediction.json",
            constants=f"results/{{device}}/{OPERATOR}/prediction.json",
            files=lambda wildcards, jobs=CELLS.jobs[OPERATOR]: list(jobs[wildcards.case].files),
            library=PARAMS.library("measure_operator", OPERATOR),
        output:
            f"results/{{device}}/{OPERATOR}/{{case}}.json",
        log:
            f"logs/{{device}}/{OPERATOR}/{{case}}.log",
        wildcard_constraints:
            case="|".join(map(re.escape, CELLS.jobs[OPERATOR])) or "none",
        priority: lambda wildcards: 4 if wildcards.device in CELLS.gpus[1::2] else 1  # else two GPUs wait for calls
        conda:
            ENVIRONMENT
        threads: cores_of
        resources:
            **PARAMS.resources,
        params:
            identity=PARAMS.identity,
            operator=OPERATOR,
            operators=PARAMS.own_file(OPERATOR),
            settings=PARAMS.operator_settings(OPERATOR),
        script:
            "../scripts/measure_operator.py"


# Title and advice of a user's own operator, so that an archive is rendered without running its code.
rule own_operator:
    input:
        library=PARAMS.library("own_operator"),
    output:
        "results/operators/{operator}.json",
    log:
        "logs/operators/{operator}.log",
    conda:
        ENVIRONMENT
    params:
        operators=lambda wildcards: PARAMS.own_file(wildcards.operator),
    script:
        "../scripts/own_operator.py"
