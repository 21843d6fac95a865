"""The whole workflow on a GPU by stand-ins for NVML, CuPy and cuBLASLt (tests/fakes): no figure means anything."""

import json
import os
import re
import shutil
import tarfile
from pathlib import Path

import pytest
from workflow_run import GpuRun

from roofline.table.rows import CheckResult

REFERENCES = {"fp32": ["cupy.matmul"], "fp16": ["cupy.matmul", "tensor_matmul"], "fp32_fma": [], "fp64_fma": []}
MEMORY = {
    "hbm": ["hbm_read", "hbm_write", "hbm_copy", "hbm_triad"],
    "d2d": ["d2d"],
    "l2": ["l2", "l2_shared_by_neighbours", "l2_shared_by_all"],
    "h2d": ["h2d", "h2d_pageable"],
}
ATTENTION, ROWS = "decode_attn/minigpt/S16_fp32.json", "row_norm/fp32.json"
COUNTED = {"row_norm/fp32", "decode_attn/minigpt/S16_fp32", "rmsnorm_matmul/hidden64_fp16", "peak_flops/fp16"}


@pytest.fixture(scope="module")
def table(gpu_run):
    return gpu_run.read("roofline.json")


def test_every_ceiling_is_measured(gpu_run):
    for dtype, references in REFERENCES.items():
        record = gpu_run.read(f"gpu0/peak_flops/{dtype}.json")
        assert record["peak"]["search"]["tried"] == len(record["peak"]["candidates"]) > 0
        assert [one["implementation"] for one in record["measurements"]] == references
    for level, names in MEMORY.items():
        streams = gpu_run.read(f"gpu0/bandwidth/{level}.json")["bandwidths"]
        assert [one["name"] for one in streams] == names
        assert all(one["checked_against"] and one["trials"] and one["gb_per_s"] > 0 for one in streams)
    sweep = gpu_run.read("gpu0/bandwidth/sweep.json")
    assert [one["series"] for one in sweep["sweeps"]] == ["through L1", "past L1"] and sweep["bandwidths"] == []


def test_every_implementation_of_a_device_is_measured(gpu_run):
    of_gpu, of_cpu = (gpu_run.read(f"{device}/{ATTENTION}")["measurements"] for device in ("gpu0", "cpu"))
    assert [(one["implementation"], one["scope"], one["per_call"]) for one in of_gpu] == [
        ("eager", "core", 1),
        ("eager", "block", 1),
        ("fused", "core", 1),
        ("fused_graph", "core", 6),
    ]
    assert [(one["implementation"], one["scope"]) for one in of_cpu] == [("numpy", "core"), ("numpy", "block")]
    assert all(one["gpu_time"] for one in of_gpu) and not any(one["gpu_time"] for one in of_cpu)
    rows = [one["implementation"] for one in gpu_run.read(f"gpu0/{ROWS}")["measurements"]]
    assert rows == ["array", "naive", "welford", "welford_graph"] * 2
    assert not (gpu_run.results / f"cpu/{ROWS}").exists()  # next to a GPU, what both are compared by


def test_counters_of_a_cell_of_each_operator_are_read(gpu_run, table):
    written = {path: when for path, (when, _) in gpu_run.files("gpu0").items() if path.endswith(".json")}
    profiled = {path for path in written if "counters" in path or "profiler" in path}
    assert profiled == {"gpu0/profiler.json", *(f"gpu0/counters/{name}.json" for name in COUNTED)}
    found = {}
    for name in COUNTED:
        record = gpu_run.read(f"gpu0/counters/{name}.json")
        ((report,), (cell,)) = record["reports"], record["cells"]
        assert Path(report["path"]).name == "kernels.ncu-rep" and (gpu_run.root / report["path"]).is_file()
        assert cell["l2_read_sectors"] > 0 and cell["sm_write_sectors"] > 0
        assert cell["counted_flops_by_pipe"]["tensor"] > 0
        assert cell["not_counted"] == {} and cell["kernels"] == ["a_kernel"]
        found[name] = cell["implementation"]
    assert set(found.values()) == {"tensor_matmul", "fused", "welford"} and len(table["counters"]) == 4
    (check,) = (one for one in table["checks"] if "profiled" in one["check"] and one["device"] == "gpu0")
    assert check["result"] == "fail", "the numbers are made up"


def test_counters_start_after_the_seals_and_a_new_cell_does_not_count_again(gpu_run, tmp_path):
    jobs = [json.loads(line) for line in (gpu_run.root / "logs/jobs.jsonl").read_text().splitlines()]
    (sealed,) = [job["ended_at"] for job in jobs if job["outputs"][0] == "results/gpu0/predictions.json"]
    (counting,) = [job["started_at"] for job in jobs if job["rule"] == "counters"]
    assert counting > sealed
    run = GpuRun(Path(shutil.copytree(gpu_run.root, tmp_path / "checkout", symlinks=True)))
    run.edit_config(decode_attn={"seq_lens": [8, 16]})
    planned = {path for path in run.planned() if path.startswith("gpu0")}
    assert "gpu0/predictions.json" in planned and "gpu0/profiler.json" not in planned


def test_a_disturbed_level_is_measured_again_with_what_its_job_measures(gpu_run, tmp_path):
    run = GpuRun(Path(shutil.copytree(gpu_run.root, tmp_path / "checkout", symlinks=True)))
    path, table = run.results / "roofline.json", run.read("roofline.json")
    before = {path: sha256 for path, (_, sha256) in run.files("gpu0").items()}
    known = {"device": "gpu0", "check": "", "result": "fail", "reason": "", "doubts_figures": True}
    table["checks"].append(CheckResult(**known, records=["gpu0/bandwidth/d2d.json"]).model_dump())
    made = path.stat()
    path.write_text(json.dumps(table))
    os.utime(path, ns=(made.st_atime_ns, made.st_mtime_ns))
    done = run.command("run", "--again")
    assert done.returncode == 0, done.stdout + done.stderr
    measured = re.findall(r"^\[1/3\] bandwidth gpu0 (\w+): ", done.stdout, re.MULTILINE)
    assert measured == ["hbm", "d2d"], done.stdout
    assert {path: sha256 for path, (_, sha256) in run.files("gpu0").items()} == before
    (run.results / "gpu0/bandwidth/d2d.json").unlink()
    assert run.planned() == {"gpu0/bandwidth/hbm.json", "roofline.json", "manifest.json"}


def test_the_archive_of_a_run_without_git_verifies_and_has_nothing_to_do_elsewhere(gpu_run, tmp_path):
    path = gpu_run.archive()
    with tarfile.open(path) as tar:
        # Python 3.11 has the filter from 3.11.4 on.
        tar.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    (root,) = tmp_path.iterdir()
    elsewhere = GpuRun(root)
    assert "unknown" in (root / "provenance/commit.txt").read_text()
    assert (elsewhere.results / "gpu0/counters/kernels.ncu-rep").is_file()
    assert elsewhere.planned() == set()
    assert elsewhere.command("verify", path).returncode == 0


def test_a_plan_names_a_card_that_no_longer_answers(gpu_run):
    run = GpuRun(gpu_run.root)
    run.environment = run.environment | {"FAKE_GPUS": "GPU-1111=NVIDIA H200,GPU-2222=NVIDIA H200", "FAKE_LOST": "1"}
    (line,) = [line for line in run.command("run", "--dry-run").stderr.splitlines() if "does not answer" in line]
    assert line.startswith("GPU 1 ")
