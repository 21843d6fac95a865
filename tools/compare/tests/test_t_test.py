"""The arithmetic of comparing runs: variations, standard errors, corrections and verdicts."""

import math
from statistics import stdev

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from known_variation import spread_between, spread_within
from t_test import FAMILIES, Difference, adjust_by_holm, decide, quantile, smallest_change, upper_tail

positive = st.floats(1e-3, 1e6)
values = st.lists(positive, min_size=2, max_size=6)


# ---------------------------------------------------------------- variations


@given(st.lists(values, min_size=1, max_size=4), st.lists(positive, min_size=4, max_size=4))
def test_spread_within_groups_is_that_of_logarithms_and_knows_no_unit(groups, factors):
    spread = spread_within(groups)
    assert spread.df == sum(len(group) - 1 for group in groups)
    squares = sum((len(group) - 1) * stdev(map(math.log, group)) ** 2 for group in groups)
    assert spread.sd == pytest.approx(math.sqrt(squares / spread.df), abs=1e-9)
    scaled = [[factor * value for value in group] for factor, group in zip(factors, groups, strict=False)]
    assert spread_within(scaled).sd == pytest.approx(spread.sd, abs=1e-9)


def test_single_values_have_no_spread_within_and_a_single_group_has_none_between():
    assert spread_within([[3.0], [4.0]]) is None and spread_between([[3.0, 4.0]]) is None
    assert spread_between([[100.0], [102.0]]) == pytest.approx((math.log(1.02) / math.sqrt(2), 1))


# ---------------------------------------------------------------- verdicts


def test_holm_of_a_textbook_case():
    assert adjust_by_holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@given(st.floats(-0.2, 0.2), st.floats(1e-5, 0.1), st.floats(1, 30), st.floats(0.005, 0.05))
def test_verdicts_mirror_and_follow_the_interval(estimate, se, df, margin):
    difference, mirror = Difference(estimate, se, df), Difference(-estimate, se, df)
    mirrored = {"FASTER": "SLOWER", "SLOWER": "FASTER"}
    verdict = decide(difference, difference.p_value, margin)
    assert decide(mirror, mirror.p_value, margin) == mirrored.get(verdict, verdict)
    low, high = difference.interval
    assert (verdict == "SAME") == (-margin <= low and high <= margin)
    if verdict in mirrored:
        assert not low <= 0 <= high
    assert decide(difference, 1.0, margin) in ("SAME", "UNCLEAR")


@given(st.floats(1e-4, 0.01), st.integers(1, 300))
def test_the_smallest_change_exceeds_the_error_and_grows_with_the_number_of_tests(se, tests):
    change = smallest_change(se, 4, tests, 0.02)
    assert se < change <= smallest_change(se, 4, 2 * tests, 0.02)


@pytest.mark.parametrize(("sd", "lowest", "highest"), [(0.02, 0.03, 0.07), (0.002, 0, 0.01)])
def test_the_chance_of_any_false_alarm_is_what_the_page_says(sd, lowest, highest):
    """5 % of comparisons in which nothing changed; next to none where runs of a card differ by much less than the
    margin. Two families of 20 figures, whose variation is known by 16 degrees of freedom."""
    random = numpy.random.default_rng(0)
    runs, figures, df, margin = 300, 20, 16, 0.02
    alarms = 0
    for _ in range(runs):
        alarm = False
        for _ in range(2):
            estimates = random.normal(0, sd * math.sqrt(2), figures)
            errors = sd * numpy.sqrt(2 * random.chisquare(df, figures) / df)
            differences = [Difference(*pair, df) for pair in zip(estimates, errors, strict=True)]
            adjusted = adjust_by_holm([FAMILIES * difference.p_value for difference in differences])
            alarm |= any(
                decide(*pair, margin) in ("FASTER", "SLOWER") for pair in zip(differences, adjusted, strict=True)
            )
        alarms += alarm
    assert lowest <= alarms / runs <= highest


# ---------------------------------------------------------------- Student's t


@pytest.mark.parametrize(
    "df, tail, t",  # NIST/SEMATECH e-Handbook of Statistical Methods, section 1.3.6.7.2
    [(2, 0.001, 22.327), (4, 0.025, 2.776), (4, 0.001, 7.173), (10, 0.05, 1.812), (100, 0.1, 1.29)],
)
def test_quantiles_of_t_are_the_tables(df, tail, t):
    assert quantile(tail, df) == pytest.approx(t, abs=6e-4) and upper_tail(t, df) == pytest.approx(tail, rel=2e-3)
