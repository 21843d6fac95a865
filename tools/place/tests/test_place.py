"""Kernels of a user's program under measured ceilings: real reports, counts, shares, words, the command."""

import json
from dataclasses import replace
from math import fsum
from pathlib import Path

import ncu_counts
import place
import place_page
import placing
import pytest
from test_counter_names import CHIPS, known
from workflow_run import documented_fields

from roofline.api import UserError, ncu, open_run

CHECKOUT = Path(__file__).resolve().parents[3]
REPORTS = Path(__file__).parent / "reports"
REPORT = REPORTS / "decode_attention.ncu-rep"  # of an H200: times of kernels, and their FLOPs on CUDA cores
REFERENCE, H100 = CHECKOUT / "reference" / "nvidia-h200", CHECKOUT / "reference" / "nvidia-h100-80gb-hbm3"
RUN = open_run(REFERENCE)
HOPPER = (9, 0)
H200 = ncu.ProfiledGpu("NVIDIA H200", HOPPER, 132, 150_000_000_000)
CEILINGS = {ceiling.name: ceiling for ceiling in RUN.roofline.ceilings if ceiling.device == "gpu0"}


def placed(**counted) -> placing.Profile:
    """A launch of a millisecond with these bytes, every other count 0."""
    counts = ncu_counts.read_counts(lambda name: 0.0, HOPPER)
    counts |= {"duration_s": 1e-3, "sm_clock_mhz": 1980.0} | counted
    launch = ncu.ProfiledKernel("kernel", "void kernel(float*)", 0, (1024, 1, 1), (128, 1, 1), counts)
    return placing.place_report(ncu.NcuReport("my.ncu-rep", [H200], [launch]), RUN)


def read(path: Path) -> ncu.NcuReport:
    return ncu.read_report(path, ncu_counts.read_counts)


# ---------------------------------------------------------------- reports


def test_a_real_report_is_read_without_a_gpu():
    report = read(REPORT)
    assert (report.card.name, report.card.capability, report.card.multiprocessors) == (H200.name, HOPPER, 132)
    groups = {(group[0].name, group[0].grid[0]): group for group in ncu_counts.group_launches(report.kernels)}
    large = groups["decode_attention", 2048]
    assert large[0].block == (128, 1, 1) and len(large) == 2 and len(groups) == 3
    assert [launch.counts["duration_s"] for launch in large] == pytest.approx([123.264e-6, 122.848e-6])
    declared = 4 * 256 * 8 * 1024 * 64  # of its batch; softmax and quotients come on top
    assert all(declared < launch.counts["cuda_core", "fp32"] < 1.15 * declared for launch in large)
    assert not {("tensor_core", "bf16"), "l2_bytes"} & ncu_counts.sum_counts(large).keys()


def test_a_real_decode_layer_of_pytorch_is_placed_whole():
    profile = placing.place_report(read(REPORTS / "pytorch_layer.ncu-rep"), RUN)
    products = [kernel for kernel in profile.kernels if kernel.name.startswith("nvjet_")]
    assert len(products) == 4 and not any(kernel.missing for kernel in profile.kernels)
    weights = 2 * 4096 * (6144 + 4096 + 3 * 14336)  # bytes, of the layer's four
    assert weights < fsum(kernel.roof_at("memory").amount for kernel in products) < 1.06 * weights
    for kernel in products:  # by TMA
        assert kernel.regime == "memory" and kernel.roof_at("l2").amount > 0.95 * kernel.roof_at("memory").amount
        assert kernel.roof_at("l1") is None and kernel.flops == kernel.roof_at("compute").amount
    assert all(roof.share <= 1.05 for kernel in profile.kernels for roof in kernel.roofs)


@pytest.mark.parametrize("capability", CHIPS, ids="{0[0]}.{0[1]}".format)
def test_what_the_command_asks_for_exists_and_leaves_nothing_missing(capability):
    metrics = ncu_counts.list_metrics(capability)
    assert {name.split(".")[0] for name in metrics} <= known(CHIPS[capability])
    counts = ncu_counts.read_counts(lambda name: 1.0 if name in metrics else None, capability)
    assert [key for key, count in counts.items() if count is None] == ["memory_bytes"]  # which is asked for in parts
    assert set(metrics) <= set(ncu_counts.collect_command(capability).split("--metrics ")[1].split()[0].split(","))


@pytest.mark.parametrize(("seconds", "regime"), [(0.6, None), (0.95, "compute")])
def test_of_a_launch_whose_traffic_is_unknown_compute_is_the_limit_only_near_its_roof(seconds, regime):
    roof = placing.LaunchRoof("compute", "fp16", 1.0, seconds)
    assert placing.find_limit(1.0, [roof], None, complete=False)["regime"] == regime
    without_ceiling = placing.LaunchRoof("l2", None, 1.0)
    assert placing.find_limit(1.0, [roof, without_ceiling], None, complete=True)["regime"] == regime


def test_a_read_at_the_ceiling_of_memory_is_at_its_roof():
    moved = 1e-3 * CEILINGS["hbm_read"].gb_per_s * 1e9
    (kernel,) = placed(memory_read_bytes=moved, l2_bytes=moved, l1_bytes=moved).kernels
    assert (kernel.regime, kernel.limited_by, kernel.limited_at) == ("memory", "hbm_read", "memory")
    assert kernel.roof_at("memory").share == pytest.approx(1)
    assert kernel.roof_at("l2").share == pytest.approx(CEILINGS["hbm_read"].gb_per_s / CEILINGS["l2"].gb_per_s)


