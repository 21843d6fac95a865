"""The whole workflow on a GPU by stand-ins for NVML, CuPy and cuBLASLt (tests/fakes): no figure means anything."""

import itertools
import json
import shutil
from datetime import datetime
from pathlib import Path

import pytest
from workflow_run import CHECKOUT, Run, made_once, new_checkout

from roofline.analysis.results import read_results

FAKES = CHECKOUT / "tests" / "fakes"
pytestmark = pytest.mark.slow
KNOWN = "reference/cards/nvidia-h200.json"
ONE_CARD = "GPU-1111=NVIDIA H200"
TWO_CARDS = f"{ONE_CARD},GPU-2222=NVIDIA H200"
CEILINGS = ["fp32", "fp16", "fp8_e4m3", "fp32_fma"]
CONFIG = """
cpu: all
effort: default
peak_flops:
  dtypes: [fp32, fp16, fp8_e4m3, fp32_fma]
  size: 256
  iterations: 5
  time_budget_s: 0.05
  sustained_s: 0
bandwidth:
  levels: [hbm, d2d, l2, l1, shared, h2d, d2h, p2p, sweep]
  transfer_size_mib: 1
  sweep_points: 1
  iterations: 4
  time_budget_s: 0.01
decode_attn: {seq_lens: [16], dtypes: [fp32], batch_sizes: [1], iterations: 10, time_budget_s: 0.1}
row_norm: {shapes: [1024x128, 5x33], iterations: 10, time_budget_s: 0.1}
rmsnorm_matmul: {hidden_sizes: [64], dtypes: [fp16], batch_sizes: [3], iterations: 10, time_budget_s: 0.1}
plot: {dpi: 50}
"""
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


class GpuRun(Run):
    """A checkout on a machine with cards as `env` describes them, one by default, and a stand-in for Nsight Compute; an
    array takes an eighth of the memory, which is small."""

    environment = {  # noqa: RUF012
        "PYTHONPATH": str(FAKES),
        "FAKE_GPUS": ONE_CARD,
        "FAKE_FREE_BYTES": "2100000000",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "NCU": str(FAKES / "bin" / "ncu"),
    }


def new_run(folder: Path, config: str = CONFIG) -> GpuRun:
    """With what the repository knows of other cards."""
    run = GpuRun(new_checkout(folder, config))
    (run.root / KNOWN).parent.mkdir(parents=True)
    shutil.copy(CHECKOUT / KNOWN, run.root / KNOWN)
    return run


def whole_run(tmp_path_factory) -> GpuRun:
    """Finished, counters included. Leave it as it is: `copy_of` it is one to change."""
    return GpuRun(made_once(tmp_path_factory, "gpu-run", lambda folder: new_run(folder).finish()))


def copy_of(finished: GpuRun, folder: Path) -> GpuRun:
    return GpuRun(Path(shutil.copytree(finished.root, folder / "run", symlinks=True)))


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> GpuRun:
    return whole_run(tmp_path_factory)


@pytest.fixture
def again(finished, tmp_path) -> GpuRun:
    return copy_of(finished, tmp_path)


# ---------------------------------------------------------------------------------------------- what is planned


def test_auto_plans_the_first_gpu_and_the_cpu(tmp_path):
    """Of the CPU what both are compared by."""
    beside = CONFIG.replace("cpu: all\n", "").replace("p2p, sweep", "p2p, dram, sweep")
    plan = new_run(tmp_path / "run", beside).planned(env={"FAKE_GPUS": TWO_CARDS})
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
    plan = new_run(tmp_path / "run", f"devices: all\n{CONFIG}").planned(env={"FAKE_GPUS": TWO_CARDS})
    assert {f"{device}/peak_flops/fp32.json" for device in ("gpu0", "gpu1", "cpu")} <= set(plan)
    between = {path for path in plan if "p2p" in path}
    assert between == {"gpu0/bandwidth/p2p_gpu1.json", "gpu1/bandwidth/p2p_gpu0.json"}


def test_another_card_that_is_measured_makes_nothing_of_the_first_one_stale(finished, again):
    again.write_config(f"devices: [gpu0, gpu1, cpu]\n{CONFIG}")
    plan = of_devices(again.planned(env={"FAKE_GPUS": TWO_CARDS}))
    assert {path for path in plan if not path.startswith("gpu1/")} == {"gpu0/bandwidth/p2p_gpu1.json"}


def test_what_is_done_is_not_planned_again(finished):
    assert not finished.planned()


