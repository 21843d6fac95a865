"""What the three answers of a run rest on: which ceilings are planned with, and what is compared with what."""

import re

import pytest
from records_factory import (
    US,
    bandwidth_record,
    cell,
    device_record,
    facts,
    operator_record,
    page,
    peak_record,
    skipped_peak,
)

from roofline.report import efficiency, gpu_vs_cpu, throughput

HBM, DRAM = bandwidth_record("gpu0", hbm_read=4000, h2d=50), bandwidth_record("cpu", dram_read=80)
GPU_PEAK, CPU_PEAK = peak_record("gpu0", "fp32", 55), peak_record("cpu", "fp32", 1.0)

# ---------------------------------------------------------------- 1: trust


def trust(*records, device="gpu0"):
    return facts(throughput, *records, device=device)


def at(share, dtype="fp16", **fields):
    """A ceiling at a share of its limit of 900 TFLOPS at 1755 MHz."""
    return peak_record("gpu0", dtype, share * 900, clock=(1755, 900), **fields)


# ---------------------------------------------------------------- 2: the operators


def landing(*cells, records=(GPU_PEAK, HBM), device="gpu0", **fields):
    return facts(efficiency, *records, operator_record(device, *cells, **fields), device=device)


def test_operators_have_a_row_per_dtype():
    slow = cell("gpu0", 8e-3, 1e-3, n=1, implementation="slow")
    found = landing(cell("gpu0", 550 * US, 530 * US, n=4096), slow)
    assert [found["score"].cells, found["lags"]] == [3, {}]
    row = next(row for row in found["rows"] if row["operator"] == "scan")
    assert (row["FLOP/byte"], row["ridge point"], row["lower ceiling"]) == ("0.5", "13.8", "hbm_read")
    assert (row["cells"], row["of roof"], row["sealed: right"]) == ("2", "6.2 to 91 %", "1 of 2")
    assert (row["closest to its roof"], row["furthest from it"]) == ("plain n 4096", "slow n 1")


def test_what_neither_roof_nor_overhead_explains_is_the_implementations():
    """Memory-bound by intensity and at a fifth of the bandwidth: the memory does not set its time."""
    found = landing(cell("gpu0", 2.5e-3, 2.5e-3), cell("gpu0", 550 * US, 530 * US, n=2, implementation="good"))
    assert (found["slow"], found["slow_ways"]) == (1, ["plain"])
    assert landing(cell("gpu0", 2.5e-3, 0.6e-3))["slow"] == 0
    assert landing(cell("cpu", 0.1, overhead_s=0.06), records=(CPU_PEAK, DRAM), device="cpu")["slow"] == 0


# ---------------------------------------------------------------- 3: the GPU against the CPU


def compared(cpu_s, *gpu_cells):
    gpu_cells = gpu_cells or (cell("gpu0", 550 * US, 545 * US),)
    records = [skipped_peak("gpu0", "fp32", "made up"), peak_record("gpu0", "fp32_fma", 55), HBM, CPU_PEAK, DRAM]
    gpu = operator_record("gpu0", *(one.model_copy(update={"compute_ceiling": "fp32_fma"}) for one in gpu_cells))
    return facts(gpu_vs_cpu, *records, gpu, operator_record("cpu", cell("cpu", cpu_s)))


# ---------------------------------------------------------------- as a document


BARE = operator_record("gpu0", cell("gpu0", 1e-3, 0.5e-3))
LESS = {
    "nothing but a device": [device_record("cpu")],
    "no operators": [GPU_PEAK, HBM],
    "no ceilings": [BARE],
    "no memory ceiling": [GPU_PEAK, BARE],
    "no compute ceiling": [HBM, BARE],
    "a CPU alone": [CPU_PEAK, DRAM, operator_record("cpu", cell("cpu", 1e-1))],
    "too few samples": [peak_record("gpu0", "fp32", 55, interval=False), HBM],
    "a card that lacks what was asked for": [skipped_peak("gpu0", "bf16", "it needs 8.0"), HBM],
}


@pytest.mark.parametrize("records", LESS.values(), ids=LESS)
def test_a_run_of_anything_less_has_three_answers_too(records):
    text = page("interpretation", *records)
    assert text.count("\n## ") == 3 and not re.search(r"\b(None|nan|inf)\b|[{}]", text)
