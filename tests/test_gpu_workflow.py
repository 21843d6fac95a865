"""The whole workflow on a GPU by stand-ins for NVML, CuPy and cuBLASLt (tests/fakes): no figure means anything."""

import itertools
import json
import shutil
from datetime import datetime

import pytest
from workflow_run import FAKES, GPU_CONFIG, ONE_CARD, GpuRun, made_once, new_gpu_run

from roofline.table.run_records import read_results

pytestmark = pytest.mark.slow
TWO_CARDS = f"{ONE_CARD},GPU-2222=NVIDIA H200"
CEILINGS = ["fp32", "fp16", "fp8_e4m3", "fp32_fma"]
MEMORY = {
    "hbm": ["hbm_read", "hbm_write", "hbm_copy", "hbm_triad"],
    "d2d": ["d2d"],
    "l2": ["l2", "l2_apart", "l2_broadcast"],
    "l1": ["l1"],
    "shared": ["shared"],
    "h2d": ["h2d", "h2d_pageable"],
    "d2h": ["d2h", "d2h_pageable"],
}
ATTENTION, ROWS = "decode_attn/minigpt/S16_fp32.json", "row_norm/fp32.json"
NORM = "rmsnorm_matmul/hidden64_fp16.json"
# No other test's: their measurements would be waited for.
PEERS = {"FAKE_GPUS": "GPU-3333=NVIDIA H200,GPU-4444=NVIDIA H200", "FAKE_NVLINKS": "18"}


# ---------------------------------------------------------------------------------------------- what is planned


def test_auto_plans_the_first_gpu_and_the_cpu(tmp_path):
    """Of the CPU what both are compared by."""
    beside = GPU_CONFIG.replace("cpu: all\n", "").replace("p2p, sweep", "p2p, dram, sweep")
    plan = new_gpu_run(tmp_path / "run", beside).planned(env={"FAKE_GPUS": TWO_CARDS})
    measured = {path for path in plan if path.count("/") > 1 and "prediction" not in path}
    assert measured == {
        *(f"gpu0/peak_flops/{ceiling}.json" for ceiling in CEILINGS),
        *(f"gpu0/bandwidth/{level}.json" for level in (*MEMORY, "sweep")),
        "gpu0/instructions/rates.json",
        *(f"gpu0/{case}" for case in (ATTENTION, ROWS, NORM)),
        "cpu/peak_flops/fp32.json",
        "cpu/peak_flops/fp32_fma.json",
        "cpu/bandwidth/dram.json",
        *(f"cpu/{case}" for case in (ATTENTION, ROWS)),
    }


def test_all_plans_every_card(tmp_path):
    plan = new_gpu_run(tmp_path / "run", f"devices: all\n{GPU_CONFIG}").planned(env={"FAKE_GPUS": TWO_CARDS})
    assert {f"{device}/peak_flops/fp32.json" for device in ("gpu0", "gpu1", "cpu")} <= set(plan)
    between = {path for path in plan if "p2p" in path}
    assert between == {"gpu0/bandwidth/p2p_gpu1.json", "gpu1/bandwidth/p2p_gpu0.json"}


def test_another_card_that_is_measured_makes_nothing_of_the_first_one_stale(gpu_run, gpu_copy):
    gpu_copy.write_config(f"devices: [gpu0, gpu1, cpu]\n{GPU_CONFIG}")
    plan = of_devices(gpu_copy.planned(env={"FAKE_GPUS": TWO_CARDS}))
    assert {path for path in plan if not path.startswith("gpu1/")} == {"gpu0/bandwidth/p2p_gpu1.json"}


def test_what_is_done_is_not_planned_again(gpu_run):
    assert not gpu_run.planned()


def of_devices(plan) -> set[str]:
    """Planned jobs but those that put results together."""
    return {path for path in plan if "/" in path}


def test_another_driver_makes_all_of_the_gpu_stale_and_nothing_of_the_cpu(gpu_run):
    stale = of_devices(gpu_run.planned(env={"FAKE_DRIVER": "590.10"}, predictions=True))
    records = {path for path in gpu_run.files("gpu0") if path.endswith(".json")}
    with_profiler = {path for path in records if path.startswith("gpu0/counters/")}  # another output of one job
    assert stale == records - with_profiler


def test_implementations_that_a_device_does_not_have_make_nothing_of_it_stale(gpu_copy):
    """Those that it has are measured anew without those that are left out."""
    gpu_copy.write_config(
        GPU_CONFIG.replace("seq_lens: [16]", "seq_lens: [16], implementations: [numpy, fused, eager]")
    )
    assert of_devices(gpu_copy.planned()) == {f"gpu0/{ATTENTION}"}


