# Nothing here measures: the table, pages, pictures, and the manifest of all.


rule distribution:
    input:
        known=lambda wildcards: DISTRIBUTIONS[wildcards.device],
        library=library("distribution"),
    output:
        "results/{device}/distribution.json",
    log:
        "logs/{device}/distribution.log",
    conda:
        "../../envs/cpu.yaml"
    script:
        "../scripts/distribution.py"


rule derive:
    input:
        records=records(),
        library=sources.derivation_files(SCRIPTS),
    output:
        "results/roofline.json",
        "results/verification.md",
        "results/interpretation.md",
        "results/acceptance.json",
        words="results/ROOFLINE.md",
        page=report(
            "results/report.html",
            caption="../report/page.rst",
            category="Roofline",
            labels={"what": "the whole run on one page"},
        ),
    log:
        "logs/derive.log",
    conda:
        "../../envs/cpu.yaml"
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
        roofline=report(
            expand("results/roofline.{format}", format=["png", "svg"]),
            caption="../report/roofline.rst",
            category="Roofline",
        ),
        operators=report(
            expand("results/{picture}.png", picture=PICTURES),
            caption="../report/operator.rst",
            category="Operators",
        ),
        sweep=report(
            "results/sweep.png",
            caption="../report/sweep.rst",
            category="Roofline",
            labels={"what": "memory levels found"},
        ),
        instructions=report(
            instruction_pictures(),
            caption="../report/instruction_roofline.rst",
            category="Roofline",
            labels={"what": "instruction roofline"},
        ),
        models=report(
            model_pictures(),
            caption="../report/models.rst",
            category="Models",
        ),
        kernels=report(
            profile_pictures(),
            caption="../report/kernels.rst",
            category="Your programs",
        ),
        load=report(
            "results/load.png",
            caption="../report/load.rst",
            category="Roofline",
            labels={"what": "sustained load"},
        ),
    log:
        "logs/plot.log",
    conda:
        "../../envs/cpu.yaml"
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
        "../../envs/cpu.yaml"
    params:
        settings=complete_settings,
        asked=asked,
        usd_per_hour=CONFIG.cost.usd_per_hour,
    script:
        "../scripts/manifest.py"
