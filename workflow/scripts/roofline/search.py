"""The fastest of many ways to do the same: try all within a time budget, then the best few for longer."""

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from roofline import statistics

Way = TypeVar("Way")
TRIALS = 3  # timed runs of a trial, after one to warm up


def try_all(
    device, ways: Iterable[Way], step_of: Callable[[Way], Callable], budget_s: float
) -> tuple[list[tuple[Way, float]], str]:
    """(way, median seconds of a few runs) of each that the budget allows, in the order given; and what ended it.

    The first way is always tried, however long it takes. One that would take a fifth of the budget is not repeated.
    """
    tried: list[tuple[Way, float]] = []
    deadline = time.monotonic() + budget_s
    for way in ways:
        if tried and time.monotonic() >= deadline:
            return tried, "time_budget"
        step = step_of(way)
        (warm,) = device.step_times(step, 1)
        runs = TRIALS if warm < budget_s / 5 else 1
        tried.append((way, statistics.median(device.step_times(step, runs, first=1))))
    return tried, "all"
