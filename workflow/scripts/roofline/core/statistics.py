"""Intervals of medians, and when enough was sampled: pure functions of lists of samples in the order of time.

Nothing here needs NumPy: scripts use it before NumPy is loaded.
"""

import math
from collections.abc import Sequence
from statistics import median

FEWEST_SAMPLES = 7  # a figure from fewer samples is marked, and nothing is concluded from it
# To stop sampling takes more than to report (see `is_precise`): both figures are from simulation.
STOPPING_CONFIDENCE = 0.99
STOPPING_EFFECTIVE_COUNT = 50
# Student's t that is exceeded with a probability of 2.5 %, for 1 to 30 degrees of freedom.
STUDENT_T_975: tuple[float, ...] = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
STUDENT_T_975 += (2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086)
STUDENT_T_975 += (2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042)


def is_too_few(samples: int | None) -> bool:
    """Return whether a figure has too few samples to conclude anything from it; False for an unknown number."""
    return samples is not None and samples < FEWEST_SAMPLES


def decile_ratio(samples: Sequence[float]) -> float | None:
    """Return the ninth decile of positive samples over the first; None for fewer than FEWEST_SAMPLES."""
    if is_too_few(len(samples)):
        return None
    ordered = sorted(samples)
    return ordered[9 * len(ordered) // 10] / ordered[len(ordered) // 10]


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """Return a confidence interval of the median from order statistics, for samples in the order of time.

    Of n independent samples, [x(k), x(n+1-k)] misses the median with probability 2 P(Binomial(n, 1/2) < k); k is the
    largest that keeps this under 1 - confidence (Hahn and Meeker, Statistical Intervals, section 5.2). Timings resemble
    their neighbours: n of them place the median only as well as m = n / tau independent ones (`autocorrelation_time`),
    and the rank is that of m samples, scaled to n. None under 6 effective samples at 95 %. The interval is too narrow
    for fewer than about 12 tau samples.
    """
    if not samples:
        return None
    count, effective = len(samples), effective_count(samples)
    rank = _lower_rank(effective, 1 - confidence)
    if not rank:
        return None
    # The middle of the k-th of m equal parts of the samples; k itself where m = n.
    scaled = (effective + (2 * rank - 1) * count) // (2 * effective)
    ordered = sorted(samples)
    return ordered[scaled - 1], ordered[count - scaled]


def student_t_half_width(df: int) -> float:
    """Return the half width of a 95 % interval of a mean, in standard errors, for `df` degrees of freedom."""
    return STUDENT_T_975[df - 1] if df <= len(STUDENT_T_975) else 1.96 + 2.4 / df


def effective_count(samples: Sequence[float]) -> int:
    """Return the number of independent samples that place the median as well. Raises ValueError without samples."""
    return int(len(samples) / autocorrelation_time(samples))


def autocorrelation_time(samples: Sequence[float]) -> float:
    """Return the integrated autocorrelation time tau >= 1, in samples, of lying above the median.

    The share of n samples above the median has the variance tau / (4 n). tau is the sum over all lags of the
    autocovariance of the indicators [x > median], over the 1/4 of an even split. The sum stops where two neighbouring
    lags no longer add anything positive, and pairs may not grow with the lag: Geyer's initial monotone sequence
    (Practical Markov Chain Monte Carlo, Statistical Science 7, 1992, section 3.3). The bias by tau / n at each lag
    (Marriott and Pope, Biometrika 41, 1954) is added.

    A coarse timer makes many samples equal to the median. The larger tau counts, of lying above or of lying below it.
    Raises ValueError without samples.
    """
    middle = median(samples)
    above = "".join("1" if sample > middle else "0" for sample in samples)
    below = "".join("1" if sample < middle else "0" for sample in samples)
    return max(1.0, _indicator_autocorrelation_time(above), _indicator_autocorrelation_time(below))


def is_precise(samples: Sequence[float], half_width: float = 0.005, confidence: float = STOPPING_CONFIDENCE) -> bool:
    """Return whether sampling may stop: the interval of the median lies within the median -+ half_width times it.

    Call it at the counts of `precision_check_counts` only: to stop as soon as the interval looks narrow picks the runs
    in which chance made it narrow. With 99 % for this decision, at least STOPPING_EFFECTIVE_COUNT effective samples and
    doubling counts, the reported 95 % interval covers 93 to 98 % in simulations up to an AR(1) coefficient of 0.9.
    """
    if not samples or effective_count(samples) < STOPPING_EFFECTIVE_COUNT:
        return False
    interval = median_interval(samples, confidence)
    middle = median(samples)
    return interval is not None and max(middle - interval[0], interval[1] - middle) <= half_width * abs(middle)


def precision_check_counts(minimum: int, maximum: int) -> list[int]:
    """Return the sample counts at which to call `is_precise`: doubling from the minimum, and the maximum.

    Each call is a chance to stop by luck: between 50 and 1000 samples there are six. Raises ValueError for counts
    under 1.
    """
    if min(minimum, maximum) < 1:
        raise ValueError(f"cannot look at {min(minimum, maximum)} samples: at least one is needed")
    counts = []
    while minimum < maximum:
        counts.append(minimum)
        minimum *= 2
    return [*counts, maximum]


def _indicator_autocorrelation_time(digits: str) -> float:
    """Return the sum over lags of the autocovariances of zeros and ones, times 4: 1 for an even split without memory.

    The digits are read as one long integer. A lag then takes one shift, two ands and three counts of bits, about a
    microsecond.
    """
    count, bits = len(digits), int(digits, 2)
    mean = bits.bit_count() / count
    variance = mean * (1 - mean)

    def covariance(lag: int) -> float:
        early, late = bits >> lag, bits & ((1 << (count - lag)) - 1)
        products = (early & late).bit_count() - mean * (early.bit_count() + late.bit_count())
        return products / (count - lag) + mean**2

    total, smallest_pair, lag = -variance, math.inf, 0
    while lag + 1 < count:
        pair = covariance(lag) + covariance(lag + 1)
        if pair <= 0:
            break
        smallest_pair = min(pair, smallest_pair)
        total += 2 * smallest_pair
        lag += 2
    lags = max(1, 2 * lag - 1)  # on both sides of lag 0
    return 4 * total * (1 + lags / count)


def _lower_rank(count: int, error: float) -> int:
    """Return the largest k with 2 P(Binomial(count, 1/2) < k) <= error; 0 if there is none."""
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
