"""interpretation.md from rooflines made by hand: which sentences stand, and that their numbers are the records'."""

import re

import pytest
import samples
from small_run import device_record
from test_placing import (
    attention_record,
    bandwidth_record,
    peak_record,
    placed,
    skipped_peak,
    step,
)

from roofline.interpretation import interpret
from roofline.records import CellPrediction, Investigation, Roofline, Trial, VendorPeak

# Operations a clock and multiprocessor; on 132 of them: 948.9 TFLOPS at 1755 MHz, 66.9 at 1980 MHz.
RATES = {"fp16": 4096, "bf16": 4096, "fp32": 256, "fp64": 256}
LIMITS = {"fp16": (1755, 132 * 4096 * 1755e-6), "fp32": (1980, 132 * 256 * 1980e-6)}
LIMITS |= {"bf16": LIMITS["fp16"], "fp64": LIMITS["fp32"]}


def promised(derived=False, **rates):
    return {
        dtype: VendorPeak(
            tflops=1000,
            unit="tensor_core",
            operations_per_clock_per_multiprocessor=rate,
            source="made up",
            verified=True,
            derived=derived,
        )
        for dtype, rate in rates.items()
    }


def device(name, derived=False):
    hardware = {"multiprocessors": 132} if name != "cpu" else {}
    vendor = device_record().vendor.model_copy(update={"peaks": promised(derived, **RATES)})
    return device_record(name, hardware=hardware, vendor=vendor)


def interpreted(devices=("gpu0",), peaks=(), bandwidths=(), attention=(), derived=False):
    return interpret(
        placed(devices, peaks, bandwidths, attention),
        {name: device(name, derived) for name in devices},
        list(peaks),
        list(bandwidths),
        list(attention),
    )


def paragraphs(text):
    """The three paragraphs below their headings."""
    return [part.split("\n\n")[1].strip() for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]]


# ---------------------------------------------------------------------------------------------- as a document

GPU_PEAKS = [
    peak_record("gpu0", "fp16", 760, lab=750, repeat=760, vendor=989.4, clock=LIMITS["fp16"]),
    peak_record("gpu0", "fp32", 51.4, lab=51.4, repeat=51.2, vendor=66.9, clock=LIMITS["fp32"]),
]
CPU_PEAKS = [peak_record("cpu", "fp32", 1.0, lab=1.0, repeat=0.9, vendor=2.0)]
SPEEDS = [
    bandwidth_record("gpu0", "d2d", 4000),
    bandwidth_record("gpu0", "h2d", 50),
    bandwidth_record("cpu", "dram_copy", 80),
]
MEMORY = CellPrediction(regime="memory", latency_s=1e-4, fraction_of_compute_peak=0.01)


def gpu_cells(large_s=1e-3, device_s=0.9e-3, half_s=0.5e-3):
    """S 128 at batch 1, where calls take 150 of 200 us; S 1024 at batch 256: 1.07 GB in fp32, half of it in fp16."""
    return [
        attention_record(
            "gpu0",
            step("gpu0", "fp32", 1, 128, 200e-6, device_latency_s=20e-6, overhead_s=150e-6),
            generated=True,
        ),
        attention_record(
            "gpu0",
            step("gpu0", "fp32", 256, 1024, large_s, device_latency_s=device_s, overhead_s=150e-6, predicted=MEMORY),
            step("gpu0", "fp32", 256, 1024, 9.0, scope="block"),
        ),
        attention_record("gpu0", step("gpu0", "fp16", 256, 1024, half_s, overhead_s=150e-6, predicted=MEMORY)),
    ]


def cpu_cells(large_s=80e-3):
    emulated = "fp16 is emulated: made up"
    return [
        attention_record("cpu", step("cpu", "fp32", 1, 128, 100e-6, predicted=MEMORY)),
        attention_record("cpu", step("cpu", "fp32", 256, 1024, large_s, predicted=MEMORY)),
        attention_record("cpu", step("cpu", "fp16", 256, 1024, 1.0, predicted=MEMORY), note=emulated),
    ]


