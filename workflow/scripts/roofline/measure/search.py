"""The fastest of many ways to do the same, by short trials within a time budget."""

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from roofline.core import statistics
from roofline.core.terms import DEVICE_TRAITS, UnsupportedError
from roofline.records.timing_record import Search

CandidateT = TypeVar("Way")
RUNS_PER_TRIAL, LEAST_TRIAL_S = (
    3,
    3e-4,
)  # timed runs of a trial, after one to warm up; more where they would be over too soon
HOPELESS_FACTOR = 4 / 3  # times the fastest so far: on a CPU one run of it is enough


class CandidateTrial(NamedTuple):
    way: object
    seconds: float  # the median of its runs
    clock_mhz: float | None = None  # counted over them


def try_candidates(
    device,
    ways: Sequence[CandidateT],
    step_of: Callable[[CandidateT], Callable],
    budget_s: float,
    work_of: Callable[[CandidateT], float] = lambda way: 1.0,
) -> tuple[list[CandidateTrial], Search]:
    """A trial of each way that the budget allows, in the order given; and how far it came.

    The first way that runs is always tried. A way that takes a fifth of the budget is not repeated, nor, on a CPU, the
    only way or one far behind. `work_of` gives the work that ways are compared by. Raises Unsupported if none runs.
    """
    tried: list[CandidateTrial] = []
    refused: list[str] = []
    fastest = math.inf  # seconds for the same work
    deadline = time.monotonic() + budget_s
    for way in ways:
        if tried and time.monotonic() >= deadline:
            break
        step = step_of(way)
        try:
            (warm,) = device.time_steps(step, 1)
            if DEVICE_TRAITS[device.kind].synchronous and (
                len(ways) == 1 or warm / work_of(way) > HOPELESS_FACTOR * fastest
            ):
                tried.append(CandidateTrial(way, warm))
                continue
            runs = RUNS_PER_TRIAL if warm < budget_s / 5 else 1
            seconds = statistics.median(device.time_steps(step, runs, first=1))
            if runs * seconds < LEAST_TRIAL_S:  # to count a clock over
                seconds = statistics.median(device.time_steps(step, math.ceil(LEAST_TRIAL_S / seconds), first=1 + runs))
            tried.append(CandidateTrial(way, seconds, device.block_clock_mhz()))
            fastest = min(fastest, seconds / work_of(way))
        except UnsupportedError as reason:
            refused.append(str(reason))
    if not tried:
        raise UnsupportedError(refused[0] if refused else "nothing is offered")
    return tried, Search(offered=len(ways), tried=len(tried), refused=refused)
