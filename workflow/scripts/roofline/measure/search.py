"""The search for the fastest of several candidates that do the same work, by short trials within a time budget."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from roofline.core import statistics
from roofline.core.terms import DEVICE_TRAITS, UnsupportedError
from roofline.devices.base import Device, Step
from roofline.records.timing_record import Search

CandidateT = TypeVar("CandidateT")
# Timed runs of a trial, after one to warm up. There are more where they would be over before a clock can be counted.
RUNS_PER_TRIAL, LEAST_TRIAL_S = 3, 3e-4
HOPELESS_FACTOR = 4 / 3  # times the fastest so far: on a CPU one run of such a candidate is enough
# Shares of the fastest rate from which candidates count as equally fast, so that a run chooses the same one again.
EQUAL_GRID_SHARE = 0.998  # grids of a bandwidth benchmark: two that read as fast on an H100 draw 593 and 693 W
EQUAL_WORKLOAD_SHARE = 0.997  # of the most FLOPs per cycle: register-only kernels that reach it keep their order


class CandidateTrial(NamedTuple, Generic[CandidateT]):
    """A candidate, the median seconds of its timed runs, and the clock counted over them."""

    candidate: CandidateT
    seconds: float
    clock_mhz: float | None = None


def try_candidates(
    device: Device,
    candidates: Sequence[CandidateT],
    step_of: Callable[[CandidateT], Step],
    budget_s: float,
    work_of: Callable[[CandidateT], float] = lambda candidate: 1.0,
) -> tuple[list[CandidateTrial[CandidateT]], Search]:
    """Return a trial of each candidate that the budget allows, in their order, and how far the search came.

    The first candidate that runs is always tried. One that takes a fifth of the budget is not repeated; on a CPU
    neither is the only candidate, nor one far behind the fastest. `step_of` makes the step of a candidate when its turn
    comes. `work_of` gives the work of a step, by which candidates are compared. Raises UnsupportedError if none runs.
    """
    trials: list[CandidateTrial[CandidateT]] = []
    refused: list[str] = []
    fastest_s = math.inf  # per unit of work
    deadline = time.monotonic() + budget_s
    for candidate in candidates:
        if trials and time.monotonic() >= deadline:
            break
        step, work = step_of(candidate), work_of(candidate)
        try:
            (first_run_s,) = device.time_steps(step, 1)
            not_repeated = len(candidates) == 1 or first_run_s / work > HOPELESS_FACTOR * fastest_s
            if DEVICE_TRAITS[device.kind].synchronous and not_repeated:
                trials.append(CandidateTrial(candidate, first_run_s))
                continue
            seconds = _time_runs(device, step, RUNS_PER_TRIAL if first_run_s < budget_s / 5 else 1)
            trials.append(CandidateTrial(candidate, seconds, device.block_clock_mhz()))
            fastest_s = min(fastest_s, seconds / work)
        except UnsupportedError as reason:
            refused.append(str(reason))
    if not trials:
        raise UnsupportedError(refused[0] if refused else "nothing is offered")
    return trials, Search(offered=len(candidates), tried=len(trials), refused=refused)


def _time_runs(device: Device, step: Step, runs: int) -> float:
    """Return the median seconds of so many runs, or of more if those are too short to count a clock over."""
    seconds = statistics.median(device.time_steps(step, runs, first=1))
    if runs * seconds >= LEAST_TRIAL_S:
        return seconds
    return statistics.median(device.time_steps(step, math.ceil(LEAST_TRIAL_S / seconds), first=1 + runs))
