rule derive:
    input:
        records=files(CELLS.records()),
        cards=PARAMS.known_cards(),
        library=sources.derivation_files(SCRIPTS),
    output:
        "results/roofline.json",
        "results/verification.md",
        "results/interpretation.md",
        "results/known_cards.json",
        words="results/ROOFLINE.md",
        page="results/report.html",
    log:
        "logs/derive.log",
    conda:
        ENVIRONMENT
    params:
        asked=asked_as_text,
    script:
        "../scripts/derive.py"


rule plot:
    input:
        roofline="results/roofline.json",
        library=sources.library_files(SCRIPTS / "plot.py", measures=False),
    output:
        [f"results/{picture}" for picture in CELLS.pictures()],
    log:
        "logs/plot.log",
    conda:
        ENVIRONMENT
    params:
        dpi=CONFIG.plot.dpi,
    script:
        "../scripts/plot.py"


rule manifest:
    input:
        outputs=CELLS.deliverables(),
        library=sources.library_files(SCRIPTS / "manifest.py", measures=False),
    output:
        "results/manifest.json",
    log:
        "logs/manifest.log",
    conda:
        ENVIRONMENT
    params:
        settings=lambda wildcards: json.dumps(CONFIG.model_dump(), sort_keys=True),
        asked=asked_as_text,
        usd_per_hour=CONFIG.cost.usd_per_hour,
    script:
        "../scripts/manifest.py"
