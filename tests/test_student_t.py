"""Student's t distribution."""

import math
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.core import student_t


@pytest.mark.parametrize(
    "df, tail, t",  # NIST/SEMATECH e-Handbook of Statistical Methods, section 1.3.6.7.2
    [(1, 0.025, 12.706), (2, 0.001, 22.327), (4, 0.025, 2.776), (4, 0.001, 7.173), (10, 0.05, 1.812), (100, 0.1, 1.29)],
)
def test_quantiles_of_t_are_the_tables(df, tail, t):
    assert student_t.quantile(tail, df) == pytest.approx(t, abs=6e-4)


@given(st.floats(1e-6, 0.499), st.floats(0.5, 500))
def test_quantile_and_tail_are_inverse(tail, df):
    t = student_t.quantile(tail, df)
    assert student_t.upper_tail(t, df) == pytest.approx(tail, rel=1e-6)
    assert student_t.upper_tail(-t, df) == pytest.approx(1 - tail, rel=1e-6)


@given(st.floats(-5, 5))
def test_t_of_two_known_shapes(t):
    """Of one degree of freedom it is Cauchy's distribution, of many the normal one."""
    assert student_t.upper_tail(t, 1) == pytest.approx(0.5 - math.atan(t) / math.pi, abs=1e-12)
    assert student_t.upper_tail(t, 1e6) == pytest.approx(1 - NormalDist().cdf(t), abs=1e-5)
