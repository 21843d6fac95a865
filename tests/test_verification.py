"""Predictions held against measurements: errors, regimes, the measured cause of an error, and the page."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records_factory import (
    CONSTANTS,
    US,
    bandwidth_record,
    cell,
    hashes_of,
    operator_record,
    peak_record,
    promised_seal,
    reference_gemm,
    results,
    verification_page,
    verified,
)

from roofline.analysis.collect import Asked, collect
from roofline.analysis.table import Roofline
from roofline.analysis.verification import error, error_statistics, summarise, verify

FP16, HBM = peak_record("gpu0", "fp16", 800.0), bandwidth_record("gpu0", hbm_read=4700.0)
FP32, DRAM = peak_record("cpu", "fp32", 1.6), bandwidth_record("cpu", dram_read=120.0)
CALLS, START, SHARE = (CONSTANTS["gpu"][name] for name in ("call_s", "start_s", "share"))


def on_gpu(latency_us, device_us, *, start_us=None, calls_us=None, **fields):
    """A cell in fp16 of 1 MB and as many FLOPs: 0.22 us of hbm_read."""
    known = {"dtype": "fp16", "flops": 10**6, "bytes": 10**6}
    known["overhead_s"] = calls_us and min(calls_us, latency_us) * US
    known["device_overhead_s"] = start_us and min(start_us, device_us) * US
    return cell("gpu0", latency_us * US, device_us * US, **known | fields)


def on_cpu(latency_us, calls_us, **fields):
    return cell("cpu", latency_us * US, overhead_s=calls_us * US, **{"flops": 10**5, "bytes": 10**5} | fields)


def big(latency_us, device_us, **fields):
    """1 GB and so 213 us of hbm_read, whose calls nobody waits for."""
    return on_gpu(latency_us, device_us, **{"start_us": 3.5, "calls_us": 8, "flops": 10**9, "bytes": 10**9} | fields)


def by_memory(gb_per_s):
    """The time of `big` at a bandwidth, with the start and the share that the seal assumes, in microseconds."""
    return START / US + 1e9 / (gb_per_s * SHARE * 1e3)


def entry_of(one, *others):
    """Of a cell under the ceilings of its device, or under others."""
    on = "gpu0" if one.device_latency else "cpu"
    ceilings = others or {"gpu0": (FP16, HBM), "cpu": (FP32, DRAM)}[on]
    entries = verified(*ceilings, operator_record(on, one)).entries
    return next(entry for entry in entries if entry.operator == "scan")


# ---------------------------------------------------------------- errors


def test_an_error_is_signed_and_a_share_of_what_was_measured():
    assert (error(0.5, 1.0), error(3.0, 1.0)) == (-0.5, 2.0)
    assert error(None, 1.0) is error(1.0, None) is None


def test_a_right_prediction_has_no_error_and_nothing_to_explain():
    entry = entry_of(on_gpu(CALLS / US, 4, start_us=START / US, calls_us=CALLS / US))
    assert abs(entry.sealed_error) < 1e-6
    assert (entry.sealed.regime, entry.regime, entry.sealed_regime_correct) == ("overhead", "overhead", True)
    assert entry.cause == "close"


def test_a_wrong_regime_is_told_with_what_it_turned_on():
    """The calls took forty times what was assumed: predicted to be bound by memory, and bound by its calls."""
    entry = entry_of(big(640, 229, calls_us=630))
    assert (entry.sealed.regime, entry.regime, entry.sealed_regime_correct) == ("memory", "overhead", False)
    assert entry.sealed_error == pytest.approx(entry.sealed.latency_s / (640 * US) - 1)
    assert entry.cause == "calls"
    assert "the calls cost 640 us (8 us assumed) and the device waits for them" in entry.explanation
    assert (
        "predicted memory and found overhead, since overheads take 65 % of the time and the roof 33 %"
        in entry.explanation
    )


def test_the_device_has_an_error_of_its_own():
    entry = entry_of(on_gpu(8, 4, start_us=3.5, calls_us=8))
    assert entry.sealed_device_error == pytest.approx(entry.sealed.device_latency_s / (4 * US) - 1)
    assert entry_of(on_cpu(40, 30)).sealed_device_error is None


# ---------------------------------------------------------------- causes

CAUSES = {
    "calls that the device waits for": (
        on_gpu(12, 4, start_us=3.4, calls_us=11.9),
        "calls",
        "the calls cost 12 us (8 us assumed) and the device waits for them: 3 times its 4 us",
    ),
    "calls of a device that is its own caller": (
        on_cpu(60, 55),
        "calls",
        "the calls cost 55 us of the 60 us (30 us assumed)",
    ),
    "a start": (
        on_gpu(30, 29.5, start_us=28, calls_us=8),
        "start",
        "starting the same code takes 28 us of the device's 29.5 us (3.5 us assumed)",
    ),
    "a memory that is slower than promised": (
        big(by_memory(4700), by_memory(4700)),
        "memory_ceiling",
        "the datasheet gives 4800 GB/s; hbm_read measured 4700",
    ),
    "a share of the roof": (
        big(400, 399.5),
        "share_of_roof",
        "after launch: 54 % of hbm_read (model: 95 %)",
    ),
    "a start beside the work": (
        big(214, 213.5),
        "share_of_roof",
        "the device takes 214 us: starting the same code takes 3.5 us, some of it beside the work, since the other",
    ),
    "a cell above its roof": (
        big(150, 149.5),
        "share_of_roof",
        "after launch: 146 % of hbm_read (model: 95 %)",
    ),
    "what starting leaves": (
        on_gpu(8.9, 8.8, start_us=4.5, calls_us=8),
        "share_of_roof",
        "the device takes 8.8 us: starting the same code takes 4.5 us of it, and the other 4.3 us are",
    ),
}


@pytest.mark.parametrize(("one", "cause", "words"), CAUSES.values(), ids=CAUSES.keys())
def test_the_sentence_names_the_measured_cause(one, cause, words):
    entry = entry_of(one)
    assert entry.cause == cause
    assert entry.explanation.startswith(words), entry.explanation


POWER = ["sw_power_cap"]


def with_gemm(latency_us, ceiling, clock=None, burst=None, **fields):
    """The reference product under its ceiling, limited by power, the burst by `burst`; `fields` are the product's."""
    one = reference_gemm("gpu0", "fp16", 2 * 4096**3 / (latency_us * US) / 1e12, costs={}, **fields)
    limits = {"limited_by": POWER, "burst_limited_by": burst}
    peak = peak_record("gpu0", "fp16", ceiling, reference=one, clock=clock, **limits)
    (entry,) = verified(peak, HBM).entries
    return entry.cause, entry.explanation


