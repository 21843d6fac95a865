"""Medians and their intervals, compared with the standard library, exact binomial sums and simulated runs."""

import itertools
import math
from fractions import Fraction
from statistics import median

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.core import statistics

SAMPLES = st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=60)


def exact_rank(count: int, confidence: str) -> int:
    """Return the largest rank whose interval [x(rank), x(count + 1 - rank)] misses the median no more often than
    allowed, 2 P(Binomial(count, 1/2) < rank); 0 if there is none."""
    rank, below, allowed = 0, 0, 1 - Fraction(confidence)
    while rank < count // 2:
        below += math.comb(count, rank)
        if Fraction(2 * below, 2**count) > allowed:
            break
        rank += 1
    return rank


def alternating(ordered: list[float]) -> list[float]:
    """Return the samples in an order without memory: above and below the median in turn."""
    low, high = ordered[: len(ordered) // 2], ordered[len(ordered) // 2 :]
    return [value for pair in itertools.zip_longest(high, low) for value in pair if value is not None]


def autoregressive(random, coefficient: float, runs: int, count: int):
    """Return stationary AR(1) series of unit variance and median 0, one per row."""
    noise = random.normal(size=(runs, count))
    noise[:, 1:] *= math.sqrt(1 - coefficient**2)
    for step in range(1, count):
        noise[:, step] += coefficient * noise[:, step - 1]
    return noise


def coverage(runs) -> float:
    """Return the share of the intervals that hold the true median, 0, among runs that give an interval."""
    intervals = [interval for run in runs.tolist() if (interval := statistics.median_interval(run))]
    return sum(low <= 0 <= high for low, high in intervals) / len(intervals)


@pytest.mark.parametrize("count", [1, 5, 6, 7, 50, 99, 100, 1000])
def test_without_memory_the_ranks_are_those_of_exact_binomial_sums(count):
    samples = alternating([float(rank) for rank in range(1, count + 1)])
    assert statistics.autocorrelation_time(samples) == 1
    for confidence in ("0.95", "0.99"):
        rank = exact_rank(count, confidence)
        assert statistics.median_interval(samples, float(confidence)) == ((rank, count + 1 - rank) if rank else None)


@given(SAMPLES)
def test_the_interval_of_the_median_which_memory_only_widens(samples):
    ordered, rank = sorted(samples), exact_rank(len(samples), "0.95")
    if interval := statistics.median_interval(samples):
        assert interval[0] <= median(samples) <= interval[1] and set(interval) <= set(samples)
        assert interval[0] <= ordered[rank - 1] and interval[1] >= ordered[len(samples) - rank]
    assert 0 <= statistics.effective_count(samples) <= len(samples)
    with pytest.raises(ValueError):
        statistics.effective_count([])


@pytest.mark.parametrize("coefficient", [0, 0.5, 0.9])
def test_the_autocorrelation_time_is_that_of_theory(coefficient):
    theory = 1 + 2 * sum(2 / math.pi * math.asin(coefficient**lag) for lag in range(1, 500))
    runs = autoregressive(numpy.random.default_rng(3), coefficient, 60, 3000).tolist()
    assert numpy.mean([statistics.autocorrelation_time(run) for run in runs]) == pytest.approx(theory, rel=0.1)


@pytest.mark.parametrize(("coefficient", "count"), [(0, 15), (0.5, 30), (0.9, 300)])
def test_the_interval_of_samples_with_memory_covers_the_median(coefficient, count):
    assert coverage(autoregressive(numpy.random.default_rng(8), coefficient, 1500, count)) >= 0.93


def sample_until_precise(run: list[float], minimum: int) -> list[float]:
    for count in statistics.precision_check_counts(minimum, len(run)):
        if statistics.is_precise(run[:count]):
            return run[:count]
    return run


@pytest.mark.parametrize(("coefficient", "noise", "at_least"), [(0, 0.01, 0.95), (0.9, 0.005, 0.92)])
def test_stopping_early_keeps_the_promise(coefficient, noise, at_least):
    random = numpy.random.default_rng(12)
    runs = 1 + noise * autoregressive(random, coefficient, 500, 2000)
    stopped = [sample_until_precise(run, minimum=25) for run in runs.tolist()]
    intervals = [statistics.median_interval(samples) for samples in stopped]
    assert sum(low <= 1 <= high for low, high in intervals) / len(intervals) >= at_least
    early = [number for number, samples in enumerate(stopped) if len(samples) < 2000]
    assert len(early) > 400
    assert all(intervals[number][1] - intervals[number][0] <= 0.01 * median(stopped[number]) for number in early)


def test_precise_is_a_narrow_interval_of_enough_samples():
    samples = alternating([100 + index / 1000 for index in range(100)])
    for enough in (samples, [-sample for sample in samples], [5.0] * 50):
        assert statistics.is_precise(enough)
    for too_few in (samples[:49], [], sorted(samples)):
        assert not statistics.is_precise(too_few)
    assert not statistics.is_precise(samples, half_width=1e-5)