# ---------------------------------------------------------------------------------------------- what is measured


def test_a_card_is_described_with_the_vendors_figures_for_it(gpu_run):
    device = gpu_run.read("gpu0/device_query.json")
    assert (device["name"], device["uuid"], device["vendor"]["match"]) == ("NVIDIA H200", "GPU-1111", "exact")
    assert device["vendor"]["peaks"]["fp16"]["tflops"] == 989.4 and device["hardware"]["sm_clock_max_mhz"] == 1980
    assert (device["software"]["cupy"], device["software"]["nvmath"]) == ("14.2.0", "1.0.0")


def test_every_compute_ceiling_has_its_search_and_its_reference_product(gpu_run):
    for ceiling in CEILINGS:
        record = gpu_run.read(f"gpu0/peak_flops/{ceiling}.json")
        assert record["skipped"] is None and record["peak"]["search"]["tried"] == len(record["peak"]["candidates"]) > 0
        references = [one["implementation"] for one in record["measurements"]]
        known = {"fp32": ["cupy.matmul"], "fp16": ["cupy.matmul", "tensor_matmul"], "fp32_fma": []}
        assert references == known.get(ceiling, ["cuBLASLt"])


def test_every_level_of_a_gpus_memory_has_its_streams_and_the_sweep_its_series(gpu_run):
    for level, names in MEMORY.items():
        record = gpu_run.read(f"gpu0/bandwidth/{level}.json")
        assert [one["name"] for one in record["bandwidths"]] == names
        assert all(one["verified"] and one["trials"] and one["gb_per_s"] > 0 for one in record["bandwidths"])
    sweep = gpu_run.read("gpu0/bandwidth/sweep.json")
    assert [one["series"] for one in sweep["sweeps"]] == ["through L1", "past L1"] and sweep["bandwidths"] == []


def test_every_implementation_of_a_device_is_measured_where_none_is_chosen(gpu_run):
    of_gpu, of_cpu = (gpu_run.read(f"{device}/{ATTENTION}")["measurements"] for device in ("gpu0", "cpu"))
    assert [(one["implementation"], one["scope"], one["per_call"]) for one in of_gpu] == [
        ("eager", "core", 1),
        ("eager", "block", 1),
        ("fused", "core", 1),
        ("fused_graph", "core", 6),
    ]
    assert [(one["implementation"], one["scope"]) for one in of_cpu] == [("numpy", "core"), ("numpy", "block")]
    assert all(one["device_latency"] for one in of_gpu) and not any(one["device_latency"] for one in of_cpu)
    ways = {device: gpu_run.read(f"{device}/{ROWS}")["measurements"] for device in ("gpu0", "cpu")}
    assert {device: [one["implementation"] for one in found] for device, found in ways.items()} == {
        "gpu0": ["array", "naive", "welford", "welford_graph"] * 2,
        "cpu": ["numpy", "compiled", "numpy"],  # a loop by whole vectors has no rows of 33
    }


def test_a_graph_is_measured_as_kernels_wait_and_as_they_overlap(gpu_run):
    found = [(one["implementation"], one["scope"]) for one in gpu_run.read(f"gpu0/{NORM}")["measurements"]]
    alone = [(name, "waiting") for name in ("unfused", "unfused_graph", "fused", "fused_graph")]
    assert found == [*alone, ("fused_graph", "overlapped")]


def test_each_cell_was_predicted_before_anything_was_measured(gpu_run):
    for device in ("gpu0", "cpu"):
        paths = sorted(gpu_run.results.glob(f"{device}/**/*.json"))
        found = read_results(gpu_run.results, paths)
        (_, predictions), records = found.predictions[device], [record for _, record in found.measured]
        measured = {one.identity: one.predicted for record in records for one in record.measurements}
        assert {one.identity: one.predicted for one in predictions.cells} == measured
        assert predictions.predicted_at < min(record.started_at for record in records)