def test_a_ceiling_below_the_promise_is_the_cause_of_a_slower_product():
    cause, words = with_gemm(176, 800.0)
    assert (cause, words) == ("compute_ceiling", "the datasheet gives 990 TFLOPS; fp16 measured 800")
    assert with_gemm(176, 800.0, clock=(1700.0, 970.0))[0] == "compute_ceiling"


def test_the_clock_is_the_cause_where_it_accounts_for_the_lower_ceiling():
    for burst, why in ((None, ""), (POWER, " (power cap)")):  # the load's reason is none of the burst's
        cause, words = with_gemm(176, 800.0, clock=(1500.0, 850.0), burst=burst)
        assert cause == "clock"
        assert words == f"the ceiling's clock was 1500 MHz{why}; the datasheet's 990 TFLOPS require 1747 MHz"


def test_a_products_own_clock_is_told_where_its_ceiling_ran_faster():
    states = [{"at_s": 0.1, "when": "during", "throttle_reasons": ["sw_power_cap"]}]
    cause, words = with_gemm(230, 990.0, clock=(1750.0, 990.0), sm_clock_mhz=1100.0, states=states)
    assert cause == "own_clock"
    assert words == "its clock was 1100 MHz (power cap), and 1750 MHz under its ceiling's load"


def test_a_rule_of_thumb_is_no_promise():
    seal = promised_seal("cpu", {"fp32": 2.0, "dram_read": 160.0})
    seal.ceilings[-1].source = "rule of thumb: 10 GB/s for each core"
    slow = cell("cpu", 30 * US + 1e9 / (80e9 * 0.8), flops=10**6, bytes=10**9, overhead_s=30 * US)
    entry = entry_of(slow, FP32, bandwidth_record("cpu", dram_read=80.0), seal)
    assert entry.explanation == "160 GB/s was assumed by rule of thumb; dram_read measured 80"


