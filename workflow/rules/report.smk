rule derive:
    input:
        records=files(PLAN.records()),
        cards=PLAN.known_cards(),
        datasheets=[str(DATASHEETS)] if PLAN.gpus else [],
        library=sources.list_report_files(SCRIPTS / "derive.py"),
    output:
        "results/roofline.json",
        "results/roofline.schema.json",
        "results/ceilings.csv",
        "results/cells.csv",
        "results/verification.md",
        "results/interpretation.md",
        "results/known_cards.json",
        words="results/ROOFLINE.md",
        page="results/report.html",
        pictures=[f"results/{picture}" for picture in PLAN.pictures()],
    log:
        "logs/derive.log",
    conda:
        ENVIRONMENT
    params:
        # As text, since Snakemake would take braces in the user's own names for wildcards.
        asked=lambda wildcards: json.dumps(build_request(CHECKED, PLAN.devices), sort_keys=True),
        dpi=CONFIG.plot.dpi,
    script:
        "../scripts/derive.py"


rule manifest:
    input:
        outputs=PLAN.deliverables(),
        library=sources.list_report_files(SCRIPTS / "manifest.py"),
    output:
        "results/manifest.json",
    log:
        "logs/manifest.log",
    conda:
        ENVIRONMENT
    params:
        settings=lambda wildcards: json.dumps(CONFIG.model_dump(), sort_keys=True),
        asked=lambda wildcards: json.dumps(build_request(CHECKED, PLAN.devices), sort_keys=True),
    script:
        "../scripts/manifest.py"
