"""interpretation.md of runs made by hand: verdicts follow the figures, and no sentence says more than they do."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from records_factory import (
    SCAN,
    US,
    bandwidth_record,
    cell,
    collected,
    device_record,
    operator_record,
    page,
    peak_record,
    reference_gemm,
    skipped_peak,
    stream,
)

from roofline.analysis.collect import Asked
from roofline.records.compute import Investigation, Trial
from roofline.records.operator import DataFile
from roofline.report import screen

HBM, DRAM = bandwidth_record("gpu0", hbm_read=4000, h2d=50), bandwidth_record("cpu", dram_read=80)
GPU_PEAK, CPU_PEAK = peak_record("gpu0", "fp32", 55), peak_record("cpu", "fp32", 1.0)


def interpreted(*records, **asked):
    return page("interpretation", *records, asked=Asked(**asked))


def answer(number, *records, only_words=True):
    """One of the three: by default without its tables."""
    part = re.split(r"^## ", interpreted(*records), flags=re.MULTILINE)[number]
    lines = part.splitlines()[1:]
    return "\n".join(line for line in lines if line and not (only_words and line.startswith("|")))


def verdicts(words):
    return re.findall(r"^\*\*(.+?)\*\*", words, re.MULTILINE)


# ---------------------------------------------------------------- as a document

RUNS = {
    "nothing but a device": [device_record("cpu")],
    "no operators": [GPU_PEAK, HBM],
    "no ceilings": [operator_record("gpu0", cell("gpu0", 1e-3, 0.5e-3))],
    "no memory ceiling": [GPU_PEAK, operator_record("gpu0", cell("gpu0", 1e-3))],
    "no compute ceiling": [HBM, operator_record("gpu0", cell("gpu0", 1e-3))],
    "register-only kernels alone": [peak_record("gpu0", "fp32_fma", 60), HBM],
    "a CPU alone": [CPU_PEAK, DRAM, operator_record("cpu", cell("cpu", 1e-1))],
    "no FLOPs": [GPU_PEAK, CPU_PEAK, HBM, DRAM]
    + [operator_record(name, cell(name, 1e-3, flops=0)) for name in ("gpu0", "cpu")],
    "no traffic": [GPU_PEAK, CPU_PEAK, HBM, DRAM]
    + [operator_record(name, cell(name, 1e-3, bytes=0)) for name in ("gpu0", "cpu")],
    "too few samples": [
        peak_record("gpu0", "fp32", 55, interval=False),
        bandwidth_record("gpu0", hbm_read=stream("hbm_read", 4000, interval=False)),
    ],
    "a card that lacks what was asked for": [skipped_peak("gpu0", "bf16", "it needs 8.0"), HBM],
}


@pytest.mark.parametrize("records", RUNS.values(), ids=RUNS)
def test_any_run_is_put_into_three_answers(records):
    text = interpreted(*records)
    assert [line[3] for line in text.splitlines() if line.startswith("## ")] == ["1", "2", "3"]
    assert not re.search(r"\b(None|nan|inf)\b|[{}]|\.\.|\w  \w| ,|\(\)", text)


# ---------------------------------------------------------------- 1: trust


def trust(*records):
    return answer(1, *records)


def at(share, dtype="fp16", **fields):
    """A ceiling at a share of its limit of 900 TFLOPS at 1755 MHz."""
    return peak_record("gpu0", dtype, share * 900, clock=(1755, 900), **fields)


def test_a_cpus_products_are_held_against_its_own_multiply_adds():
    """Which ran at the clock of that moment; the formula's, of an idle one, may be too low."""
    products = peak_record("cpu", "fp32", 0.23, vendor=0.33)
    slow = trust(products, peak_record("cpu", "fp32_fma", 0.5, vendor=0.33))
    assert "46 % of what register-only FMA reaches: a faster kernel may exist" in slow
    above = trust(products, peak_record("cpu", "fp32_fma", 0.15, vendor=0.33))
    assert "fp32 lies more than 10 % above what register-only FMA reaches, which is too low" in above
    assert "fp32_fma lies more than 10 % above the formula, which is too low" in slow
    assert "70 % of the limit" in trust(products)


def test_the_verdict_is_what_to_plan_with():
    words = trust(at(0.87, sustained=0.74 * 900), at(0.95, "fp32_fma"))
    rates = "these sustained rates (TFLOPS; 2 s of load): fp16 666."
    assert verdicts(words) == [f"gpu0: plan long-running work with {rates}"]
    assert "The roofs are the bursts: fp16 783, fp32_fma 855" in words
    assert verdicts(trust(at(0.9))) == ["gpu0: the roofs are the bursts (TFLOPS): fp16 810."]


