"""How anything is timed: warm up, then count steps or spend the time budget, whichever comes first."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from roofline.core import statistics
from roofline.core.terms import DEVICE_TRAITS, LoadSensitivity
from roofline.devices.base import Device, Step
from roofline.measure.undisturbed import StateLog, flag_throttled, repeat_until_undisturbed
from roofline.records.timing_record import Timing

TimingT = TypeVar("TimingT", bound=Timing | None)

CALLER_METHOD = "one step after another, an event per step, synchronised before and after the block"
OPENING_METHOD = "the first steps of sustained load, which begins as a block does, an event per step"
DEVICE_METHOD = "steps queued behind a blocking kernel, an event per step, then released"
FIRST_LOOK_SAMPLES = 64  # samples before the first look at whether they are precise
LONGER_FACTOR = 1.03  # GPU time over CPU time from which on it is timed again
STEPS_QUEUED_AGAIN = 8  # queued together then: a card has fetched all their commands before it begins the first
TICK_S = 0.5e-6  # of CUDA's events, as cudaEventElapsedTime is documented
LEAST_SAMPLES = 7  # however long they take: the median of fewer has no interval
READ_DURING_S = 0.05  # the device is read during a batch of this length or more


@dataclass(frozen=True)
class TimingBudget:
    """The limits of a timed block: steps to warm up, the most steps to time, and the seconds for them.

    At least `least_samples` are timed on a GPU, whatever they take. The first `lead_steps` of a queue do not count. On
    a GPU a queue lasts at most `longest_block_s`, if given; a rest and a warm-up before the next do not count. Steps
    that are so long that it would hold the warm-up alone are timed in one.
    """

    warmup: int
    iterations: int
    time_budget_s: float
    least_samples: int = 1
    lead_steps: int = 0
    longest_block_s: float | None = None

    def fewest_samples(self, synchronous: bool) -> int:
        """Return the number of samples that are taken however long they take: on a CPU LEAST_SAMPLES."""
        return min(self.iterations, LEAST_SAMPLES if synchronous else self.least_samples)


def time_caller(
    device: Device,
    step: Step,
    budget: TimingBudget,
    checked_s: float | None = None,
    rest: Callable[[], None] = lambda: None,
) -> Timing:
    """Return the CPU time of `step`, which gets its index, so that it can rotate among buffers.

    The steps that fit the budget are timed in one block, or in several with rests. On a CPU at least LEAST_SAMPLES
    are timed, and the warm-up goes on as long as each step is the fastest so far, for up to half of a second budget. A
    check that just took most of the budget (`checked_s`) was the warm-up.
    """
    synchronous = DEVICE_TRAITS[device.kind].synchronous
    least_samples, lead_steps = budget.fewest_samples(synchronous), budget.lead_steps
    deadline = time.monotonic() + (budget.time_budget_s / 2 if synchronous else budget.time_budget_s)
    warm_up_steps, warm_step_s = _warm_up(device, step, budget, deadline, checked_s)
    block_budget_s = budget.time_budget_s if synchronous else deadline - time.monotonic()
    next_step = warm_up_steps

    def time_block() -> Timing:
        nonlocal next_step
        deadline, step_s = time.monotonic() + block_budget_s, warm_step_s
        samples: list[float] = []
        longest_batch, clock_mhz = 0, None
        while count := _batch_size(len(samples), budget.iterations, least_samples, step_s, deadline):
            if budget.longest_block_s and not synchronous and (budget.warmup + 1) * step_s <= budget.longest_block_s:
                count = min(count, max(1, int(budget.longest_block_s / step_s)))
                if samples:
                    rested_s = -time.monotonic()
                    rest()
                    device.time_steps(step, budget.warmup, first=next_step)
                    deadline += rested_s + time.monotonic()
            samples += device.time_steps(step, lead_steps + count, first=next_step)[lead_steps:]
            next_step += lead_steps + count
            if count > longest_batch:
                longest_batch, clock_mhz = count, device.block_clock_mhz()
            step_s = statistics.median(samples)
        timing = make_timing(CALLER_METHOD, warm_up_steps + lead_steps, budget.iterations, samples)
        return timing.model_copy(update={"sm_clock_mhz": clock_mhz})

    return _time_undisturbed(device, time_block, "caller", list_processes=False)


def _warm_up(
    device: Device, step: Step, budget: TimingBudget, deadline: float, checked_s: float | None
) -> tuple[int, float]:
    """Warm up and return the number of steps that it took, and the seconds of the last of them."""
    if checked_s is not None and checked_s > budget.time_budget_s / 2:  # the check has just run the step
        steps, last_step_s, still_faster = 1, checked_s, False
    else:
        steps, last_step_s, still_faster = 0, math.inf, DEVICE_TRAITS[device.kind].synchronous

    def wants_more() -> bool:
        return (steps < budget.warmup or still_faster) and time.monotonic() + last_step_s < deadline

    while steps == 0 or wants_more():
        previous_step_s, last_step_s = last_step_s, device.time_steps(step, 1, first=steps)[0]
        still_faster = still_faster and last_step_s < previous_step_s
        steps += 1
    return steps, last_step_s


def _batch_size(taken: int, target: int, least: int, step_s: float, deadline: float) -> int:
    """Return how many samples to take next of those up to the target; 0 ends the block.

    They fit before the deadline, except the first `least` ones.
    """
    missing = target - taken
    in_budget = int((deadline - time.monotonic()) / step_s) if step_s else missing
    return max(0, min(missing, max(least - taken, in_budget)))


def time_device(
    device: Device, step: Step, caller: Timing, *, time_budget_s: float, at_once: int | None = None
) -> Timing | None:
    """Return the GPU time of a fourth of the steps, since it varies little; None on a synchronous device.

    They fit half of the budget, except LEAST_SAMPLES of them, or as many as the caller took.
    """
    least_samples = min(len(caller.samples_s), LEAST_SAMPLES)
    requested = max(least_samples, caller.requested // 4)
    count = max(least_samples, min(requested, int(time_budget_s / 2 / caller.median_s)))

    def time_block() -> Timing | None:
        first = caller.warmup + len(caller.samples_s)
        samples = device.time_steps_on_device(step, count, first=first, at_once=at_once)
        method = f"{DEVICE_METHOD}, {at_once} at a time" if at_once else DEVICE_METHOD
        return make_timing(method, caller.warmup, requested, samples) if samples else None

    return _time_undisturbed(device, time_block, "device", list_processes=False)


def time_device_checked(
    device: Device, step: Step, caller: Timing, *, time_budget_s: float, rest: Callable[[], None] = lambda: None
) -> tuple[Timing | None, list[str]]:
    """Return the GPU time as `time_device` does, after a rest like the caller's, and doubts about it.

    GPU time cannot exceed CPU time. If it seems to, by more than LONGER_FACTOR, it is measured again with
    STEPS_QUEUED_AGAIN steps queued together: behind a long queue a card fetches later commands during each step, 0.5 to
    0.9 us on an H200.
    """
    rest()
    timing = time_device(device, step, caller, time_budget_s=time_budget_s)
    if timing is None:
        return None, []
    if timing.median_s > LONGER_FACTOR * caller.median_s:
        rest()
        second_timing = time_device(device, step, caller, time_budget_s=time_budget_s, at_once=STEPS_QUEUED_AGAIN)
        if second_timing and second_timing.median_s < timing.median_s:
            timing = second_timing
    excess_share = timing.median_s / caller.median_s - 1
    if excess_share > LONGER_FACTOR - 1 and excess_share * caller.median_s > 2 * TICK_S:
        return timing, [f"the device's time is {100 * excess_share:.3g} % above the caller's, measured twice"]
    return timing, []


def scale_to_application(timing: Timing, per_call: int) -> Timing:
    """Return the times of one application of the operator, from steps that consist of `per_call` applications."""
    if per_call == 1:
        return timing
    samples = [round(sample / per_call, 11) for sample in timing.samples_s]
    return timing.model_copy(
        update={
            "timed_by": f"{timing.timed_by}; a step applies the operator {per_call} times, and times are of one",
            "samples_s": samples,
            "median_s": statistics.median(samples),
            "ci95_s": statistics.median_interval(samples),
        }
    )


def time_until_precise(device: Device, step: Step, log: StateLog, budget: TimingBudget) -> Timing:
    """Time steps until the 95 % interval of their median is within 0.5 % of it, or until the budget is spent.

    On a CPU at least LEAST_SAMPLES are taken. The readings of the device go to `log`.
    """
    least_samples = budget.fewest_samples(DEVICE_TRAITS[device.kind].synchronous)
    start = time.monotonic()
    warm_up_steps = max(1, budget.warmup)
    warm_step_s = statistics.median(device.time_steps(step, warm_up_steps, first=0))
    block_budget_s = budget.time_budget_s - (time.monotonic() - start)
    next_step = warm_up_steps

    def time_block() -> Timing:
        nonlocal next_step
        deadline, step_s = time.monotonic() + block_budget_s, warm_step_s
        samples: list[float] = []
        earlier_states = len(log.states)
        log.read("before")
        for target in statistics.precision_check_counts(FIRST_LOOK_SAMPLES, budget.iterations):
            while count := _batch_size(len(samples), target, least_samples, step_s, deadline):
                read_during = partial(log.read, "during") if count * step_s >= READ_DURING_S else None
                batch = device.time_steps(step, count, next_step, read_during)
                samples += batch
                step_s, next_step = statistics.median(batch), next_step + count
            precise = len(samples) >= target and statistics.is_precise(samples)
            if precise or len(samples) < target:
                break
        log.read("after")
        timing = make_timing(CALLER_METHOD, warm_up_steps, budget.iterations, samples, precise)
        return flag_throttled(timing, log.states[earlier_states:])

    return _time_undisturbed(device, time_block, "caller")


def _time_undisturbed(
    device: Device, time_block: Callable[[], TimingT], sensitivity: LoadSensitivity, list_processes: bool = True
) -> TimingT:
    def slowness(timing: TimingT) -> float:
        return math.inf if timing is None else timing.median_s

    timing, contention = repeat_until_undisturbed(device, time_block, slowness, sensitivity, list_processes)
    if timing is not None:
        timing.contention = contention
    return timing


def make_timing(method: str, warmup: int, requested: int, samples: list[float], precise: bool = False) -> Timing:
    """Return the Timing of samples in seconds, rounded to 0.1 ns, with their median and its 95 % interval.

    Sampling stopped because they are `precise`, or as many as requested, or at the end of the time budget.
    """
    samples = [round(sample, 10) for sample in samples]
    stopped_by = "iterations" if len(samples) >= requested else "time_budget"
    return Timing(
        timed_by=method,
        warmup=warmup,
        requested=requested,
        stopped_by="precision" if precise else stopped_by,
        samples_s=samples,
        median_s=statistics.median(samples),
        ci95_s=statistics.median_interval(samples),
    )
