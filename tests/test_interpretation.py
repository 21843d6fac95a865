"""interpretation.md of runs made by hand: verdicts follow the figures, and no sentence says more than they do."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from records_factory import (
    SCAN,
    US,
    VENDOR,
    bandwidth_record,
    cell,
    collected,
    device_record,
    operator_record,
    peak_record,
    reference_gemm,
    skipped_peak,
    stream,
)

from roofline.records.compute import Investigation, Trial
from roofline.records.operator import DataFile
from roofline.report.interpretation import interpret

HBM, DRAM = bandwidth_record("gpu0", hbm_read=4000, h2d=50), bandwidth_record("cpu", dram_read=80)
GPU_PEAK, CPU_PEAK = peak_record("gpu0", "fp32", 55), peak_record("cpu", "fp32", 1.0)


def interpreted(*records):
    found = collected(*records)
    devices = {r.device: r for r in records if r.kind == "device_query"}
    devices = {name: devices.get(name) or device_record(name) for name in found.roofline.devices}
    return interpret(found.roofline, devices, records)


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


def test_each_answer_begins_with_its_verdict_and_is_short():
    cells = [cell(name, 1e-3, n=n) for name in ("gpu0", "cpu") for n in range(12)]
    records = [GPU_PEAK, CPU_PEAK, HBM, DRAM]
    records += [
        operator_record(name, *(c for c in cells if c.memory_ceilings[0] in held))
        for name, held in (("gpu0", ("hbm_read",)), ("cpu", ("dram_read",)))
    ]
    for number in (1, 2, 3):
        paragraphs = [
            line for line in answer(number, *records).splitlines() if not line.startswith(("The operands", "*Sealed*"))
        ]
        assert paragraphs and all(line.startswith("**") for line in paragraphs)
        assert max(len(line.split()) for line in paragraphs) <= 120


# ---------------------------------------------------------------- 1: trust


def trust(*records):
    return answer(1, *records)


def at(share, dtype="fp16", **fields):
    """A ceiling at a share of its limit of 900 TFLOPS at 1755 MHz."""
    return peak_record("gpu0", dtype, share * 900, clock=(1755, 900), **fields)


@pytest.mark.parametrize(
    ("share", "verdict"),
    [(0.81, "gpu0: yes, its ceilings repeat within 0 %."), (0.79, "fp16 is only what cuBLASLt reaches")],
)
def test_where_the_ceiling_lies_decides(share, verdict):
    (said,) = verdicts(trust(at(share)))
    assert verdict in said
    assert f"| {100 * share:.0f} % of 900 at 1755 MHz |" in answer(1, at(share), only_words=False)


@pytest.mark.parametrize(("again", "trusted"), [(0.99, True), (0.911, True), (0.899, False), (1.101, False)])
def test_a_kernel_whose_two_blocks_differ_by_more_than_a_tenth_is_not_trusted(again, trusted):
    (said,) = verdicts(trust(at(0.9 * again, chosen_at=0.9 * 900)))
    assert ("yes" in said) == trusted and ("not its compute ceilings" in said) != trusted


def test_a_reference_product_that_beats_the_best_one_is_not_trusted():
    words = trust(at(0.7, reference=0.85 * 900))
    assert "not its compute ceilings" in words and "the reference product of fp16 beats the best one found" in words


def test_each_ceiling_has_its_own_verdict():
    words = trust(at(0.95), at(0.9, "fp32", chosen_at=1.2 * 900), at(0.5, "bf16"))
    assert verdicts(words) == ["gpu0: yes, but for fp32"]
    assert "two blocks of the best kernel of fp32 differ by more than 10 %" in words
    assert "bf16 reaches only 50 % of the limit." in words


def test_a_limit_that_is_too_low_is_told():
    assert "fp16 lies more than 10 % above the limit" in trust(at(1.11))


@pytest.mark.parametrize(("derived", "whose"), [(False, "datasheet"), (True, "formula")])
def test_without_a_measured_clock_the_promise_is_the_limit(derived, whose):
    promised = {"tflops": 1000, "unit": "tensor_core", "operations_per_clock_per_multiprocessor": None}
    promised |= {"source": "made up", "verified": True, "derived": derived}
    vendor = VENDOR.model_validate(VENDOR.model_dump() | {"peaks": {"fp16": promised}})
    records = [device_record("gpu0", vendor=vendor), peak_record("gpu0", "fp16", 930, vendor=1000)]
    assert f"| 93 % of 1000 by {whose} |" in answer(1, *records, only_words=False)


def test_nothing_measured_is_nothing_to_trust():
    assert trust(skipped_peak("gpu0", "bf16", "it needs 8.0")) == "**gpu0: no compute ceiling was measured.**"
    assert "yes" in trust(peak_record("gpu0", "fp32_fma", 60))


def test_one_block_alone_says_nothing_of_repeating():
    alone = at(0.9)
    alone.peak.candidates[0].block_tflops = None
    assert "nothing tells whether its ceilings repeat" in trust(alone)
    assert "fp16 had one block only." in trust(alone, at(0.9, "fp32"))


@pytest.mark.parametrize(
    ("left", "reasons", "said"),
    [
        (0.8, ["sw_power_cap"], "Sustained load lowers fp16 to 80 % of the burst (power cap)."),
        (0.8, [], "Sustained load lowers fp16 to 80 % of the burst (no throttle reason)."),
        (0.98, [], None),
    ],
)
def test_what_sustained_load_leaves(left, reasons, said):
    words = trust(at(0.9, sustained=left * 0.9 * 900, reasons=reasons))
    assert said in words if said else "Sustained" not in words


@pytest.mark.parametrize(
    ("interval", "said"),
    [((3900, 4100), "± 2.5 % within this run"), ((3500, 4100), "do not rely on it"), (None, "too few independent")],
)
def test_how_sure_the_memory_ceiling_is(interval, said):
    made = stream("hbm_read", 4000, vendor_gb_per_s=4800, fraction_of_vendor=4000 / 4800).model_copy(
        update={"ci95": interval}
    )
    words = trust(at(0.9), bandwidth_record("gpu0", d2d=3500, hbm_read=made))
    assert "hbm_read is 4000 GB/s (83 % of the vendor's)" in words and said in words


def test_the_memory_ceiling_is_the_one_that_operators_stand_under():
    both = bandwidth_record("gpu0", hbm_read=4000, d2d=3500)
    one = operator_record("gpu0", cell("gpu0", 1e-3, memory_ceilings=["d2d"]))
    assert "The memory ceiling d2d is 3500 GB/s" in trust(peak_record("gpu0", "fp32_fma", 60), both, one)


def trial(what, finding, explains):
    return Trial(what=what, size=None, tflops=None, clocks_mhz=[], finding=finding, explains=explains)


@pytest.mark.parametrize(("verdict", "said"), [("sustained", "load gives more"), ("none", "no cause was found")])
def test_an_investigation_is_told_with_what_it_found(verdict, said):
    found = Investigation(
        reason="4 TFLOPS is below 50 % of the vendor's 10",
        trials=[trial("size", "8192 gives no more", False), trial("sustained", "load gives more", True)],
        verdict=verdict,
        ruled_out=[],
        not_ruled_out=[],
    )
    words = trust(at(0.4, investigation=found.model_dump()))
    assert f"fp16 was investigated, since 4 TFLOPS is below 50 % of the vendor's 10: {said}." in words


def test_doubts_and_operators_above_their_roofs_are_told_and_many_are_counted():
    doubted = at(0.9, doubts=["made up one.", "made up two.", "made up three."])
    words = trust(doubted)
    assert "Does not fit: fp16: made up one." in words and "1 more in the records." in words
    fast = operator_record("gpu0", *(cell("gpu0", 1e-5, n=n) for n in range(4)))
    assert "So do 2 more operators." in trust(GPU_PEAK, HBM, fast)


# ---------------------------------------------------------------- 2: the operators


def landing(*cells, records=(GPU_PEAK, HBM), device="gpu0", **fields):
    return answer(2, *records, operator_record(device, *cells, **fields))


def of_scan(words):
    return next(line for line in words.splitlines() if ", scan:" in line)


def test_an_operator_is_told_by_its_best_share_its_regimes_and_its_extremes():
    words = of_scan(
        landing(
            cell("gpu0", 550 * US, 530 * US, n=4096),
            cell("gpu0", 8e-3, 1e-3, n=1, implementation="slow"),
        )
    )
    assert verdicts(words) == [
        "gpu0, scan: at best 91 % of its roof, the memory ceiling; 1 memory-bound and 1 overhead-bound cells."
    ]
    assert "Its intensity is 0.5 FLOP/byte, the ridge point lies at 13.8." in words
    assert "Nearest to its roof is plain fp32 N 4096 (550 us), farthest, at 6.2 %, slow fp32 N 1 (8 ms)." in words
    assert "gave the right regime for 1 of 2." in words


def test_a_narrow_range_is_told_whole_and_without_extremes():
    words = of_scan(landing(cell("gpu0", 550 * US), cell("gpu0", 600 * US, n=2)))
    assert "83 to 91 % of its roof, the memory ceiling; 2 memory-bound cells" in words and "Nearest" not in words


def test_a_ceiling_that_was_not_measured_is_told():
    words = of_scan(landing(cell("gpu0", 1e-3), records=(GPU_PEAK,)))
    assert "its roof, the compute ceiling; 1 of no known regime.**" in words
    assert "Of 1 of 1 cells the memory or the compute ceiling was not measured." in words


def test_a_compute_bound_operator_stands_under_the_compute_ceiling():
    words = answer(2, GPU_PEAK, HBM)
    assert verdicts(words) == ["gpu0, GEMM: 98 % of its roof, the compute ceiling; 1 compute-bound cell."]


def test_what_neither_roof_nor_overhead_explains_is_the_implementations():
    """Memory-bound by intensity and at a fifth of the bandwidth: the memory does not set its time."""
    said = "In 1 of 2 cells (plain) neither roof nor overhead explains half of the time: the implementation sets it."
    words = of_scan(landing(cell("gpu0", 2.5e-3, 2.5e-3), cell("gpu0", 550 * US, 530 * US, n=2, implementation="good")))
    assert said in words
    assert "sets it" not in of_scan(landing(cell("gpu0", 2.5e-3, 0.6e-3)))
    cpu = landing(cell("cpu", 0.1, overhead_s=0.03), records=(CPU_PEAK, DRAM), device="cpu")
    assert "implementation sets" not in cpu


def test_steps_that_take_longer_when_queued_are_told():
    assert "Queued without gaps, steps took up to 20 % longer" in landing(cell("gpu0", 550 * US, 660 * US))
    assert "Queued" not in landing(cell("gpu0", 550 * US, 560 * US))


@pytest.mark.parametrize(
    ("times", "said"),
    [
        (
            (550 * US, 560 * US),
            "attain 0.22 to 0.23 % of the measured peak (usual: 0.3 to 1 %; 0 of 2 lie within)",
        ),
        ((510 * US, 5e-3), "attain 0.025 to 0.25 % of the measured peak"),
    ],
)
def test_the_share_of_the_fp16_peak_is_held_against_what_is_usual(times, said):
    cells = [cell("gpu0", seconds, dtype="fp16", n=n) for n, seconds in enumerate(times)]
    fp16 = peak_record("gpu0", "fp16", 800)
    assert said in of_scan(landing(*cells, records=(fp16, HBM)))
    plain = SCAN.model_copy(update={"usual_share_of_peak": None})
    assert "usual" not in landing(*cells, records=(fp16, HBM), info=plain)
    assert "usual" not in landing(cell("gpu0", 550 * US))


def test_what_the_records_note_is_told_once():
    data = [DataFile(path="w", sha256="0", generated=True, description="made up")]
    words = landing(cell("gpu0", 1e-3), notes=["fp16 is emulated", "fp16 is emulated"], data=data)
    assert words.count("Note: fp16 is emulated; weights were generated") == 1


def test_few_cells_are_listed_and_many_are_grouped_by_implementation():
    few = answer(
        2, GPU_PEAK, HBM, operator_record("gpu0", *(cell("gpu0", 1e-3, n=n) for n in range(8))), only_words=False
    )
    assert "| fp32 N 7 | plain" in re.sub(" +", " ", few)
    cells = [
        cell("gpu0", 1e-3 * (n + 1), n=n, bytes=10**9 * (n + 1), implementation=name)
        for n in range(6)
        for name in ("plain", "fused")
    ]
    many = re.sub(" +", " ", answer(2, GPU_PEAK, HBM, operator_record("gpu0", *cells), only_words=False))
    assert "| plain | 6 | 25 % | 6 memory | 1 ms (fp32 N 0) | 6 ms (fp32 N 5) |" in many and "| fused | 6 |" in many


def test_a_figure_of_too_few_samples_is_marked():
    one = cell("gpu0", 1e-3)
    one.latency = one.latency.model_copy(update={"ci95_s": None})
    marked = interpreted(GPU_PEAK, HBM, operator_record("gpu0", one))
    assert "1 ms*" in marked and marked.rstrip().endswith("too few independent samples for an interval")
    assert "too few" not in interpreted(GPU_PEAK, HBM, operator_record("gpu0", cell("gpu0", 1e-3)))


# ---------------------------------------------------------------- 3: the GPU against the CPU


def compared(cpu_s, *gpu_cells):
    gpu_cells = gpu_cells or (cell("gpu0", 550 * US, 545 * US),)
    records = [GPU_PEAK, HBM, CPU_PEAK, DRAM, operator_record("gpu0", *gpu_cells)]
    words = answer(3, *records, operator_record("cpu", cell("cpu", cpu_s)))
    return next(line for line in words.splitlines() if " in scan " in line)


@pytest.mark.parametrize(
    ("cpu_s", "verdict"),
    [
        (55.5e-3 * 0.55, "more than its memory ceiling is higher (50 times)"),
        (50e-3 * 0.55, "about as much as its memory ceiling is higher (50 times)"),
        (44e-3 * 0.55, "less than its memory ceiling is higher (50 times)"),
    ],
)
def test_the_ratio_is_held_against_that_of_the_roofs(cpu_s, verdict):
    """4000 and 80 GB/s: 50. The GPU takes 0.55 ms."""
    times = cpu_s / 550e-6
    words = compared(cpu_s)
    assert f"**gpu0 is {times:.3g} times as fast as the CPU in scan (fp32, N 1024), {verdict}.**" in words
    assert "plain attains 91 % of its roof on gpu0" in words and "launch" not in words


def test_the_fastest_implementation_stands_for_the_gpu_and_launches_are_told():
    slow = cell("gpu0", 5e-3, 4.9e-3, implementation="slow")
    assert "plain attains 91 %" in compared(30e-3, slow, cell("gpu0", 550 * US, 545 * US))
    assert "60 % of the GPU's time is launch overhead." in compared(30e-3, cell("gpu0", 1e-3, 0.4e-3))


def test_compute_bound_operators_are_held_against_the_compute_ceilings():
    words = answer(3, GPU_PEAK, HBM, CPU_PEAK, DRAM)
    assert "in GEMM (fp32, 4096³), about as much as its compute ceiling is higher (55 times)" in words


def test_what_the_link_would_take_stands_in_the_table():
    records = [GPU_PEAK, HBM, CPU_PEAK, DRAM]
    assert "PCIe plays no part" in answer(3, *records) and "over PCIe" in answer(3, *records, only_words=False)
    without = [GPU_PEAK, bandwidth_record("gpu0", hbm_read=4000), CPU_PEAK, DRAM]
    assert "PCIe" not in answer(3, *without, only_words=False)


def test_what_cannot_be_compared_is_said():
    assert answer(3, CPU_PEAK) == "Only cpu was measured; the question needs a GPU and the CPU (`devices: auto`)."
    bf16 = peak_record("gpu0", "bf16", 900, reference=reference_gemm("gpu0", "bf16", 800))
    assert answer(3, bf16, CPU_PEAK) == "No operator was measured in fp32 on both gpu0 and cpu."
    unknown = answer(
        3, GPU_PEAK, CPU_PEAK, *(operator_record(n, cell(n, 1.0, compute_ceiling="x")) for n in ("gpu0", "cpu"))
    )
    assert "**gpu0 is 1 times as fast as the CPU in scan (fp32, N 1024).**" in unknown


TIMES = st.floats(1e-6, 10)


@settings(deadline=None, max_examples=30)
@given(TIMES, TIMES, st.sampled_from([0, 10**6, 10**10]), st.sampled_from([0, 10**6, 10**10]))
def test_whatever_the_times_the_words_can_be_read(gpu_s, cpu_s, flops, traffic):
    fields = {"flops": flops, "bytes": traffic}
    cells = [operator_record("gpu0", cell("gpu0", gpu_s, gpu_s / 2, **fields))]
    cells.append(operator_record("cpu", cell("cpu", cpu_s, overhead_s=cpu_s / 3, **fields)))
    text = interpreted(GPU_PEAK, CPU_PEAK, HBM, DRAM, *cells)
    assert not re.search(r"\b(None|nan|inf)\b|[{}]|\.\.|\w  \w", text)
