"""The GPU's part of the workflow with stand-ins for NVML and CuPy (tests/fakes): what is planned and told, no figures.

Compute ceilings are planned only; device_query, prediction, bandwidth and decode_attn are run.
"""

import shutil
from pathlib import Path

import pytest
import workflow_run
from workflow_run import CHECKOUT, contents, record

FAKES = CHECKOUT / "tests" / "fakes"
ONE_CARD = "GPU-1111=NVIDIA H200"
TWO_CARDS = f"{ONE_CARD},GPU-2222=NVIDIA H200"
CONFIG = """
effort: quick
peak_flops: {dtypes: [fp32, fp16, fp8_e4m3, fp32_fma]}
bandwidth: {transfer_size_mib: 1, sweep_points: 1, time_budget_s: 0.05}
decode_attn: {seq_lens: [16], dtypes: [fp32], batch_sizes: [1], iterations: 10, time_budget_s: 0.1}
"""
MEMORY = {
    "hbm": ["hbm_read", "hbm_write", "hbm_copy", "hbm_triad"],
    "d2d": ["d2d"],
    "l2": ["l2", "l2_following"],
    "l1": ["l1"],
    "shared": ["shared"],
    "h2d": ["h2d", "h2d_pageable"],
    "d2h": ["d2h", "d2h_pageable"],
}
RUN = [f"results/{device}/decode_attn/minigpt/S16_fp32.json" for device in ("gpu0", "cpu")]


def snakemake(folder: Path, *arguments: str, cards: str = ONE_CARD, path: Path = FAKES, **environment: str):
    return workflow_run.snakemake(folder, *arguments, path=path, FAKE_GPUS=cards, **environment)


def planned(folder: Path, *targets: str, cards: str = ONE_CARD, **environment: str) -> set[str]:
    return workflow_run.planned(folder, "--", *targets, path=FAKES, FAKE_GPUS=cards, **environment)


