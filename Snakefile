# The measured roofline of this machine: the DAG, in the order in which data flows.
#
#     device_query -> prediction (sealed) -> peak_flops, bandwidth, decode_attn
#     -> collect -> plot, interpretation, verification, acceptance, summary -> manifest
#
# A measuring rule reads the device record and the seal and writes one record; nothing after it measures.
# What is stale is decided by `params` (settings, device, driver, libraries) and by `input` (records and the
# library modules that a script uses). See README.md, "What makes a result stale".

from snakemake.utils import min_version

min_version("9.27")


include: "workflow/common.smk"


report: "workflow/report/workflow.rst"


wildcard_constraints:
    device="|".join(PRESENT),
    seq_len="[1-9][0-9]*",
    dtype="fp64|fp32|tf32|fp16|bf16|fp8_e4m3|int8|fp64_fma|fp32_fma|fp16_fma",


rule all:
    input:
        deliverables(),
        "results/manifest.json",


rule device_query:
    input:
        library=library("device_query", measures=True),
    output:
        "results/{device}/device_query.json",
    log:
        "logs/{device}/device_query.log",
    conda:
        "envs/cuda12.yaml"
    resources:
        measuring=1,
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
    conda:
        "envs/cpu.yaml"
    script:
        "workflow/scripts/prediction.py"


rule peak_flops:
    input:
        device="results/{device}/device_query.json",
        prediction="results/{device}/prediction.json",
        library=library("peak_flops", measures=True),
    output:
        "results/{device}/peak_flops/{dtype}.json",
    log:
        "logs/{device}/peak_flops/{dtype}.log",
    priority: 3
    conda:
        "envs/cuda12.yaml"
    resources:
        measuring=1,
    params:
        identity=identity,
        software=software,
        size=setting("peak_flops", "size"),
        warmup=setting("peak_flops", "warmup"),
        iterations=setting("peak_flops", "iterations"),
        time_budget_s=setting("peak_flops", "time_budget_s"),
        sustained_s=sustained_s,
    script:
        "workflow/scripts/peak_flops.py"


rule peak_flops_lacking:
    input:
        devices=device_records(),
        predictions=seals(),
        library=library("peak_flops_lacking"),
    output:
        lacking_records(),
    log:
        "logs/peak_flops_lacking.log",
    conda:
        "envs/cpu.yaml"
    params:
        of=lambda wildcards: [f"{device} {dtype}" for device, dtype, _ in lacking()],
        reasons=lambda wildcards: [reason for _, _, reason in lacking()],
    script:
        "workflow/scripts/peak_flops_lacking.py"


ruleorder: peak_flops_lacking > peak_flops


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
    resources:
        measuring=1,
    params:
        identity=identity,
        software=software,
        size_mib=of_levels("size_mib", settings.ARRAYS),
        transfer_size_mib=of_levels("transfer_size_mib", settings.TRANSFERS),
        sweep_points=of_levels("sweep_points", ["sweep"]),
        warmup=setting("bandwidth", "warmup"),
        iterations=setting("bandwidth", "iterations"),
        time_budget_s=setting("bandwidth", "time_budget_s"),
    script:
        "workflow/scripts/bandwidth.py"


rule checkpoint:
    input:
        library=library("checkpoint"),
    output:
        "results/checkpoints/{preset}.safetensors",
    log:
        "logs/checkpoints/{preset}.log",
    conda:
        "envs/cpu.yaml"
    params:
        layers=preset("layers"),
        heads=preset("heads"),
        head_size=preset("head_size"),
        kv_heads=preset("kv_heads"),
        seed=setting("model", "seed"),
    script:
        "workflow/scripts/checkpoint.py"


rule decode_attn:
    input:
        device="results/{device}/device_query.json",
        prediction="results/{device}/prediction.json",
        weights=weights,
        library=library("decode_attn", measures=True),
    output:
        "results/{device}/decode_attn/{preset}/S{seq_len}_{dtype}.json",
    log:
        "logs/{device}/decode_attn/{preset}/S{seq_len}_{dtype}.log",
    priority: 1
    conda:
        "envs/cuda12.yaml"
    resources:
        measuring=1,
    params:
        identity=identity,
        software=software,
        layers=preset("layers"),
        heads=preset("heads"),
        head_size=preset("head_size"),
        kv_heads=preset("kv_heads"),
        batch_sizes=setting("decode_attn", "batch_sizes"),
        implementations=implementations,
        cache=setting("decode_attn", "cache"),
        seed=setting("model", "seed"),
        warmup=setting("decode_attn", "warmup"),
        iterations=setting("decode_attn", "iterations"),
        time_budget_s=setting("decode_attn", "time_budget_s"),
    script:
        "workflow/scripts/decode_attn.py"


