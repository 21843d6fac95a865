"""The arithmetic of rooflines: what holds for all of them, the stated corners, and one worked by hand."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from roofline.core import roofline_model
from roofline.core.dtypes import relative_error, require_close

INFINITE, NAN = math.inf, math.nan
RATES = st.floats(1e3, 1e18)


def close(value):
    return pytest.approx(value, rel=1e-12, abs=0)


@given(RATES, RATES, st.floats(1e-6, 1e6))
def test_the_ridge_point_splits_the_bounds(peak, bandwidth, distance):
    assume(abs(distance - 1) > 1e-9)
    flops = 1e12
    point = roofline_model.place_under_roof(
        flops, flops / (distance * roofline_model.ridge_point(peak, bandwidth)), peak, bandwidth
    )
    assert point.bound == ("compute" if distance > 1 else "memory")
    assert point.attainable_flops_per_s == close(peak * min(1, distance))
    assert point.efficiency_percent == close(100 * min(1, distance))
    assert point.estimated_time_s == close(point.roofline_time_s)
    assert point.roofline_time_s == close(flops / point.attainable_flops_per_s)


def test_an_h200_by_hand():
    peak, bandwidth = 989.4e12, 4.8e12
    assert roofline_model.ridge_point(peak, bandwidth) == close(206.125)

    # GEMM of 4096: 2 x 4096^3 FLOPs; three matrices of 4096^2 x 2 bytes. 137 438 953 472 / 100 663 296 = 1365.33.
    gemm = roofline_model.place_under_roof(137_438_953_472, 100_663_296, peak, bandwidth)
    assert gemm.intensity_flops_per_byte == pytest.approx(1365.33, abs=0.01)
    assert (gemm.bound, gemm.attainable_flops_per_s, gemm.efficiency_percent) == ("compute", peak, 100)
    assert gemm.estimated_time_s == pytest.approx(138.911e-6, rel=1e-5)

    # Decode attention, batch 256, 8 heads of 64, S 1024: FLOPs equal bytes, 536 870 912.
    decode = roofline_model.place_under_roof(536_870_912, 536_870_912, peak, bandwidth)
    assert (decode.intensity_flops_per_byte, decode.bound, decode.attainable_flops_per_s) == (1, "memory", bandwidth)
    assert decode.efficiency_percent == pytest.approx(0.48514, rel=1e-4)
    assert decode.estimated_time_s == decode.roofline_time_s == pytest.approx(111.848e-6, rel=1e-5)


def test_an_error_is_the_norm_of_the_difference_over_that_of_the_reference():
    assert relative_error([3.0, 0.0], [3.0, 4.0]) == pytest.approx(0.8)
    assert relative_error([3.0, 4.0], [0.0, 0.0]) == 5, "a reference of zeros has no norm to divide by"
    for result, reference in (([1.0, NAN], [1.0, 2.0]), ([1.0, 2.0], [1.0, NAN]), ([NAN], [NAN])):
        assert relative_error(result, reference) == INFINITE
    require_close("fp16 matmul", 1e-3, 1e-3)
    for error in (NAN, INFINITE, 1.01e-3):
        with pytest.raises(ArithmeticError, match=r"fp16 matmul .*1e-03"):
            require_close("fp16 matmul", error, 1e-3)
