"""Which of many like cards are low: robust spreads, false discoveries, repeats."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.core import outliers
from roofline.core.run_spread import Spread
from roofline.core.student_t import upper_tail

STORED = Spread(0.01, 8)


def drawn(cards=64, figures=10, seed=1, runs=1, sd=0.01):
    return sd * np.random.default_rng(seed).standard_normal((runs, cards, figures))


def told(runs, margin=0.02, stored=None):
    figures = runs.shape[2]
    return outliers.verdicts(outliers.screen(runs[0], [margin] * figures, [stored] * figures), runs)


@given(st.integers(0, 1000), st.floats(-5, 5), st.integers(2, 40))
def test_neither_the_unit_nor_the_order_of_cards_matters(seed, shift, cards):
    runs = drawn(cards, 4, seed)
    runs[0, 0, 1] -= 0.3
    order = np.random.default_rng(seed).permutation(cards)
    found, other = told(runs, stored=STORED), told(runs[:, order] + shift, stored=STORED)
    assert found == {(int(order[card]), figure): status for (card, figure), status in other.items()}


@given(st.integers(0, 1000), st.floats(0.02, 2))
def test_a_faster_card_is_no_fault(seed, faster):
    runs = drawn(seed=seed)
    runs[0, 5] += faster
    assert not [card for card, _ in told(runs) if card == 5]


def test_a_missing_figure_is_no_fault_and_hides_none():
    runs = drawn()
    runs[0, 3, 0], runs[0, 3, 1] = np.nan, -0.2
    assert told(runs) == {(3, 1): "flagged"}


def test_a_shortfall_within_the_margin_is_none_however_sure():
    runs = drawn(sd=1e-4)
    runs[0, 0, 0] -= 0.009
    assert told(runs, margin=0.01) == {} and told(runs, margin=0.005) == {(0, 0): "flagged"}


@pytest.mark.parametrize("faulty", [0, 6, 12])
def test_slow_cards_do_not_widen_the_spread_that_they_are_held_to(faulty):
    logs = drawn(64, 200)[0]
    logs[:faulty] -= 0.1
    sd, df = outliers.robust_spread(logs)
    assert sd.mean() == pytest.approx(0.01, rel=0.1) and 30 < df[0] < 40


@given(st.lists(st.lists(st.floats(1e-9, 1), min_size=3, max_size=3), min_size=1, max_size=12))
def test_discoveries_are_those_of_the_procedure_step_by_step(p_values):
    """Cards by their Simes p values, by Benjamini and Hochberg; within a selected one its figures, at their level."""

    def rejected(values, level):
        steps = [k for k, p in enumerate(sorted(values), 1) if p <= level * k / len(values)]
        return sorted(values)[: max(steps, default=0)]

    simes = [min(3 * p / k for k, p in enumerate(sorted(card), 1)) for card in p_values]
    selected = len(rejected(simes, outliers.DISCOVERIES))
    level = outliers.DISCOVERIES * max(selected, 1) / len(p_values)
    critical = outliers.critical(np.array(p_values))
    for card, limit in zip(p_values, critical[:, 0], strict=True):
        assert sum(p <= limit * (1 + 1e-12) for p in card) == len(rejected(card, level))


def test_few_cards_are_judged_by_what_is_stored_or_not_at_all():
    runs = np.zeros((1, 5, 2)) + np.linspace(-1e-3, 1e-3, 5)[None, :, None]
    runs[0, 0, 0] -= 0.2
    assert told(runs) == {} and told(runs, stored=STORED) == {(0, 0): "flagged"}
    screen = outliers.screen(runs[0], [0.02] * 2, [None, STORED])
    assert screen.basis == [None, "stored"] and math.isnan(screen.sd[0])
    assert told(runs[:, :1], stored=STORED) == {}, "one card alone has nobody beside it"


def test_a_spread_of_the_fleets_own_is_never_narrowed_by_a_stored_one():
    logs = drawn(12, 3, sd=0.05)[0]
    screen = outliers.screen(logs, [0.02] * 3, [Spread(0.001, 8)] * 3)
    own, _ = outliers.robust_spread(logs)
    assert screen.basis == ["both"] * 3 and all(screen.sd > 0.9 * own)


@pytest.mark.parametrize(
    ("others", "status"), [([-0.2], "confirmed"), ([0.0], "not confirmed"), ([-0.2, 0.0, -0.2], "confirmed")]
)
def test_a_repeat_confirms_or_does_not(others, status):
    runs = np.full((1 + len(others), 64, 10), np.nan)
    runs[0] = drawn()[0]
    runs[0, 7, 2] = -0.2
    runs[1:, 7] = 0.0
    runs[1:, 7, 2] = others
    assert told(runs) == {(7, 2): status}
    assert told(runs[[*range(1, len(runs)), 0]][::-1]) == told(runs), "whatever their order"


def test_tails_are_what_the_faster_cards_show():
    chance = np.random.default_rng(2)
    assert outliers.tails(np.abs(chance.standard_normal(1000))) is outliers.NORMAL
    assert outliers.tails(np.abs(chance.standard_t(4, 100))) is outliers.NORMAL, "too few to tell"
    df, scale = outliers.tails(np.abs(chance.standard_t(4, 20000)))
    assert 3 < df < 5.5 and scale == pytest.approx(1, rel=0.05)


@given(st.floats(1.6, 60), st.floats(2, 200))
def test_interpolated_tails_are_those_of_students_t(z, df):
    found = outliers._upper_tails(np.array([[z]]), np.array([df]))[0, 0]
    assert found == pytest.approx(max(upper_tail(z, df), 1e-300), rel=5e-3)
