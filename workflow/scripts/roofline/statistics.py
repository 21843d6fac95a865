"""Medians and their intervals: pure functions of lists of samples."""

import math
from collections.abc import Sequence


def median(samples: Sequence[float]) -> float:
    """The middle sample, or the mean of the two middle ones. Raises ValueError without samples."""
    if not samples:
        raise ValueError("the median of no samples")
    ordered = sorted(samples)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """A distribution-free confidence interval of the median, from order statistics.

    The interval [x(k), x(n+1-k)] misses the median with probability 2 P(Binomial(n, 1/2) < k), whatever
    the distribution of independent samples; k is the largest that keeps this under 1 - confidence
    (Hahn and Meeker, Statistical Intervals, section 5.2). None where even the extremes do not reach the
    confidence: under 6 samples at 95 %.
    """
    ordered = sorted(samples)
    count = len(ordered)
    rank = _lower_rank(count, 1 - confidence)
    return (ordered[rank - 1], ordered[count - rank]) if rank else None


def _lower_rank(count: int, error: float) -> int:
    tail, rank = 0.0, 0
    while rank < count // 2:
        log_probability = (
            math.lgamma(count + 1) - math.lgamma(rank + 1) - math.lgamma(count - rank + 1) - count * math.log(2)
        )
        tail += math.exp(log_probability)
        if 2 * tail > error:
            break
        rank += 1
    return rank
