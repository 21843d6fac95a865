"""The rule that names what sets a time, at its boundaries."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.core import regimes
from roofline.table import cell_rows

TIMES = st.floats(1e-9, 1e3)


@pytest.mark.parametrize(
    ("device", "start", "compute", "memory", "regime"),
    [
        (10.0, None, 0.5, 4.9, "implementation"),
        (10.0, None, 0.5, 5.0, "memory"),  # the roof alone explains half
        (10.0, 2.0, 0.5, 3.1, "memory"),  # roof and start together, and the roof is the larger
        (10.0, 3.1, 0.5, 2.0, "overhead"),
        (10.0, 2.0, 0.5, 2.9, "implementation"),
        (7.0, 1.0, 0.5, 3.9, "overhead"),  # the device waits for 3 of 10, and starts for 1
        (7.0, 1.0, 0.5, 4.1, "memory"),
        (1.0, None, None, None, "overhead"),
        (10.0, 0.1, 5.0, 5.0, "compute"),  # at the ridge point
        (10.0, 0.1, math.nextafter(5.0, 0), 5.0, "memory"),
        (10.0, 0.1, 5.0, 0.0, "compute"),  # nothing is moved
        (10.0, 0.1, None, 5.0, None),
        (10.0, 0.1, 5.0, None, None),
        # On a device that is its own caller, calls are the overhead.
        (None, 4.0, 0.5, 2.0, "overhead"),
        (None, 2.0, 0.5, 4.0, "memory"),
        (None, 2.0, 0.5, 2.0, "implementation"),
        (None, None, 0.5, 4.0, "implementation"),
        (None, 30.0, 0.5, 12.0, "memory"),  # calls on the smallest case are no more than all of it
    ],
)
def test_what_explains_half_of_ten_sets_the_time_else_the_implementation_does(device, start, compute, memory, regime):
    times = {"cpu_time_s": 10.0, "gpu_time_s": device, "start_s": start}
    times |= {"compute_s": compute, "memory_s": memory}
    assert regimes.classify_regime(**{name: value and value * 1e-6 for name, value in times.items()}) == regime


@given(TIMES, st.none() | TIMES, st.none() | TIMES, TIMES, TIMES, st.sampled_from([0.25, 8.0]))
def test_with_both_roofs_there_is_always_a_regime_whatever_the_unit(latency, device, start, compute, memory, unit):
    measured = {"cpu_time_s": latency, "gpu_time_s": device, "start_s": start}
    times = measured | {"compute_s": compute, "memory_s": memory}
    regime = regimes.classify_regime(**times)
    scaled = {name: value and value * unit for name, value in times.items()}  # by powers of two, exactly
    assert regime in ("overhead", "implementation", "compute" if compute >= memory else "memory")
    assert regimes.classify_regime(**scaled) == regime
    overhead_s = regimes.overhead_of_cell_s(**measured)
    assert 0 <= overhead_s <= latency
    explained_s = overhead_s + max(compute, memory)
    assert (regime == "implementation") == (explained_s < regimes.EXPLAINED_SHARE * latency)
    assert regime != "overhead" or overhead_s > max(compute, memory)


def test_a_time_is_shared_out_to_the_roof_first():
    """What starts while the roof's work goes on takes no time of its own."""
    for overhead_s, expected in ((1.0, (0.6, 0.1, 0.3)), (9.0, (0.6, 0.4, 0.0))):
        shares = cell_rows.share_out_time(10.0, 6.0, overhead_s)
        assert (shares.roof, shares.overhead, shares.rest) == pytest.approx(expected)
    assert cell_rows.share_out_time(10.0, 12.0, 9.0).roof == 1.0
