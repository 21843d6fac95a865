# Nothing here measures: the table, pages, pictures, and the manifest of all.


rule derive:
    input:
        records=records(),
        cards=KNOWN_CARDS,
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
        asked=asked,
    script:
        "../scripts/derive.py"


rule plot:
    input:
        roofline="results/roofline.json",
        peaks=peak_records(),
        bandwidths=bandwidth_records(),
        library=library("plot"),
    output:
        roofline=expand("results/roofline.{format}", format=["png", "svg"]),
        operators=expand("results/{picture}.png", picture=PICTURES),
        sweep="results/sweep.png",
        instructions=instruction_pictures(),
        load="results/load.png",
    log:
        "logs/plot.log",
    conda:
        ENVIRONMENT
    params:
        operators=list(PICTURES.values()),
        dpi=CONFIG.plot.dpi,
    script:
        "../scripts/plot.py"


rule manifest:
    input:
        outputs=deliverables(),
        library=library("manifest"),
    output:
        "results/manifest.json",
    log:
        "logs/manifest.log",
    conda:
        ENVIRONMENT
    params:
        settings=complete_settings,
        asked=asked,
        usd_per_hour=CONFIG.cost.usd_per_hour,
    script:
        "../scripts/manifest.py"