@pytest.mark.parametrize(("share", "short"), [(0.81, False), (0.79, True)])
def test_a_ceiling_far_below_its_limit_is_what_the_library_reaches(share, short):
    assert ("fp16 is only what cuBLASLt reaches, 79 % of the limit" in trust(at(share))) == short


@pytest.mark.parametrize(("again", "trusted"), [(0.99, True), (0.911, True), (0.899, False), (1.101, False)])
def test_a_kernel_whose_two_blocks_differ_by_more_than_a_tenth_is_not_planned_with(again, trusted):
    words = trust(at(0.9 * again, chosen_at=0.9 * 900))
    assert ("no compute ceiling to plan with" in words) != trusted and ("Do not rely on fp16" in words) != trusted


def test_a_reference_product_that_beats_the_best_one_is_not_planned_with():
    words = trust(at(0.7, reference=0.85 * 900))
    assert "Do not rely on fp16, since the reference GEMM of fp16 beats the best one found" in words


def test_a_reference_product_is_held_against_the_best_one_on_the_same_operands():
    """fp64: with all bits random the same product draws more power."""
    best = at(0.9, reference=0.7 * 900, reference_inputs="all bits random")
    other = best.peak.burst.model_copy(update={"inputs": "all bits random", "tflops": 0.75 * 900})
    best.peak.variants = [other]
    assert re.search(r"\| fp16, also *\| all bits random .* 675 \| *83 % \|", answer(1, best, only_words=False))
    assert "on its operands, the ceiling's product gives 675 TFLOPS, of which it attains 93 %" in answer(2, best, HBM)
    roofline = collected(best, HBM).roofline
    told = "other operands than its ceiling, whose product gives 675 TFLOPS on those"
    assert told in " ".join(screen.summary(roofline).split())
    other.tflops = 0.6 * 900
    assert "the reference GEMM of fp16 beats the best one found" in trust(best)


@pytest.mark.parametrize(("last", "told"), [(1.009, False), (1.011, True)])
def test_a_burst_whose_last_quarter_is_slower_by_more_than_a_percent_is_told(last, told):
    """tf32 on an H200: the clock steps within the block, and the median is of the first rate."""
    one = at(0.9)
    timing = one.peak.burst.latency
    samples = [timing.median_s] * 75 + [timing.median_s * last] * 25
    one.peak.burst.latency = timing.model_copy(update={"samples_s": samples})
    assert ("differ by more than 1 % in fp16 (810, 810, 810 and 801 TFLOPS)" in trust(one)) is told


def test_nothing_measured_is_nothing_to_plan_with():
    assert trust(skipped_peak("gpu0", "bf16", "it needs 8.0")) == "**gpu0: no compute ceiling was measured.**"


def test_one_block_alone_says_nothing_of_repeating():
    alone = at(0.9)
    alone.peak.candidates[0].block_tflops = None
    assert "fp16 was measured in one block only." in trust(alone) and "agree" not in trust(alone)
    words = trust(alone, at(0.9, "fp32", chosen_at=0.9 * 900 * 1.01))
    assert "Within this run, two timed blocks of each ceiling's kernel agree within 0.99 %." in words
    assert "fp16 was measured in one block only." in words


def test_a_burst_that_is_the_reference_gemms_own_block_is_held_against_the_other_one():
    """By which it was chosen too: it would agree with itself within 0 %."""
    own = at(0.9, reference=0.9 * 900)
    assert "fp16 was measured in one block only." in trust(own) and "agree" not in trust(own)
    own.peak.slower_remeasurements = [own.peak.burst.model_copy(update={"tflops": 0.9 * 900 / 1.05})]
    assert "two timed blocks of each ceiling's kernel agree within 5.0 %." in trust(own)


@pytest.mark.parametrize(
    ("left", "reasons", "said"),
    [
        (0.8, ["sw_power_cap"], "Sustained load leaves 80 % of the burst in fp16 (limited by: power cap)."),
        (0.8, [], "Sustained load leaves 80 % of the burst in fp16 (limited by: none reported)."),
        (0.98, [], None),
    ],
)
def test_what_sustained_load_leaves(left, reasons, said):
    words = trust(at(0.9, sustained=left * 0.9 * 900, reasons=reasons))
    assert said in words if said else "Sustained load leaves" not in words


