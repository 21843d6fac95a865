"""The figures of real runs are those that other code finds in their samples; it notices one that is not."""

import ast
import json
import shutil

import oracle
import pytest
from workflow_run import CHECKOUT

REFERENCE = CHECKOUT / "reference/nvidia-h200"
STANDARD = {"hashlib", "json", "math", "sys", "collections", "pathlib"}


def test_it_shares_nothing_with_the_library():
    tree = ast.parse((CHECKOUT / "tests/oracle.py").read_text(encoding="utf-8"))
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in modules} - STANDARD == {"numpy"}


def test_it_agrees_with_the_committed_run():
    assert oracle.check(REFERENCE) == []


def test_it_agrees_with_a_run_on_the_cpu(finished_run):
    assert oracle.check(finished_run.results) == []


@pytest.mark.parametrize(
    ("path", "below", "figure", "part"),
    [
        ("gpu0/rmsnorm_matmul/hidden4096_fp16.json", ("measurements", 0, "latency"), "median_s", "timings"),
        ("gpu0/bandwidth/hbm.json", ("bandwidths", 0), "gb_per_s", "rates"),
        ("roofline.json", ("ceilings", 0), "tflops", "ceilings"),
        ("roofline.json", ("operators", 0), "latency_s", "cells"),
        ("roofline.json", ("operators", 0), "intensity_flops_per_byte", "cells"),
        ("roofline.json", ("operators", 0), "fraction_of_roof", "cells"),
        ("roofline.json", ("operators", 0), "sealed_error", "predictions"),
        ("roofline.json", ("score",), "times_right", "predictions"),
    ],
)
def test_it_notices_a_planted_error(tmp_path, path, below, figure, part):
    run = shutil.copytree(REFERENCE, tmp_path / "results")
    place = content = json.loads((run / path).read_text())
    for key in below:
        place = place[key]
    place[figure] *= 1.01
    (run / path).write_text(json.dumps(content))
    told = oracle.check(run)
    assert any(line.startswith(f"hashes: SHA-256 of {path}") for line in told)
    assert any(line.startswith(f"{part}: ") and figure in line for line in told), told