rule gather:
    input:
        peaks=lambda wildcards: peak_records([wildcards.device]),
        bandwidths=lambda wildcards: bandwidth_records([wildcards.device]),
        library=library("gather"),
    output:
        peaks="results/{device}/peak_flops.json",
        bandwidths="results/{device}/bandwidth.json",
    log:
        "logs/{device}/gather.log",
    conda:
        "envs/cpu.yaml"
    script:
        "workflow/scripts/gather.py"


rule collect:
    input:
        devices=device_records(),
        peaks=peak_records(),
        bandwidths=bandwidth_records(),
        attention=attention_records(),
        library=library("collect"),
    output:
        "results/roofline.json",
    log:
        "logs/collect.log",
    conda:
        "envs/cpu.yaml"
    params:
        operations=lambda wildcards: json.dumps(setting("operations"), sort_keys=True),
    script:
        "workflow/scripts/collect.py"


rule plot:
    input:
        roofline="results/roofline.json",
        library=library("plot"),
    output:
        report(
            "results/roofline.{format}",
            caption="workflow/report/roofline.rst",
            category="Roofline",
            labels={"what": "picture ({format})"},
        ),
    log:
        "logs/plot_{format}.log",
    wildcard_constraints:
        format="png|svg",
    conda:
        "envs/cpu.yaml"
    params:
        dpi=lambda wildcards: setting("plot", "dpi") if wildcards.format == "png" else None,
    script:
        "workflow/scripts/plot.py"


rule plot_ceilings:
    input:
        peaks=peak_records(),
        bandwidths=bandwidth_records(),
        library=library("plot_ceilings"),
    output:
        sweep=report(
            "results/sweep.png",
            caption="workflow/report/sweep.rst",
            category="Roofline",
            labels={"what": "memory levels found"},
        ),
        load=report(
            "results/load.png",
            caption="workflow/report/load.rst",
            category="Roofline",
            labels={"what": "sustained load"},
        ),
    log:
        "logs/plot_ceilings.log",
    conda:
        "envs/cpu.yaml"
    params:
        dpi=setting("plot", "dpi"),
    script:
        "workflow/scripts/plot_ceilings.py"


rule plot_attention:
    input:
        roofline="results/roofline.json",
        attention=attention_records(),
        library=library("plot_attention"),
    output:
        report(
            "results/attention.png",
            caption="workflow/report/attention.rst",
            category="Roofline",
            labels={"what": "decode attention"},
        ),
    log:
        "logs/plot_attention.log",
    conda:
        "envs/cpu.yaml"
    params:
        dpi=setting("plot", "dpi"),
    script:
        "workflow/scripts/plot_attention.py"


rule verification:
    input:
        roofline="results/roofline.json",
        devices=device_records(),
        predictions=seals(),
        peaks=peak_records(),
        bandwidths=bandwidth_records(),
        attention=attention_records(),
        library=library("verification"),
    output:
        numbers="results/verification.json",
        words="results/verification.md",
    log:
        "logs/verification.log",
    conda:
        "envs/cpu.yaml"
    script:
        "workflow/scripts/verification.py"


rule acceptance:
    input:
        roofline="results/roofline.json",
        devices=device_records(),
        interpretation="results/interpretation.md",
        verification="results/verification.json",
        svg="results/roofline.svg",
        expected=[path for path in deliverables() if path not in MADE_LATER],
        library=library("acceptance"),
    output:
        "results/acceptance.json",
    log:
        "logs/acceptance.log",
    conda:
        "envs/cpu.yaml"
    script:
        "workflow/scripts/acceptance.py"


rule interpretation:
    input:
        roofline="results/roofline.json",
        devices=device_records(),
        peaks=peak_records(),
        bandwidths=bandwidth_records(),
        attention=attention_records(),
        library=library("interpretation"),
    output:
        "results/interpretation.md",
    log:
        "logs/interpretation.log",
    conda:
        "envs/cpu.yaml"
    script:
        "workflow/scripts/interpretation.py"


rule summary:
    input:
        roofline="results/roofline.json",
        acceptance="results/acceptance.json",
        interpretation="results/interpretation.md",
        library=library("summary"),
    output:
        report(
            "results/summary.html",
            caption="workflow/report/summary.rst",
            category="Roofline",
            labels={"what": "tables and interpretation"},
        ),
    log:
        "logs/summary.log",
    conda:
        "envs/cpu.yaml"
    script:
        "workflow/scripts/summary.py"


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
        settings=lambda wildcards: json.dumps(SETTINGS, sort_keys=True),
        usd_per_hour=setting("cost", "usd_per_hour"),
    script:
        "workflow/scripts/manifest.py"


onstart:
    keeping.hold_run_lock()
    keeping.set_aside_other_cards({name: PRESENT[name] for name in DEVICES}, RESULTS)
    screen.announce(workflow.dag.needrun_jobs(), SETTINGS)


onsuccess:
    screen.summarise(RESULTS)


onerror:
    screen.explain()
