"""Hardware counters in the whole workflow, by a stand-in for Nsight Compute that counts, refuses, or is not there."""

import shutil
from pathlib import Path

import pytest
from workflow_run import GPU_CONFIG, new_gpu_run

pytestmark = pytest.mark.slow
ALL_COUNTED = {"gpu0/profiler.json"}  # by the job that counts: its first output
RECORDS = {"row_norm/fp32", "rmsnorm_matmul/hidden64_fp16", "peak_flops/fp16"}


def criterion(run, device: str = "gpu0") -> dict:
    found = [one for one in run.read("roofline.json")["checks"] if "counters" in one["check"]]
    return next(one for one in found if one["device"] == device)


def records(run) -> set[str]:
    return {path.removesuffix(".json") for path in run.files("gpu0/counters") if path.endswith(".json")}


def of_counters(plan) -> set[str]:
    return {path for path in plan if "counters" in path or "profiler" in path}


def counters_of(run) -> dict[str, dict]:
    return {name: run.read(f"gpu0/counters/{name}.json") for name in RECORDS}


# ---------------------------------------------------------------------------------------------- counted


def test_three_cells_have_a_record_each_beside_their_report(gpu_run):
    assert {path.removeprefix("gpu0/counters/") for path in records(gpu_run)} == RECORDS
    for record in counters_of(gpu_run).values():
        assert [Path(one["path"]).name for one in record["reports"]] == ["kernels.ncu-rep"]
        assert all((gpu_run.root / one["path"]).is_file() for one in record["reports"])
        (cell,) = record["cells"]
        assert cell["l2_read_sectors"] > 0 and cell["flops"]["tensor"] > 0 and cell["sm_write_sectors"] > 0
        assert cell["not_counted"] == {} and cell["kernels"] == ["a_kernel"]
    found = {name: record["cells"][0]["implementation"] for name, record in counters_of(gpu_run).items()}
    assert set(found.values()) == {"tensor_matmul", "fused", "welford"}


def test_whatever_is_timed_is_timed_before_anything_is_profiled(gpu_run):
    written = {path: when for path, (when, _) in gpu_run.files("gpu0").items() if path.endswith(".json")}
    profiled = of_counters(written)
    timed = {path for path in written if "/prediction" not in path and path.count("/") > 1} - profiled
    assert "gpu0/bandwidth/hbm.json" in timed and len(profiled) == len(RECORDS) + 1
    assert max(written[path] for path in timed) < min(written[path] for path in profiled)


def test_reports_are_listed_archived_and_verified(gpu_run):
    assert len(gpu_run.read("roofline.json")["counted"]) == 3
    assert criterion(gpu_run)["result"] == "fail", "the numbers are made up"
    listed = {one["path"] for one in gpu_run.read("manifest.json")["outputs"]}
    assert "results/gpu0/counters/kernels.ncu-rep" in listed
    archive = gpu_run.archive()
    assert gpu_run.command("verify", archive).returncode == 0


def test_a_metric_that_this_ncu_does_not_know_is_null_with_the_reason(gpu_copy):
    unknown, path = "lts__t_sectors_op_read", "gpu0/counters/row_norm/fp32.json"
    (gpu_copy.results / path).unlink()
    gpu_copy.finish(f"results/{path}", env={"FAKE_UNKNOWN": unknown})
    for cell in gpu_copy.read(path)["cells"]:
        assert cell["l2_read_sectors"] is None and unknown in cell["not_counted"]["l2_read_sectors"]
        assert cell["l2_write_sectors"] is not None


# ---------------------------------------------------------------------------------------------- refused


def test_refusal_is_one_line_and_the_run_goes_on(gpu_copy):
    """On a machine that answers so, with nothing counted yet."""
    refuses = {"FAKE_NCU": "refused"}
    shutil.rmtree(gpu_copy.results / "gpu0/counters")
    (gpu_copy.results / "gpu0/profiler.json").unlink()
    assert "ERR_NVGPUCTRPERM" in gpu_copy.finish(env=refuses)
    found = criterion(gpu_copy)
    assert found["result"] == "not_applicable" and "ERR_NVGPUCTRPERM" in found["reason"]
    assert not list(gpu_copy.results.rglob("*.ncu-rep"))
    assert not gpu_copy.planned(env=refuses)


WITHOUT_NCU = {"NCU": "", "PATH": "/usr/bin:/bin"}


def test_without_ncu_no_counters_are_planned_and_required_ones_are_an_error(tmp_path):
    run = new_gpu_run(tmp_path / "run")
    plan = run.planned(env=WITHOUT_NCU)
    assert "gpu0/row_norm/fp32.json" in plan and not [path for path in plan if "counters" in path]
    for counters, environment, told in (
        ("required", WITHOUT_NCU, "counters: required, and Nsight Compute (ncu) is not on this machine"),
        ("auto", {"NCU": "/no/such/ncu"}, "NCU: '/no/such/ncu'"),
    ):
        done = run.snakemake("--config", f"counters={counters}", env=environment)
        assert done.returncode and told in done.stdout + done.stderr and "Traceback" not in done.stderr
    assert not list(run.results.rglob("*.json"))


def test_off_plans_nothing_of_it(tmp_path):
    assert not of_counters(new_gpu_run(tmp_path / "run", f"counters: off\n{GPU_CONFIG}").planned())
