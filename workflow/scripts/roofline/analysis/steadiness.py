"""Whether a burst held one rate: its block by quarters, in the order of time."""

from collections.abc import Sequence
from itertools import pairwise

from roofline.core.statistics import FEWEST_SAMPLES, median

QUARTERS = 4
UNEVEN = 0.01  # of the slowest quarter: those of a block at one clock lie within 0.7 % on an H200


def quarters_tflops(samples_s: Sequence[float], flops: int) -> list[float]:
    """The rate of each quarter, by the median of its samples; none where a quarter has fewer than FEWEST_SAMPLES."""
    if len(samples_s) < QUARTERS * FEWEST_SAMPLES:
        return []
    ends = [place * len(samples_s) // QUARTERS for place in range(QUARTERS + 1)]
    return [flops / median(samples_s[first:last]) / 1e12 for first, last in pairwise(ends)]


def uneven(rates: Sequence[float]) -> bool:
    """Whether quarters differ by more than UNEVEN: the median is then of two rates, and an interval may be none."""
    return bool(rates) and max(rates) > (1 + UNEVEN) * min(rates)
