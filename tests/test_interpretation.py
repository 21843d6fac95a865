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


def test_a_cpus_products_are_held_against_its_own_multiply_adds():
    """Which ran at the clock of that moment; the formula's, of an idle one, may be too low."""
    products = peak_record("cpu", "fp32", 0.23, vendor=0.33)
    slow = trust(products, peak_record("cpu", "fp32_fma", 0.5, vendor=0.33), device="cpu")
    assert slow["short_shares"] == [pytest.approx(0.46)] and slow["beyond"] == {"the formula": ["fp32_fma"]}
    above = trust(products, peak_record("cpu", "fp32_fma", 0.15, vendor=0.33), device="cpu")
    assert above["beyond"]["what register-only FMA reaches"] == ["fp32"]
    assert trust(products, device="cpu")["short_shares"] == [pytest.approx(0.23 / 0.33)]


def test_sustained_rates_are_planned_with_and_bursts_are_the_roofs():
    found = trust(at(0.87, sustained=0.74 * 900), at(0.95, "fp32_fma"))
    assert (found["plan"], found["bursts"]) == (["fp16 666"], ["fp16 783", "fp32_fma 855"])
    assert trust(skipped_peak("gpu0", "bf16", "it needs 8.0"))["peaks"] == {}


BEATEN = {"reference": 0.85 * 900}
PLANNED_WITH = [
    (at(0.81), "short", []),
    (at(0.79), "short", ["fp16"]),
    *((at(0.9 * again, chosen_at=0.9 * 900), "doubted", ["fp16"] * bad) for again, bad in ((0.911, 0), (0.899, 1))),
    (at(0.9 * 1.101, chosen_at=0.9 * 900), "doubted", ["fp16"]),
    (at(0.7, **BEATEN), "doubted", ["fp16"]),
    (at(0.9, sustained=0.8 * 0.9 * 900), "falls", {"fp16": pytest.approx(0.8)}),
    (at(0.9, sustained=0.98 * 0.9 * 900), "falls", {}),
    (at(0.9, reference=0.9 * 900), "alone", ["fp16"]),  # the reference GEMM's own block: it would agree with itself
    (at(0.9), "alone", []),
]


@pytest.mark.parametrize(("record", "key", "expected"), PLANNED_WITH)
def test_what_is_doubted_of_a_ceiling(record, key, expected):
    found = trust(record)
    assert found[key] == expected
    assert bool(found["bursts"]) != bool(found["doubted"])


def test_a_reference_product_is_held_against_the_best_one_on_the_same_operands():
    """fp64: with all bits random the same product draws more power."""
    best = at(0.9, reference=0.7 * 900, reference_inputs="all bits random")
    other = best.peak.burst.model_copy(update={"inputs": "all bits random", "tflops": 0.75 * 900})
    best.peak.variants = [other]
    assert trust(best)["doubted"] == []
    other.tflops = 0.6 * 900
    assert trust(best)["doubted"] == ["fp16"]
    own = at(0.9, reference=0.9 * 900)
    own.peak.slower_remeasurements = [own.peak.burst.model_copy(update={"tflops": 0.9 * 900 / 1.05})]
    assert trust(own)["agree"] == [pytest.approx(0.05)]


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
    assert (row["closest to its roof"], row["furthest from it"]) == ("plain N 4096", "slow N 1")


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


@pytest.mark.parametrize(("cpu_s", "of_roofs"), [(55.5e-3 * 0.55, "1.11"), (50e-3 * 0.55, "1"), (44e-3 * 0.55, "0.88")])
def test_the_ratio_is_held_against_that_of_the_roofs(cpu_s, of_roofs):
    """4000 and 80 GB/s: 50. The GPU takes 0.55 ms."""
    found = compared(cpu_s)
    (scan,) = found["compared"]
    assert (scan["title"], scan["times"]) == ("scan", f"{cpu_s / 550e-6:.3g}")
    assert scan["ratio"].split()[0] == of_roofs and found["rows"][0]["GPU times as fast"] == scan["times"]


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