@pytest.mark.parametrize(
    "one",
    [
        # Faster than sealed for its caller, and slower than the model expects once started, in another block.
        big(200, 240),
        # The start, the memory ceiling and the share each add about 4.5 us: none is half of the error.
        big(by_memory(4700) + 9, by_memory(4700) + 9, start_us=START / US + 4.5),
    ],
    ids=["contradicted", "in three parts"],
)
def test_a_cause_that_is_contradicted_or_less_than_half_of_the_error_is_not_named(one):
    entry = entry_of(one)
    assert (entry.cause, entry.explanation) == ("unexplained", "not explained by what was measured")


def test_where_no_roof_was_measured_nothing_explains_what_is_left():
    entry = entry_of(big(400, 399.5), peak_record("gpu0", "fp32", 55.0))
    assert (entry.cause, entry.regime) == ("unexplained", None)


@pytest.mark.parametrize("missing", ["gpu0/prediction.json", "gpu0/scan/prediction.json"])
def test_without_the_seals_nothing_explains_the_error(missing):
    found = results(FP16, HBM, operator_record("gpu0", big(400, 399.5)))
    del found.seals[missing]
    entry = verify(collect(found, Asked()), found, hashes_of(found)).entries[-1]
    assert (entry.cause, entry.parts) == ("unexplained", [])
    assert entry.sealed_error is not None


TIMES = st.floats(0.1, 1e4)


@given(TIMES, st.floats(0.01, 1.0), TIMES, TIMES, st.sampled_from([10**6, 10**8, 10**9]))
def test_the_parts_add_up_to_the_error_and_the_cause_is_half_of_it_or_more(latency, busy, calls, start, counted):
    entry = entry_of(on_gpu(latency, busy * latency, start_us=start, calls_us=calls, flops=counted, bytes=counted))
    gap_s = entry.latency_s - entry.sealed.latency_s
    assert sum(part.seconds for part in entry.parts) == pytest.approx(gap_s, abs=1e-12)
    if entry.cause == "close":
        assert abs(gap_s) <= 0.0101 * entry.latency_s
    elif entry.cause != "unexplained":
        named = next(part.seconds for part in entry.parts if part.cause == entry.cause)
        assert named / gap_s >= 0.5
        assert all(named / gap_s >= part.seconds / gap_s for part in entry.parts)
    assert "; predicted" in entry.explanation or entry.sealed_regime_correct


EVERY_CEILING = [peak_record("gpu0", "fp16", 800.0), HBM]


@given(
    st.lists(st.sampled_from(range(2)), unique=True),
    st.sampled_from([0, 10**6, 10**12]),
    st.sampled_from([0, 10**6, 10**10]),
    TIMES,
    st.none() | TIMES,
    st.none() | TIMES,
)
def test_whatever_was_counted_and_measured_is_put_into_words(measured, flops, traffic, latency, calls, start):
    one = on_gpu(latency, 0.9 * latency, calls_us=calls, start_us=start, flops=flops, bytes=traffic)
    found = verified(*(EVERY_CEILING[place] for place in measured), operator_record("gpu0", one))
    assert not re.search(r"None|nan|inf\b", verification_page(found))