def new_checkout(folder: Path) -> Path:
    return workflow_run.new_checkout(folder, CONFIG)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A folder in which the jobs of RUN are done. Leave it as it is: `again` is a copy to change."""
    folder = new_checkout(tmp_path_factory.mktemp("gpu") / "run")
    run = snakemake(folder, *RUN)
    assert run.returncode == 0, run.stdout
    return folder


@pytest.fixture
def again(finished, tmp_path) -> Path:
    shutil.copytree(finished, tmp_path / "run", symlinks=True)
    return tmp_path / "run"


def test_auto_plans_the_first_gpu_and_the_cpu(tmp_path):
    plan = planned(new_checkout(tmp_path / "run"), cards=TWO_CARDS)
    ceilings = [f"gpu0/peak_flops/{ceiling}.json" for ceiling in ("fp32", "fp16", "fp8_e4m3", "fp32_fma")]
    # One job says of all others that the CPU lacks them, and fp16 is the first of its records.
    assert {path for path in plan if "/peak_flops/" in path} == {
        *ceilings,
        "cpu/peak_flops/fp32.json",
        "cpu/peak_flops/fp16.json",
    }
    levels = {"gpu0": ["hbm", "d2d", "l2", "l1", "shared", "h2d", "d2h", "sweep"], "cpu": ["dram", "sweep"]}
    assert {path for path in plan if "/bandwidth/" in path} == {
        f"{device}/bandwidth/{level}.json" for device in levels for level in levels[device]
    }
    assert {path.removeprefix("results/") for path in RUN} <= plan


def test_all_plans_every_card(tmp_path):
    folder = new_checkout(tmp_path / "run")
    (folder / "config" / "config.yaml").write_text("devices: all\n" + CONFIG)
    plan = planned(folder, cards=TWO_CARDS)
    for device in ("gpu0", "gpu1", "cpu"):
        assert f"{device}/peak_flops/fp16.json" in plan


def test_a_card_is_described_with_the_vendors_figures_for_it(finished):
    device = record(finished, "gpu0/device_query.json")
    assert (device["name"], device["uuid"], device["vendor"]["match"]) == ("NVIDIA H200", "GPU-1111", "exact")
    fp16 = device["vendor"]["peaks"]["fp16"]
    assert (fp16["tflops"], fp16["unit"]) == (989.4, "tensor_core")
    assert device["vendor"]["bandwidth"]["gb_per_s"] == 4800
    assert (device["hardware"]["sm_clock_max_mhz"], device["hardware"]["ecc_enabled"]) == (1980, None)
    assert (device["software"]["cupy"], device["software"]["nvmath"]) == ("14.2.0", "1.0.0")


def measured(folder: Path) -> list[list[dict]]:
    return [record(folder, path.removeprefix("results/"))["measurements"] for path in RUN]


def test_every_implementation_of_a_device_is_measured_where_none_is_chosen(finished):
    of_gpu, of_cpu = measured(finished)
    assert [(one["implementation"], one["scope"]) for one in of_gpu] == [
        ("eager", "core"),
        ("eager", "block"),
        ("fused", "core"),
        ("fused_graph", "core"),
    ]
    assert [(one["implementation"], one["scope"]) for one in of_cpu] == [("numpy", "core"), ("numpy", "block")]
    assert [one["layers"] for one in (*of_gpu, *of_cpu)] == [1, 1, 1, 6, 1, 1]


def test_implementations_that_a_device_has_not_make_nothing_of_it_stale(again):
    """Those that it has are measured anew without those that are left out."""
    config = again / "config" / "config.yaml"
    without_graphs = CONFIG.replace("seq_lens: [16]", "seq_lens: [16], implementations: [numpy, fused, eager]")
    config.write_text(without_graphs)
    assert planned(again, *RUN) == {"gpu0/decode_attn/minigpt/S16_fp32.json"}
    in_another_order = CONFIG.replace("seq_lens: [16]", f"seq_lens: [16], implementations: {IN_ANOTHER_ORDER}")
    config.write_text(in_another_order)
    assert planned(again, *RUN) == set()


IN_ANOTHER_ORDER = "[fused_graph, numpy, eager, fused]"


def test_a_gpus_operators_have_both_latencies_and_the_cpus_one(finished):
    of_gpu, of_cpu = measured(finished)
    assert all(one["device_latency"] for one in of_gpu)
    assert all(one["device_latency"] is None for one in of_cpu)


def test_what_holds_the_clock_back_is_in_the_record(again):
    run = snakemake(again, RUN[0], "--forcerun", "decode_attn", FAKE_REASONS="0x24")
    assert run.returncode == 0, run.stdout
    (measurement, *_) = record(again, RUN[0].removeprefix("results/"))["measurements"]
    told = [state["throttle_reasons"] for state in measurement["states"]]
    assert told and all(reasons == ["sw_power_cap", "sw_thermal_slowdown"] for reasons in told)


def test_every_level_of_a_gpus_memory_has_its_streams_and_the_sweep_its_series(again):
    targets = [f"results/gpu0/bandwidth/{level}.json" for level in (*MEMORY, "sweep")]
    run = snakemake(again, *targets, FAKE_FREE_BYTES="1800000000")  # an array takes an eighth
    assert run.returncode == 0, run.stdout
    for level, names in MEMORY.items():
        written = record(again, f"gpu0/bandwidth/{level}.json")
        assert [one["name"] for one in written["bandwidths"]] == names
        assert all(one["verified"] and one["trials"] and one["gb_per_s"] > 0 for one in written["bandwidths"])
        assert (written["envelope"] is not None) == (level == "hbm")
    sweep = record(again, "gpu0/bandwidth/sweep.json")
    assert [one["series"] for one in sweep["sweeps"]] == ["through L1", "past L1"] and sweep["bandwidths"] == []


def test_another_driver_makes_all_of_the_gpu_stale_and_nothing_of_the_cpu(finished):
    plan = planned(finished, *RUN, FAKE_DRIVER="590.10")
    assert plan == {"gpu0/device_query.json", "gpu0/prediction.json", "gpu0/decode_attn/minigpt/S16_fp32.json"}


def test_what_is_done_is_not_planned_again(finished):
    assert planned(finished, *RUN) == set()


def test_another_cards_results_are_set_aside_whole_and_never_overwritten(again):
    kept = contents(again / "results" / "gpu0")
    run = snakemake(again, *RUN, cards="GPU-9999=NVIDIA H200")
    assert run.returncode == 0, run.stdout
    assert record(again, "gpu0/device_query.json")["uuid"] == "GPU-9999"
    (aside,) = (again / "results" / "previous").iterdir()
    assert "NVIDIA-H200" in aside.name
    assert contents(aside / "gpu0") == kept


def test_cuda_visible_devices_decides_which_card_is_gpu0(tmp_path):
    folder = new_checkout(tmp_path / "run")
    run = snakemake(folder, "results/gpu0/device_query.json", cards=TWO_CARDS, CUDA_VISIBLE_DEVICES="1")
    assert run.returncode == 0, run.stdout
    assert record(folder, "gpu0/device_query.json")["uuid"] == "GPU-2222"


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"FAKE_CUDA": "11040"}, ["driver", "CUDA 11", "install driver 525", "devices: [cpu]"]),
        ({"FAKE_FREE_BYTES": "1000000"}, ["decode_attn.seq_lens: 16", "bytes on gpu0", "1,000,000"]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
    ],
)
def test_what_the_card_cannot_do_is_told_in_one_line_before_anything_is_measured(tmp_path, environment, words):
    folder = new_checkout(tmp_path / "run")
    run = snakemake(folder, "--dry-run", **environment)
    assert "Traceback" not in run.stdout
    assert (run.returncode != 0) == bool(words)
    told = [line for line in run.stdout.splitlines() if words and words[0] in line]
    assert all(word in "\n".join(told) for word in words)
    assert not (folder / "results").exists()


def test_a_head_size_that_no_kernel_is_made_for_is_told_before_anything_is_measured(tmp_path):
    folder = new_checkout(tmp_path / "run")
    odd = "\nmodel: {presets: {minigpt: {layers: 6, heads: 8, head_size: 80}}}\n"
    (folder / "config" / "config.yaml").write_text(CONFIG + odd)
    run = snakemake(folder, "--dry-run")
    assert run.returncode != 0 and "Traceback" not in run.stdout
    told = "model.presets.minigpt.head_size: 80 is not supported by fused, fused_graph; allowed: 64, 128, or"
    assert [line for line in run.stdout.splitlines() if line.startswith(told)]
    assert not (folder / "results").exists()


def test_a_gpu_without_cupy_names_the_remedy_unless_the_cpu_alone_is_wanted(tmp_path):
    folder = new_checkout(tmp_path / "run")
    only_nvml = tmp_path / "only_nvml"
    shutil.copytree(FAKES / "pynvml", only_nvml / "pynvml")
    run = snakemake(folder, "--dry-run", path=only_nvml)
    if "CuPy is not installed" not in run.stdout:
        pytest.fail(f"CuPy's absence was not told: {run.stdout}")
    assert run.returncode != 0
    assert "pip install -r envs/cuda12.txt" in run.stdout
    (folder / "config" / "config.yaml").write_text("devices: [cpu]\n" + CONFIG)
    assert snakemake(folder, "--dry-run", path=only_nvml).returncode == 0
