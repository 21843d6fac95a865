"""What a reader sees first, the terminal and the three paragraphs, for runs of every size: lines, words, figures."""

import re

import pytest
from pictures import reference as newest
from records_factory import (
    bandwidth_record,
    cell,
    device_record,
    operator_record,
    peak_record,
    skipped_peak,
    stream,
    verified,
)

from roofline.records.bandwidth_record import Peer
from roofline.report import interpretation, job_lines, screen
from roofline.report.pages import build_operation_table, build_pages
from roofline.report.report_model import build_report
from roofline.table.rows import USERS, Roofline

HBM, DRAM = bandwidth_record("gpu0", hbm_read=4000, h2d=50), bandwidth_record("cpu", dram_read=80)
GPU_PEAK, CPU_PEAK = peak_record("gpu0", "fp32", 55), peak_record("cpu", "fp32", 0.9)
BARE = operator_record("gpu0", cell("gpu0", 1e-3, 0.5e-3))
LESS = {
    "a device": [device_record("cpu")],
    "no operators": [GPU_PEAK, HBM],
    "no ceilings": [BARE],
    "no memory ceiling": [GPU_PEAK, BARE],
    "no compute ceiling": [HBM, BARE],
    "a small CPU": [CPU_PEAK, DRAM, operator_record("cpu", cell("cpu", 1e-1))],
    "warm cells": [
        GPU_PEAK,
        HBM,
        operator_record("gpu0", cell("gpu0", 1e-3, 0.5e-3, cache="warm", memory_ceilings=[])),
    ],
    "too few samples": [peak_record("gpu0", "fp32", 55, interval=False), HBM],
    "a dtype that the card lacks": [skipped_peak("gpu0", "bf16", "it needs 8.0"), HBM],
}
# The parts of the question of each paragraph; in place of all of them it may say why none is known.
ANSWERS = {
    "Not this one|No compute ceiling": ("reference GEMM", "is (not )?confirmed", "Repeats|Not yet"),
    "No operator|No share.*(warm|sound)|Shares of a roof": (
        "of the memory slope",
        r"% of the \w+ peak",
        "bought|gain of another",
    ),
    "No ratio": ("attained TFLOPS differ", "bandwidths (differ|is unknown)", "What took the difference", "PCIe"),
}
DOUBT = {"doubt": "disturbed"}
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?")


def changed(table: Roofline, keep=lambda row: True, **fields) -> Roofline:
    """The rows of some cells and ceilings, with other fields."""
    rows = {name: filter(keep, getattr(table, name)) for name in ("ceilings", "operators")}
    return table.model_copy(update={name: [row.model_copy(update=fields) for row in rows[name]] for name in rows})


def of(table: Roofline, *devices: str) -> Roofline:
    rows = {name: row for name, row in table.devices.items() if name in devices}
    checks = [check for check in table.checks if check.device in devices]
    cut = changed(table, lambda row: row.device in devices)
    return cut.model_copy(update={"devices": rows, "checks": checks, "skipped": []})


REAL = {
    "a GPU and the CPU": lambda table: table,
    "a GPU": lambda table: of(table, "gpu0"),
    "the CPU": lambda table: of(table, "cpu"),
    "disturbed": lambda table: changed(table, **DOUBT),
    "the CPU, disturbed": lambda table: changed(of(table, "cpu"), **DOUBT),
}


@pytest.fixture(scope="module")
def reference() -> Roofline:
    return newest()


@pytest.fixture(params=[*REAL, *LESS])
def table(request, reference) -> Roofline:
    return REAL[request.param](reference) if request.param in REAL else verified(*LESS[request.param])


def test_the_summary_has_25_lines_a_device(table):
    text = screen.format_summary(build_report(table), 211.0, 0.23, "", 80)
    lines = [line for line in text.splitlines() if line]
    assert max(len(line) for line in lines) <= 80
    assert len(lines) <= min(60, 25 * len(table.devices) + 3)


def test_in_a_file_no_line_of_the_summary_is_cut(table):
    whole = screen.format_summary(build_report(table), width=None)
    assert [line for line in whole.splitlines() if line.endswith("…")] == []


def test_nothing_is_advised_that_the_fastest_implementations_do(reference):
    advice = {view.about.name: view.remedies for view in build_report(reference).tabulated_devices[0].operators}
    assert advice["decode_attention"] == advice["row_norm"] == ["larger batches"]


def test_there_are_three_paragraphs_without_gaps(table):
    paragraphs = interpretation.write_paragraphs(build_report(table))
    assert len(paragraphs) == 3 and max(len(paragraph.split()) for paragraph in paragraphs) <= 170
    assert not re.search(r"\b(None|nan|inf)\b|[{}|]|\*(?!\*)(?<!\*\*)", " ".join(paragraphs))


def test_the_paragraphs_answer_every_part_of_the_three_questions(table):
    compared = len({row.device_kind for row in table.devices.values()}) > 1  # the third needs a GPU and the CPU
    paragraphs = interpretation.write_paragraphs(build_report(table))[: 3 if compared else 2]
    for paragraph, (reason, parts) in zip(paragraphs, ANSWERS.items(), strict=False):
        assert [part for part in parts if not re.search(f"{part}|{reason}", paragraph)] == []


