"""Run as a module of another workflow, which has a section for it in its config."""

import yaml
from workflow_run import TINY, Run, changed, new_checkout

PARENT = """
configfile: "config/config.yaml"

rule all:
    input: "copied.json", "results/manifest.json"

module roofline:
    snakefile: "{snakefile}"
    config: config["roofline"]

use rule * from roofline as roofline_*

rule copy:
    input: "results/roofline.json"
    output: "copied.json"
    shell: "cp {{input}} {{output}}"
"""
SETTINGS = changed(TINY, {"bandwidth": {"levels": ["sweep"]}, "decode_attn": {"seq_lens": [16]}})


def test_as_a_module_it_measures_into_the_other_workflows_folder(tmp_path):
    checkout = Run(new_checkout(tmp_path / "checkout", yaml.safe_dump(TINY, sort_keys=False)))
    another = Run(tmp_path / "another workflow")
    (another.root / "config").mkdir(parents=True)
    (another.root / "Snakefile").write_text(PARENT.format(snakefile=checkout.root / "Snakefile"))
    (another.root / "config/config.yaml").write_text(yaml.safe_dump({"plots": True, "roofline": SETTINGS}))
    another.finish("results/cpu/peak_flops/fp32.json")
    assert another.read("cpu/peak_flops/fp32.json")["dtype"] == "fp32"
    assert {path.name for path in another.results.glob("cpu/*/*.json")} == {"fp32.json", "prediction.json"}
    assert not checkout.results.exists()