# ---------------------------------------------------------------- summary


def test_cells_are_counted_by_device_operator_implementation_and_regime():
    small, large = on_gpu(20, 4, start_us=3.4, calls_us=19.9), big(300, 299, n=2048)
    another = on_gpu(30, 14, implementation="another", calls_us=20)
    found = verified(FP16, HBM, operator_record("gpu0", small, large, another))
    assert [(g.operator, g.implementation, g.regime, g.cells) for g in found.summary if g.operator == "scan"] == [
        ("scan", "plain", "memory", 1),
        ("scan", "plain", "overhead", 1),
        ("scan", "another", "overhead", 1),
        ("scan", None, "all", 3),
    ]


def test_cells_without_a_regime_are_a_line_of_their_own_and_judge_none():
    found = verified(peak_record("gpu0", "fp16_fma", 55.0), operator_record("gpu0", big(300, 299)))
    (alone, every) = found.summary
    assert (alone.regime, alone.cells, every.cells) == ("not_found", 1, 1)
    assert (alone.sealed.regimes, alone.sealed.share_correct) == (0, None)
    assert alone.sealed.latency.cells == 1 and alone.from_ceilings.latency is None
    assert "| not found |" in (page := verification_page(found)) and "No prediction has a measured counterpart." in page


NUMBERS = st.floats(-1, 1e6, allow_nan=False)


@given(st.lists(NUMBERS, min_size=1, max_size=30))
def test_median_and_worst_are_of_absolute_errors(errors):
    found = error_statistics(errors)
    sizes = sorted(map(abs, errors))
    assert (found.cells, found.worst) == (len(errors), sizes[-1])
    assert sum(size <= found.median for size in sizes) * 2 >= len(sizes)
    assert sum(size >= found.median for size in sizes) * 2 >= len(sizes)
    assert error_statistics([]) is None


@given(st.lists(st.tuples(st.sampled_from(["one", "other"]), st.booleans() | st.none(), NUMBERS)))
def test_every_cell_counts_once_in_its_group_and_once_in_all(drawn):
    template = entry_of(big(300, 299))
    entries = [
        template.model_copy(update={"implementation": name, "sealed_regime_correct": right, "sealed_error": size})
        for name, right, size in drawn
    ]
    groups = summarise(entries)
    for kind in (True, False):
        assert sum(group.cells for group in groups if (group.regime == "all") == kind) == len(entries)
    for group in groups:
        mine = [entry for entry in entries if group.implementation in (None, entry.implementation)]
        judged = [entry.sealed_regime_correct for entry in mine if entry.sealed_regime_correct is not None]
        assert (group.sealed.regimes, group.sealed.regimes_correct) == (len(judged), sum(judged))
        assert group.sealed.latency.worst == max(abs(entry.sealed_error) for entry in mine)


def test_what_a_call_costs_is_the_least_over_the_records():
    empty = {"empty_kernel_s": 7 * US, "empty_kernel_device_s": 2 * US}
    records = [
        operator_record("gpu0", *(on_gpu(20, 15, start_us=start, calls_us=calls, n=n, **empty) for _ in range(2)))
        for start, calls, n in ((3, 9, 1), (4, 8, 2), (5, 12, 3))
    ]
    other = operator_record("gpu0", big(300, 299, implementation="another", calls_us=None, n=4))
    (call,) = (found := verified(FP16, HBM, *records, other)).calls
    assert (call.device, call.operator, call.implementation, call.records) == ("gpu0", "scan", "plain", 3)
    assert (call.smallest_s, call.smallest_device_s) == pytest.approx((8 * US, 3 * US))
    assert (call.empty_kernel_s, call.empty_kernel_device_s) == pytest.approx((7 * US, 2 * US))
    assert "## What a call costs" in verification_page(found)
    assert "## What a call costs" not in verification_page(verified(FP16, HBM))


