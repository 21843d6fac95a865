"""How anything is timed: warm up, then count steps or spend the time budget, whichever comes first."""

import math
import time
from collections.abc import Callable

from roofline.core import statistics
from roofline.core.terms import DEVICE_TRAITS, LoadSensitivity
from roofline.devices.base import Device
from roofline.measure.undisturbed import StateLog, flag_throttled, repeat_until_undisturbed
from roofline.records.timing_record import Timing

CALLER_METHOD = "one step after another, an event per step, synchronised before and after the block"
OPENING_METHOD = "the first steps of sustained load, which begins as a block does, an event per step"
DEVICE_METHOD = "steps queued behind a blocking kernel, an event per step, then released"
FIRST_LOOK_SAMPLES = 64  # samples before the first look at whether they are precise
LONGER_FACTOR = 1.03
STEPS_QUEUED_AGAIN = 8  # steps whose commands a card has fetched before it begins the first
TICK_S = 0.5e-6  # of CUDA's events, as cudaEventElapsedTime is documented
LEAST_CPU_SAMPLES = 7  # samples, whatever they take: fewer have no interval
READ_DURING_S = 0.05  # a batch of this length or more is looked at while it runs

Step = Callable[[int], object]


def time_caller(
    device: Device,
    step: Step,
    *,
    warmup: int,
    iterations: int,
    time_budget_s: float,
    checked_s: float | None = None,
    least: int = 1,
    lead: int = 0,
) -> Timing:
    """CPU time of `step`, which gets its index, so that it can rotate among buffers.

    The steps that fit the budget are timed in one block, of a GPU at least `least`. On a CPU at least LEAST_ON_CPU are,
    and the warm-up goes on as long as each step is the fastest so far, for up to half of a second budget. A check that
    just took most of the budget (`checked_s`) warmed up. The first `lead` steps of a queue do not count.
    """
    synchronous = DEVICE_TRAITS[device.kind].synchronous
    least = min(iterations, LEAST_CPU_SAMPLES) if synchronous else least
    start = time.monotonic()
    deadline = start + (time_budget_s / 2 if synchronous else time_budget_s)
    slow = checked_s is not None and checked_s > time_budget_s / 2
    warmed, last, falling = (1, checked_s, False) if slow else (0, math.inf, synchronous)
    while warmed == 0 or ((warmed < warmup or falling) and time.monotonic() + last < deadline):
        before, last = last, device.time_steps(step, 1, first=warmed)[0]
        falling = falling and last < before
        warmed += 1
    left_s = time_budget_s if synchronous else deadline - time.monotonic()
    first = warmed

    def block() -> Timing:
        nonlocal first
        deadline, each = time.monotonic() + left_s, last
        samples: list[float] = []
        longest, clock_mhz = 0, None
        while len(samples) < iterations and (len(samples) < least or time.monotonic() + each < deadline):
            fitting = int((deadline - time.monotonic()) / each) if each else iterations
            count = max(1, least - len(samples), min(iterations - len(samples), fitting))
            samples += device.time_steps(step, lead + count, first=first)[lead:]
            first += lead + count
            if count > longest:
                longest, clock_mhz = count, device.block_clock_mhz()
            each = statistics.median(samples)
        timing = make_timing(CALLER_METHOD, warmed + lead, iterations, samples)
        return timing.model_copy(update={"sm_clock_mhz": clock_mhz})

    return _time_undisturbed(device, block, "caller", others=False)


