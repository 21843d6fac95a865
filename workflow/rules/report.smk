# Nothing here measures: the table, pages, pictures, and the manifest of all.


rule derive:
    input:
        records=files(CELLS.records()),
        predictions=ancient(files(f"{device}/predictions" for device in CELLS.devices)),  # a new page is no new table
        cards=PARAMS.known_cards(),
        library=sources.derivation_files(SCRIPTS),
    output:
        "results/roofline.json",
        "results/verification.md",
        "results/interpretation.md",
        "results/acceptance.json",
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
        roofline=expand("results/roofline.{format}", format=["png", "svg"]),
        operators=[f"results/{picture}.png" for picture in CELLS.pictures()],
        sweep="results/sweep.png",
        instructions=["results/instruction_roofline.png"] if CELLS.instructions() else [],
        load="results/load.png",
    log:
        "logs/plot.log",
    conda:
        ENVIRONMENT
    params:
        operators=list(CELLS.pictures().values()),
        dpi=CONFIG.plot.dpi,
    script:
        "../scripts/plot.py"


rule manifest:
    input:
        outputs=DELIVERABLES,
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