def test_loads_by_tma_are_named_only_if_they_were_counted():
    (counted,), (without_tma,), (unknown,) = (
        placed(l2_bytes=1e9, l1_bytes=1e8, tma_instructions=count).kernels for count in (10.0, 0.0, None)
    )
    assert counted.roof_at("l1") is None and counted.tma_instructions == 10
    assert (
        without_tma.roof_at("l1").amount == 1e8 and without_tma.tma_instructions == 0
    )  # the counter of L1 has all of it
    assert unknown.roof_at("l1") is None and unknown.tma_instructions is None


def test_a_kernel_that_the_profiler_did_not_count_is_named_and_the_others_are_kept():
    def read_counts(value, capability):
        counts = ncu_counts.read_counts(value, capability)
        return counts if counts["tensor_core", "bf16"] else ncu_counts.read_counts(lambda name: None, capability)

    report = ncu.read_report(REPORTS / "pytorch_layer.ncu-rep", read_counts)
    assert len(report.kernels) == 5 and "splitKreduce_kernel" in report.failed
    profile = placing.place_report(report, RUN)
    assert profile.launches == 5 and profile.failed == list(report.failed)


@pytest.mark.parametrize(("capability", "expected"), [((7, 0), 8), (HOPPER, 0)])
def test_the_page_lists_what_an_architecture_does_not_count(capability, expected):
    launch = ncu.ProfiledKernel("k", "k()", 0, (1, 1, 1), (1, 1, 1), {"duration_s": 1e-3})
    profile = placing.place_report(ncu.NcuReport("r", [replace(H200, capability=capability)], [launch]), RUN)
    assert len(profile.uncounted) == expected
    text = " ".join(place_page.profile_notes(profile, ""))
    assert all(f"{dtype} on {place_page.UNITS[unit]}" in text for unit, dtype in profile.uncounted)


@pytest.mark.parametrize("unit", ["smsp", "sm"])
def test_counts_that_a_report_holds_are_used_whatever_the_newest_ncu_counts(unit):
    """Of a V100, by an ncu that knew it, or by scripts that ask for the sums of multiprocessors."""
    held = {"gpu__time_duration.sum": 1e-3, "launch": 0.0}
    held |= {f"{unit}__sass_thread_inst_executed_op_d{name}_pred_on.sum": 10.0 for name in ("add", "mul", "fma")}
    counts = ncu_counts.read_counts(held.get, (7, 0))
    assert counts["cuda_core", "fp64"] == 40 and ("cuda_core", "fp32") not in counts
    launch = ncu.ProfiledKernel("k", "k()", 0, (1, 1, 1), (1, 1, 1), counts)
    report = ncu.NcuReport("r", [replace(H200, capability=(7, 0))], [launch])
    profile = placing.place_report(report, RUN)
    assert ("cuda_core", "fp64") not in profile.uncounted and ("cuda_core", "fp32") in profile.uncounted
    assert profile.kernels[0].flops == 40


# ---------------------------------------------------------------- the command


@pytest.fixture
def place_in(tmp_path, monkeypatch, capfd):
    def run(*arguments) -> tuple[int, str]:
        monkeypatch.chdir(tmp_path)
        try:
            status, refused = place.main([str(argument) for argument in arguments]), ""
        except UserError as error:
            status, refused = 1, str(error)
        printed = capfd.readouterr()
        assert not printed.err  # nor by the library that reads reports
        return status, printed.out + refused

    return run


def test_a_report_and_a_card_make_a_table_and_a_picture(place_in, tmp_path):
    status, output = place_in(REPORTS / "pytorch_layer.ncu-rep", "--card", REFERENCE)
    placed_folder = tmp_path / "results" / "placed"
    assert status == 0 and "nvjet" in output and "76 % is memory-bound" in " ".join(output.split())
    assert (placed_folder / "placement.png").read_bytes().startswith(b"\x89PNG")
    placement = json.loads((placed_folder / "placement.json").read_text())
    (section,) = placement["sections"]
    assert placement["schema_version"] == 2 and section["launches"] == 16
    documented = documented_fields(Path(place.__file__).with_name("README.md"), "placement.json")
    assert documented[""] <= section.keys() | {"gpu", "step", "roofs_s", "mfu", "rank", "unsized_s"}
    assert documented["kernels"] <= section["kernels"][0].keys()
    assert "placement.png" in (placed_folder / "placement.md").read_text()


def test_without_a_report_it_prints_the_command_that_collects_one(place_in):
    status, output = place_in("--card", H100)  # which is packed
    assert status == 0 and ncu_counts.collect_command(HOPPER) in output.splitlines()
    assert f"make place REPORT=my.ncu-rep CARD={H100}" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.ncu-rep", "--card", REFERENCE], "no such file"),
        ([CHECKOUT / "README.md", "--card", REFERENCE], "not a report"),
        (["cut.ncu-rep", "--card", REFERENCE], "damaged"),
        (["header.ncu-rep", "--card", REFERENCE], "damaged"),
        ([REPORT, "--card", "no-such-run"], "no such file"),
        ([REPORT], "no results here yet"),
        ([REPORT, "--card", H100], "profiled on NVIDIA H200, but the ceilings are of NVIDIA H100 80GB HBM3"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(place_in, tmp_path, arguments, message):
    whole = (REPORTS / "pytorch_layer.ncu-rep").read_bytes()
    (tmp_path / "cut.ncu-rep").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "header.ncu-rep").write_bytes(whole[:8])
    status, output = place_in(*arguments)
    assert status == 1 and len(output.splitlines()) == 1 and message in output
