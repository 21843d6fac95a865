"""The fastest of many ways to do the same, by short trials within a time budget."""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from roofline import statistics
from roofline.records import Search

Way = TypeVar("Way")
TRIALS = 3  # timed runs of a trial, after one to warm up


class Refused(Exception):
    """A way that was offered and does not run here. The message is one line."""


def try_all(
    device, ways: Sequence[Way], step_of: Callable[[Way], Callable], budget_s: float
) -> tuple[list[tuple[Way, float]], Search]:
    """(way, median seconds of a few runs) of each that the budget allows, in the order given; and how far it came.

    The first way that runs is always tried, however long it takes. One that would take a fifth of the budget is not
    repeated. Raises Refused where none runs.
    """
    tried: list[tuple[Way, float]] = []
    refused: list[str] = []
    deadline = time.monotonic() + budget_s
    for way in ways:
        if tried and time.monotonic() >= deadline:
            break
        step = step_of(way)
        try:
            (warm,) = device.step_times(step, 1)
            runs = TRIALS if warm < budget_s / 5 else 1
            tried.append((way, statistics.median(device.step_times(step, runs, first=1))))
        except Refused as reason:
            refused.append(str(reason))
    if not tried:
        raise Refused(refused[0] if refused else "nothing is offered")
    return tried, Search(offered=len(ways), tried=len(tried), refused=refused)
