"""The period of a rate that rises and falls, as a card's does under power control."""

from collections.abc import Sequence
from statistics import fmean, linear_regression

LEAST_SWING = 0.002  # of the mean rate: one that varies less has no period
LEAST_AUTOCORRELATION = 0.3  # of a rate that has one, at a lag of one period


def find_period(rates: Sequence[float], shortest: int) -> int | None:
    """Return the period of equidistant rates, as a number of rates from `shortest` (at least 2) on; None without one.

    It is the lag, at most half of the rates, at which their autocorrelation is highest.
    """
    deviations = _remove_trend(rates)
    power = sum(deviation * deviation for deviation in deviations)
    if power <= (LEAST_SWING * fmean(rates)) ** 2 * len(rates):
        return None

    def autocorrelation(lag: int) -> float:
        products = [a * b for a, b in zip(deviations, deviations[lag:], strict=False)]
        return fmean(products) * len(deviations) / power

    correlations = [autocorrelation(lag) for lag in range(len(deviations) // 2 + 2)]

    def is_peak(lag: int) -> bool:
        return correlations[lag - 1] < correlations[lag] >= correlations[lag + 1]

    peaks = [lag for lag in range(shortest, len(correlations) - 1) if is_peak(lag)]
    best = max(peaks, key=lambda lag: correlations[lag], default=None)
    return best if best and correlations[best] >= LEAST_AUTOCORRELATION else None


def _remove_trend(rates: Sequence[float]) -> list[float]:
    """Return the deviations of rates from a straight line, by least squares.

    A slow fall resembles itself too, but is not a cycle.
    """
    slope, start = linear_regression(range(len(rates)), rates)
    return [rate - (start + slope * index) for index, rate in enumerate(rates)]
