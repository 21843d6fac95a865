"""Run from elsewhere: as a module of another workflow, and with a working directory of its own."""

import pytest
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


PRODUCT = "results/cpu/peak_flops/fp32.json"


@pytest.fixture
def checkout(tmp_path) -> Run:
    return Run(new_checkout(tmp_path / "checkout", yaml.safe_dump(TINY, sort_keys=False)))


@pytest.fixture
def another(checkout, tmp_path) -> Run:
    """Another workflow, with a config of its own in which this one has a section."""
    folder = tmp_path / "another workflow"
    (folder / "config").mkdir(parents=True)
    (folder / "Snakefile").write_text(PARENT.format(snakefile=checkout.root / "Snakefile"))
    (folder / "config/config.yaml").write_text(yaml.safe_dump({"plots": True, "roofline": SETTINGS}))
    return Run(folder)


def test_as_a_module_it_measures_into_the_other_workflows_folder(another, checkout):
    told = another.finish(PRODUCT)
    assert "Traceback" not in told
    assert another.read("cpu/peak_flops/fp32.json")["dtype"] == "fp32"
    assert not checkout.results.exists()
    plan = another.planned()
    assert {"cpu/decode_attn/minigpt/S16_fp32.json", "roofline.json", "manifest.json"} <= set(plan)
    assert not {"cpu/peak_flops/fp32.json", "cpu/decode_attn/minigpt/S32_fp32.json"} & set(plan)


def test_an_error_in_its_section_is_one_line(another):
    another.edit_config(roofline={"device": ["cpu"]})
    done = another.snakemake()
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("device: unknown key; did you mean devices?")


def test_another_working_directory_holds_the_results_and_its_own_config(checkout, tmp_path):
    folder = tmp_path / "elsewhere"
    (folder / "config").mkdir(parents=True)
    (folder / "config/config.yaml").write_text(yaml.safe_dump(SETTINGS))
    elsewhere, snakefile = Run(folder), ("--snakefile", str(checkout.root / "Snakefile"))
    Run(tmp_path).finish(*snakefile, "--directory", str(folder), PRODUCT)
    assert elsewhere.read("cpu/peak_flops/fp32.json")["dtype"] == "fp32"
    assert not elsewhere.planned(*snakefile, PRODUCT)
    assert not checkout.results.exists()


def test_without_a_config_there_the_workflows_own_is_read(checkout, tmp_path):
    folder = tmp_path / "empty"
    folder.mkdir()
    plan = Run(folder).planned("--snakefile", str(checkout.root / "Snakefile"))
    assert plan == checkout.planned()
