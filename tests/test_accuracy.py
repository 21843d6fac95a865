"""How far a result lies from its reference, and that a wrong one is a failed job."""

import numpy
import pytest

from roofline.core.dtypes import relative_error, require_close


def test_the_error_is_the_norm_of_the_difference_over_that_of_the_reference():
    assert relative_error([3.0, 0.0], [3.0, 4.0]) == pytest.approx(0.8)
    assert relative_error(numpy.float16([1, 2]), numpy.float64([1, 2])) == 0
    assert relative_error([3.0, 4.0], [0.0, 0.0]) == 5, "a reference of zeros has no norm to divide by"


def test_what_is_not_finite_is_infinitely_wrong():
    wrong = numpy.nan
    for result, reference in (([1.0, wrong], [1.0, 2.0]), ([1.0, 2.0], [1.0, wrong]), ([wrong], [wrong])):
        assert relative_error(result, reference) == numpy.inf


@pytest.mark.parametrize("error", [numpy.nan, numpy.inf, 1.01e-3])
def test_a_wrong_result_is_a_failed_job(error):
    require_close("fp16 matmul", 1e-3, 1e-3)
    with pytest.raises(ArithmeticError, match=r"fp16 matmul differs .*, allowed 1e-03"):
        require_close("fp16 matmul", error, 1e-3)