def both(**cells):
    gpu = {key: value for key, value in cells.items() if key != "cpu_s"}
    return interpreted(
        ("gpu0", "cpu"),
        [*GPU_PEAKS, *CPU_PEAKS],
        SPEEDS,
        [*gpu_cells(**gpu), *cpu_cells(cells.get("cpu_s", 80e-3))],
    )


def test_the_whole_by_hand():
    """The words as they are produced; their figures follow from the records above by simple arithmetic."""
    trust, decode, against = paragraphs(both())
    assert trust == (
        "On gpu0, fp16 GEMM at 4096 reaches 760 TFLOPS, 80 % of the 949 that 132 multiprocessors x 4096 operations a "
        "clock x the measured 1755 MHz allow (an independent block gave 750, 1.33 % apart); fp32 GEMM at 4096 reaches "
        "51.2 TFLOPS, 77 % of the 66.9 that 132 multiprocessors x 256 operations a clock x the measured 1980 MHz allow "
        "(an independent block gave 51.4, 0.389 % apart, and sets the ceiling). The two blocks agree within 1.33 %. "
        "fp16 is 10 to 20 % below its limit; fp32 is more than 20 % below its limit. So the measured fp16 ceiling can "
        "be trusted. The fp32 ceiling repeats but is what this library reaches, not what the hardware could do: a "
        "better kernel may lie above. The memory slope (d2d) is 4000 GB/s, with a 95 % interval from 3960 to 4040: it "
        "is steady. On cpu, fp32 GEMM at 4096 reaches 0.9 TFLOPS, 45 % of the vendor's 2 (an independent block gave 1, "
        "10 % apart, and sets the ceiling). The two blocks agree within 10 %. fp32 is more than 20 % below its limit. "
        "The fp32 ceiling repeats but is what this library reaches, not what the hardware could do: a better kernel "
        "may lie above. The memory slope (dram_copy) is 80 GB/s, with a 95 % interval from 79.2 to 80.8: it is steady."
    )
    assert decode == (
        "On gpu0, decode attention has an intensity of 0.5 and 1 FLOP/byte, left of the ridge points at 12.8 and "
        "190: its roof is the memory slope (d2d, a copy, which reading alone may exceed). It attains from 0.0655 "
        "% of its roof (fp32, batch 1, S 128, 200 us) to 27 % (fp32, batch 256, S 1024, 1 ms). 1 of 3 cells is "
        "overhead-bound (the calls set the pace): batch 1, at 0.0655 % of the roof; 2 of 3 cells are memory-bound"
        " by intensity (the calls do not set the pace): batch 256, at 27 % of the roof. The sealed prediction "
        "named the regime of 3 of 3 rightly. Without the gaps between launches the device reaches 30 % at best "
        "(fp32, batch 256, S 1024, 900 us). In fp16 that is 0.141 % of the measured tensor-core peak, all below "
        "the 0.3-1 % that is usual when memory-bound; at its roof it would be 0.526 %. The weights were "
        "generated, not those of a trained model. On cpu, decode attention has an intensity of 0.5 and 1 "
        "FLOP/byte, left of the ridge point at 12.5: its roof is the memory slope (dram_copy, a copy, which "
        "reading alone may exceed). It attains from 0.671 % of its roof (fp16, batch 256, S 1024, 1 s) to 17 % "
        "(fp32, batch 256, S 1024, 80 ms). 3 of 3 cells are memory-bound by intensity (the calls do not set the "
        "pace): batch 1 and 256, at 0.671 % to 17 % of the roof. The sealed prediction named the regime of 3 of 3"
        " rightly. Beware: fp16 is emulated: made up; those cells time the conversion far more than the memory, "
        "under the fp32 ceiling."
    )
    assert against == (
        "On the same fp32 operator (batch 256, S 1024; NumPy only emulates fp16) gpu0 (NVIDIA H200) attains 537 "
        "GFLOPS and the CPU (A CPU (8 cores)) 6.71: 80 times as much. The memory bandwidths are 4000 and 80 GB/s,"
        " a ratio of 50. That is more than its memory would give: the GPU reads K and V at 27 % of its bandwidth,"
        " the CPU at only 17 %. On the smallest cell (fp32, batch 1, S 128) gpu0 is slower, at 0.5 of the CPU's "
        "rate. 90 % of the GPU's time is launch overhead: the device alone takes 20 us. PCIe takes nothing of "
        "this, since K and V live on the device; to fetch them for each step at the measured 50 GB/s would take "
        "21.5 ms, 21.5 times the step."
    )


