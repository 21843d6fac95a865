"""The timing protocol, on a device whose clock the test turns."""

import random
import statistics

import pytest
from factories import HEAT, POWER_CAP, FakeDevice, clock_of
from hypothesis import given
from hypothesis import strategies as st

from roofline.measure import protocol
from roofline.measure.undisturbed import StateLog, throttle_reasons_after
from roofline.records.timing_record import Timing


def timed(duration, kind="gpu", **options):
    """Steps take `duration(step number)`."""
    device = FakeDevice(kind)
    checked_s = options.pop("checked_s", None)
    with clock_of(device):
        budget = protocol.TimingBudget(**{"warmup": 3, "iterations": 100, "time_budget_s": 1.0} | options)
        return protocol.time_caller(device, duration, budget, checked_s), device


def always(seconds):
    return lambda number: seconds


def test_samples_are_taken_in_short_blocks_with_rests_that_do_not_count():
    device, rests = FakeDevice("gpu"), []

    def rest():
        rests.append(device.now)
        device.now += 10.0

    with clock_of(device):
        budget = protocol.TimingBudget(3, 100, 0.5, longest_block_s=0.025)
        timing = protocol.time_caller(device, always(2e-3), budget, rest=rest)
        slow = protocol.time_caller(device, always(1e-2), budget, rest=rest)
    assert (len(timing.samples_s), len(rests)) == (100, 8)  # twelve samples in 25 ms
    assert len(slow.samples_s) > 12, "a warm-up would be longer than the block: in one"


# ---------------------------------------------------------------------------------------------- what a caller gets


@pytest.mark.parametrize(
    ("step_s", "options", "warmup", "samples", "took_s"),
    [
        (10.0, {}, 1, 1, 20),  # warmed up once and timed once, however slow
        (10.0, {"checked_s": 10.0}, 1, 1, 10),  # a slow check was the warm-up
        (0.6, {"checked_s": 0.4, "warmup": 1}, 1, 1, 1.2),  # one that took less than half of the budget was not
        (1e-3, {"warmup": 0}, 1, 100, 0.101),  # nothing is timed without a warm-up
        (0.1, {"least_samples": 20}, 3, 20, 2.3),
    ],
)
def test_warmup_and_samples_of_slow_steps(step_s, options, warmup, samples, took_s):
    timing, device = timed(always(step_s), **options)
    assert (timing.warmup, len(timing.samples_s)) == (warmup, samples)
    assert device.now == pytest.approx(took_s)


@pytest.mark.parametrize(
    ("step_s", "options", "warmup", "samples"),
    [
        (0.3, {}, 1, 7),  # of a budget of 1 s
        (10.0, {"checked_s": 10.0}, 1, 7),
        (10.0, {"iterations": 2}, 1, 2),  # no more than were asked for
        (0.09, {"warmup": 10}, 5, 11),  # the warm-up, which has half of a budget, costs the samples nothing
    ],
)
def test_a_cpus_figures_rest_on_seven_samples_or_more(step_s, options, warmup, samples):
    timing, _ = timed(always(step_s), kind="cpu", **options)
    assert (timing.warmup, len(timing.samples_s)) == (warmup, samples)


def test_a_cpu_warms_up_until_a_step_is_not_the_fastest_so_far():
    timing, _ = timed(lambda number: 1e-3 * max(10 - number, 5), kind="cpu", warmup=2)
    assert timing.warmup == 7 and set(timing.samples_s) == {5e-3}


def caller(median_s, requested=100):
    return Timing(
        timed_by="made up",
        warmup=3,
        requested=requested,
        stopped_by="time_budget",
        samples_s=[median_s],
        median_s=median_s,
        ci95_s=None,
    )


@pytest.mark.parametrize(
    ("step_s", "samples", "stopped_by"),
    [(1e-6, 250, "iterations"), (0.01, 50, "time_budget"), (10.0, 1, "time_budget")],
)
def test_device_time_is_of_a_fourth_of_the_steps_within_half_of_the_budget(step_s, samples, stopped_by):
    device = FakeDevice()
    timing = protocol.time_device(device, always(step_s), caller(step_s, 1000), time_budget_s=1.0)
    assert device.numbers == list(range(4, 4 + samples))  # on from three of warm-up and the caller's one
    assert (len(timing.samples_s), timing.requested, timing.stopped_by) == (samples, 250, stopped_by)
    assert timing.median_s == pytest.approx(step_s / 2)
    assert timing.timed_by != protocol.CALLER_METHOD