def time_device(
    device: Device, step: Step, caller: Timing, *, time_budget_s: float, at_once: int | None = None
) -> Timing | None:
    """The device's part of a fourth of the steps, of which little varies; None on a synchronous device."""
    wanted = max(1, caller.requested // 4)
    fitting = int(time_budget_s / 2 / caller.median_s)

    def block() -> Timing | None:
        first = caller.warmup + len(caller.samples_s)
        samples = device.time_steps_on_device(step, max(1, min(wanted, fitting)), first=first, at_once=at_once)
        method = f"{DEVICE_METHOD}, {at_once} at a time" if at_once else DEVICE_METHOD
        return make_timing(method, caller.warmup, wanted, samples) if samples else None

    return _time_undisturbed(device, block, "device", others=False)


def time_device_checked(
    device: Device, step: Step, caller: Timing, *, time_budget_s: float, rest: Callable[[], None] = lambda: None
) -> tuple[Timing | None, list[str]]:
    """As time_device, after a rest like the caller's; and doubts about it.

    GPU time cannot exceed CPU time. If it seems to, by more than LONGER, it is measured again with AHEAD steps queued
    together: behind a long queue a card fetches later commands during each step, 0.5 to 0.9 us on an H200.
    """
    rest()
    found = time_device(device, step, caller, time_budget_s=time_budget_s)
    if found and found.median_s > LONGER_FACTOR * caller.median_s:
        rest()
        again = time_device(device, step, caller, time_budget_s=time_budget_s, at_once=STEPS_QUEUED_AGAIN)
        found = min(found, again or found, key=lambda timing: timing.median_s)
    doubts, share = [], found.median_s / caller.median_s - 1 if found else 0.0
    if share > LONGER_FACTOR - 1 and share * caller.median_s > 2 * TICK_S:
        doubts.append(f"the device's time is {100 * share:.3g} % above the caller's, measured twice")
    return found, doubts


def scale_to_application(timing: Timing | None, per_call: int) -> Timing | None:
    """The times of one of the applications of the operator that each step consisted of."""
    if timing is None or per_call == 1:
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


def time_until_precise(
    device: Device, step: Step, log: StateLog, *, warmup: int, most: int, time_budget_s: float, least: int = 1
) -> Timing:
    """Steps until the 95 % interval of their median is within 0.5 %, `most` of them, or the budget is spent.

    At least `least` are taken, on a CPU LEAST_ON_CPU.
    """
    least, first = min(most, LEAST_CPU_SAMPLES if DEVICE_TRAITS[device.kind].synchronous else least), 0
    start = time.monotonic()
    warmed = max(1, warmup)
    warm_s = statistics.median(device.time_steps(step, warmed, first=first))
    left_s = time_budget_s - (time.monotonic() - start)
    first += warmed

    def block() -> Timing:
        nonlocal first
        deadline, last = time.monotonic() + left_s, warm_s
        samples: list[float] = []
        stopped_by, earlier = "iterations", len(log.states)
        log.read("before")
        for target in statistics.precision_check_counts(min(FIRST_LOOK_SAMPLES, most), most):
            while len(samples) < target and (len(samples) < least or time.monotonic() + last < deadline):
                fitting = max(1, least - len(samples), int((deadline - time.monotonic()) / last)) if last else target
                count = min(target - len(samples), fitting)
                look = (lambda: log.read("during")) if count * last >= READ_DURING_S else None
                batch = device.time_steps(step, count, first, look)
                samples += batch
                last, first = statistics.median(batch), first + count
            if len(samples) < target:
                stopped_by = "time_budget"
                break
            if statistics.is_precise(samples):
                stopped_by = "precision"
                break
        log.read("after")
        return flag_throttled(make_timing(CALLER_METHOD, warmed, most, samples, stopped_by), log.states[earlier:])

    return _time_undisturbed(device, block, "caller")


def _time_undisturbed(
    device: Device, block: Callable[[], Timing | None], sensitive: LoadSensitivity, others: bool = True
) -> Timing | None:
    timing, contention = repeat_until_undisturbed(device, block, lambda timing: timing.median_s, sensitive, others)
    return timing and timing.model_copy(update={"contention": contention})


def make_timing(
    method: str, warmup: int, requested: int, samples: list[float], stopped_by: str | None = None
) -> Timing:
    samples = [round(sample, 10) for sample in samples]
    return Timing(
        timed_by=method,
        warmup=warmup,
        requested=requested,
        stopped_by=stopped_by or ("iterations" if len(samples) >= requested else "time_budget"),
        samples_s=samples,
        median_s=statistics.median(samples),
        ci95_s=statistics.median_interval(samples),
    )
