"""How anything is timed: warm up, then count steps or spend the time budget, whichever comes first."""

import time
from collections.abc import Callable

from roofline.core import statistics
from roofline.core.disturbance import is_throttled
from roofline.core.terms import KINDS, Sensitive
from roofline.devices.base import Device
from roofline.measure.undisturbed import StateLog, undisturbed
from roofline.records.timing import DeviceState, Timing

CALLER_METHOD = "one step after another, an event per step, synchronised before and after the block"
DEVICE_METHOD = "steps queued behind a blocking kernel, an event per step, then released"
FEWEST = 64  # samples before the first look at whether they are precise
LONGER = 1.03
AHEAD = 8  # steps whose commands a card has fetched before it begins the first
TICK_S = 0.5e-6  # of CUDA's events, as cudaEventElapsedTime is documented
LEAST_ON_CPU = 7  # samples, whatever they take: fewer have no interval
LOOK_S = 0.05  # a batch of this length or more is looked at while it runs

Step = Callable[[int], object]


def time_caller(
    device: Device, step: Step, *, warmup: int, iterations: int, time_budget_s: float, checked_s: float | None = None
) -> Timing:
    """What a caller of `step` gets. Steps are handed their number, so that they can rotate among buffers: it runs on
    from the warm-up through every block.

    As many steps as fit the budget by the last one are timed in one block, at least one. On a CPU the warm-up has half
    of a budget of its own, and at least LEAST_ON_CPU steps are timed. If the check of the result ran just before and
    took most of the budget (`checked_s`), that was the warm-up.
    """
    synchronous = KINDS[device.kind].synchronous
    least = min(iterations, LEAST_ON_CPU) if synchronous else 1
    start = time.monotonic()
    deadline = start + (time_budget_s / 2 if synchronous else time_budget_s)
    slow = checked_s is not None and checked_s > time_budget_s / 2
    warmed, last = (1, checked_s) if slow else (0, 0.0)
    while warmed < max(1, warmup) and (warmed == 0 or time.monotonic() + last < deadline):
        last = device.step_times(step, 1, first=warmed)[0]
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
            samples += device.step_times(step, count, first=first)
            first += count
            if count > longest:
                longest, clock_mhz = count, device.clock_of_block()
            each = statistics.median(samples)
        return _timing(CALLER_METHOD, warmed, iterations, samples).model_copy(update={"sm_clock_mhz": clock_mhz})

    return _with_contention(device, block, "caller", others=False)