def test_three_headings_and_a_paragraph_below_each():
    lines = [line for line in both().splitlines() if line]
    assert [line for line in lines if line.startswith("#")] == [
        "# What this roofline says",
        "## 1. Is this roofline to be trusted?",
        "## 2. Where does decode attention land?",
        "## 3. The GPU against the CPU",
    ]
    assert len(lines) == 8


@pytest.mark.parametrize("name", samples.SAMPLES)
def test_any_roofline_is_put_into_words(name):
    roofline = Roofline.model_validate(samples.SAMPLES[name]())
    text = interpret(roofline, {name: device(name) for name in roofline.devices}, [], [], [])
    assert len(paragraphs(text)) == 3
    assert not re.search(r"\b(None|nan|inf)\b|[{}]|\.\.|  ", text)


# ---------------------------------------------------------------------------------------------- 1: trust


def trust(*peaks, **options):
    return paragraphs(interpreted(peaks=peaks, **options))[0]


def at(share, dtype="fp16", **fields):
    """A product that lands at a share of its limit, in both blocks."""
    clock = LIMITS[dtype]
    return peak_record("gpu0", dtype, share * clock[1], vendor=1000, clock=clock, **fields)


@pytest.mark.parametrize(
    ("share", "place", "verdict"),
    [
        (0.95, "fp16 is within 10 % of its limit.", "can be trusted"),
        (0.91, "fp16 is within 10 % of its limit.", "can be trusted"),
        (1.05, "fp16 is within 10 % of its limit.", "can be trusted"),
        (0.89, "fp16 is 10 to 20 % below its limit.", "can be trusted"),
        (0.81, "fp16 is 10 to 20 % below its limit.", "can be trusted"),
        (0.79, "fp16 is more than 20 % below its limit.", "a better kernel may lie above"),
        (0.05, "fp16 is more than 20 % below its limit.", "a better kernel may lie above"),
        (1.11, "fp16 is more than 10 % above its limit.", "The limit of fp16 is too low"),
    ],
)
def test_where_the_dot_lands_decides(share, place, verdict):
    said = trust(at(share))
    assert place in said and verdict in said
    assert ("can be trusted" in said) == (verdict == "can be trusted")
    assert f"{100 * share:.0f} % of the 949" in said


def test_it_is_the_dot_that_is_judged_and_not_the_ceiling():
    """The ceiling is the highest of all that was seen; against it the dot would be judged by itself."""
    clock = LIMITS["fp16"]
    lucky = peak_record("gpu0", "fp16", 0.95 * clock[1], lab=0.95 * clock[1], repeat=0.87 * clock[1], clock=clock)
    said = trust(lucky)
    assert "fp16 is 10 to 20 % below its limit" in said and "87 % of the 949" in said


@pytest.mark.parametrize(("repeat", "trusted"), [(0.99, True), (0.911, True), (0.899, False), (1.101, False)])
def test_trust_flips_where_the_repeat_differs_by_more_than_ten_per_cent(repeat, trusted):
    limit = LIMITS["fp16"][1]
    said = trust(peak_record("gpu0", "fp16", limit, lab=limit, repeat=repeat * limit, clock=LIMITS["fp16"]))
    assert ("So the measured fp16 ceiling can be trusted." in said) == trusted
    assert ("do not trust its ceiling before a run on a quieter machine" in said) != trusted
    apart = f"{100 * abs(1 - repeat):.3g} %" if trusted else "10 %"
    assert apart in said