def of_devices(plan) -> set[str]:
    """Planned jobs but those that put results together."""
    return {path for path in plan if "/" in path}


def test_another_driver_makes_all_of_the_gpu_stale_and_nothing_of_the_cpu(finished):
    stale = of_devices(finished.planned(env={"FAKE_DRIVER": "590.10"}, predictions=True))
    records = {path for path in finished.files("gpu0") if path.endswith(".json")}
    with_profiler = {path for path in records if path.startswith("gpu0/counters/")}  # another output of one job
    assert stale == records - with_profiler


@pytest.mark.parametrize(
    ("implementations", "stale"),
    [("[numpy, fused, eager]", {f"gpu0/{ATTENTION}"}), ("[fused_graph, numpy, eager, fused]", set())],
)
def test_implementations_that_a_device_does_not_have_make_nothing_of_it_stale(again, implementations, stale):
    """Nor does their order. Those that it has are measured anew without those that are left out."""
    again.write_config(CONFIG.replace("seq_lens: [16]", f"seq_lens: [16], implementations: {implementations}"))
    assert of_devices(again.planned()) == stale


# ---------------------------------------------------------------------------------------------- what is measured


def test_a_card_is_described_with_the_vendors_figures_for_it(finished):
    device = finished.read("gpu0/device_query.json")
    assert (device["name"], device["uuid"], device["vendor"]["match"]) == ("NVIDIA H200", "GPU-1111", "exact")
    assert device["vendor"]["peaks"]["fp16"]["tflops"] == 989.4 and device["hardware"]["sm_clock_max_mhz"] == 1980
    assert (device["software"]["cupy"], device["software"]["nvmath"]) == ("14.2.0", "1.0.0")


def test_every_compute_ceiling_has_its_search_and_its_reference_product(finished):
    for ceiling in CEILINGS:
        record = finished.read(f"gpu0/peak_flops/{ceiling}.json")
        assert record["skipped"] is None and record["peak"]["search"]["tried"] == len(record["peak"]["candidates"]) > 0
        references = [one["implementation"] for one in record["measurements"]]
        known = {"fp32": ["cupy.matmul"], "fp16": ["cupy.matmul", "tensor_matmul"], "fp32_fma": []}
        assert references == known.get(ceiling, ["cuBLASLt"])


def test_every_level_of_a_gpus_memory_has_its_streams_and_the_sweep_its_series(finished):
    for level, names in MEMORY.items():
        record = finished.read(f"gpu0/bandwidth/{level}.json")
        assert [one["name"] for one in record["bandwidths"]] == names
        assert all(one["verified"] and one["trials"] and one["gb_per_s"] > 0 for one in record["bandwidths"])
        assert (record["envelope"] is not None) == (level == "hbm")
    sweep = finished.read("gpu0/bandwidth/sweep.json")
    assert [one["series"] for one in sweep["sweeps"]] == ["through L1", "past L1"] and sweep["bandwidths"] == []


def test_every_implementation_of_a_device_is_measured_where_none_is_chosen(finished):
    of_gpu, of_cpu = (finished.read(f"{device}/{ATTENTION}")["measurements"] for device in ("gpu0", "cpu"))
    assert [(one["implementation"], one["scope"], one["per_call"]) for one in of_gpu] == [
        ("eager", "core", 1),
        ("eager", "block", 1),
        ("fused", "core", 1),
        ("fused_graph", "core", 6),
    ]
    assert [(one["implementation"], one["scope"]) for one in of_cpu] == [("numpy", "core"), ("numpy", "block")]
    assert all(one["device_latency"] for one in of_gpu) and not any(one["device_latency"] for one in of_cpu)
    ways = {device: finished.read(f"{device}/{ROWS}")["measurements"] for device in ("gpu0", "cpu")}
    assert {device: [one["implementation"] for one in found] for device, found in ways.items()} == {
        "gpu0": ["array", "naive", "welford", "welford_graph"] * 2,
        "cpu": ["numpy", "compiled", "numpy"],  # a loop by whole vectors has no rows of 33
    }


def test_a_graph_is_measured_as_kernels_wait_and_as_they_overlap(finished):
    found = [(one["implementation"], one["scope"]) for one in finished.read(f"gpu0/{NORM}")["measurements"]]
    alone = [(name, "waiting") for name in ("unfused", "unfused_graph", "fused", "fused_graph")]
    assert found == [*alone, ("fused_graph", "overlapped")]