def test_the_roofline_holds_every_ceiling_and_operator_under_its_seals(gpu_run):
    roofline = gpu_run.read("roofline.json")
    ceilings = {one["name"] for one in roofline["ceilings"] if one["device"] == "gpu0"}
    assert ceilings == {*CEILINGS, *(name for names in MEMORY.values() for name in names)}
    operators = [(one["operator"], one["dtype"]) for one in roofline["operators"] if one["device"] == "gpu0"]
    assert operators.count(("gemm", "fp32")) == operators.count(("gemm", "fp8_e4m3")) == 1
    assert (operators.count(("decode_attention", "fp32")), operators.count(("row_norm", "fp32"))) == (4, 8)
    assert operators.count(("rmsnorm_matmul", "fp16")) == 5
    results = {one["check"]: one["result"] for one in roofline["checks"] if one["device"] == "gpu0"}
    assert results["every prediction has its measured counterpart, sealed before it"] == "pass"
    assert results["every operator under measured ceilings in the plot"] == "pass"
    assert all((gpu_run.results / name).stat().st_size for name in ("roofline.png", "interpretation.md", "sweep.png"))
    assert len((gpu_run.results / "ROOFLINE.md").read_text().split()) < 2500


# ---------------------------------------------------------------------------------------------- two cards at once

PEAKS = [f"results/{gpu}/peak_flops/fp32.json" for gpu in ("gpu0", "gpu1")]
LINKS = [f"results/{gpu}/bandwidth/h2d.json" for gpu in ("gpu0", "gpu1")]
BETWEEN = "results/gpu0/bandwidth/p2p_gpu1.json"
ON_CPU = "results/cpu/peak_flops/fp32.json"


@pytest.fixture(scope="module")
def two_cards(tmp_path_factory) -> GpuRun:
    """A part of a run of two cards and the CPU, on two cores."""

    def make(folder):
        new_gpu_run(folder, f"devices: all\n{GPU_CONFIG}").finish(
            "--cores", "2", *PEAKS, *LINKS, BETWEEN, ON_CPU, env=PEERS
        )

    return GpuRun(made_once(tmp_path_factory, "two-cards", make))


def spans(run) -> dict[str, tuple[float, float]]:
    """When each record was measured, in seconds."""
    found = {}
    for path in run.results.rglob("*.json"):
        record = json.loads(path.read_text())
        if "started_at" in record:
            begun = datetime.fromisoformat(record["started_at"]).timestamp()
            found[path.relative_to(run.results).as_posix()] = begun, begun + record["elapsed_s"]
    return found


def at_once(spans) -> set[tuple[str, str]]:
    pairs = itertools.combinations(sorted(spans), 2)
    return {(a, b) for a, b in pairs if spans[a][0] < spans[b][1] and spans[b][0] < spans[a][1]}


def test_cards_are_measured_at_once_and_what_they_share_is_not(two_cards):
    found = at_once(spans(two_cards))
    assert found  # which jobs of the two cards meet is the scheduler's choice
    assert ("gpu0/bandwidth/h2d.json", "gpu1/bandwidth/h2d.json") not in found
    assert not [pair for pair in found if any("cpu/" in path or "p2p" in path for path in pair)]
    assert all(a.partition("/")[0] != b.partition("/")[0] for a, b in found)


def test_what_is_measured_between_two_cards(two_cards):
    record = two_cards.read("gpu0/bandwidth/p2p_gpu1.json")
    expected = {"device": "gpu1", "uuid": "GPU-4444", "path": "nvlink", "nvlinks": 18, "nvlinks_down": []}
    assert expected.items() <= record["peer"].items()
    vendor = {one["name"]: one["vendor_gb_per_s"] for one in record["bandwidths"]}
    assert vendor["p2p_gpu1"] == 450 and vendor["p2p_gpu1_both"] == 900
    assert [one["name"] for one in record["latencies"]] == ["load", "copy"]


# ---------------------------------------------------------------------------------------------- what cannot be had


def test_a_driver_that_is_too_old_is_one_line_before_anything_is_measured(tmp_path):
    run = new_gpu_run(tmp_path / "run")
    done = run.snakemake("--dry-run", env={"FAKE_CUDA": "11040"})
    said = done.stdout + done.stderr
    assert done.returncode != 0 and "Traceback" not in said and not run.results.exists()
    assert [line for line in said.splitlines() if "CUDA 11" in line and "525" in line]


def test_a_gpu_without_cupy_names_the_remedy_unless_only_the_cpu_is_wanted(tmp_path):
    run = new_gpu_run(tmp_path / "run")
    only_nvml = tmp_path / "only_nvml"
    shutil.copytree(FAKES / "pynvml", only_nvml / "pynvml")
    done = run.snakemake("--dry-run", env={"PYTHONPATH": str(only_nvml)})
    assert done.returncode != 0 and "CuPy is not installed" in done.stdout + done.stderr
    assert "pip install -r envs/cuda12.txt" in done.stdout + done.stderr
    run.write_config(f"devices: [cpu]\n{GPU_CONFIG}")
    assert run.snakemake("--dry-run", env={"PYTHONPATH": str(only_nvml)}).returncode == 0