@pytest.mark.parametrize(
    ("interval", "said"),
    [
        (0.0244, "± 2.5 % within this run"),
        (0.11, "do not rely on it"),
        (0, "fewer than 7 samples"),
    ],
)
def test_how_sure_the_memory_ceiling_is(interval, said):
    made = stream("hbm_read", 4000, interval, vendor_gb_per_s=4800, fraction_of_vendor=4000 / 4800)
    words = trust(at(0.9), bandwidth_record("gpu0", d2d=3500, hbm_read=made))
    assert "hbm_read is 4000 GB/s (83 % of the vendor's)" in words and said in words


def test_the_memory_ceiling_is_the_one_that_operators_stand_under():
    both = bandwidth_record("gpu0", hbm_read=4000, d2d=3500)
    one = operator_record("gpu0", cell("gpu0", 1e-3, memory_ceilings=["d2d"]))
    assert "The memory ceiling d2d is 3500 GB/s" in trust(peak_record("gpu0", "fp32_fma", 60), both, one)


def trial(what, finding, explains):
    return Trial(what=what, finding=finding, explains=explains)


@pytest.mark.parametrize(
    ("verdict", "said"), [("sustained", "load gives more"), ("none", "no cause was found; ruled out: power limit")]
)
def test_an_investigation_is_told_with_what_it_found(verdict, said):
    found = Investigation(
        reason="4 TFLOPS is below 50 % of the vendor's 10",
        trials=[trial("size", "8192 gives no more", False), trial("sustained", "load gives more", True)],
        verdict=verdict,
        ruled_out=["power limit"],
    )
    words = trust(at(0.4, investigation=found.model_dump()))
    assert f"fp16 was investigated, since 4 TFLOPS is below 50 % of the vendor's 10: {said}." in words


def test_doubts_and_operators_above_their_roofs_are_told_and_many_are_counted():
    doubted = at(0.9, doubts=["made up one.", "made up two.", "made up three."])
    words = trust(doubted)
    assert "Inconsistent: fp16: made up one." in words and "1 more in the records." in words
    fast = operator_record("gpu0", *(cell("gpu0", 1e-5, n=n) for n in range(4)))
    words = trust(GPU_PEAK, HBM, fast)
    assert "scan plain fp32 N 0 lies above its roof (5000 %)." in words and "So do 2 more operators." in words


def test_what_lies_above_its_roof_has_its_operators_title():
    info = SCAN.model_copy(update={"title": "Prefix sum"})
    words = trust(GPU_PEAK, HBM, operator_record("gpu0", cell("gpu0", 1e-5), operator=info))
    assert "Prefix sum plain fp32 N 1024 lies above its roof" in words


# ---------------------------------------------------------------- 2: the operators


def landing(*cells, records=(GPU_PEAK, HBM), device="gpu0", **fields):
    return answer(2, *records, operator_record(device, *cells, **fields))


def table_row(start, *cells, records=(GPU_PEAK, HBM), device="gpu0"):
    """The first row of a table that begins so, by its columns."""
    lines = answer(2, *records, operator_record(device, *cells), only_words=False).splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    at = next(i for i, row in enumerate(rows) if row[: len(start)] == list(start))
    head = max(i for i in range(at) if rows[i][:1] == ["operator"])
    return dict(zip(rows[head], rows[at], strict=True))


def test_a_device_has_one_verdict_and_its_operators_a_row_per_dtype():
    cells = (
        cell("gpu0", 550 * US, 530 * US, n=4096),
        cell("gpu0", 8e-3, 1e-3, n=1, implementation="slow"),
    )
    assert verdicts(landing(*cells)) == [
        "gpu0: at best, GEMM reaches 98 % and scan 91 % of their roofs; "
        "cells: 1 compute-bound, 1 memory-bound, 1 overhead-bound."
    ]
    row = table_row(["scan", "fp32"], *cells)
    assert (row["FLOP/byte"], row["ridge point"], row["lower ceiling"]) == ("0.5", "13.8", "hbm_read")
    assert (row["cells"], row["of roof"], row["sealed: right"]) == ("2", "6.2 to 91 %", "1 of 2")
    assert (row["closest to its roof"], row["furthest from it"]) == ("plain N 4096", "slow N 1")


def test_a_ceiling_that_was_not_measured_is_told():
    words = landing(cell("gpu0", 1e-3), records=(GPU_PEAK,))
    assert "For 2 of 2 cells, the memory or the compute ceiling was not measured." in words
    assert "2 of no known regime.**" in words
    assert table_row(["scan"], cell("gpu0", 1e-3), records=(GPU_PEAK,))["lower ceiling"] == "fp32"


