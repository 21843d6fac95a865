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


def exact_rank(count: int, confidence: str) -> tuple[int, Fraction]:
    """The largest rank whose interval [x(rank), x(count + 1 - rank)] misses the median no oftener than allowed, and how
    often it does: 2 P(Binomial(count, 1/2) < rank). Rank 0 where there is none."""
    rank, below, allowed = 0, 0, 1 - Fraction(confidence)
    while rank < count // 2:
        wider = below + math.comb(count, rank)
        if Fraction(2 * wider, 2**count) > allowed:
            break
        rank, below = rank + 1, wider
    return rank, Fraction(2 * below, 2**count)


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


@pytest.mark.parametrize("count", [*range(6, 51), 64, 99, 100, 1000])
def test_the_ranks_are_those_of_exact_binomial_sums(count):
    ranked = [float(rank) for rank in range(1, count + 1)]
    shuffled = list(numpy.random.default_rng(count).permutation(ranked))
    for confidence in ("0.95", "0.99"):
        rank, _ = exact_rank(count, confidence)
        expected = (rank, count + 1 - rank) if rank else None
        assert median_interval(shuffled, float(confidence)) == expected


@pytest.mark.parametrize(("count", "ranks"), [(6, (1, 6)), (9, (2, 8)), (10, (2, 9)), (25, (8, 18)), (100, (40, 61))])
def test_well_known_ranks(count, ranks):
    """As tables of the binomial give them: of six samples all (they miss in 2 of 64), of 100 the 40th and the 61st."""
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
    promised = float(1 - exact_rank(count, "0.95")[1])
    assert promised >= 0.95
    assert covered == pytest.approx(promised, abs=4 * math.sqrt(promised * (1 - promised) / runs))