def test_broken_seals_are_told_of_each_device():
    found = results(FP16, HBM, FP32)
    hashes = hashes_of(found) | {"gpu0/prediction.json": "of another"}
    verification = verify(collect(found, Asked()), found, hashes)
    gpu, cpu = verification.seals
    assert (gpu.device, cpu.device, cpu.violations) == ("gpu0", "cpu", [])
    assert all("under another seal" in line for line in gpu.violations) and gpu.violations
    assert gpu.first_measurement_at and set(gpu.seals) == {"gpu0/prediction.json", "gpu0/peak_flops/prediction.json"}
    assert "**broken**" in verification_page(verification)


# ---------------------------------------------------------------- the page


@pytest.fixture(scope="module")
def many() -> Roofline:
    """90 cells of a GPU, of three implementations, right and wrong ones."""
    cells = []
    for number in range(90):
        latency, busy = 3 + number**1.4, 0.6 if number % 5 == 0 else 0.95
        fields = {"implementation": ("plain", "fused", "graph")[number % 3], "n": number, "bytes": 10**6 * (1 + number)}
        cells.append(on_gpu(latency, busy * latency, start_us=2, calls_us=0.6 * latency, **fields))
    return verified(FP16, HBM, operator_record("gpu0", *cells))


def size_of(told: str) -> float:
    """An absolute error as the page says it."""
    number, unit = told.lstrip("+-").split(" ")
    return float(number) * (1 if unit == "times" else 0.01)


def test_the_page_opens_with_the_verdict_and_explains_every_error(many):
    text = verification_page(many)
    assert text.index("cells predicted right") < text.index("| device ") < text.index("## Cells")
    rows = [line for line in text.splitlines() if re.match(r"\| fp16 N \d", line)]
    told = set(re.findall(r"\*\*(fp16 [^*]+)\*\*", text))
    close = sum(entry.cause == "close" for entry in many.entries)
    assert len(rows) == 90 and len(told) + close == len(many.entries)
    judged = [(entry.sealed_regime_correct, entry.sealed_time_right) for entry in many.entries]
    right = sum(all(both) for both in judged)
    assert sum("**no**" in row for row in rows) == len(judged) - right > 0
    assert f"{right} of {len(judged)} cells predicted right" in text


def test_what_helps_is_told_of_the_dtypes_or_cells_that_it_helps():
    """As the record of each cell has it, and nothing to those that have none."""
    remedies = {"fp64": ["tensor cores"], "fp32": ["tensor cores"], "fp16": ["lower precision"], "int8": []}
    under = {"compute_ceiling": "fp16"}
    cells = [big(300, 299, dtype=dtype, advice={"memory": found}, **under) for dtype, found in remedies.items()]
    words = verification_page(verified(*EVERY_CEILING, operator_record("gpu0", *cells)))
    assert "- What helps where memory-bound: fp64, fp32: tensor cores; fp16: lower precision.\n" in words
    cells += [big(300, 299, dtype="fp16", n=2, advice={"memory": ["larger batches"]})]
    words = verification_page(verified(*EVERY_CEILING, operator_record("gpu0", *cells)))
    assert "; fp16 N 1024: lower precision; fp16 N 2: larger batches.\n" in words


def test_the_worst_cell_of_a_section_comes_first(many):
    for section in re.split(r"^### ", verification_page(many).split("## What a call")[0], flags=re.MULTILINE)[1:]:
        cells = [[cell.strip() for cell in row.split("|")] for row in section.splitlines() if row.startswith("| fp16")]
        assert all(size_of(first[4]) >= size_of(second[4]) for first, second in pairwise(cells))


def test_tables_are_whole(many):
    """Every row of a table has as many columns as its head."""
    blocks = re.findall(r"(?:^\|.*\n)+", verification_page(many), re.MULTILINE)
    assert blocks
    for block in blocks:
        assert len({line.count("|") for line in block.splitlines()}) == 1
