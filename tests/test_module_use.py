"""Run from elsewhere: as a module of another workflow, and with a working directory of its own."""

import shutil

import pytest
import yaml
from workflow_run import TINY, Run, changed

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


@pytest.fixture
def another(run, tmp_path) -> Run:
    """Another workflow, with a config of its own in which this one has a section."""
    folder = tmp_path / "another workflow"
    (folder / "config").mkdir(parents=True)
    (folder / "Snakefile").write_text(PARENT.format(snakefile=run.root / "Snakefile"))
    (folder / "config/config.yaml").write_text(yaml.safe_dump({"plots": True, "roofline": SETTINGS}))
    return Run(folder)


def test_as_a_module_it_measures_into_the_other_workflows_folder(another, run):
    shutil.rmtree(run.results)
    told = another.finish()
    assert "Traceback" not in told
    assert (another.root / "copied.json").read_bytes() == (another.results / "roofline.json").read_bytes()
    assert another.read("cpu/decode_attn/minigpt/S16_fp32.json")["case"] == "minigpt/S16_fp32"
    manifest = another.read("manifest.json")
    assert manifest["sources"]["dirty"] is False and manifest["sources"]["known_from"] == "git"
    assert manifest["config"]["bandwidth"]["levels"] == ["sweep"]
    assert not run.results.exists()
    assert not another.planned()
    another.edit_config(roofline=changed(SETTINGS, {"decode_attn": {"seq_lens": [16, 32]}}))
    plan = another.planned()
    assert plan["cpu/decode_attn/minigpt/S32_fp32.json"] == 1 and plan["roofline.json"] == 1
    assert not [path for path in plan if path.startswith("cpu/") and "S32" not in path]


def test_a_fault_in_its_section_is_told_in_a_line(another):
    another.edit_config(roofline={"device": ["cpu"]})
    done = another.snakemake()
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("device: unknown key; did you mean devices?")


def test_another_working_directory_holds_the_results_and_its_own_config(run, tmp_path):
    folder = tmp_path / "elsewhere"
    (folder / "config").mkdir(parents=True)
    (folder / "config/config.yaml").write_text(yaml.safe_dump(SETTINGS))
    before = run.files()
    there = ("--snakefile", str(run.root / "Snakefile"), "--directory", str(folder))
    told = Run(tmp_path).finish(*there, "results/cpu/peak_flops/fp32.json")
    assert "peak_flops cpu fp32" in told
    elsewhere = Run(folder)
    assert elsewhere.read("cpu/peak_flops/fp32.json")["dtype"] == "fp32"
    assert not elsewhere.planned("--snakefile", str(run.root / "Snakefile"), "results/cpu/peak_flops/fp32.json")
    assert run.files() == before


def test_without_a_config_there_the_workflows_own_is_read(run, tmp_path):
    folder = tmp_path / "empty"
    folder.mkdir()
    plan = Run(folder).planned("--snakefile", str(run.root / "Snakefile"))
    assert plan == run.planned("--forceall")