def test_cells_without_a_roof_are_told_on_the_page_and_on_the_screen():
    warm = {"cache": "warm", "memory_ceilings": []}
    records = [peak_record("cpu", "fp32", 1.5), bandwidth_record("cpu", dram_read=100)]
    records.append(operator_record("cpu", cell("cpu", 40e-3), *(cell("cpu", 40e-3, n=n, **warm) for n in (1, 2))))
    told = "Without a roof: 2 cells of scan (warm, and what the caches of this device give is not measured)"
    assert told in answer(2, *records)
    shown = screen.summary(collected(*records).roofline)
    assert told in " ".join(shown.split())


def test_a_compute_bound_operator_stands_under_the_compute_ceiling():
    assert verdicts(answer(2, GPU_PEAK, HBM)) == [
        "gpu0: at best, GEMM reaches 98 % of its roof; cells: 1 compute-bound."
    ]
    assert table_row(["GEMM"], cell("gpu0", 1e-3))["lower ceiling"] == "fp32"


def test_what_neither_roof_nor_overhead_explains_is_the_implementations():
    """Memory-bound by intensity and at a fifth of the bandwidth: the memory does not set its time."""
    said = "In 1 of 3 cells (plain), roof and overheads explain less than half of the time"
    assert said in landing(cell("gpu0", 2.5e-3, 2.5e-3), cell("gpu0", 550 * US, 530 * US, n=2, implementation="good"))
    assert "explain less than half" not in landing(cell("gpu0", 2.5e-3, 0.6e-3))
    cpu = landing(cell("cpu", 0.1, overhead_s=0.06), records=(CPU_PEAK, DRAM), device="cpu")
    assert "explain less than half" not in cpu


def test_the_score_of_the_predictions_is_told_beside_the_rule_of_thumb():
    words = landing(
        cell("gpu0", 550 * US, 530 * US, textbook_regime="memory"), cell("gpu0", 1.0, 1.0, textbook_regime="memory")
    )
    assert "Predicted right: 2 of 3 (regime 2, time 2)" in words
    assert "a rule of thumb names 2 of 3 regimes" in words


def test_steps_that_take_longer_when_queued_are_told():
    assert "Queued without gaps, scan took up to 20 % longer" in landing(cell("gpu0", 550 * US, 660 * US))
    assert "Queued" not in landing(cell("gpu0", 550 * US, 560 * US))


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ((550 * US, 560 * US), "0.22 to 0.23 % (usual: 0.3 to 1 %)"),
        ((510 * US, 900 * US), "0.14 to 0.25 % (usual: 0.3 to 1 %)"),
    ],
)
def test_the_share_of_the_fp16_peak_is_held_against_what_is_usual(times, said):
    cells = [cell("gpu0", seconds, dtype="fp16", n=n) for n, seconds in enumerate(times)]
    fp16 = peak_record("gpu0", "fp16", 800)
    column = "memory-bound: of the fp16 peak"
    assert table_row(["scan"], *cells, records=(fp16, HBM))[column] == said
    plain = SCAN.model_copy(update={"usual_share_of_peak": None})
    assert column not in answer(2, fp16, HBM, operator_record("gpu0", *cells, operator=plain), only_words=False)
    assert column not in table_row(["scan"], cell("gpu0", 550 * US))


def test_what_the_records_note_is_told_once():
    data = [DataFile(path="w", sha256="0", generated=True, description="made up")]
    words = landing(cell("gpu0", 1e-3), notes=["fp16 is emulated", "fp16 is emulated"], data=data)
    assert words.count("Note: fp16 is emulated; weights were generated") == 1


def test_operations_of_the_users_own_are_listed():
    own = {"name": "my | kernel", "flops": 2e9, "memory_bytes": 4e8, "dtype": "fp32"}
    timed = own | {"name": "timed", "measured_s": 2e-4}
    text = interpreted(GPU_PEAK, HBM, operations=[own, timed])
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in text.splitlines()]
    assert ["gpu0", "my \\| kernel", "fp32", "5", "100 us", "-", "-", "memory"] in rows
    assert ["gpu0", "timed", "fp32", "5", "100 us", "200 us", "50 %", "memory"] in rows
    assert "No operator was placed" not in text and "of your own" not in interpreted(GPU_PEAK, HBM)


# ---------------------------------------------------------------- 3: the GPU against the CPU


def compared(cpu_s, *gpu_cells, only_words=True):
    gpu_cells = gpu_cells or (cell("gpu0", 550 * US, 545 * US),)
    records = [skipped_peak("gpu0", "fp32", "made up"), peak_record("gpu0", "fp32_fma", 55), HBM, CPU_PEAK, DRAM]
    under = {"compute_ceiling": "fp32_fma"}
    gpu_cells = [one.model_copy(update=under) for one in gpu_cells]
    records.append(operator_record("gpu0", *gpu_cells))
    return answer(3, *records, operator_record("cpu", cell("cpu", cpu_s)), only_words=only_words)


