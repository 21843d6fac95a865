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


@pytest.mark.parametrize(
    ("device", "start", "memory", "found"),
    [
        (10.0, None, 4.9, "implementation"),
        (10.0, None, 5.0, "memory"),  # the roof alone explains half
        (10.0, 2.0, 3.1, "memory"),  # roof and start together, and the roof is the larger
        (10.0, 3.1, 2.0, "overhead"),
        (10.0, 2.0, 2.9, "implementation"),
        (7.0, 1.0, 3.9, "overhead"),  # the device waits for 3 of 10, and starts for 1
        (7.0, 1.0, 4.1, "memory"),
        (9.0, 0.5, 3.0, "implementation"),
    ],
)
def test_what_explains_half_sets_the_time_and_else_the_implementation_does(device, start, memory, found):
    assert named(10.0, device, start, memory=memory) == found


@pytest.mark.parametrize(
    ("start", "memory", "found"),
    [
        (4.0, 2.0, "overhead"),
        (2.0, 4.0, "memory"),
        (2.0, 2.0, "implementation"),
        (None, 4.0, "implementation"),
        (30.0, 12.0, "memory"),  # calls on the smallest case that took longer than the cell are no more than all of it
    ],
)
def test_on_a_device_that_is_its_own_caller_its_calls_are_the_overhead(start, memory, found):
    assert named(10.0, None, start, memory=memory) == found


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


@given(TIMES, st.none() | TIMES, st.none() | TIMES, TIMES, TIMES, st.sampled_from([0.25, 8.0]))
def test_with_both_roofs_there_is_always_a_regime_whatever_the_unit_of_time(
    latency, device, start, compute, memory, unit
):
    times = {"latency_s": latency, "device_latency_s": device, "start_s": start}
    times |= {"compute_s": compute, "memory_s": memory}
    found = regimes.regime(**times)
    scaled = {name: value and value * unit for name, value in times.items()}  # by powers of two, exactly
    assert found in ("overhead", "implementation", "compute" if compute >= memory else "memory")
    assert regimes.regime(**scaled) == found


@given(TIMES, st.none() | TIMES, st.none() | TIMES, TIMES, TIMES)
def test_it_is_the_implementation_exactly_where_less_than_half_is_explained(latency, device, start, compute, memory):
    overhead_s = regimes.overhead(latency_s=latency, device_latency_s=device, start_s=start)
    assert 0 <= overhead_s <= latency
    found = regimes.regime(
        latency_s=latency, device_latency_s=device, start_s=start, compute_s=compute, memory_s=memory
    )
    explained_s = overhead_s + max(compute, memory)
    assert (found == "implementation") == (explained_s < regimes.EXPLAINED * latency)
    if found == "overhead":
        assert overhead_s > max(compute, memory)