def test_each_cell_was_predicted_before_anything_was_measured(finished):
    for device in ("gpu0", "cpu"):
        paths = sorted(finished.results.glob(f"{device}/**/*.json"))
        found = read_results(finished.results, paths)
        (_, predictions), records = found.predictions[device], [record for _, record in found.measured]
        measured = {one.identity: one.predicted for record in records for one in record.measurements}
        assert {one.identity: one.predicted for one in predictions.cells} == measured
        assert predictions.predicted_at < min(record.started_at for record in records)


def test_the_roofline_holds_every_ceiling_and_operator_under_its_seals(finished):
    roofline = finished.read("roofline.json")
    ceilings = {one["name"] for one in roofline["ceilings"] if one["device"] == "gpu0"}
    assert ceilings == {*CEILINGS, *(name for names in MEMORY.values() for name in names)}
    operators = [(one["operator"], one["dtype"]) for one in roofline["operators"] if one["device"] == "gpu0"]
    assert operators.count(("gemm", "fp32")) == operators.count(("gemm", "fp8_e4m3")) == 1
    assert (operators.count(("decode_attention", "fp32")), operators.count(("row_norm", "fp32"))) == (4, 8)
    assert operators.count(("rmsnorm_matmul", "fp16")) == 5
    criteria = finished.read("acceptance.json")["checks"]
    results = {one["check"]: one["result"] for one in criteria if one["device"] == "gpu0"}
    assert results["every prediction has its measured counterpart, sealed before it"] == "pass"
    assert results["every operator under measured ceilings in the plot"] == "pass"
    assert all((finished.results / name).stat().st_size for name in ("roofline.png", "interpretation.md", "sweep.png"))


def test_an_edited_list_of_known_cards_makes_the_table_stale(again):
    assert again.read("roofline.json")["ceilings"][0]["rank"] is None, "of so few samples"
    assert again.read("known_cards.json")["devices"]["gpu0"]["card"] == "NVIDIA H200"
    again.append(KNOWN, "")
    assert "roofline.json" in again.planned()


# ---------------------------------------------------------------------------------------------- two cards at once

PEAKS = [f"results/{gpu}/peak_flops/fp32.json" for gpu in ("gpu0", "gpu1")]
LINKS = [f"results/{gpu}/bandwidth/h2d.json" for gpu in ("gpu0", "gpu1")]
BETWEEN = "results/gpu0/bandwidth/p2p_gpu1.json"
ON_CPU = "results/cpu/peak_flops/fp32.json"


@pytest.fixture(scope="module")
def two_cards(tmp_path_factory) -> GpuRun:
    """A part of a run of two cards and the CPU, on two cores."""

    def make(folder):
        new_run(folder, f"devices: all\n{CONFIG}").finish("--cores", "2", *PEAKS, *LINKS, BETWEEN, ON_CPU, env=PEERS)

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


def test_on_one_core_cards_take_turns_and_without_access_nothing_is_measured_between_them(tmp_path):
    run = new_run(tmp_path / "run", f"devices: [gpu0, gpu1]\n{CONFIG}")
    run.finish(*PEAKS, BETWEEN, env=PEERS | {"FAKE_NO_PEER_ACCESS": "1"})
    assert len(spans(run)) == 3 and not at_once(spans(run))
    record = run.read("gpu0/bandwidth/p2p_gpu1.json")
    assert "may not access one another's memory" in record["skipped"] and not record["bandwidths"]


# ---------------------------------------------------------------------------------------------- what cannot be had


def test_a_driver_that_is_too_old_is_one_line_before_anything_is_measured(tmp_path):
    run = new_run(tmp_path / "run")
    done = run.snakemake("--dry-run", env={"FAKE_CUDA": "11040"})
    said = done.stdout + done.stderr
    assert done.returncode != 0 and "Traceback" not in said and not run.results.exists()
    assert [line for line in said.splitlines() if "CUDA 11" in line and "525" in line]


def test_a_gpu_without_cupy_names_the_remedy_unless_only_the_cpu_is_wanted(tmp_path):
    run = new_run(tmp_path / "run")
    only_nvml = tmp_path / "only_nvml"
    shutil.copytree(FAKES / "pynvml", only_nvml / "pynvml")
    done = run.snakemake("--dry-run", env={"PYTHONPATH": str(only_nvml)})
    assert done.returncode != 0 and "CuPy is not installed" in done.stdout + done.stderr
    assert "pip install -r envs/cuda12.txt" in done.stdout + done.stderr
    run.write_config(f"devices: [cpu]\n{CONFIG}")
    assert run.snakemake("--dry-run", env={"PYTHONPATH": str(only_nvml)}).returncode == 0
