"""Run as a module of another workflow, which has a section for it in its config."""

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
{prefix}
use rule * from roofline as roofline_*

rule copy:
    input: "results/roofline.json"
    output: "copied.json"
    shell: "cp {{input}} {{output}}"
"""
SETTINGS = changed(TINY, {"bandwidth": {"levels": ["sweep"]}, "decode_attn": {"seq_lens": [16]}})


@pytest.fixture
def checkout(tmp_path) -> Run:
    return Run(new_checkout(tmp_path / "checkout", yaml.safe_dump(TINY, sort_keys=False)))


def user_of(checkout: Run, prefix: str = "") -> Run:
    """Another workflow, with the checkout as its module."""
    another = Run(checkout.root.with_name("another workflow"))
    (another.root / "config").mkdir(parents=True)
    (another.root / "Snakefile").write_text(PARENT.format(snakefile=checkout.root / "Snakefile", prefix=prefix))
    (another.root / "config/config.yaml").write_text(yaml.safe_dump({"plots": True, "roofline": SETTINGS}))
    return another


@pytest.mark.parametrize("prefix", ['prefix: "sub"', 'replace_prefix: {"results/": "elsewhere/"}'])
def test_a_prefix_is_refused_in_one_line(checkout, prefix):
    done = user_of(checkout, f"    {prefix}").snakemake()
    assert done.returncode == 1 and len((done.stdout + done.stderr).splitlines()) == 1


def test_an_older_snakemake_is_refused_before_anything_else_fails(checkout):
    """As it reads the profile that newer ones do not, and the first line of the Snakefile."""
    profile = checkout.root / "profiles/default"
    assert yaml.safe_load((profile / "config.yaml").read_text()) == {"cores": 1}
    (profile / "config.v9+.yaml").unlink()
    program = "import sys, snakemake.common; snakemake.common.__version__ = '8.30.0'\n"
    done = checkout.python("-P", "-c", f"{program}from snakemake.cli import main; main()", "--quiet", "host")
    *_, last = done.stderr.splitlines()
    assert done.returncode == 1 and "9.27" in last and "8.30.0" in last and "Traceback" not in done.stderr


def test_as_a_module_it_measures_into_the_other_workflows_folder(checkout):
    another = user_of(checkout)
    printed = another.finish("results/cpu/peak_flops/fp32.json")
    assert "peak_flops cpu fp32: " in printed, "jobs show their lines themselves"
    assert another.read("cpu/peak_flops/fp32.json")["name"] == "fp32"
    assert {path.name for path in another.results.glob("cpu/*/*.json")} == {"fp32.json", "prediction.json"}
    assert not checkout.results.exists()
