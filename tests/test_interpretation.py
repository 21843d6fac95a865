"""interpretation.md from rooflines made by hand: which sentences stand, and that their numbers are the records'."""

import re

import pytest
import samples
from samples import peak_record, skipped_peak

from roofline.records import DecodeAttnRecord
from roofline.records.compute import Investigation, Trial
from roofline.records.device import DeviceRecord
from roofline.records.memory import BandwidthRecord
from roofline.records.roofline import Roofline
from roofline.report.interpretation import interpret

# Operations a clock and multiprocessor; on 132 of them: 948.9 TFLOPS at 1755 MHz, 66.9 at 1980 MHz.
RATES = {"fp16": 4096, "bf16": 4096, "fp32": 256, "fp64": 256}
LIMITS = {"fp16": (1755, 132 * 4096 * 1755e-6), "fp32": (1980, 132 * 256 * 1980e-6)}
LIMITS |= {"bf16": LIMITS["fp16"], "fp64": LIMITS["fp32"]}
NAMES = {"gpu0": "NVIDIA H200", "cpu": "A CPU (8 cores)"}
LEVELS = {"hbm_read": ("hbm", "read"), "d2d": ("hbm", "copy"), "h2d": ("pcie", "copy"), "dram_read": ("dram", "read")}


def promised(rate, derived):
    figures = {"tflops": 1000, "unit": "tensor_core", "source": "made up", "verified": True, "derived": derived}
    return figures | {"operations_per_clock_per_multiprocessor": rate}


def device(name, derived=False):
    vendor = {
        "match": "exact",
        "reason": "made up",
        "peaks": {dtype: promised(rate, derived) for dtype, rate in RATES.items()},
        "absent": {},
        **dict.fromkeys(("entry", "boost_clock_mhz", "tensor_clock_mhz", "rate_class", "l2_bytes", "power_limit_w")),
        "bandwidth": None,
    }
    return DeviceRecord(
        device=name,
        device_kind=name.rstrip("0123456789"),
        name=NAMES[name],
        uuid="made up",
        memory_total_bytes=1 << 37,
        memory_free_bytes=1 << 37,
        last_level_cache_bytes=60 << 20,
        hardware={"multiprocessors": 132} if name != "cpu" else {},
        software={},
        vendor=vendor,
        host={},
        queried_at="2026-11-05T12:00:00+00:00",
    )


def slope(name, gb_per_s, vendor=None):
    level, mix = LEVELS[name]
    return samples.memory_ceiling("cpu" if level == "dram" else "gpu0", name, level, mix, gb_per_s, vendor)


def compute_ceiling(record):
    peak = record.peak
    unit = (peak.unit, peak.tflops, peak.sustained_tflops, peak.vendor_tflops)
    return samples.compute_ceiling(record.device, record.dtype, *unit)


def ceilings_of(peaks, slopes):
    return [compute_ceiling(record) for record in peaks if record.peak] + list(slopes)


def interpreted(devices=("gpu0",), peaks=(), slopes=(), operators=(), attention=(), derived=False, **fields):
    """`operators` are made from the ceilings, which they stand under."""
    ceilings = ceilings_of(peaks, slopes)
    content = samples.sample_roofline(
        {name: {"kind": name.rstrip("0"), "name": NAMES[name], "record": "made up"} for name in devices},
        ceilings,
        [make(ceilings) for make in operators],
        [],
        **fields,
    )
    return interpret(
        Roofline.model_validate(content),
        {name: device(name, derived) for name in devices},
        list(peaks),
        [bandwidth_record(one) for one in slopes],
        list(attention),
    )


def bandwidth_record(ceiling, samples_s=(1e-3,)):
    found = {
        **{key: ceiling[key] for key in ("name", "level", "mix", "gb_per_s", "ci95")},
        **dict.fromkeys(("vendor_gb_per_s", "fraction_of_vendor", "threads", "sm_clock_mhz", "throttled")),
        "bytes_per_clock_per_multiprocessor": None,
        "counted": "made up",
        "bytes": 1 << 30,
        "grid": "made up",
        "search": {"offered": 1, "tried": 1, "refused": []},
        "trials": [],
        "blocks_gb_per_s": [4800],
        "held_back_by": [],
        "latency": samples.timing(1e-3) | {"samples_s": list(samples_s)},
        "states": [],
        "verified": "made up",
    }
    record = {"device": ceiling["device"], "level": ceiling["level"], "bandwidths": [found]}
    return BandwidthRecord.model_validate(record | samples.JOB)