def test_a_noisy_dtype_does_not_condemn_the_others():
    limit = LIMITS["fp32"][1]
    noisy = peak_record("gpu0", "fp32", limit, lab=limit, repeat=0.8 * limit, clock=LIMITS["fp32"])
    said = trust(at(0.95), noisy, at(0.85, "bf16"))
    assert "The two blocks of fp32 are 20 % apart, more than 10 %: do not trust its ceiling" in said
    assert "The two blocks of fp16 and bf16 agree within 0 %." in said
    assert "So the measured fp16 and bf16 ceilings can be trusted." in said


def test_dtypes_far_from_their_limit_are_named():
    said = trust(at(0.95), at(0.5, "fp32"), at(0.6, "fp64"))
    assert "fp16 is within 10 % of its limit; fp32 and fp64 are more than 20 % below their limits." in said
    assert "The fp32 and fp64 ceilings repeat but are what this library reaches" in said


@pytest.mark.parametrize(("derived", "whose"), [(False, "the vendor's 1000"), (True, "the formula's 1000")])
def test_without_a_measured_clock_the_promise_is_the_limit(derived, whose):
    said = trust(peak_record("gpu0", "fp16", 930, vendor=1000), derived=derived)
    assert f"reaches 930 TFLOPS, 93 % of {whose} (" in said
    assert "So the measured fp16 ceiling can be trusted." in said


def test_without_a_limit_the_repeat_alone_speaks():
    said = trust(peak_record("gpu0", "fp16", 760, lab=750))
    assert "reaches 760 TFLOPS, with no limit known to hold it against (an independent block gave 750" in said
    assert "For the fp16 ceiling the repeat alone speaks." in said
    assert "can be trusted" not in said


def test_nothing_measured_nothing_to_trust():
    said = trust(skipped_peak("gpu0", "bf16", "it needs 8.0"))
    assert said == "On gpu0 no matrix product was measured, so its roofline has no compute ceiling to trust."


def test_few_samples_are_told():
    """A slow device may get one alone within its budget: a median of one."""
    slow = at(0.95)
    alone = slow.peak.repeat.latency.model_copy(update={"samples_s": [0.1], "ci95_s": None})
    repeat = slow.peak.repeat.model_copy(update={"latency": alone})
    said = trust(slow.model_copy(update={"peak": slow.peak.model_copy(update={"repeat": repeat})}))
    assert "TFLOPS (from 1 sample alone), 95 % of" in said
    assert "alone" not in trust(at(0.95))


def test_a_ceiling_from_a_trial_of_the_investigation_is_told():
    """The dot is the block's, the ceiling above it another product's."""
    clock = LIMITS["fp16"]
    said = trust(peak_record("gpu0", "fp16", 450, lab=300, repeat=310, clock=clock))
    assert "reaches 310 TFLOPS, 33 % of the 949" in said
    assert (
        "(an independent block gave 300, 3.33 % apart; the ceiling is 450, from a trial of the investigation)" in said
    )


@pytest.mark.parametrize(
    ("interval", "said"),
    [
        ((3800, 4150), "with a 95 % interval from 3800 to 4150: it is steady."),
        ((3500, 4150), "with a 95 % interval from 3500 to 4150: do not lean on it."),
        (None, "from 1 sample: too few for an interval."),
    ],
)
def test_how_sure_the_memory_slope_is(interval, said):
    slope = bandwidth_record("gpu0", "d2d", 4000, vendor=4800)
    slope = slope.model_copy(update={"bandwidth": slope.bandwidth.model_copy(update={"ci95": interval})})
    slope.bandwidth.latency.samples_s = [1e-3]
    text = trust(at(0.95), bandwidths=[slope, SPEEDS[1]])
    assert f"The memory slope (d2d) is 4000 GB/s, 83 % of the vendor's 4800, {said}" in text
    assert "h2d" not in text


def trial(what, finding, explains):
    return Trial(what=what, size=None, tflops=None, clocks_mhz=[], finding=finding, explains=explains)