@pytest.mark.parametrize(("cpu_s", "of_roofs"), [(55.5e-3 * 0.55, "1.11"), (50e-3 * 0.55, "1"), (44e-3 * 0.55, "0.88")])
def test_the_ratio_is_held_against_that_of_the_roofs(cpu_s, of_roofs):
    """4000 and 80 GB/s: 50. The GPU takes 0.55 ms."""
    times = cpu_s / 550e-6
    words = compared(cpu_s)
    assert f"| {times:.3g} |" in " ".join(compared(cpu_s, only_words=False).split())
    assert verdicts(words) == [f"gpu0 is {times:.3g} times as fast as the CPU in scan (N 1024), in fp32."]
    assert f"That is {of_roofs} times the ratio of their memory ceilings (50) in scan." in words
    assert "launch" not in compared(cpu_s, only_words=False)


def test_the_fastest_implementation_stands_for_the_gpu_and_launches_are_told():
    slow = cell("gpu0", 5e-3, 4.9e-3, implementation="slow")
    shown = compared(30e-3, slow, cell("gpu0", 550 * US, 545 * US), only_words=False)
    assert re.search(r"550 us \(n 9, plain\) \| +91 %", shown)
    assert re.search(
        r"launch overhead \|(.*\n)+.* 60 % \|", compared(30e-3, cell("gpu0", 1e-3, 0.4e-3), only_words=False)
    )


def test_several_cases_give_a_range():
    """Of one operator: 50 and 100 times as fast."""
    gpu = [cell("gpu0", 1e-3, 0.9e-3, n=n) for n in (1, 2)]
    cpu = [cell("cpu", times * 1e-3, n=n) for n, times in ((1, 50), (2, 100))]
    records = [skipped_peak("gpu0", "fp32", "made up"), HBM, DRAM, operator_record("gpu0", *gpu)]
    words = answer(3, *records, operator_record("cpu", *cpu))
    assert verdicts(words) == ["gpu0 is 50 and 100 times as fast as the CPU in scan (2 cases), in fp32."]


def test_compute_bound_operators_are_held_against_the_compute_ceilings():
    words = answer(3, GPU_PEAK, HBM, CPU_PEAK, DRAM)
    assert "That is 1 times the ratio of their compute ceilings (55) in GEMM." in words


def test_what_the_link_would_take_stands_in_the_table():
    records = [GPU_PEAK, HBM, CPU_PEAK, DRAM]
    words = answer(3, *records)
    assert "PCIe plays no part: moving all of a step's bytes over PCIe, at the h2d rate of 50 GB/s, would take" in words
    assert "over PCIe |" in answer(3, *records, only_words=False)
    without = [GPU_PEAK, bandwidth_record("gpu0", hbm_read=4000), CPU_PEAK, DRAM]
    assert "PCIe" not in answer(3, *without, only_words=False)


def test_what_cannot_be_compared_is_said():
    assert answer(3, CPU_PEAK) == "Only cpu was measured; the comparison needs a GPU and the CPU (`devices: auto`)."
    bf16 = peak_record("gpu0", "bf16", 900, reference=reference_gemm("gpu0", "bf16", 800))
    assert answer(3, bf16, CPU_PEAK) == "No operator was measured in fp32 on both gpu0 and cpu."
    unknown = answer(
        3,
        peak_record("gpu0", "fp32_fma", 60),
        CPU_PEAK,
        *(operator_record(n, cell(n, 1.0, compute_ceiling="x")) for n in ("gpu0", "cpu")),
    )
    assert unknown == "**gpu0 is 1 times as fast as the CPU in scan (N 1024), in fp32.**"


TIMES = st.floats(1e-6, 10)


@settings(deadline=None, max_examples=30)
@given(TIMES, TIMES, st.sampled_from([0, 10**6, 10**10]), st.sampled_from([0, 10**6, 10**10]))
def test_whatever_the_times_the_words_can_be_read(gpu_s, cpu_s, flops, traffic):
    fields = {"flops": flops, "bytes": traffic}
    cells = [operator_record("gpu0", cell("gpu0", gpu_s, gpu_s / 2, **fields))]
    cells.append(operator_record("cpu", cell("cpu", cpu_s, overhead_s=cpu_s / 3, **fields)))
    text = interpreted(GPU_PEAK, CPU_PEAK, HBM, DRAM, *cells)
    assert not re.search(r"\b(None|nan|inf)\b|[{}]|\.\.|\w  \w", text)