def attention_record(device, note=None, generated=False):
    weights = {"path": "w", "sha256": "0" * 64, "generated": generated, "naming": "minigpt", "hidden_state": "made up"}
    found = {"device": device, "preset": "minigpt", "seq_len": 128, "dtype": "fp16", "weights": weights, "note": note}
    return DecodeAttnRecord.model_validate(found | {"measurements": []} | samples.JOB)


def step(device, dtype, batch, seq_len, latency_s, *, device_latency_s=None, sealed="memory", **fields):
    """A step under its ceilings, once these are known. Of a CPU every one stands under fp32."""
    compute = fields.get("compute_ceiling", "fp32" if device == "cpu" else dtype)
    memory = fields.get("memory_ceiling", "hbm_read" if device != "cpu" else "dram_read")
    width = batch * 8 * 64 * seq_len
    known = {
        "implementation": "numpy" if device == "cpu" else "eager",
        "preset": "minigpt",
        "scope": "core",
        "shape": {"batch": batch, "heads": 8, "kv_heads": 8, "head_size": 64, "seq_len": seq_len},
        "predicted": {
            "sealed": {"regime": sealed, "latency_s": 1e-4, "fraction_of_compute_peak": 0.01},
            "from_ceilings": None,
        },
        "device_latency_s": device_latency_s,
    }

    def make(ceilings):
        work = 4 * width, 2 * width * samples.BYTES_OF[dtype]
        row = samples.operator_row(
            ceilings, device, "decode_attention", dtype, *work, latency_s, compute, memory, **known | fields
        )
        share = device_latency_s and row["fraction_of_roof"] * latency_s / device_latency_s
        return row | {"device_fraction_of_roof": share}

    return make


def paragraphs(text):
    """The three paragraphs below their headings."""
    return [part.split("\n\n")[1].strip() for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]]


# ---------------------------------------------------------------------------------------------- as a document

POWER = ["sw_power_cap"]
GPU_PEAKS = [
    peak_record(
        "gpu0",
        "fp16",
        780,
        lab=760,
        block=785,
        vendor=989.4,
        clock=LIMITS["fp16"],
        load=samples.sustained(780, 665, POWER),
    ),
    peak_record("gpu0", "fp32", 55, lab=51.2, vendor=66.9, clock=LIMITS["fp32"], load=samples.sustained(55, 55, [])),
    peak_record("gpu0", "fp32_fma", 66, clock=LIMITS["fp32"]),
]
CPU_PEAKS = [peak_record("cpu", "fp32", 0.9, lab=1.0, vendor=2.0)]
GPU_SLOPES, CPU_SLOPES = [slope("hbm_read", 4000), slope("h2d", 50)], [slope("dram_read", 80)]


def gpu_cells(large_s=1e-3, device_s=0.9e-3, half_s=0.5e-3):
    """S 128 at batch 1, where calls take 150 of 200 us; S 1024 at batch 256: 1.07 GB in fp32, half of it in fp16."""
    return [
        step("gpu0", "fp32", 1, 128, 200e-6, device_latency_s=20e-6, regime="overhead", sealed="overhead"),
        step("gpu0", "fp32", 256, 1024, large_s, device_latency_s=device_s),
        step("gpu0", "fp32", 256, 1024, 9.0, scope="block"),
        step("gpu0", "fp16", 256, 1024, half_s),
    ]


def cpu_cells(large_s=80e-3):
    return [
        step("cpu", "fp32", 1, 128, 100e-6),
        step("cpu", "fp32", 256, 1024, large_s),
        step("cpu", "fp16", 256, 1024, 1.0),
    ]


def both(**cells):
    gpu = {key: value for key, value in cells.items() if key != "cpu_s"}
    return interpreted(
        ("gpu0", "cpu"),
        [*GPU_PEAKS, *CPU_PEAKS],
        GPU_SLOPES + CPU_SLOPES,
        [*gpu_cells(**gpu), *cpu_cells(cells.get("cpu_s", 80e-3))],
        [attention_record("gpu0", generated=True), attention_record("cpu", note="fp16 is emulated: made up")],
    )