def time_device(
    device: Device, step: Step, caller: Timing, *, time_budget_s: float, at_once: int | None = None
) -> Timing | None:
    """The device's part of the same steps; None on a synchronous device.

    A fourth of the caller's steps, within half of its budget: without launch gaps there is little left to vary.
    """
    wanted = max(1, caller.requested // 4)
    fitting = int(time_budget_s / 2 / caller.median_s)

    def block() -> Timing | None:
        first = caller.warmup + len(caller.samples_s)
        samples = device.device_times(step, max(1, min(wanted, fitting)), first=first, at_once=at_once)
        method = f"{DEVICE_METHOD}, {at_once} at a time" if at_once else DEVICE_METHOD
        return _timing(method, caller.warmup, wanted, samples) if samples else None

    return _with_contention(device, block, "device", others=False)


def time_device_alike(
    device: Device, step: Step, caller: Timing, *, time_budget_s: float, rest: Callable[[], None] = lambda: None
) -> tuple[Timing | None, list[str]]:
    """As time_device, after a rest like the caller's; and doubts about it.

    A device cannot take longer than its caller waits. If it seems to, by more than LONGER, it is measured once more
    with AHEAD steps queued together: behind a long queue a card fetches later commands during each step, which takes a
    short one 0.5 to 0.9 us on an H200's host, and no caller waits for that. If it still does, that is a doubt.
    """
    rest()
    found = time_device(device, step, caller, time_budget_s=time_budget_s)
    if found and found.median_s > LONGER * caller.median_s:
        rest()
        again = time_device(device, step, caller, time_budget_s=time_budget_s, at_once=AHEAD)
        found = min(found, again or found, key=lambda timing: timing.median_s)
    doubts, share = [], found.median_s / caller.median_s - 1 if found else 0.0
    if share > LONGER - 1 and share * caller.median_s > 2 * TICK_S:
        doubts.append(f"the device's time is {100 * share:.3g} % above the caller's, measured twice")
    return found, doubts


def per_application(timing: Timing | None, per_call: int) -> Timing | None:
    """The times of one of the applications of the operator that each step consisted of."""
    if timing is None or per_call == 1:
        return timing
    samples = [round(sample / per_call, 11) for sample in timing.samples_s]
    return timing.model_copy(
        update={
            "method": f"{timing.method}; a step applies the operator {per_call} times, and times are of one",
            "samples_s": samples,
            "median_s": statistics.median(samples),
            "ci95_s": statistics.median_interval(samples),
        }
    )


def time_until_precise(
    device: Device, step: Step, log: StateLog, *, warmup: int, most: int, time_budget_s: float, first: int = 0
) -> Timing:
    """Steps until the 95 % interval of their median is within 0.5 %, `most` of them, or the budget is spent.

    Batches in which the device was throttled for heat are set apart; if all were, they count, and the timing says so.
    On a CPU at least LEAST_ON_CPU are taken.
    """
    least = min(most, LEAST_ON_CPU) if KINDS[device.kind].synchronous else 1
    start = time.monotonic()
    warmed = max(1, warmup)
    warm_s = statistics.median(device.step_times(step, warmed, first=first))
    left_s = time_budget_s - (time.monotonic() - start)
    first += warmed

    def block() -> Timing:
        nonlocal first
        deadline, last = time.monotonic() + left_s, warm_s
        free: list[float] = []
        throttled: list[float] = []
        looked = False
        log.read("before")
        stopped_by = "iterations"
        for target in statistics.looks(min(FEWEST, most), most):
            wanted = target - len(free) - len(throttled)
            while wanted > 0 and (target - wanted < least or time.monotonic() + last < deadline):
                fitting = wanted
                if last:
                    fitting = max(1, least - (target - wanted), int((deadline - time.monotonic()) / last))
                batch, hot = _watched_batch(device, step, log, min(wanted, fitting), first, last)
                (throttled if hot else free).extend(batch)
                looked |= hot is not None
                last, first, wanted = statistics.median(batch), first + len(batch), wanted - len(batch)
            if wanted > 0:
                stopped_by = "time_budget"
                break
            if statistics.precise(free or throttled):
                stopped_by = "precision"
                break
        after = log.read("after")
        if not looked and is_throttled(after.throttle_reasons):
            free, throttled = [], free
        return _timing(CALLER_METHOD, warmed, most, free, stopped_by, throttled)

    return _with_contention(device, block, "caller")


def _with_contention(
    device: Device, block: Callable[[], Timing | None], sensitive: Sensitive, others: bool = True
) -> Timing | None:
    timing, contention = undisturbed(device, block, lambda timing: timing.median_s, sensitive, others)
    return timing and timing.model_copy(update={"contention": contention})


def _watched_batch(device: Device, step, log, count: int, first: int, each_s: float) -> tuple[list[float], bool | None]:
    """Times of a batch, and whether the device was throttled for heat then; None where it was too short to look."""
    if count * each_s < LOOK_S:
        return device.step_times(step, count, first=first), None
    seen: list[DeviceState] = []
    times = device.step_times(step, count, first, lambda: seen.append(log.read("during")))
    return times, any(is_throttled(state.throttle_reasons) for state in seen)


def _timing(
    method: str,
    warmup: int,
    requested: int,
    samples: list[float],
    stopped_by: str | None = None,
    throttled: list[float] | None = None,
) -> Timing:
    all_throttled = not samples and bool(throttled)
    if all_throttled:
        samples, throttled = throttled, []
    samples = [round(sample, 10) for sample in samples]
    return Timing(
        method=method,
        warmup=warmup,
        requested=requested,
        stopped_by=stopped_by or ("iterations" if len(samples) >= requested else "time_budget"),
        samples_s=samples,
        median_s=statistics.median(samples),
        ci95_s=statistics.median_interval(samples),
        throttled_samples_s=[round(sample, 10) for sample in throttled or []],
        all_throttled=all_throttled,
    )
