"""Predictions held against measurements: errors, regimes, the measured cause of an error."""

import re

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
from roofline.analysis.verification import error, verify

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


def test_a_wrong_regime_has_the_cause_that_it_turned_on():
    """The calls took forty times what was assumed: predicted to be bound by memory, and bound by its calls."""
    entry = entry_of(big(640, 229, calls_us=630))
    assert (entry.sealed.regime, entry.regime, entry.sealed_regime_correct) == ("memory", "overhead", False)
    assert entry.sealed_error == pytest.approx(entry.sealed.latency_s / (640 * US) - 1)
    assert entry.cause == "calls" and "predicted memory and found overhead" in entry.explanation


def test_the_device_has_an_error_of_its_own():
    entry = entry_of(on_gpu(8, 4, start_us=3.5, calls_us=8))
    assert entry.sealed_device_error == pytest.approx(entry.sealed.device_latency_s / (4 * US) - 1)
    assert entry_of(on_cpu(40, 30)).sealed_device_error is None


# ---------------------------------------------------------------- causes

# What was measured, the cause that is named, and the figures that its sentence gives.
CAUSES = {
    "calls that the device waits for": (on_gpu(12, 4, start_us=3.4, calls_us=11.9), "calls", "12 us (8 us assumed)"),
    "calls of a device that is its own caller": (on_cpu(60, 55), "calls", "55 us of the 60 us (30 us assumed)"),
    "a start": (on_gpu(30, 29.5, start_us=28, calls_us=8), "start", "28 us of the device's 29.5 us (3.5 us assumed)"),
    "a slower memory than promised": (big(by_memory(4700), by_memory(4700)), "memory_ceiling", "4800 GB/s"),
    "a share of the roof": (big(400, 399.5), "share_of_roof", "54 % of hbm_read (model: 95 %)"),
    "a start beside the work": (big(214, 213.5), "share_of_roof", "214 us"),
    "a cell above its roof": (big(150, 149.5), "share_of_roof", "146 % of hbm_read (model: 95 %)"),
    "what starting leaves": (on_gpu(8.9, 8.8, start_us=4.5, calls_us=8), "share_of_roof", "4.5 us of it"),
}


@pytest.mark.parametrize(("one", "cause", "figures"), CAUSES.values(), ids=CAUSES.keys())
def test_the_measured_cause_is_named_with_its_figures(one, cause, figures):
    entry = entry_of(one)
    assert entry.cause == cause and figures in entry.explanation


POWER = ["sw_power_cap"]


def with_gemm(latency_us, ceiling, clock=None, burst=None, **fields):
    """The reference product under its ceiling, limited by power, the burst by `burst`; `fields` are the product's."""
    one = reference_gemm("gpu0", "fp16", 2 * 4096**3 / (latency_us * US) / 1e12, costs={}, **fields)
    limits = {"limited_by": POWER, "burst_limited_by": burst}
    peak = peak_record("gpu0", "fp16", ceiling, reference=one, clock=clock, **limits)
    (entry,) = verified(peak, HBM).entries
    return entry.cause, entry.explanation


@pytest.mark.parametrize(
    ("fields", "cause", "figures"),
    [
        ({}, "compute_ceiling", ("990 TFLOPS", "800")),
        ({"clock": (1700.0, 970.0)}, "compute_ceiling", ("990 TFLOPS", "800")),
        ({"clock": (1500.0, 850.0)}, "clock", ("1500 MHz;", "1747 MHz")),  # the load's reason is none of the burst's
        ({"clock": (1500.0, 850.0), "burst": POWER}, "clock", ("1500 MHz (power cap)", "1747 MHz")),
    ],
)
def test_a_product_is_slower_by_its_ceiling_or_by_the_clock_that_accounts_for_it(fields, cause, figures):
    found, words = with_gemm(176, 800.0, **fields)
    assert found == cause and all(figure in words for figure in figures)


def test_a_products_own_clock_is_told_where_its_ceiling_ran_faster():
    states = [{"at_s": 0.1, "when": "during", "throttle_reasons": POWER}]
    cause, words = with_gemm(230, 990.0, clock=(1750.0, 990.0), sm_clock_mhz=1100.0, states=states)
    assert cause == "own_clock" and "1100 MHz (power cap)" in words and "1750 MHz" in words


def test_a_rule_of_thumb_is_no_promise():
    seal = promised_seal("cpu", {"fp32": 2.0, "dram_read": 160.0})
    seal.ceilings[-1].source = "rule of thumb: 10 GB/s for each core"
    slow = cell("cpu", 30 * US + 1e9 / (80e9 * 0.8), flops=10**6, bytes=10**9, overhead_s=30 * US)
    entry = entry_of(slow, FP32, bandwidth_record("cpu", dram_read=80.0), seal)
    assert "160 GB/s was assumed by rule of thumb" in entry.explanation and "80" in entry.explanation


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
    assert entry.cause == "unexplained"


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


@given(st.booleans(), st.sampled_from([0, 10**6, 10**12]), TIMES, st.none() | TIMES, st.none() | TIMES)
def test_whatever_was_counted_and_measured_is_put_into_words(roofs, counted, latency, calls, start):
    one = on_gpu(latency, 0.9 * latency, calls_us=calls, start_us=start, flops=counted, bytes=counted)
    found = verified(*([FP16, HBM] if roofs else []), operator_record("gpu0", one))
    assert not re.search(r"None|nan|inf\b", verification_page(found))


# ---------------------------------------------------------------- summary


def test_what_a_call_costs_is_the_least_over_the_records():
    empty = {"empty_kernel_s": 7 * US, "empty_kernel_device_s": 2 * US}
    records = [
        operator_record("gpu0", *(on_gpu(20, 15, start_us=start, calls_us=calls, n=n, **empty) for _ in range(2)))
        for start, calls, n in ((3, 9, 1), (4, 8, 2), (5, 12, 3))
    ]
    other = operator_record("gpu0", big(300, 299, implementation="another", calls_us=None, n=4))
    (call,) = verified(FP16, HBM, *records, other).calls
    assert (call.device, call.operator, call.implementation, call.records) == ("gpu0", "scan", "plain", 3)
    assert (call.smallest_s, call.smallest_device_s) == pytest.approx((8 * US, 3 * US))
    assert (call.empty_kernel_s, call.empty_kernel_device_s) == pytest.approx((7 * US, 2 * US))


def test_broken_seals_are_told_of_each_device():
    found = results(FP16, HBM, FP32)
    hashes = hashes_of(found) | {"gpu0/prediction.json": "of another"}
    verification = verify(collect(found, Asked()), found, hashes)
    gpu, cpu = verification.seals
    assert (gpu.device, cpu.device, cpu.violations) == ("gpu0", "cpu", [])
    assert all("under another seal" in line for line in gpu.violations) and gpu.violations
    assert gpu.first_measurement_at and set(gpu.seals) == {"gpu0/prediction.json", "gpu0/peak_flops/prediction.json"}