def test_the_whole_by_hand():
    """The words as they are produced; their figures follow from the records above by simple arithmetic."""
    trust, decode, against = paragraphs(both())
    assert trust == (
        "On gpu0, fp16 GEMM at 4096 reaches 760 TFLOPS, 97 % of 780, the best of 2 products tried, measured afresh on"
        " other operands; the ceiling is 82 % of the 949 that 132 multiprocessors x 4096 operations a clock x the "
        "measured 1755 MHz allow; fp32 GEMM at 4096 reaches 51.2 TFLOPS, 93 % of 55, the best of 2 products tried, "
        "measured afresh on other operands; the ceiling is 82 % of the 66.9 that 132 multiprocessors x 256 operations"
        " a clock x the measured 1980 MHz allow. Two blocks of the best product agree within 0.637 %. fp16 and fp32 "
        "are 10 to 20 % below their limits. So the measured fp16 and fp32 ceilings can be trusted. Under sustained "
        "load the bursts fall, fp16 to 665 (85 %): held back by power cap. Sustained load leaves fp32 as in a burst. "
        "Multiply-adds in registers alone reach fp32_fma 66 TFLOPS (99 % of 66.9); the shares are of what the "
        "measured clock allows. The memory slope (hbm_read) is 4000 GB/s, with a 95 % interval from 3992 to 4004: it "
        "is steady within this run. On cpu, fp32 GEMM at 4096 reaches 1 TFLOPS, above its ceiling: the best "
        "of 2 products tried gave 0.9 afresh; the ceiling is 45 % of the vendor's 2. The square product of fp32 beats "
        "the best of the products tried by more than 10 %: do not trust its ceiling before a run on a quieter "
        "machine. fp32 is more than 20 % below its limit. The memory slope (dram_read) is 80 GB/s, with a 95 % "
        "interval from 79.8 to 80.1: it is steady within this run."
    )
    assert decode == (
        "On gpu0, decode attention has an intensity of 0.5 and 1 FLOP/byte, left of the ridge points at 13.8 and 195:"
        " its roof is the memory slope (hbm_read). It attains from 0.0655 % of its roof (eager, fp32, batch 1, S 128, "
        "200 us) to 27 % (eager, fp32, batch 256, S 1024, 1 ms). 1 of 3 cells is overhead-bound (starting sets the "
        "pace): batch 1, at 0.0655 % of the roof; 2 of 3 cells are memory-bound by intensity (starting does not set "
        "the pace): batch 256, at 27 % of the roof. The sealed prediction named the regime of 3 of 3 rightly. Without "
        "the gaps between launches the device reaches 30 % at best (eager, fp32, batch 256, S 1024, 900 us). In fp16 "
        "that is 0.138 % "
        "of the measured tensor-core peak, all below the 0.3-1 % that is usual when memory-bound; at its roof it "
        "would be 0.513 %. The weights were generated, not those of a trained model. On cpu, decode attention has an "
        "intensity of 0.5 and 1 FLOP/byte, left of the ridge point at 11.2: its roof is the memory slope (dram_read)."
        " It attains from 0.671 % of its roof (numpy, fp16, batch 256, S 1024, 1 s) to 17 % (numpy, fp32, batch 256, S "
        "1024, 80 ms). 3 of 3 cells are memory-bound by intensity (starting does not set the pace): batch 1 and 256, "
        "at 0.671 % to 17 % of the roof. The sealed prediction named the regime of 3 of 3 rightly. Beware: fp16 is "
        "emulated: made up; those cells time the conversion beside the memory, under the fp32 ceiling."
    )
    assert against == (
        "On the same fp32 operator (batch 256, S 1024; NumPy only emulates fp16) gpu0 (NVIDIA H200) attains 537 "
        "GFLOPS by eager and the CPU (A CPU (8 cores)) 6.71 by numpy: 80 times as much. The memory bandwidths are 4000 "
        "(hbm_read) and 80 GB/s (dram_read), a ratio of 50. That is more than its memory would give: the GPU reads K "
        "and V at 27 % of its bandwidth, the CPU at only 17 %. On the smallest cell (eager, fp32, batch 1, S 128) gpu0 "
        "is slower, at 0.5 of the CPU's rate. 90 % of the GPU's time is launch overhead: the device alone takes 20 us. "
        "PCIe takes nothing of this, since K and V live on the device; to fetch them for each step at the measured 50 "
        "GB/s would take 21.5 ms, 21.5 times the step."
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
    peaks = [record for record in samples.peak_records() if record.device in roofline.devices]
    devices = {name: device("cpu" if name == "cpu" else "gpu0") for name in roofline.devices}
    text = interpret(roofline, devices, peaks, samples.sweep_records(), [])
    assert len(paragraphs(text)) == 3
    assert not re.search(r"\b(None|nan|inf)\b|[{}]|\.\.|  ", text)


# ---------------------------------------------------------------------------------------------- 1: trust


def trust(*peaks, **options):
    return paragraphs(interpreted(peaks=peaks, **options))[0]


def at(share, dtype="fp16", **fields):
    """A product whose burst is at a share of its limit."""
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
def test_where_the_ceiling_lies_decides(share, place, verdict):
    said = trust(at(share))
    assert place in said and verdict in said
    assert ("can be trusted" in said) == (verdict == "can be trusted")
    assert f"{100 * share:.0f} % of the 949" in said


def test_a_dot_is_held_against_a_ceiling_that_is_not_itself():
    said = trust(at(0.9, lab=0.8 * LIMITS["fp16"][1]))
    assert "reaches 759 TFLOPS, 89 % of 854, the best of 2 products tried, measured afresh" in said


def test_a_dot_that_sets_its_ceiling_itself_is_told():
    limit = LIMITS["fp16"][1]
    said = trust(at(0.8, lab=0.85 * limit))
    assert "reaches 807 TFLOPS, above its ceiling: the best of 2 products tried gave 759 afresh" in said
    assert "the ceiling is 80 % of the 949" in said
    assert "So the measured fp16 ceiling can be trusted." in said
    far = trust(at(0.7, lab=0.85 * limit))
    assert "beats the best of the products tried by more than 10 %: do not trust its ceiling" in far
    assert "can be trusted" not in far


@pytest.mark.parametrize(("afresh", "trusted"), [(0.99, True), (0.911, True), (0.899, False), (1.101, False)])
def test_trust_flips_where_the_burst_differs_from_the_block_it_was_chosen_by(afresh, trusted):
    limit = LIMITS["fp16"][1]
    said = trust(at(0.9 * afresh, lab=0.8 * limit, block=0.9 * limit))
    assert ("So the measured fp16 ceiling can be trusted." in said) == trusted
    assert ("do not trust its ceiling before a run on a quieter machine" in said) != trusted
    assert (f"{100 * abs(1 - afresh):.3g} %" if trusted else "10 %") in said


@pytest.mark.parametrize(("afresh", "told"), [(0.97, True), (0.99, False)])
def test_a_product_that_was_outdone_and_fell_is_told_and_the_ceiling_stays_trusted(afresh, told):
    record = at(0.95)
    peak, other = record.peak, record.peak.candidates[1]
    other.block_tflops = peak.burst.tflops
    peak.outdone = [peak.burst.model_copy(update={"product": other.product, "tflops": afresh * peak.burst.tflops})]
    said = trust(record)
    assert ("gave less than in the search, and another is the ceiling: fp16 by 3 %." in said) == told
    assert "Two blocks of the best product agree within 0 %." in said
    assert "So the measured fp16 ceiling can be trusted." in said


def test_each_dtype_has_its_own_verdict():
    noisy = at(0.95, "fp32", block=0.75 * LIMITS["fp32"][1])
    said = trust(at(0.95), noisy, at(0.85, "bf16"))
    assert "Two blocks of the best product of fp32 are 27 % apart, more than 10 %: do not trust its ceiling" in said
    assert "Two blocks of the best product of fp16 and bf16 agree within 0 %." in said
    assert "So the measured fp16 and bf16 ceilings can be trusted." in said


def test_dtypes_far_from_their_limit_are_named():
    said = trust(at(0.95), at(0.5, "fp32"), at(0.6, "fp64"))
    assert "fp16 is within 10 % of its limit; fp32 and fp64 are more than 20 % below their limits." in said
    assert "The fp32 and fp64 ceilings repeat but are what the libraries reach" in said


@pytest.mark.parametrize(("derived", "whose"), [(False, "the vendor's 1000"), (True, "the formula's 1000")])
def test_without_a_measured_clock_the_promise_is_the_limit(derived, whose):
    said = trust(peak_record("gpu0", "fp16", 930, vendor=1000), derived=derived)
    assert f"the ceiling is 93 % of {whose}." in said
    assert "So the measured fp16 ceiling can be trusted." in said


def test_without_a_limit_the_repeat_alone_speaks():
    said = trust(peak_record("gpu0", "fp16", 760))
    assert "measured afresh on other operands, with no limit known to hold that against." in said
    assert "For the fp16 ceiling the repeat alone speaks." in said
    assert "can be trusted" not in said


def test_nothing_measured_nothing_to_trust():
    said = trust(skipped_peak("gpu0", "bf16", "it needs 8.0"))
    assert said == "On gpu0 no matrix product was measured, so its roofline has no compute ceiling to trust."


def test_too_few_samples_are_told():
    assert "(too few independent samples for an interval)" in trust(at(0.95, ci95=None))
    assert "too few" not in trust(at(0.95))


def test_a_ceiling_from_elsewhere_is_told():
    """The higher of burst and sustained is the ceiling."""
    load = samples.sustained(300, 310, [])
    assert "94 % of 310, under sustained load" in trust(peak_record("gpu0", "fp16", 300, lab=290, load=load))


@pytest.mark.parametrize(
    ("reasons", "words"),
    [
        (POWER, "held back by power cap."),
        ([*POWER, "hw_thermal_slowdown", "sw_thermal_slowdown"], "held back by power cap, heat."),
        ([], "no throttle reason was named."),
    ],
)
def test_who_held_it_back_under_load(reasons, words):
    said = trust(at(0.8, load=samples.sustained(0.8 * LIMITS["fp16"][1], 650, reasons)))
    assert f"Under sustained load the bursts fall, fp16 to 650 (86 %): {words}" in said


def test_a_device_that_does_not_tell_why():
    cpu = peak_record("cpu", "fp32", 1.0, load=samples.sustained(1.0, 0.9, None, told=False))
    said = paragraphs(interpreted(("cpu",), [cpu]))[0]
    assert "Under sustained load the bursts fall, fp32 to 0.9 (90 %): the device does not tell why." in said


def test_what_load_leaves_as_it_was():
    said = trust(at(0.8, load=samples.sustained(0.8 * LIMITS["fp16"][1], 0.795 * LIMITS["fp16"][1], [])))
    assert "Sustained load leaves fp16 as in a burst." in said and "fall" not in said


def test_doubts_are_told():
    assert "What does not fit: fp16, made up." in trust(at(0.8, doubts=["made up."]))


def test_operators_above_their_roof_are_named():
    found = {"device": "gpu0", "operator": "gemm fp16", "record": None, "fraction_of_roof": 1.2, "wrong_roof": "fp16"}
    said = trust(at(0.8), above_roof=[found | {"cache": None, "evidence": "made up"}])
    assert "Above its roof: gemm fp16 (120 %); the summary says" in said


@pytest.mark.parametrize(
    ("interval", "said"),
    [
        ((3800, 4150), "with a 95 % interval from 3800 to 4150: it is steady within this run."),
        ((3500, 4150), "with a 95 % interval from 3500 to 4150: do not lean on it."),
        (None, "without an interval: 1 sample, worth fewer than six independent ones."),
    ],
)
def test_how_sure_the_memory_slope_is(interval, said):
    ceiling = slope("hbm_read", 4000, vendor=4800) | {"ci95": interval}
    text = trust(at(0.95), slopes=[slope("d2d", 3500), ceiling, slope("h2d", 50)])
    assert f"The memory slope (hbm_read) is 4000 GB/s, 83 % of the vendor's 4800, {said}" in text
    assert "h2d" not in text and "d2d" not in text


def test_the_slope_is_the_one_that_operators_stand_under():
    cell = step("gpu0", "fp16", 1, 128, 1e-3, memory_ceiling="d2d")
    text = interpreted(peaks=[at(0.95)], slopes=[slope("hbm_read", 4000), slope("d2d", 3500)], operators=[cell])
    assert "The memory slope (d2d) is 3500 GB/s" in text and "(hbm_read)" not in text


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
    said = trust(at(0.4, investigation=found.model_dump()))
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
    assert trust(at(0.4, investigation=found.model_dump())).endswith(
        "which was investigated: no cause was found. Ruled out: load gives no more; power limit: "
        "no reason is set. Not ruled out: 8192 was not tried."
    )


# ---------------------------------------------------------------------------------------------- 2: decode attention


def decode(*cells, peaks=GPU_PEAKS, slopes=GPU_SLOPES, name="gpu0", note=None):
    records = [attention_record(name, note=note)] if cells else []
    return paragraphs(interpreted((name,), peaks, slopes, cells, records))[1]


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
    """S 1024 at batch 256 is 536 870 912 FLOPs; of 780 TFLOPS a share of 0.5 % is 3.9 TFLOPS."""
    cells = [step("gpu0", "fp16", 256, 1024, 536_870_912 / (share * 1e-2 * 780e12)) for share in shares]
    assert f"In fp16 that is {judged} that is usual when memory-bound; at its roof" in decode(*cells)


def test_without_an_fp16_ceiling_there_is_no_share_of_it():
    cell = step("gpu0", "fp16", 1, 128, 1e-3, compute_ceiling="fp32")
    said = decode(cell, peaks=[GPU_PEAKS[1]])
    assert "usual" not in said and "peak" not in said


def test_an_emulated_dtype_is_told_of_the_cpu_alone():
    said = decode(
        step("cpu", "fp16", 1, 128, 1e-3), peaks=CPU_PEAKS, slopes=CPU_SLOPES, name="cpu", note="fp16 is emulated"
    )
    assert "Beware: fp16 is emulated; those cells" in said
    gpu = paragraphs(both())[1].partition("On cpu")[0]
    assert "emulated" not in gpu


def test_where_the_seal_was_wrong_it_is_said():
    cells = [step("gpu0", "fp32", 1, 128, 200e-6, sealed="overhead") for _ in range(2)]
    assert "The sealed prediction named the regime of 0 of 2 rightly." in decode(*cells)


def test_without_a_memory_ceiling_no_slope_is_claimed():
    said = decode(step("gpu0", "fp16", 1, 128, 1e-3, memory_ceiling="hbm_read"), slopes=[])
    assert "for want of a memory or a compute ceiling there is no ridge point" in said
    assert "slope" not in said


def test_a_copy_as_the_slope_is_told():
    slopes = [slope("hbm_read", 4400), slope("d2d", 4000)]
    said = decode(step("gpu0", "fp32", 1, 128, 1e-3), slopes=slopes)
    assert "left of the ridge point at 12.5: its roof is the memory slope (hbm_read)." in said
    said = decode(step("gpu0", "fp32", 1, 128, 1e-3, memory_ceiling="d2d"), slopes=slopes)
    assert "left of the ridge point at 13.8: its roof is the memory slope (d2d, a copy, which reading" in said


def test_an_implementation_of_another_kind_is_named():
    cell = step("gpu0", "fp32", 1, 128, 1e-3, implementation="kernel")
    assert "(kernel, fp32, batch 1, S 128, 1 ms)" in decode(cell)


def test_no_decode_attention():
    assert decode() == "On gpu0 no decode attention was placed under a roof."


PASSES = ": several kernels hand scores and weights on through memory, where one reads K and V once."


def ways(batch, seq_len, dtype="fp32", **times):
    """A cell by several implementations: pairs of the caller's time and the device's."""
    return [
        step("gpu0", dtype, batch, seq_len, caller, device_latency_s=alone, implementation=name)
        for name, (caller, alone) in times.items()
    ]


def test_implementations_are_compared_at_the_smallest_and_at_the_largest_batch():
    small = ways(1, 128, eager=(200e-6, 20e-6), fused=(8e-6, 4e-6), fused_graph=(2.62e-6, 2.62e-6))
    large = ways(256, 1024, eager=(1e-3, 0.96e-3), fused=(280e-6, 276e-6), fused_graph=(275e-6, 275e-6))
    between = ways(1, 256, eager=(300e-6, 30e-6), fused=(9e-6, 5e-6), fused_graph=(3e-6, 3e-6))
    said = decode(*large, *between, *small)
    assert (
        "In fp32, batch 1, S 128, eager attains 0.0655 % of its roof (200 us; the device alone 0.655 %, 20 us), fused "
        "1.64 % (8 us; the device alone 3.28 %, 4 us) and fused_graph 5 % (2.62 us, all of it the device's). There "
        "fused_graph is 76.3 times as fast as eager: of the 197 us that it saves, 180 us are launches and 17.4 us the "
        "device's own time. One launch for all layers takes 2.62 us a layer, where one for each takes 8 us. In fp32, "
        "batch 256, S 1024, eager attains 27 % of its roof (1 ms, all of it the device's), fused 96 % (280 us, all of "
        "it the device's) and fused_graph 98 % (275 us, all of it the device's). There fused_graph is 3.64 times as "
    ) in said
    assert "S 256" not in said and "Without the gaps" not in said
    assert "eager, batch 1 and 256; fused, batch 1 and 256; fused_graph, batch 1 and 256, at" in said


@pytest.mark.parametrize(
    ("eager", "fused", "told"),
    [
        ((200e-6, 20e-6), (20e-6, 19e-6), "10 times as fast as eager: what it saves are launches (180 us)."),
        ((200e-6, 199e-6), (20e-6, 19e-6), f"what it saves is the device's own time (180 us){PASSES}"),
        ((200e-6, 120e-6), (20e-6, 20e-6), f"80 us are launches and 100 us the device's own time{PASSES}"),
        ((200e-6, 20e-6), (40e-6, 40e-6), "5 times as fast as eager: what it saves are launches (160 us)."),
        ((20e-6, 19e-6), (21e-6, 20e-6), "There fused saves nothing over eager."),
        ((200e-6, None), (20e-6, None), "There fused is 10 times as fast as eager."),
    ],
)
def test_what_one_kernel_saves(eager, fused, told):
    assert told in decode(*ways(1, 128, eager=eager, fused=fused))


@pytest.mark.parametrize("alone", ["eager", "fused", "fused_graph"])
def test_one_implementation_alone_is_compared_with_none(alone):
    said = decode(*ways(1, 128, **{alone: (20e-6, 10e-6)}), *ways(256, 1024, **{alone: (1e-3, 1e-3)}))
    assert "as fast as" not in said and "One launch for all layers" not in said and "There " not in said
    assert f"({alone}, fp32, batch 256, S 1024, 1 ms)" in said and "Without the gaps" in said


def test_fused_ones_are_compared_without_eager():
    said = decode(*ways(1, 128, fused=(8e-6, 4e-6), fused_graph=(2e-6, 2e-6)))
    assert (
        "One launch for all layers takes 2 us a layer, where one for each takes 8 us." in said and "eager" not in said
    )


def test_implementations_that_share_no_cell_are_not_compared():
    said = decode(*ways(1, 128, eager=(2e-4, 2e-5)), *ways(1, 256, fused=(8e-6, 4e-6)))
    assert "There " not in said and "Without the gaps" in said


def test_presets_are_named_where_there_are_several():
    cells = ways(1, 128, eager=(2e-4, 2e-5), fused=(8e-6, 4e-6))
    other = step("gpu0", "fp32", 1, 512, 3e-4, preset="gpt2")
    assert "In minigpt, fp32, batch 1, S 128, eager" in decode(*cells, other)
    assert "In fp32, batch 1, S 128, eager" in decode(*cells)


def test_the_share_of_the_tensor_peak_by_implementation():
    said = decode(*ways(256, 1024, "fp16", eager=(9e-3, 9e-3), fused=(140e-6, 140e-6)))
    assert (
        "In fp16 eager is at 0.00765 % and fused is at 0.492 % of the measured tensor-core peak, 1 of 2 inside" in said
    )


# ---------------------------------------------------------------------------------------------- 3: GPU against CPU


def test_the_fastest_implementation_is_held_against_the_cpu():
    cells = [*ways(256, 1024, eager=(1e-3, 0.9e-3), fused=(280e-6, 276e-6)), step("cpu", "fp32", 256, 1024, 20e-3)]
    against = paragraphs(interpreted(("gpu0", "cpu"), [*GPU_PEAKS, *CPU_PEAKS], GPU_SLOPES + CPU_SLOPES, cells))[2]
    assert "attains 1917 GFLOPS by fused and the CPU (A CPU (8 cores)) 26.8 by numpy: 71.4 times as much." in against
    assert "the GPU reads K and V at 96 % of its bandwidth, the CPU at only 67 %. By eager it would be 20" in against
    assert "20 times as much. 10 % of the GPU's time is launch overhead: the device alone takes 900 us." in against


def test_a_gpu_at_its_roof_is_not_called_slow():
    cells = [*ways(256, 1024, fused=(280e-6, 276e-6)), step("cpu", "fp32", 256, 1024, 10e-3)]
    against = paragraphs(interpreted(("gpu0", "cpu"), [*GPU_PEAKS, *CPU_PEAKS], GPU_SLOPES + CPU_SLOPES, cells))[2]
    assert (
        "though the GPU reads K and V at 96 % of its bandwidth: the CPU reads them at 134 % of what was measured"
        in against
    )
    assert "slow" not in against and "eager" not in against


def test_a_kernel_that_is_hardly_started_is_not_called_slow():
    (cell,) = ways(1, 128, fused_graph=(3e-6, 3e-6))
    cells = [lambda ceilings: cell(ceilings) | {"regime": "overhead"}, step("cpu", "fp32", 1, 128, 30e-6)]
    against = paragraphs(interpreted(("gpu0", "cpu"), [*GPU_PEAKS, *CPU_PEAKS], GPU_SLOPES + CPU_SLOPES, cells))[2]
    assert "the device takes 3 us, of which starting is a large part" in against and "slow" not in against


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


@pytest.mark.parametrize(("only", "peaks", "slopes"), [("cpu", CPU_PEAKS, CPU_SLOPES), ("gpu0", GPU_PEAKS, GPU_SLOPES)])
def test_one_device_alone_leaves_the_question_open(only, peaks, slopes):
    text = interpreted((only,), peaks, slopes)
    assert paragraphs(text)[2] == (
        f"Only {only} was measured in this run; the question needs a GPU and the CPU (devices: auto or all)."
    )


@pytest.mark.parametrize("kept", ["eager", "fused", "fused_graph", "numpy"])
@pytest.mark.parametrize("dtypes", [("fp32",), ("fp16",), ("bf16",)])
def test_any_choice_of_implementations_is_put_into_words(kept, dtypes):
    content = samples.every_implementation(dtypes)
    content["operators"] = [o for o in content["operators"] if o["implementation"] == kept]
    devices = {name: device(name) for name in content["devices"]}
    for ceilings in (content["ceilings"], []):
        for row in content["operators"]:
            row |= {} if ceilings else dict.fromkeys(("fraction_of_roof", "device_fraction_of_roof", "roof_tflops"))
        text = interpret(Roofline.model_validate(content | {"ceilings": ceilings}), devices, [], [], [])
        assert len(paragraphs(text)) == 3 and not re.search(r"\b(None|nan|inf)\b|[{}]|\.\.|  ", text)
        others = {"eager", "fused", "fused_graph", "numpy"} - {kept}
        assert not any(re.search(rf"\b{other}\b", text) for other in others)


def test_without_a_common_cell_there_is_no_ratio():
    cells = [step("gpu0", "fp32", 1, 256, 1e-3), step("cpu", "fp32", 1, 128, 1e-3)]
    text = interpreted(("gpu0", "cpu"), [*GPU_PEAKS, *CPU_PEAKS], GPU_SLOPES + CPU_SLOPES, cells)
    assert paragraphs(text)[2] == "No fp32 decode attention was measured on both gpu0 and cpu."


def test_without_a_slope_on_both_the_bandwidths_are_not_compared():
    cells = [step("gpu0", "fp32", 1, 128, 1e-3), step("cpu", "fp32", 1, 128, 1e-3, memory_ceiling=None)]
    against = paragraphs(interpreted(("gpu0", "cpu"), [*GPU_PEAKS, *CPU_PEAKS], GPU_SLOPES[:1], cells))[2]
    assert "The ratio of the memory bandwidths is not known (no memory slope was measured on cpu)." in against
    assert "PCIe" not in against
