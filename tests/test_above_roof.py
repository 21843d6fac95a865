"""Cells above the roof that was declared for them: none is missed, none is accused."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records_factory import bandwidth_record, cell, operator_record, peak_record, verified

from roofline.table.cell_rows import share_above_roof

FP16, D2D = 800e12, 4000e9


def above(flops, traffic, seconds, interval=None, own=None, peak=FP16 / 1e12, gb_per_s=D2D / 1e9):
    cpu_time = SimpleNamespace(median_s=seconds, ci95_s=interval)
    measured = SimpleNamespace(flops=flops, bytes=traffic, cpu_time=cpu_time, gpu_time=own)
    return share_above_roof(measured, peak, gb_per_s)


@given(st.floats(1e3, 1e18), st.floats(1e3, 1e15), st.just(0) | st.floats(1e-8, 10))
def test_a_cell_is_found_where_it_is_above_its_roof_and_not_on_it(flops, traffic, excess):
    seconds = max(flops / FP16, traffic / D2D) / (1 + excess)
    found = above(flops, traffic, seconds, (seconds, seconds))
    assert (found is not None) == (excess > 0)
    assert found is None or found == pytest.approx(1 + excess, rel=1e-9)


@given(st.floats(0.5, 2), st.floats(0.5, 2))
def test_the_slow_end_of_the_interval_decides(middle, slow):
    """In units of the time that the roof gives: a median above it is not enough, and does not matter."""
    assert bool(above(FP16, 1, middle, (0.1, slow))) == (slow < 1 / (1 + 1e-9))


def test_the_devices_own_time_counts_too():
    own = SimpleNamespace(median_s=0.8, ci95_s=(0.7, 0.9))
    assert above(FP16, 1, 2.0, (1.9, 2.1), own) == pytest.approx(1 / 0.8)
    assert above(FP16, 1, 2.0, (1.9, 2.1), SimpleNamespace(median_s=0.8, ci95_s=(0.7, 1.1))) is None


def test_a_cell_above_its_roof_is_doubtful_and_a_users_figure_is_taken_at_its_word():
    users = {"name": "mine", "flops": 1e12, "memory_bytes": 0, "dtype": "fp32", "measured_s": 1e-3}
    ceilings = peak_record("gpu0", "fp32", 800.0), bandwidth_record("gpu0", d2d=4000.0)
    fast = operator_record("gpu0", cell("gpu0", 1e-6, 0.9e-6, flops=10**12))
    *_, found, mine = verified(*ceilings, fast, operations=[users]).operators
    assert (found.doubt, mine.doubt, mine.fraction_of_exceeded_ceiling) == (
        "impossible",
        "impossible",
        pytest.approx(1.25),
    )
    assert found.reliable_fraction_of_roof is None
