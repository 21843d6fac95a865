"""The figures of real runs are those that other code finds in their samples; it notices one that is not."""

import json
import shutil

import oracle


def test_it_agrees_with_the_committed_run(newest):
    assert oracle.check(newest) == []


def test_it_agrees_with_a_run_on_the_cpu(finished_run):
    assert oracle.check(finished_run.results) == []


PLANTED = [
    ("gpu0/rmsnorm_matmul/hidden4096_fp16.json", ("measurements", 0, "cpu_time"), "median_s", "timings"),
    ("gpu0/bandwidth/hbm.json", ("bandwidths", 0), "gb_per_s", "rates"),
    ("roofline.json", ("ceilings", 0), "tflops", "ceilings"),
    ("roofline.json", ("operators", 0), "cpu_time_s", "cells"),
    ("roofline.json", ("operators", 1), "fraction_of_roof", "cells"),
    ("roofline.json", ("operators", 2), "sealed_cpu_time_error", "predictions"),
    ("roofline.json", ("score",), "times_right", "predictions"),
]


def test_it_notices_planted_errors(newest, tmp_path):
    run = shutil.copytree(newest, tmp_path / "results")
    for path, below, figure, _ in PLANTED:
        place = content = json.loads((run / path).read_text())
        for key in below:
            place = place[key]
        place[figure] *= 1.01
        (run / path).write_text(json.dumps(content))
    found = oracle.check(run)
    for path, _, figure, part in PLANTED:
        assert any(line.startswith(f"hashes: SHA-256 of {path}") for line in found)
        assert any(line.startswith(f"{part}: ") and figure in line for line in found), figure