def test_a_disturbed_run_gives_no_figure(reference):
    """But counts, names and thresholds: no rate, no share, no ratio."""
    text = " ".join(interpretation.write_paragraphs(build_report(changed(reference, **DOUBT))))
    assert not re.search(r"\d (%|times|GB/s|TB/s|TFLOPS|us|ms)", text), text


def test_the_paragraphs_of_the_reference_have_its_figures(reference):
    trust, kernels, ratio = interpretation.write_paragraphs(build_report(reference))
    assert min(len(paragraph.split()) for paragraph in (trust, kernels, ratio)) >= 80
    ceilings = {ceiling.name: ceiling for ceiling in reference.ceilings if ceiling.device == "gpu0"}
    dtypes = ("fp32", "fp16", "bf16", "fp8_e4m3")  # that are put under load by default
    sustained = [ceilings[dtype].sustained_tflops for dtype in dtypes]
    assert {round(value) for value in sustained} <= {round(float(figure)) for figure in NUMBER.findall(trust)}
    (fused,) = {
        cell.implementation
        for cell in reference.operators
        if cell.reliable_fraction_of_roof and cell.implementation == "fused_graph"
    }
    assert fused in kernels
    gemms = [cell for cell in reference.operators if cell.operator == "gemm" and cell.dtype == "fp32"]
    times_s = {cell.device: cell.cpu_time_s for cell in gemms}
    assert f"{times_s['cpu'] / times_s['gpu0']:.2g}x" in ratio
    attention = [cell for cell in reference.operators if cell.operator == "decode_attention" and cell.device == "gpu0"]
    for batch in (1, 256):
        fastest = [c for c in attention if c.shape["batch"] == batch and c.implementation == "fused_graph"]
        shares = [cell.fraction_of_compute_peak for cell in fastest if cell.compute_ceiling == "fp16"]
        assert f"{100 * max(shares):.2g} % of the fp16 peak" in kernels


def test_small_rates_are_in_gflops_and_doubt_is_marked(reference):
    small = verified(CPU_PEAK, DRAM)
    assert "900" in interpretation.write_paragraphs(build_report(small))[0]
    (row,) = re.findall(r"^    fp32 +(\S+)", screen.format_summary(build_report(small)), re.MULTILINE)
    assert row == "900"
    shown = screen.format_summary(build_report(REAL["the CPU, disturbed"](reference)))
    assert re.search(r"^    fp32 +\S+\*", shown, re.MULTILINE)
    assert "*" not in screen.format_summary(build_report(reference))


def test_the_efficiency_of_a_users_operation_is_in_percent(reference):
    gemm = next(cell for cell in reference.operators if cell.operator == "gemm")
    user = {"operator": USERS, "name": "mine", "record": None, "roof_fraction_of_compute_peak": 0.25}
    table = reference.model_copy(update={"operators": [*reference.operators, gemm.model_copy(update=user)]})
    (row,) = build_operation_table(build_report(table)).rows
    assert row[0] == f"{gemm.device}: mine" and "25 %" in row


def test_the_pages_name_the_kernel_of_each_gemm_ceiling():
    peak = peak_record("gpu0", "fp16", 800, kernel={"name": "nvjet_hsh", "tensor_cores": True, "how_known": "CUPTI"})
    shown = build_pages(build_report(verified(peak, HBM)))
    assert all("nvjet_hsh" in shown[page] for page in ("ROOFLINE.md", "report.html"))


def test_two_operations_of_the_user_are_not_the_same_work(reference):
    gemm = next(cell for cell in reference.operators if cell.operator == "gemm")
    user = {"operator": USERS, "record": None, "shape": {}, "doubt": None, "gpu_time_s": None}
    times = {"short": 1e-9, "long": 1e3}
    own = [gemm.model_copy(update=user | {"name": name, "cpu_time_s": times[name]}) for name in times]
    table = reference.model_copy(update={"operators": [*reference.operators, *own]})
    assert interpretation.write_lessons(build_report(table)) == interpretation.write_lessons(build_report(reference))


@pytest.mark.parametrize(("link", "nvlinks", "words"), [("pcie", None, "PCIe"), ("nvlink", 18, "18 NVLinks")])
def test_the_pages_show_how_two_gpus_are_linked(link, nvlinks, words):
    links = {"active_nvlinks": nvlinks, "nvlink_version": None, "inactive_nvlinks": []}
    peer = Peer(peer="gpu1", uuid="", link=link, pcie_ancestor="node", **links)
    copies = stream("p2p_gpu1", 25, level="p2p", mix="copy")
    record = bandwidth_record("gpu0", "p2p_gpu1", p2p_gpu1=copies).model_copy(update={"peer": peer})
    shown = build_pages(build_report(verified(device_record("gpu0"), record)))
    assert all(f"gpu0 reaches gpu1 over {words}" in shown[page] for page in ("ROOFLINE.md", "report.html"))


@pytest.mark.parametrize(
    ("record", "figure"),
    [
        (GPU_PEAK, "55 TFLOPS"),
        (CPU_PEAK, "900 GFLOPS"),
        (HBM, "hbm_read 4000"),
        (skipped_peak("gpu0", "bf16", "it needs 8.0"), "it needs 8.0"),
    ],
)
def test_a_job_leaves_one_line_with_its_figure(record, figure):
    line = job_lines.format_job_line(record, "the job", device_record(record.device))
    assert line.startswith("the job: ") and "\n" not in line and figure in line