def test_an_investigation_that_found_the_cause():
    trials = [trial("size", "8192 gives no more", False), trial("sustained", "sustained load gives more", True)]
    found = Investigation(
        reason="4 TFLOPS is below 50 % of the vendor's 10",
        trials=trials,
        verdict="sustained",
        ruled_out=["8192 gives no more"],
        not_ruled_out=[],
    )
    said = trust(at(0.4, investigation=found))
    assert said.endswith(
        "For fp16, 4 TFLOPS is below 50 % of the vendor's 10, which was investigated: sustained load gives more."
    )


def test_an_investigation_that_found_none_says_what_is_left():
    found = Investigation(
        reason="4 TFLOPS is below 50 % of the vendor's 10",
        trials=[trial("size", "8192 was not tried", None), trial("sustained", "load gives no more", False)],
        verdict="none",
        ruled_out=["load gives no more", "power limit: no reason is set"],
        not_ruled_out=["8192 was not tried"],
    )
    assert trust(at(0.4, investigation=found)).endswith(
        "which was investigated: none of size, load and unit is the cause. Ruled out: load gives no more; power limit: "
        "no reason is set. Not ruled out: 8192 was not tried."
    )


# ---------------------------------------------------------------------------------------------- 2: decode attention


def decode(*cells, peaks=GPU_PEAKS, bandwidths=SPEEDS, name="gpu0", note=None):
    records = [attention_record(name, cell, note=note) for cell in cells]
    return paragraphs(interpreted((name,), peaks, bandwidths, records))[1]


@pytest.mark.parametrize(
    ("shares", "judged"),
    [
        ((0.5, 0.9), "0.5 % to 0.9 % of the measured tensor-core peak, inside the 0.3-1 %"),
        ((0.31, 0.99), "0.31 % to 0.99 % of the measured tensor-core peak, inside the 0.3-1 %"),
        ((0.01, 0.29), "0.01 % to 0.29 % of the measured tensor-core peak, all below the 0.3-1 %"),
        ((1.01, 1.5), "1.01 % to 1.5 % of the measured tensor-core peak, all above the 0.3-1 %"),
        ((0.01, 0.5, 0.7), "0.01 % to 0.7 % of the measured tensor-core peak, 2 of 3 inside the 0.3-1 %"),
        ((0.2, 1.2), "0.2 % to 1.2 % of the measured tensor-core peak, 0 of 2 inside the 0.3-1 %"),
    ],
)
def test_the_share_of_the_tensor_peak_is_judged(shares, judged):
    """S 1024 at batch 256 is 536 870 912 FLOPs; of 760 TFLOPS a share of 0.5 % is 3.8 TFLOPS."""
    cells = [step("gpu0", "fp16", 256, 1024, 536_870_912 / (share * 1e-2 * 760e12)) for share in shares]
    assert f"In fp16 that is {judged} that is usual when memory-bound; at its roof" in decode(*cells)


def test_without_an_fp16_ceiling_there_is_no_share_of_it():
    said = decode(step("gpu0", "fp16", 1, 128, 1e-3), peaks=[GPU_PEAKS[1]])
    assert "usual" not in said and "peak" not in said


def test_an_emulated_dtype_is_told_of_the_cpu_alone():
    said = decode(step("cpu", "fp16", 1, 128, 1e-3), peaks=CPU_PEAKS, name="cpu", note="fp16 is emulated")
    assert "Beware: fp16 is emulated; those cells" in said
    gpu = paragraphs(both())[1].partition("On cpu")[0]
    assert "emulated" not in gpu


def test_where_the_seal_was_wrong_it_is_said():
    """The seal in these records says overhead; the calls take a tenth of the time."""
    cells = [step("gpu0", "fp32", 1, 128, 200e-6, overhead_s=20e-6) for _ in range(2)]
    assert "The sealed prediction named the regime of 0 of 2 rightly." in decode(*cells)


def test_without_a_memory_ceiling_no_slope_is_claimed():
    said = decode(step("gpu0", "fp16", 1, 128, 1e-3), bandwidths=[])
    assert "for want of a memory or a compute ceiling there is no ridge point" in said
    assert "slope" not in said


