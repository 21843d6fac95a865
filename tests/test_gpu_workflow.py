"""The whole workflow on a GPU and the CPU, with stand-ins for NVML and CuPy (tests/fakes): paths, not figures."""

import json
import shutil
from pathlib import Path

import pytest
import workflow_run
from workflow_run import CHECKOUT, contents, record

from roofline.reporting import number

FAKES = CHECKOUT / "tests" / "fakes"
ONE_CARD = "GPU-1111=NVIDIA H200"
TWO_CARDS = f"{ONE_CARD},GPU-2222=NVIDIA H200"
CONFIG = """
peak_flops: {dtypes: [fp32, fp16, bf16], size: 128, iterations: 10, time_budget_s: 0.2}
bandwidth: {size_mib: 4, transfer_size_mib: 4, iterations: 10, time_budget_s: 0.2}
decode_attn: {seq_lens: [16], dtypes: [fp32], batch_sizes: [1], iterations: 10, time_budget_s: 0.1}
"""


def snakemake(folder: Path, *arguments: str, cards: str = ONE_CARD, path: Path = FAKES, **environment: str):
    return workflow_run.snakemake(folder, *arguments, path=path, FAKE_GPUS=cards, **environment)


def planned(folder: Path, cards: str = ONE_CARD, **environment: str) -> set[str]:
    return workflow_run.planned(folder, path=FAKES, FAKE_GPUS=cards, **environment)


def new_checkout(folder: Path) -> Path:
    return workflow_run.new_checkout(folder, CONFIG)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    folder = new_checkout(tmp_path_factory.mktemp("gpu") / "run")
    run = snakemake(folder)
    assert run.returncode == 0, run.stdout
    return folder


@pytest.fixture
def again(finished, tmp_path) -> Path:
    shutil.copytree(finished, tmp_path / "run", symlinks=True)
    return tmp_path / "run"


def test_auto_measures_the_first_gpu_and_the_cpu_under_the_vendors_figures(finished):
    roofline = record(finished, "roofline.json")
    assert list(roofline["devices"]) == ["gpu0", "cpu"]
    ceilings = {(c["device"], c["name"]): c for c in roofline["ceilings"]}
    assert ceilings["gpu0", "fp16"]["vendor_tflops"] == 989.4
    assert ceilings["gpu0", "fp16"]["unit"] == "tensor_core"
    assert ceilings["gpu0", "d2d"]["vendor_gb_per_s"] == 4800
    # 132 multiprocessors x 4096 a clock x the stand-in's 1980 MHz
    assert ceilings["gpu0", "fp16"]["clock_tflops"] == pytest.approx(1070.5, rel=1e-3)
    assert {name for device, name in ceilings if device == "gpu0"} == {"fp32", "fp16", "bf16", "d2d", "h2d", "d2h"}
    assert {s["dtype"] for s in roofline["skipped"]} == {"fp16", "bf16"}
    assert {s["device"] for s in roofline["skipped"]} == {"cpu"}


def test_a_gpus_operators_have_both_latencies_and_the_cpus_one(finished):
    operators = record(finished, "roofline.json")["operators"]
    assert all(o["device_latency_s"] for o in operators if o["device"] == "gpu0")
    assert all(o["device_latency_s"] is None for o in operators if o["device"] == "cpu")


def test_a_low_peak_is_investigated_and_the_clock_is_in_the_record(finished):
    peak = record(finished, "gpu0/peak_flops/fp16.json")["peak"]
    assert {trial["what"] for trial in peak["investigation"]["trials"]} == {"size", "sustained", "tensor_cores"}
    assert any(state["when"] == "during" and state["sm_clock_mhz"] == 1980 for state in peak["lab"]["states"])


def test_the_third_question_compares_the_gpu_with_the_cpu(finished):
    text = (finished / "results" / "interpretation.md").read_text()
    on_gpu, on_cpu = (
        record(finished, f"{path}.json")["bandwidth"]["gb_per_s"]
        for path in ("gpu0/bandwidth/d2d", "cpu/bandwidth/dram_copy")
    )
    assert "On the same fp32 operator (batch 1, S 16" in text
    assert f"a ratio of {number(on_gpu / on_cpu)}" in text


def test_another_driver_makes_all_of_the_gpu_stale_and_nothing_of_the_cpu(finished):
    plan = planned(finished, FAKE_DRIVER="590.10")
    measured = {path for path in plan if path.startswith("gpu0/")}
    assert {"gpu0/device_query.json", "gpu0/bandwidth/d2d.json"} <= measured
    assert "gpu0/decode_attn/minigpt/S16_fp32.json" in measured
    assert not {path for path in plan if path.startswith("cpu/")}


def test_a_finished_run_has_nothing_to_do(finished):
    assert planned(finished) == set()


def test_another_cards_results_are_set_aside_whole_and_never_overwritten(again):
    kept = contents(again / "results" / "gpu0")
    run = snakemake(again, cards="GPU-9999=NVIDIA H200")
    assert run.returncode == 0, run.stdout
    assert record(again, "gpu0/device_query.json")["uuid"] == "GPU-9999"
    (aside,) = (again / "results" / "previous").iterdir()
    assert "NVIDIA-H200" in aside.name
    assert contents(aside / "gpu0") == kept
    assert json.loads((aside / "roofline.json").read_text())["devices"]["gpu0"]["name"] == "NVIDIA H200"


def test_all_takes_every_card(again):
    (again / "config" / "config.yaml").write_text("devices: all\n" + CONFIG)
    plan = planned(again, cards=TWO_CARDS)
    assert "gpu1/peak_flops/fp16.json" in plan
    assert "gpu0/peak_flops/fp16.json" not in plan


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
