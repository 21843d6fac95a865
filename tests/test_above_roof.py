"""Operators above the roof that was declared for them: none is missed, none is accused, and the culprit is named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records_factory import bandwidth_record, cell, collected, operator_record, peak_record

from roofline.analysis.above_roof import above_roofs
from roofline.analysis.table import FoundCache, Operator

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
LAST_LEVEL = {"gpu0": 50_000_000, "cpu": 30_000_000}


def operator(flops, traffic, latency_s, device="gpu0", **fields) -> Operator:
    known = {"latency_ci95_s": None, "device_latency_s": None, "device_latency_ci95_s": None, "cache": "warm"}
    known |= {"flops": flops, "bytes": traffic, "latency_s": latency_s}
    return TEMPLATES[device].model_copy(update=known | fields)


def level(name, gb_per_s, knee_bytes=None, reported_bytes=None, device="gpu0"):
    known = {"device": device, "series": "reads", "name": name, "gb_per_s": gb_per_s, "record": "gpu0/x.json"}
    return FoundCache(knee_bytes=knee_bytes, reported_bytes=reported_bytes, **known)


def judged(*operators, levels=(), ceilings=CEILINGS, last_level=LAST_LEVEL):
    return above_roofs(operators, ceilings, levels, last_level)


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


# ---------------------------------------------------------------- what is wrong


FAST = operator(1, 40e6, 40e6 / 8000e9)  # 40 MB at 8000 GB/s: too fast for HBM, within what L2 holds and gives


@pytest.mark.parametrize(
    ("one", "ceilings", "wrong", "cache"),
    [
        (operator(FP16, 1, 0.8), CEILINGS, "fp16", None),
        (FAST, CEILINGS, None, "l2"),
        (operator(1, 60e6, 60e6 / 8000e9), CEILINGS, "d2d", None),  # more than L2 holds
        (operator(1, 40e6, 40e6 / 11000e9), CEILINGS, "d2d", None),  # faster than L2
        (FAST.model_copy(update={"cache": "cold"}), CEILINGS, "d2d", None),
        (FAST, [c for c in CEILINGS if c.name not in ("l1", "l2")], "d2d", None),
    ],
)
def test_the_ceiling_that_is_too_low_or_the_cache_that_held_the_data(one, ceilings, wrong, cache):
    (found,) = judged(one, ceilings=ceilings)
    assert (found.wrong_roof, found.cache, found.record) == (wrong, cache, one.record)
    assert (found.device, found.operator) == ("gpu0", "scan plain fp16")


def test_the_sweep_knows_capacities_and_levels_of_its_own():
    """What the device reports comes before the knee; the smallest cache that explains it all is named."""
    fast = FAST
    reported = level("l2", 9000, knee_bytes=60e6, reported_bytes=30e6)
    assert judged(fast, levels=[reported], last_level={})[0].cache is None
    assert judged(fast, levels=[reported])[0].cache == "l2"
    assert judged(fast, levels=[level("l2", 9000, knee_bytes=60e6)], last_level={})[0].cache == "l2"
    assert judged(fast, levels=[level(None, 9000, knee_bytes=60e6)], last_level={})[0].cache is None
    assert judged(fast, levels=[level("l2", 9000, knee_bytes=60e6, device="gpu1")], last_level={})[0].cache is None
    tiny = operator(1, 20e3, 20e3 / 8000e9)
    assert judged(tiny, levels=[level("l1", 25000, reported_bytes=256_000)])[0].cache == "l1"
    assert judged(tiny)[0].cache == "l2"  # l1's size is not known


def test_a_cpus_last_level_is_its_l3():
    fast = operator(1, 20e6, 20e6 / 400e9, device="cpu")
    l3 = level("l3", 500, device="cpu")
    assert judged(fast)[0].wrong_roof == "dram_copy"
    assert judged(fast, levels=[l3])[0].cache == "l3"
    assert judged(fast, levels=[l3], last_level={})[0].cache is None
