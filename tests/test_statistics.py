"""Medians and their intervals, against the standard library, exact binomial sums and simulated runs."""

import math
import statistics as standard
from fractions import Fraction

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.statistics import median, median_interval

SAMPLES = st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=60)


def misses(count: int, rank: int) -> Fraction:
    """The exact probability that [x(rank), x(count + 1 - rank)] misses the median: 2 P(Binomial(count, 1/2) < rank)."""
    return 2 * Fraction(sum(math.comb(count, below) for below in range(rank)), 2**count)


def exact_rank(count: int, confidence: Fraction) -> int:
    return max(rank for rank in range(count // 2 + 1) if misses(count, rank) <= 1 - confidence)


# ---------------------------------------------------------------------------------------------- the median


@given(SAMPLES)
def test_median_is_the_standard_librarys(samples):
    before = list(samples)
    assert median(samples) == standard.median(samples)
    assert samples == before


def test_no_samples_have_no_median():
    with pytest.raises(ValueError, match="no samples"):
        median([])


# ---------------------------------------------------------------------------------------------- its interval


@pytest.mark.parametrize("count", range(6))
def test_under_six_samples_there_is_no_interval(count):
    assert median_interval([1.0] * count) is None


@pytest.mark.parametrize("count", [*range(6, 51), 51, 64, 99, 100, 257, 1000, 2500])
def test_the_ranks_are_those_of_exact_binomial_sums(count):
    ranked = [float(rank) for rank in range(1, count + 1)]
    shuffled = list(numpy.random.default_rng(count).permutation(ranked))
    for confidence in ("0.95", "0.99"):
        rank = exact_rank(count, Fraction(confidence))
        expected = (rank, count + 1 - rank) if rank else None
        assert median_interval(shuffled, float(confidence)) == expected


@pytest.mark.parametrize(("count", "ranks"), [(6, (1, 6)), (9, (2, 8)), (10, (2, 9)), (25, (8, 18)), (100, (40, 61))])
def test_ranks_of_the_published_tables(count, ranks):
    """Hahn and Meeker, Statistical Intervals, table A.15a's symmetric intervals of the median at 95 %."""
    assert median_interval(list(range(1, count + 1))) == ranks


@given(SAMPLES)
def test_the_interval_holds_the_median_and_is_of_samples(samples):
    interval = median_interval(samples)
    if interval:
        assert interval[0] <= median(samples) <= interval[1]
        assert set(interval) <= set(samples)


@pytest.mark.parametrize("count", [6, 15, 40, 101])
@pytest.mark.parametrize(
    ("draw", "true_median"),
    [
        (lambda random, size: random.normal(10, 3, size), 10),
        (lambda random, size: random.exponential(1, size), math.log(2)),
        (lambda random, size: random.uniform(0, 1, size), 0.5),
    ],
    ids=["normal", "exponential", "uniform"],
)
def test_the_interval_covers_the_median_as_often_as_it_promises(draw, true_median, count):
    """95 % or more, whatever the distribution, and no more than the exact binomial sum: a wider one would waste."""
    runs = 4000
    samples = draw(numpy.random.default_rng(20), (runs, count)).tolist()
    intervals = [median_interval(run) for run in samples]
    covered = sum(low <= true_median <= high for low, high in intervals) / runs
    promised = float(1 - misses(count, exact_rank(count, Fraction("0.95"))))
    assert promised >= 0.95
    assert covered == pytest.approx(promised, abs=4 * math.sqrt(promised * (1 - promised) / runs))
