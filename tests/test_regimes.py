"""The rule that names what sets a time, at its boundaries."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.core import regimes

TIMES = st.floats(1e-9, 1e3)
US = 1e-6


def named(latency, device=None, start=None, compute=0.5, memory=1.0):
    """The regime of times in microseconds."""
    times = {"latency_s": latency, "device_latency_s": device, "start_s": start}
    times |= {"compute_s": compute, "memory_s": memory}
    return regimes.regime(**{name: value and value * US for name, value in times.items()})


@pytest.mark.parametrize(("device", "found"), [(7.9, "overhead"), (8.0, "memory"), (10.0, "memory")])
def test_launches_set_the_pace_below_four_fifths_of_the_callers_time(device, found):
    assert named(10.0, device, memory=7.0) == found


@pytest.mark.parametrize(
    ("start", "memory", "found"),
    [
        (2.6, 4.9, "overhead"),
        (2.6, 5.0, "memory"),  # the roof explains half
        (2.5, 4.9, "memory"),  # four times the start
        (None, 4.9, "memory"),  # no start was measured
    ],
)
def test_starting_sets_the_time_where_the_roof_explains_less_than_half_of_it(start, memory, found):
    assert named(10.0, 10.0, start, memory=memory) == found


@pytest.mark.parametrize(("start", "found"), [(4.9, "memory"), (5.0, "overhead"), (None, "memory")])
def test_on_a_device_that_is_its_own_caller_calls_count_from_half_of_the_time(start, found):
    assert named(10.0, None, start) == found


@pytest.mark.parametrize(
    ("compute", "memory", "found"),
    [
        (1.0, 1.0, "compute"),  # at the ridge point
        (math.nextafter(1.0, 0), 1.0, "memory"),
        (1.0, 0.0, "compute"),  # nothing is moved
        (None, 1.0, None),
        (1.0, None, None),
    ],
)
def test_the_ridge_point_is_compute_and_a_missing_roof_names_none(compute, memory, found):
    assert named(1.2, 1.2, 0.1, compute, memory) == found


def test_launches_are_named_without_any_roof():
    assert named(10.0, 1.0, compute=None, memory=None) == "overhead"


@given(TIMES, st.none() | TIMES, st.none() | TIMES, TIMES, TIMES, st.sampled_from([0.25, 8.0]))
def test_with_both_roofs_there_is_always_a_regime_whatever_the_unit_of_time(
    latency, device, start, compute, memory, unit
):
    times = {"latency_s": latency, "device_latency_s": device, "start_s": start}
    times |= {"compute_s": compute, "memory_s": memory}
    found = regimes.regime(**times)
    scaled = {name: value and value * unit for name, value in times.items()}  # by powers of two, exactly
    assert found in ("overhead", "compute" if compute >= memory else "memory")
    assert regimes.regime(**scaled) == found
