"""The fastest of many ways to do the same, by short trials within a time budget."""

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from roofline.core import statistics
from roofline.core.terms import KINDS, Unsupported
from roofline.records.timing_record import Search

Way = TypeVar("Way")
TRIALS, TRIAL_S = 3, 3e-4  # timed runs of a trial, after one to warm up; more where they would be over too soon
BEHIND = 4 / 3  # times the fastest so far: on a CPU one run of it is enough


class Trial(NamedTuple):
    way: object
    seconds: float  # the median of its runs
    clock_mhz: float | None = None  # counted over them


def try_all(
    device,
    ways: Sequence[Way],
    step_of: Callable[[Way], Callable],
    budget_s: float,
    work_of: Callable[[Way], float] = lambda way: 1.0,
) -> tuple[list[Trial], Search]:
    """A trial of each way that the budget allows, in the order given; and how far it came.

    The first way that runs is always tried. A way that takes a fifth of the budget is not repeated, nor, on a CPU, the
    only way or one far behind. `work_of` gives the work that ways are compared by. Raises Unsupported if none runs.
    """
    tried: list[Trial] = []
    refused: list[str] = []
    fastest = math.inf  # seconds for the same work
    deadline = time.monotonic() + budget_s
    for way in ways:
        if tried and time.monotonic() >= deadline:
            break
        step = step_of(way)
        try:
            (warm,) = device.step_times(step, 1)
            if KINDS[device.kind].synchronous and (len(ways) == 1 or warm / work_of(way) > BEHIND * fastest):
                tried.append(Trial(way, warm))
                continue
            runs = TRIALS if warm < budget_s / 5 else 1
            seconds = statistics.median(device.step_times(step, runs, first=1))
            if runs * seconds < TRIAL_S:  # to count a clock over
                seconds = statistics.median(device.step_times(step, math.ceil(TRIAL_S / seconds), first=1 + runs))
            tried.append(Trial(way, seconds, device.clock_of_block()))
            fastest = min(fastest, seconds / work_of(way))
        except Unsupported as reason:
            refused.append(str(reason))
    if not tried:
        raise Unsupported(refused[0] if refused else "nothing is offered")
    return tried, Search(offered=len(ways), tried=len(tried), refused=refused)
