"""Operators above the roof that was declared for them: none is missed, none is accused, and the culprit is named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records_factory import bandwidth_record, cell, collected, operator_record, peak_record

from roofline.analysis.above_roof import above_roofs
from roofline.analysis.table import Operator

FOUND = collected(
    peak_record("gpu0", "fp16", 800.0),
    bandwidth_record("gpu0", d2d=4000.0, l2=10000.0, l1=30000.0),
    operator_record("gpu0", cell("gpu0", 1.0, dtype="fp16", label="")),
    peak_record("cpu", "fp32", 1.5),
    bandwidth_record("cpu", dram_copy=100.0),
    operator_record("cpu", cell("cpu", 1.0, label="")),
).roofline
CEILINGS = FOUND.ceilings
TEMPLATES = {o.device: o for o in FOUND.operators if o.operator == "scan"}
FP16, D2D = 800e12, 4000e9


def operator(flops, traffic, latency_s, device="gpu0", **fields) -> Operator:
    known = {"latency_ci95_s": None, "device_latency_s": None, "device_latency_ci95_s": None, "cache": "warm"}
    known |= {"flops": flops, "bytes": traffic, "latency_s": latency_s}
    return TEMPLATES[device].model_copy(update=known | fields)


def judged(*operators, ceilings=CEILINGS):
    return above_roofs(operators, ceilings)


# ---------------------------------------------------------------- who is above


@given(st.floats(1e3, 1e18), st.floats(1e3, 1e15), st.just(0) | st.floats(1e-8, 10))
def test_an_operator_is_found_where_it_is_above_its_roof_and_not_on_it(flops, traffic, excess):
    seconds = max(flops / FP16, traffic / D2D) / (1 + excess)
    found = judged(operator(flops, traffic, seconds, latency_ci95_s=(seconds, seconds)))
    assert bool(found) == (excess > 0)
    assert all(entry.fraction_of_roof == pytest.approx(1 + excess, rel=1e-9) for entry in found)


@pytest.mark.parametrize(("times", "above"), [(1.04, False), (1.06, True)])
def test_without_an_interval_a_twentieth_more_is_noise(times, above):
    """But the user's own figure, which has none, is taken at its word."""
    assert bool(judged(operator(FP16, 1, 1 / times))) == above
    (users,) = judged(operator(FP16, 1, 1 / times, operator="operation", name="the user's"))
    assert users.users_own and users.operator.startswith("the user's")


@given(st.floats(0.5, 2), st.floats(0.5, 2))
def test_the_slow_end_of_the_interval_decides(middle, slow):
    """In units of the time that the roof gives: a median above it is not enough, and does not matter."""
    one = operator(FP16, 1, middle, latency_ci95_s=(0.1, slow))
    assert bool(judged(one)) == (slow < 1 / (1 + 1e-9))


def test_the_devices_own_time_counts_too():
    one = operator(FP16, 1, 2.0, device_latency_s=0.8, device_latency_ci95_s=(0.7, 0.9))
    (found,) = judged(one)
    assert found.fraction_of_roof == pytest.approx(1 / 0.8)  # the median's, as every table has it
    assert judged(one.model_copy(update={"device_latency_ci95_s": (0.7, 1.1)})) == []


def test_what_was_not_measured_forbids_nothing():
    fast = operator(FP16, D2D, 0.5)
    assert [found.wrong_roof for found in judged(fast)] == ["fp16", "d2d"]
    assert judged(fast.model_copy(update={"latency_s": None})) == []
    assert judged(fast.model_copy(update={"compute_ceiling": None, "memory_ceiling": None})) == []
    assert judged(fast, ceilings=[c for c in CEILINGS if c.device == "cpu"]) == []
    assert [found.wrong_roof for found in judged(fast.model_copy(update={"memory_ceiling": None}))] == ["fp16"]
    assert judged(operator(FP16, 0, 2.0)) == []