def test_a_reading_ceiling_is_no_copy():
    bandwidths = [*SPEEDS, bandwidth_record("gpu0", "hbm_read", 4400)]
    said = decode(step("gpu0", "fp32", 1, 128, 1e-3), bandwidths=bandwidths)
    assert "left of the ridge point at 11.7: its roof is the memory slope (hbm_read)." in said


def test_an_implementation_of_another_kind_is_named():
    cell = step("gpu0", "fp32", 1, 128, 1e-3, implementation="kernel")
    assert "(fp32, batch 1, S 128, kernel, 1 ms)" in decode(cell)


def test_no_decode_attention():
    assert decode() == "On gpu0 no decode attention was placed under a roof."


# ---------------------------------------------------------------------------------------------- 3: GPU against CPU


MORE = "That is more than its memory would give: the GPU reads K and V at 27 % of its bandwidth, the CPU at only "
SAME = "The two ratios agree within 10 %: both read K and V at about the same share of their bandwidths, 27 % and "
LESS = "That is less than its memory would give: the GPU reads K and V at only 27 % of its bandwidth, the CPU at "


@pytest.mark.parametrize(
    ("times_as_fast", "said"),
    [
        (80, f"{MORE}17 %."),
        (55.5, f"{MORE}24 %."),
        (54.5, f"{SAME}25 %."),
        (45.5, f"{SAME}29 %."),
        (44.5, f"{LESS}30 %."),
        (0.5, f"{LESS}2684 %."),
    ],
)
def test_the_ratio_is_held_against_that_of_the_bandwidths(times_as_fast, said):
    """4000 and 80 GB/s: 50. The GPU takes 1 ms, the CPU so many times as long."""
    against = paragraphs(both(cpu_s=times_as_fast * 1e-3))[2]
    assert said in against
    assert f"{times_as_fast:g} times as much" in against and "a ratio of 50." in against


def large_cell(text):
    return paragraphs(text)[2].partition("On the smallest cell")[0]


def test_what_took_the_difference_is_told_where_the_gpu_gains_less():
    assert large_cell(both(cpu_s=20e-3, device_s=0.4e-3)).endswith(
        "the CPU at 67 %. 60 % of the GPU's time is launch overhead: the device alone takes 400 us. "
    )
    assert large_cell(both(cpu_s=20e-3, device_s=0.99e-3)).endswith(
        "Launches cost it next to nothing (the device alone takes 990 us): the kernels themselves are slow. "
    )
    assert "launch" not in large_cell(both(cpu_s=80e-3, device_s=0.4e-3)).lower()


@pytest.mark.parametrize("only", ["cpu", "gpu0"])
def test_one_device_alone_leaves_the_question_open(only):
    text = interpreted((only,), CPU_PEAKS, SPEEDS, cpu_cells())
    assert paragraphs(text)[2] == (
        f"Only {only} was measured in this run; the question needs a GPU and the CPU (devices: auto or all)."
    )


def test_without_a_common_cell_there_is_no_ratio():
    gpu = attention_record("gpu0", step("gpu0", "fp32", 1, 128, 1e-3, implementation="kernel"))
    cpu = attention_record("cpu", step("cpu", "fp32", 1, 128, 1e-3))
    text = interpreted(("gpu0", "cpu"), [*GPU_PEAKS, *CPU_PEAKS], SPEEDS, [gpu, cpu])
    assert paragraphs(text)[2] == "No fp32 decode attention was measured on both gpu0 and cpu."


def test_without_a_copy_on_both_the_bandwidths_are_not_compared():
    text = interpreted(("gpu0", "cpu"), [*GPU_PEAKS, *CPU_PEAKS], SPEEDS[:1], [*gpu_cells(), *cpu_cells()])
    against = paragraphs(text)[2]
    assert "The ratio of the memory bandwidths is not known (d2d or dram_copy was not measured)." in against
    assert "PCIe" not in against
