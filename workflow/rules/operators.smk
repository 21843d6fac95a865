# Operators: what seals and files they need, and one rule for each.


rule operator_prediction:
    input:
        calibration="results/{device}/calibration.json",
        device="results/{device}/device_query.json",
        library=library("operator_prediction.py"),
    output:
        "results/{device}/{operator}/prediction.json",
    log:
        "logs/{device}/{operator}/prediction.log",
    priority: 1000
    conda:
        ENVIRONMENT
    resources:
        measuring=ALONE,
    params:
        operators=lambda wildcards: PLAN.own_file(wildcards.operator),
    script:
        "../scripts/operator_prediction.py"


rule predictions:
    input:
        calibration="results/{device}/calibration.json",
        device="results/{device}/device_query.json",
        prediction="results/{device}/prediction.json",
        constants=lambda wildcards: files(PLAN.operator_seals(wildcards.device)),
        library=library("predictions.py", *OPERATORS),
    output:
        cells="results/{device}/predictions.json",
        page="results/{device}/predictions.md",
        # The page of the cells that were there first. It is kept when others are added: update() does not delete it.
        first=update("results/{device}/first_predictions.md"),
    log:
        "logs/{device}/predictions.log",
    priority: 1000
    conda:
        ENVIRONMENT
    resources:
        measuring=ALONE,
    params:
        tasks=lambda wildcards: PLAN.planned_tasks(wildcards.device),
        gemms=lambda wildcards: PLAN.gemm_sizes(wildcards.device),
    script:
        "../scripts/predictions.py"


# What the user predicts. Snakemake keeps the earlier file for the job: what is unchanged in it keeps its time.
rule own_predictions:
    input:
        script=str(SCRIPTS / "own_predictions.py"),
    output:
        update("results/{device}/own_predictions.json"),
    log:
        "logs/{device}/own_predictions.log",
    priority: 1000
    conda:
        ENVIRONMENT
    resources:
        measuring=ALONE,
    params:
        lines=lambda wildcards: json.dumps(PLAN.own_predictions.get(wildcards.device, []), sort_keys=True),
    script:
        "../scripts/own_predictions.py"


for PREREQUISITE, OPERATOR in PREREQUISITES:

    rule:
        name:
            PREREQUISITE.rule
        input:
            library=library("prerequisite.py", OPERATOR),
        output:
            PREREQUISITE.pattern,
        log:
            f"logs/{PREREQUISITE.rule}/{{name}}.log",
        priority: 1000
        conda:
            ENVIRONMENT
        resources:
            measuring=ALONE,
        params:
            operator=OPERATOR,
            operators=PLAN.own_file(OPERATOR),
            values=lambda wildcards, make=PREREQUISITE.params: json.dumps(make(CONFIG, wildcards.name), sort_keys=True),
        script:
            "../scripts/prerequisite.py"


# A case is one job of an operator, such as a dtype with one S. `settings` has what concerns this case alone.
for OPERATOR in PLAN.timed:

    rule:
        name:
            OPERATOR
        input:
            calibration="results/{device}/calibration.json",
            device="results/{device}/device_query.json",
            prediction="results/{device}/prediction.json",
            constants=f"results/{{device}}/{OPERATOR}/prediction.json",
            files=lambda wildcards, jobs=PLAN.jobs[OPERATOR]: list(
                jobs[wildcards.case].files if wildcards.case in jobs else ()
            ),
            library=library("measure_operator.py", OPERATOR),
        output:
            f"results/{{device}}/{OPERATOR}/{{case}}.json",
        log:
            f"logs/{{device}}/{OPERATOR}/{{case}}.log",
        wildcard_constraints:
            case="|".join(map(re.escape, [*PLAN.jobs[OPERATOR], DRAWN])),
        # More than of ceilings on every second GPU: while others measure ceilings, it has the host path alone.
        priority: lambda wildcards: 4 if wildcards.device in PLAN.gpus[1::2] else 1
        conda:
            ENVIRONMENT
        threads: cores_of
        resources:
            **exclusive(partial(PLAN.peer_level, OPERATOR)),
        params:
            identity=partial(identity, partial(PLAN.peer_level, OPERATOR)),
            operator=OPERATOR,
            operators=PLAN.own_file(OPERATOR),
            settings=lambda wildcards, rule=OPERATOR: PLAN.operator_settings(rule, wildcards.device, wildcards.case),
        script:
            "../scripts/measure_operator.py"


# Title and advice of a user's own operator, so that an archive is rendered without running its code.
rule own_operator:
    input:
        library=library("own_operator.py"),
    output:
        "results/operators/{operator}.json",
    log:
        "logs/operators/{operator}.log",
    conda:
        ENVIRONMENT
    params:
        operators=lambda wildcards: PLAN.own_file(wildcards.operator),
    script:
        "../scripts/own_operator.py"
