"""The arithmetic of comparing runs: Student's t, spreads, intervals, corrections and verdicts."""

import math
import random
from statistics import NormalDist, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.core import student_t
from roofline.core.equivalence import (
    Difference,
    holm,
    smallest_change,
    standard_error,
    verdict,
)
from roofline.core.run_spread import Spread, between, within

positive = st.floats(1e-3, 1e6)
values = st.lists(positive, min_size=2, max_size=6)


# ---------------------------------------------------------------- Student's t


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


# ---------------------------------------------------------------- spreads


@given(st.lists(values, min_size=1, max_size=4), st.lists(positive, min_size=4, max_size=4))
def test_spread_within_groups_is_that_of_logarithms_and_knows_no_unit(groups, factors):
    spread = within(groups)
    assert spread.df == sum(len(group) - 1 for group in groups)
    squares = sum((len(group) - 1) * stdev(map(math.log, group)) ** 2 for group in groups)
    assert spread.sd == pytest.approx(math.sqrt(squares / spread.df), abs=1e-9)
    scaled = [[factor * value for value in group] for factor, group in zip(factors, groups, strict=False)]
    assert within(scaled).sd == pytest.approx(spread.sd, abs=1e-9)


def test_one_value_per_group_has_no_spread_within_and_one_group_none_between():
    assert within([[3.0], [4.0], []]) is None
    assert between([[3.0, 4.0], []]) is None
    assert between([[100.0], [102.0]]) == pytest.approx((math.log(1.02) / math.sqrt(2), 1))


def test_what_runs_explain_is_not_counted_between_cards():
    """Ten thousand cards of three runs each, 2 % apart, with runs 1 % apart."""
    chance = random.Random(1)
    cards = [[math.exp(mean + chance.gauss(0, 0.01)) for _ in range(3)] for mean in gauss(chance, 0.02, 10_000)]
    assert within(cards).sd == pytest.approx(0.01, rel=0.03)
    assert between(cards).sd == pytest.approx(0.02, rel=0.03)
    alike = [[1.00, 1.02], [1.01, 1.01]]
    assert between(alike).sd == 0


def gauss(chance, sd, count):
    return (chance.gauss(0, sd) for _ in range(count))


@given(positive, positive, st.floats(1, 50), st.floats(1, 50))
def test_standard_error_of_two_parts(one, other, df, other_df):
    se, together = standard_error((Spread(one, df), 2.0), (Spread(other, other_df), 0.5))
    assert se == pytest.approx(math.sqrt(2 * one**2 + 0.5 * other**2))
    assert min(df, other_df) * (1 - 1e-9) <= together <= (df + other_df) * (1 + 1e-9)
    assert standard_error((Spread(one, df), 1.0)) == pytest.approx((one, df))


# ---------------------------------------------------------------- verdicts


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_holm_keeps_the_order_and_never_lowers(p_values):
    adjusted = holm(p_values)
    assert all(p <= q <= min(1, len(p_values) * p) + 1e-12 or q >= p for p, q in zip(p_values, adjusted, strict=True))
    ranked = sorted(zip(p_values, adjusted, strict=True))
    assert [q for _, q in ranked] == sorted(q for _, q in ranked)
    assert min(adjusted) == pytest.approx(min(1, len(p_values) * min(p_values)))


def test_holm_of_a_textbook_case():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@given(st.floats(-0.2, 0.2), st.floats(1e-5, 0.1), st.floats(1, 30), st.floats(0.005, 0.05))
def test_verdicts_mirror_and_follow_the_interval(estimate, se, df, margin):
    one, other = Difference(estimate, se, df), Difference(-estimate, se, df)
    mirrored = {"FASTER": "SLOWER", "SLOWER": "FASTER"}
    found = verdict(one, one.p_value, margin, margin)
    assert verdict(other, other.p_value, margin, margin) == mirrored.get(found, found)
    low, high = one.interval
    assert (found == "SAME") == (-margin <= low and high <= margin)
    if found in mirrored:
        assert abs(estimate) > margin and not low <= 0 <= high
    assert verdict(one, 1.0, margin, margin) in ("SAME", "UNCLEAR")


def test_no_error_at_all():
    assert Difference(0.0, 0.0, 2).p_value == 1 and Difference(-0.1, 0.0, 2).p_value == 0
    assert verdict(Difference(-0.1, 0.0, 2), 0.0, 0.02, 0.02) == "SLOWER"


@given(st.floats(1e-4, 0.01), st.integers(1, 300))
def test_the_smallest_change_grows_with_the_error_and_the_number_of_tests(se, tests):
    found = smallest_change(se, 4, tests, 0.02)
    assert 0.02 * 0.98 < found < smallest_change(2 * se, 4, tests, 0.02)
    assert found <= smallest_change(se, 4, 2 * tests, 0.02)
