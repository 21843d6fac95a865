"""Predictions held against measurements: errors, regimes, the measured cause of an error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records_factory import (
    CONSTANTS,
    US,
    bandwidth_record,
    cell,
    load_next_to,
    operator_record,
    peak_record,
    promised_seal,
    timing,
    verified,
)

from roofline.table.prediction_error import attribute_error, prepare_replay

FP16, HBM = peak_record("gpu0", "fp16", 800.0), bandwidth_record("gpu0", hbm_read=4700.0)
FP32, DRAM = peak_record("cpu", "fp32", 1.6), bandwidth_record("cpu", dram_read=120.0)
CALLS, START = (CONSTANTS["gpu"][name] for name in ("call_s", "start_s"))


def on_gpu(latency_us, device_us, *, start_us=None, calls_us=None, **fields):
    """A cell in fp16 of 1 MB and 1e6 FLOPs: 0.22 us of hbm_read."""
    values = {"dtype": "fp16", "flops": 10**6, "bytes": 10**6}
    values["overhead_s"] = calls_us and min(calls_us, latency_us) * US
    values["start_s"] = start_us and min(start_us, device_us) * US
    return cell("gpu0", latency_us * US, device_us * US, **values | fields)


def big(latency_us, device_us, **fields):
    """1 GB and so 213 us of hbm_read, whose calls nobody waits for."""
    return on_gpu(latency_us, device_us, **{"start_us": 3.5, "calls_us": 8, "flops": 10**9, "bytes": 10**9} | fields)


def entry_of(measurement, *others):
    """Of a cell under the ceilings of its device, or under others."""
    device = "gpu0" if measurement.gpu_time else "cpu"
    ceilings = others or {"gpu0": (FP16, HBM), "cpu": (FP32, DRAM)}[device]
    entries = verified(*ceilings, operator_record(device, measurement)).measured_cells
    return next(entry for entry in entries if entry.operator == "scan")


def test_a_right_prediction_has_no_error_and_nothing_to_explain():
    entry = entry_of(on_gpu(CALLS / US, 4, start_us=START / US, calls_us=CALLS / US))
    assert abs(entry.sealed_cpu_time_error) < 1e-6
    assert (entry.sealed.regime, entry.regime, entry.sealed_regime_right) == ("overhead", "overhead", True)
    assert (entry.cause, entry.cause_s) == (None, None)


def test_a_wrong_regime_has_the_cause_that_it_turned_on():
    """The calls took forty times what was assumed: predicted to be bound by memory, and bound by its calls."""
    entry = entry_of(big(640, 229, calls_us=630))
    assert (entry.sealed.regime, entry.regime, entry.sealed_regime_right) == ("memory", "overhead", False)
    assert entry.sealed_cpu_time_error == pytest.approx(entry.sealed.cpu_time_s / (640 * US) - 1)
    assert entry.cause == "launch" and entry.cause_s == pytest.approx(640 * US - entry.sealed.cpu_time_s, rel=0.02)


CLOCKED = peak_record(
    "gpu0", "fp16", 800.0, datasheet=990.0, clock=(1500, 810.0), burst_throttle_reasons=["sw_power_cap"]
)
COMPUTE = {"flops": 10**12, "bytes": 10**6, "start_us": 3.5, "calls_us": 8}  # 1.25 ms at 800 TFLOPS
CORES = {"plan": {"cores": 8}, "costs": {"floor": {"call_s": 100}}, "flops": 1, "bytes": 1}  # 3 ms, by no ceiling
SIX_BUSY = timing(4e-3, contention=load_next_to(own_cores=6))
REASONS = {
    "calls": (big(640, 229, calls_us=630), ["launch", "630 us", "8 us"]),
    "the host in another way": (big(640, 229), ["launch"]),
    "start": (on_gpu(20, 20, start_us=19, calls_us=8), ["start", "19 us", "3.5 us"]),
    "a ceiling below the datasheet's, by its clock": (on_gpu(1260, 1254, **COMPUTE), ["ceiling", "800", "990", "82 %"]),
    "a share of the stream": (big(304, 304), ["share", "69 % of the 4800 GB/s promised", "95 %"]),
    "a share of the compute peak": (on_gpu(2504, 2504, **COMPUTE), ["share", "50 % of fp16", "100 %"]),
    "more than the whole stream": (big(180, 180), ["share"]),
    "work that no ceiling sets": (cell("cpu", 4e-3, **CORES), ["share"]),
    "cores that were not busy": (cell("cpu", 4e-3, **CORES | {"cpu_time": SIX_BUSY}), ["share", "6 of 8"]),
}


@pytest.mark.parametrize(("measurement", "expected"), REASONS.values(), ids=REASONS.keys())
def test_the_reason_of_an_error_is_what_was_measured_next_to_what_was_assumed(measurement, expected):
    ceilings = (FP32, DRAM) if measurement.gpu_time is None else (CLOCKED, HBM)
    entry, (cause, *figures) = entry_of(measurement, *ceilings), expected
    assert entry.cause == cause and (entry.cause_reason is None) == (not figures)
    assert all(figure in entry.cause_reason for figure in figures), entry.cause_reason


TIMES = st.floats(0.1, 1e4)


@given(TIMES, st.floats(0.01, 1.0), TIMES, TIMES, st.sampled_from([10**6, 10**8, 10**9]))
def test_the_parts_add_up_to_the_error_and_the_cause_is_the_largest(latency, busy, calls, start, counted):
    measurement = on_gpu(latency, busy * latency, start_us=start, calls_us=calls, flops=counted, bytes=counted)
    replay = prepare_replay(measurement, promised_seal("gpu0"), CONSTANTS["gpu"])
    seconds_by_cause = attribute_error(replay, 800.0, 4700.0)
    entry = entry_of(measurement)
    gap_s = entry.cpu_time_s - entry.sealed.cpu_time_s
    assert sum(seconds_by_cause.values()) == pytest.approx(gap_s, abs=1e-12)
    if entry.cause is None:
        assert abs(gap_s) <= 0.0101 * entry.cpu_time_s
    else:
        assert entry.cause_s / gap_s == pytest.approx(max(seconds / gap_s for seconds in seconds_by_cause.values()))
