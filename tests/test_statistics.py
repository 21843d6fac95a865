"""Medians and their intervals, against the standard library, exact binomial sums and simulated runs."""

import itertools
import math
import statistics as standard
from fractions import Fraction

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofline.core.statistics import autocorrelation_time, effective_count, looks, median, median_interval, precise

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


def alternating(ordered: list[float]) -> list[float]:
    """The samples in an order without memory, or rather with the opposite: above and below the median in turn."""
    low, high = ordered[: len(ordered) // 2], ordered[len(ordered) // 2 :]
    return [value for pair in itertools.zip_longest(high, low) for value in pair if value is not None]


def autoregressive(random, coefficient: float, runs: int, count: int):
    """Stationary AR(1) series of unit variance and median 0, one a row."""
    noise = random.normal(size=(runs, count))
    noise[:, 1:] *= math.sqrt(1 - coefficient**2)
    for step in range(1, count):
        noise[:, step] += coefficient * noise[:, step - 1]
    return noise


def coverage(runs, true_median: float) -> float:
    """Of the runs that give an interval, the share whose interval holds the true median."""
    intervals = [interval for run in runs.tolist() if (interval := median_interval(run))]
    return sum(low <= true_median <= high for low, high in intervals) / len(intervals)


# ---------------------------------------------------------------- the median


@given(SAMPLES)
def test_median_is_the_standard_librarys(samples):
    before = list(samples)
    assert median(samples) == standard.median(samples)
    assert samples == before


def test_no_samples_have_no_median():
    with pytest.raises(ValueError, match="no samples"):
        median([])


# ---------------------------------------------------------------- its interval


@pytest.mark.parametrize("count", [*range(1, 51), 64, 99, 100, 1000])
def test_without_memory_the_ranks_are_those_of_exact_binomial_sums(count):
    samples = alternating([float(rank) for rank in range(1, count + 1)])
    assert autocorrelation_time(samples) == 1
    for confidence in ("0.95", "0.99"):
        rank, _ = exact_rank(count, confidence)
        expected = (rank, count + 1 - rank) if rank else None
        assert median_interval(samples, float(confidence)) == expected


@given(SAMPLES)
def test_the_interval_holds_the_median_and_is_of_samples(samples):
    interval = median_interval(samples)
    if interval:
        assert interval[0] <= median(samples) <= interval[1]
        assert set(interval) <= set(samples)


@given(SAMPLES)
def test_memory_only_ever_widens_the_interval(samples):
    interval = median_interval(samples)
    ordered, (rank, _) = sorted(samples), exact_rank(len(samples), "0.95")
    if interval:
        assert interval[0] <= ordered[rank - 1]
        assert interval[1] >= ordered[len(samples) - rank]
    assert 0 <= effective_count(samples) <= len(samples)


@pytest.mark.parametrize("count", [15, 40, 101])
@pytest.mark.parametrize(
    ("draw", "true_median"),
    [
        (lambda random, size: random.normal(10, 3, size), 10),
        (lambda random, size: random.exponential(1, size), math.log(2)),
        (lambda random, size: random.normal(numpy.where(random.random(size) < 0.4, 1, 2), 0.1), 1.9033),
        (lambda random, size: numpy.round(random.normal(10, 1, size)), 10),
    ],
    ids=["normal", "exponential", "two modes", "coarse ticks"],
)
def test_independent_samples_are_covered_as_promised(draw, true_median, count):
    """The median of the two modes is the sixth of the way up the upper one: z(1/6) = -0.967."""
    runs = 1000
    assert coverage(draw(numpy.random.default_rng(20), (runs, count)), true_median) >= 0.95


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize("coefficient", [0, 0.5, 0.9])
def test_the_autocorrelation_time_is_that_of_theory(coefficient):
    """The indicators of a normal series of correlation r correlate by 2 / pi asin(r) (Sheppard 1899)."""
    theory = 1 + 2 * sum(2 / math.pi * math.asin(coefficient**lag) for lag in range(1, 500))
    runs = autoregressive(numpy.random.default_rng(3), coefficient, 60, 3000).tolist()
    assert numpy.mean([autocorrelation_time(run) for run in runs]) == pytest.approx(theory, rel=0.1)


@pytest.mark.parametrize(
    ("coefficient", "count"), [(0.3, 30), (0.5, 30), (0.5, 100), (0.7, 80), (0.7, 300), (0.9, 300), (0.9, 500)]
)
def test_samples_with_memory_are_covered_as_promised(coefficient, count):
    runs = autoregressive(numpy.random.default_rng(8), coefficient, 1500, count)
    assert coverage(runs, 0) >= 0.93


def test_a_swinging_clock_and_outliers_are_covered():
    random = numpy.random.default_rng(9)
    swing = numpy.sin(2 * numpy.pi * (numpy.arange(300) / 60 + random.random((500, 1))))
    runs = 100 + swing + autoregressive(random, 0.5, 500, 300)
    slow = random.random(runs.shape) < 0.01
    assert coverage(numpy.where(slow, 150, runs), 100 + 0.02) >= 0.95


def test_a_clock_that_drifts_through_the_run_gives_no_interval():
    """There is one value for each moment, not one with noise: every sample repeats its neighbours."""
    assert median_interval([1 + index / 1000 for index in range(100)]) is None
    assert effective_count(list(range(1000))) < 6


# ---------------------------------------------------------------- when to stop


def sample_until_precise(run: list[float], minimum: int) -> list[float]:
    for count in looks(minimum, len(run)):
        if precise(run[:count]):
            return run[:count]
    return run


@pytest.mark.parametrize(
    ("coefficient", "noise", "at_least"),
    [(0, 0.002, 0.95), (0, 0.01, 0.95), (0.5, 0.01, 0.935), (0.7, 0.005, 0.93), (0.9, 0.005, 0.92)],
)
def test_stopping_early_keeps_the_promise(coefficient, noise, at_least):
    """End to end: sampled until precise, the reported 95 % interval holds the true median as often as it says."""
    random = numpy.random.default_rng(12)
    runs = 1 + noise * autoregressive(random, coefficient, 500, 2000)
    stopped = [sample_until_precise(run, minimum=25) for run in runs.tolist()]
    intervals = [median_interval(samples) for samples in stopped]
    assert sum(low <= 1 <= high for low, high in intervals) / len(intervals) >= at_least
    early = [number for number, samples in enumerate(stopped) if len(samples) < 2000]
    assert len(early) > 400
    assert all(intervals[number][1] - intervals[number][0] <= 0.01 * median(stopped[number]) for number in early)


def test_precise_is_narrow_and_from_enough_samples():
    samples = alternating([100 + index / 1000 for index in range(100)])
    assert precise(samples)
    assert not precise(samples, relative_half_width=1e-5)
    assert not precise(samples[:49])
    assert not precise([])
    assert not precise(sorted(samples))
    assert precise([-sample for sample in samples])
    assert precise([5.0] * 50)


@settings(max_examples=50)
@given(st.integers(1, 500), st.integers(1, 100_000))
def test_looks_double_up_to_the_maximum(minimum, maximum):
    counts = looks(minimum, maximum)
    assert counts[-1] == maximum
    assert counts[0] == min(minimum, maximum)
    assert all(count < following <= 2 * count for count, following in itertools.pairwise(counts))
    with pytest.raises(ValueError, match="at least one is needed"):
        looks(0, maximum)