@pytest.mark.parametrize(("step_s", "requested"), [(10.0, 1000), (1e-6, 20)])
def test_device_time_has_the_samples_of_an_interval_where_the_callers_has(step_s, requested):
    several = caller(step_s, requested).model_copy(update={"samples_s": [step_s] * 9})
    assert len(protocol.time_device(FakeDevice(), always(step_s), several, time_budget_s=1.0).samples_s) == 7


@given(st.lists(st.floats(1e-7, 10), min_size=1), st.integers(2, 128))
def test_times_per_application_follow_from_their_own_samples(samples, per_call):
    whole = caller(statistics.median(samples)).model_copy(update={"samples_s": samples})
    one = protocol.scale_to_application(whole, per_call)
    assert one.samples_s == pytest.approx([sample / per_call for sample in samples], abs=1e-11)
    assert one.median_s == statistics.median(one.samples_s)
    low, high = one.ci95_s or (one.median_s, one.median_s)
    assert low <= one.median_s <= high
    assert Timing.model_validate(one.model_dump()) == one


# ---------------------------------------------------------------------------------------------- until it is precise


def noisy(median_s, spread):
    """Steps without memory, as far from the median as `spread`, of it, says."""
    return lambda number: median_s * (1 + spread * random.Random(number).uniform(-1, 1))


def until_precise(duration, reasons=lambda now: [], kind="gpu"):
    """A step under any throttling takes twice as long."""
    device = FakeDevice(kind, reasons=reasons)
    with clock_of(device):
        log = StateLog(device)
        slowed = lambda number: duration(number) * (2 if reasons(device.now) else 1)  # noqa: E731
        return protocol.time_until_precise(device, slowed, log, protocol.TimingBudget(3, 1024, 100.0)), device, log


@pytest.mark.parametrize(
    ("reasons", "throttled", "limits"),
    [
        (lambda now: HEAT, True, HEAT),
        (lambda now: HEAT if now > 1e-5 else [], True, HEAT),
        (lambda now: HEAT if now < 1e-5 else [], False, []),  # a reading before a block is of the load before it
        (lambda now: POWER_CAP, False, POWER_CAP),
        (lambda now: None, False, []),
    ],
)
def test_a_stream_under_heat_is_flagged_and_under_the_power_cap_is_not(reasons, throttled, limits):
    timing, _, log = until_precise(noisy(1e-6, 0.001), reasons)
    assert [state.when for state in log.states] == ["before", "after"]
    assert timing.all_throttled == throttled and throttle_reasons_after(log.states) == limits


def test_heat_in_an_attempt_that_was_disturbed_marks_no_other():
    device, hot, busy = FakeDevice(), iter([HEAT, HEAT]), iter([1, 1])
    device.reasons, device.count_other_processes = lambda now: next(hot, []), lambda: next(busy, 0)
    with clock_of(device):
        log = StateLog(device)
        timing = protocol.time_until_precise(device, noisy(1e-6, 0.001), log, protocol.TimingBudget(3, 64, 1.0))
    assert throttle_reasons_after(log.states) == HEAT
    assert (timing.contention.attempts, timing.all_throttled) == (2, False)


def test_the_clock_is_that_of_the_most_steps_of_a_block():
    """Where the budget cuts a block into several, a few steps at its end have their own clock."""
    device, clocks = FakeDevice(), iter([1500.0, 1980.0, 1990.0])
    device.block_clock_mhz = lambda: next(clocks)
    times = iter([5e-3] * 3 + [4e-3] * 1000)
    with clock_of(device):
        timing = protocol.time_caller(device, lambda index: next(times), protocol.TimingBudget(3, 100, 0.4))
    assert len(timing.samples_s) > 80 and timing.sm_clock_mhz == 1500
