"""Hardware counters in the whole workflow, by a stand-in for Nsight Compute that counts, refuses, or is not there."""

import shutil
from pathlib import Path

import pytest
from test_gpu_workflow import CONFIG, GpuRun, copy_of, whole_run

pytestmark = pytest.mark.slow
ALL_COUNTED = {"gpu0/profiler.json"}  # by the job that counts: its first output
RECORDS = {"row_norm/fp32", "rmsnorm_matmul/hidden64_fp16", "peak_flops/fp16"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> GpuRun:
    return whole_run(tmp_path_factory)


@pytest.fixture
def again(finished, tmp_path) -> GpuRun:
    return copy_of(finished, tmp_path)


def criterion(run, device: str = "gpu0") -> dict:
    found = [one for one in run.read("acceptance.json")["checks"] if "counters" in one["check"]]
    return next(one for one in found if one["device"] == device)


def records(run) -> set[str]:
    return {path.removesuffix(".json") for path in run.files("gpu0/counters") if path.endswith(".json")}


def of_counters(plan) -> set[str]:
    return {path for path in plan if "counters" in path or "profiler" in path}


def counters_of(run) -> dict[str, dict]:
    return {name: run.read(f"gpu0/counters/{name}.json") for name in RECORDS}


# ---------------------------------------------------------------------------------------------- counted


def test_three_cells_have_a_record_each_beside_their_report(finished):
    assert {path.removeprefix("gpu0/counters/") for path in records(finished)} == RECORDS
    for record in counters_of(finished).values():
        assert [Path(one["path"]).name for one in record["reports"]] == ["kernels.ncu-rep"]
        assert all((finished.root / one["path"]).is_file() for one in record["reports"])
        (cell,) = record["cells"]
        assert cell["l2_read_sectors"] > 0 and cell["flops"]["tensor"] > 0 and cell["sm_write_sectors"] > 0
        assert cell["not_counted"] == {} and cell["kernels"] == ["a_kernel"]
    found = {name: record["cells"][0]["implementation"] for name, record in counters_of(finished).items()}
    assert set(found.values()) == {"tensor_matmul", "fused", "welford"}


def test_whatever_is_timed_is_timed_before_anything_is_profiled(finished):
    written = {path: when for path, (when, _) in finished.files("gpu0").items() if path.endswith(".json")}
    profiled = of_counters(written)
    timed = {path for path in written if "/prediction" not in path and path.count("/") > 1} - profiled
    assert "gpu0/bandwidth/hbm.json" in timed and len(profiled) == len(RECORDS) + 1
    assert max(written[path] for path in timed) < min(written[path] for path in profiled)


def test_reports_are_listed_archived_and_verified(finished):
    assert len(finished.read("roofline.json")["counted"]) == 3
    assert criterion(finished)["result"] == "fail", "the numbers are made up"
    listed = {one["path"] for one in finished.read("manifest.json")["outputs"]}
    assert "results/gpu0/counters/kernels.ncu-rep" in listed
    archive = finished.archive()
    assert finished.command("verify", archive).returncode == 0


def test_another_s_makes_no_counters_stale(again):
    again.write_config(CONFIG.replace("seq_lens: [16]", "seq_lens: [16, 8]"))
    assert not [path for path in again.planned() if "counters" in path]


def counted_again(run, name: str, **env: str) -> dict:
    path = f"results/gpu0/counters/{name}.json"
    (run.root / path).unlink()
    run.finish(path, env=env)
    return run.read(path.removeprefix("results/"))


def test_a_metric_that_this_ncu_does_not_know_is_null_with_the_reason(again):
    record = counted_again(again, "row_norm/fp32", FAKE_UNKNOWN="lts__t_sectors_op_read")
    for cell in record["cells"]:
        assert cell["l2_read_sectors"] is None and "lts__t_sectors_op_read" in cell["not_counted"]["l2_read_sectors"]
        assert cell["l2_write_sectors"] is not None


# ---------------------------------------------------------------------------------------------- refused


def refused_run(again, **env: str) -> str:
    """The same run on a machine that answers so, with nothing counted yet."""
    shutil.rmtree(again.results / "gpu0/counters")
    (again.results / "gpu0/profiler.json").unlink()
    return again.finish(env=env)


def test_refusal_is_one_line_and_the_run_goes_on(again):
    assert "ERR_NVGPUCTRPERM" in refused_run(again, FAKE_NCU="refused")
    assert (criterion(again)["result"], "ERR_NVGPUCTRPERM" in criterion(again)["reason"]) == ("not_applicable", True)
    assert not list(again.results.rglob("*.ncu-rep"))
    assert not again.planned(env={"FAKE_NCU": "refused"})
    required = of_counters(again.planned("--config", "counters=required"))
    assert required == ALL_COUNTED


WITHOUT_NCU = {"NCU": "", "PATH": "/usr/bin:/bin"}


def test_a_machine_without_ncu_says_so_and_plans_no_counters(again):
    assert "Nsight Compute (ncu) is not on this machine" in refused_run(again, **WITHOUT_NCU)
    assert criterion(again)["result"] == "not_applicable" and not records(again)


@pytest.mark.parametrize(
    ("counters", "environment", "told"),
    [
        ("required", WITHOUT_NCU, "counters: required, and Nsight Compute (ncu) is not on this machine"),
        ("required", {"FAKE_NCU": "refused"}, "counters: required, and refused on gpu0: ERR_NVGPUCTRPERM"),
        ("auto", {"NCU": "/no/such/ncu"}, "NCU: '/no/such/ncu'"),
    ],
)
def test_what_cannot_be_counted_is_an_error_before_anything_is_measured(again, counters, environment, told):
    shutil.rmtree(again.results)
    done = again.snakemake("--config", f"counters={counters}", env=environment)
    assert done.returncode and told in done.stdout + done.stderr and "Traceback" not in done.stderr
    assert not list(again.results.rglob("*.json"))


def test_off_plans_nothing_of_it(again):
    again.write_config(f"counters: off\n{CONFIG}")
    assert not of_counters(again.planned())
