"""The model that predicts a cell, and what is sealed of it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records_factory import CONSTANTS, DATASHEET, cell, device_record, operator_seal, promised_seal

from roofline.core import regimes, roofline_model
from roofline.core.cell_prediction import CellCosts, predict_cell, weighted_sum
from roofline.devices.cpu.topology import rule_of_thumb_gb_per_s
from roofline.measure.sealing import seal_device
from roofline.records.device_record import DatasheetBandwidth, DatasheetPeak
from roofline.records.seal_records import CostTerms, predict_sealed

SECONDS = st.just(0.0) | st.floats(1e-9, 10)
COUNTS = st.just(0) | st.floats(1e3, 1e18)
RATES = st.floats(1e-3, 1e6)
COSTS = {
    device: st.builds(
        CellCosts,
        overhead_s=st.none() | SECONDS,
        start_s=SECONDS if device == "gpu" else st.none(),
        share=st.floats(0.01, 1),
        extra_s=SECONDS,
        floor_s=SECONDS,
        waits_s=SECONDS,
        compute_share=st.floats(0.01, 1),
    )
    for device in ("gpu", "cpu")
}
ANY_COSTS = COSTS["gpu"] | COSTS["cpu"]


def predicted(costs, flops=1e12, traffic=1e9, tflops=50.0, gb_per_s=1000.0):
    return predict_cell(flops=flops, traffic_bytes=traffic, tflops=tflops, gb_per_s=gb_per_s, costs=costs)


def test_by_hand():
    prediction = predicted(CellCosts(overhead_s=8e-6, start_s=10e-6, share=0.95), flops=1e9, traffic=2e9)
    expected_s = 10e-6 + 2e-3 / 0.95
    assert prediction.regime == "memory" and prediction.cpu_time_s == prediction.gpu_time_s == pytest.approx(expected_s)
    assert prediction.fraction_of_compute_peak == pytest.approx(20e-6 / expected_s)
    waits = predicted(CellCosts(overhead_s=None, start_s=0.0, waits_s=3e-3), flops=0, traffic=4e9)
    assert waits.cpu_time_s == pytest.approx(5e-3), "waits hide behind the transfers in part: 3, 4 and 5"


@given(ANY_COSTS, COUNTS, COUNTS, st.floats(1, 1e6), st.floats(1, 1e6), st.none() | RATES, st.none() | RATES)
def test_more_work_or_traffic_never_takes_less_time(costs, flops, traffic, more, further, tflops, gb_per_s):
    little = predicted(costs, flops, traffic, tflops, gb_per_s)
    much = predicted(costs, flops * more, traffic * further, tflops, gb_per_s)
    assert (much.cpu_time_s or 0) >= (little.cpu_time_s or 0)
    assert (much.gpu_time_s or 0) >= (little.gpu_time_s or 0)


@given(COSTS["gpu"], COUNTS, COUNTS)
def test_the_longer_of_calls_and_device_counts(costs, flops, traffic):
    prediction = predicted(costs, flops, traffic)
    assert prediction.gpu_time_s >= costs.start_s + costs.extra_s
    assert (prediction.cpu_time_s or 0) == max(costs.overhead_s or 0, prediction.gpu_time_s)


@given(COSTS["cpu"], COUNTS, COUNTS)
def test_on_a_synchronous_device_the_calls_come_before_the_work(costs, flops, traffic):
    without_calls = predicted(replace(costs, overhead_s=None), flops, traffic)
    with_calls = predicted(costs, flops, traffic)
    assert with_calls.gpu_time_s is None
    assert (with_calls.cpu_time_s or 0) == pytest.approx((costs.overhead_s or 0) + (without_calls.cpu_time_s or 0))


@given(ANY_COSTS, st.floats(1e3, 1e18), st.floats(1e3, 1e18), RATES, RATES)
def test_never_faster_than_the_roofline_and_of_the_regime_that_its_times_give(costs, flops, traffic, tflops, gb_per_s):
    prediction = predicted(costs, flops, traffic, tflops, gb_per_s)
    roof_s = roofline_model.roofline_time(flops, traffic, tflops * 1e12, gb_per_s * 1e9)
    assert prediction.cpu_time_s >= roof_s * (1 - 1e-12)
    assert 0 < prediction.fraction_of_compute_peak <= 1 + 1e-12
    assert prediction.regime == regimes.classify_regime(
        cpu_time_s=prediction.cpu_time_s,
        gpu_time_s=prediction.gpu_time_s,
        start_s=(costs.overhead_s or 0) if costs.start_s is None else costs.start_s,
        compute_s=flops / (tflops * 1e12),
        memory_s=traffic / (gb_per_s * 1e9),
    )


NAMES = ("a", "b", "c")
FACTORS = st.dictionaries(st.sampled_from(NAMES), st.floats(0, 100))
VALUES = st.fixed_dictionaries(dict.fromkeys(NAMES, st.floats(0, 1)))


@given(FACTORS, VALUES, VALUES, st.floats(0, 10))
def test_costs_are_linear_in_the_constants(terms, constants, further_constants, factor):
    mixed = {name: constants[name] + factor * further_constants[name] for name in NAMES}
    expected = weighted_sum(terms, constants) + factor * weighted_sum(terms, further_constants)
    assert weighted_sum(terms, mixed) == pytest.approx(expected, abs=1e-9)
    for part in ("calls", "start", "extra", "floor", "waits"):
        costs = CostTerms(**{part: terms}).costs(mixed)
        field = {"calls": "overhead_s"}.get(part, f"{part}_s")
        assert (getattr(costs, field) or 0) == pytest.approx(expected, abs=1e-9)


def test_the_share_of_the_peak_is_a_constant_times_what_of_the_units_has_work():
    costs = CostTerms(compute_share="s", filled=0.5).costs({"s": 0.8})
    assert costs.compute_share == pytest.approx(0.4)
    expected_s = predicted(costs, flops=1e12, traffic=0).cpu_time_s
    assert expected_s == pytest.approx(1e12 / 50e12 / 0.4)
    assert predicted(costs, flops=1e12, traffic=0).regime == "implementation"


def test_the_slowest_memory_level_sets_the_time_and_names_the_regime():
    sizes = {"flops": 1e9, "traffic_bytes": 2e9, "tflops": 50.0, "gb_per_s": 1000.0}
    for levels_s, level, work_s in (
        ({}, "hbm", 2e-3),
        ({"shared": 1.9e-3, "l2": 1e-3}, "hbm", 2e-3),
        ({"shared": 3e-3, "l2": 2.5e-3}, "shared", 3e-3),
    ):
        prediction = predict_cell(**sizes, memory_level="hbm", costs=CellCosts(None, 1e-6, levels_s=levels_s))
        assert (prediction.regime, prediction.regime_level, prediction.cpu_time_s) == (
            "memory",
            level,
            pytest.approx(1e-6 + work_s),
        )
    assert predict_cell(**sizes | {"flops": 1e15}, memory_level="hbm", costs=CellCosts(None, 0.0)).regime_level is None


def sealed(promised=None, **fields):
    measured = cell("gpu0", 1.0)
    arguments = {"flops": 1e9, "traffic_bytes": 2e9, "compute_ceiling": "fp32", "memory_ceilings": ["hbm_copy", "d2d"]}
    arguments["memory_level"] = "hbm"
    return predict_sealed(
        promised_seal("gpu0", promised),
        operator_seal("gpu0", "scan").constants,
        terms=measured.costs,
        **arguments | fields,
    )


def test_a_sealed_prediction_uses_the_promise_of_the_declared_mix():
    start_s, share = CONSTANTS["gpu"]["start_s"], CONSTANTS["gpu"]["share"]
    mixes = {"fp32": 60.0, "hbm_read": 4000.0, "d2d": 1000.0, "hbm_copy": 2000.0}
    assert sealed(mixes).cpu_time_s == pytest.approx(start_s + 1e-3 / share)
    del mixes["hbm_copy"]
    assert sealed(mixes).cpu_time_s == pytest.approx(start_s + 2e-3 / share)
    del mixes["d2d"]
    assert sealed(mixes).cpu_time_s == pytest.approx(start_s + 0.5e-3 / share), "the first promise of any"
    unlimited = sealed({"hbm_copy": 2000.0}, flops=1e15)
    assert (unlimited.regime, unlimited.fraction_of_compute_peak) == ("memory", None), "nobody promised a peak"


def test_the_seal_of_a_device_holds_what_its_vendor_promises_and_where_it_is_from():
    origin = {"source": "a datasheet", "verified": True, "derived": False}
    peak = DatasheetPeak(
        tflops=989.4, compute_unit="tensor_core", operations_per_clock_per_multiprocessor=4096, **origin
    )
    promised = {"peaks": {"fp16": peak}, "bandwidth": DatasheetBandwidth(gb_per_s=4800, **origin)}
    seal = seal_device(device_record("gpu0", datasheet=DATASHEET.model_copy(update=promised)), "now")
    compute = [(c.name, c.tflops, c.source, c.verified) for c in seal.ceilings if c.kind == "compute"]
    assert compute == [("fp16", 989.4, "a datasheet", True)]
    memory = {c.name: c.gb_per_s for c in seal.ceilings if c.kind == "memory"}
    assert {"hbm_read", "hbm_write", "hbm_copy", "hbm_triad", "d2d"} <= set(memory) and set(memory.values()) == {4800}
    assert seal_device(device_record("gpu0"), "now").ceilings == [], "nothing is promised"


def test_a_rule_of_thumb_is_sealed_for_a_cpu():
    seal = seal_device(device_record("cpu", hardware={"cores_usable": 8}), "now")
    promised = {c.name: c.gb_per_s for c in seal.ceilings}
    fewer = {"dram_read_4_cores": 4, "dram_read_2_cores": 2, "dram_read_one_core": 1}
    assert {name: promised.pop(name) for name in fewer} == {
        name: rule_of_thumb_gb_per_s(cores) for name, cores in fewer.items()
    }
    assert set(promised.values()) == {rule_of_thumb_gb_per_s(8)}
    assert not any(c.verified for c in seal.ceilings)
    for cores, gb_per_s in ((1, 9.6), (8, 65), (16, 103)):
        assert rule_of_thumb_gb_per_s(cores) == pytest.approx(gb_per_s, rel=0.05), "about what C and OpenMP read"
    assert rule_of_thumb_gb_per_s(2, "AMD EPYC") == pytest.approx(40, rel=0.1)
