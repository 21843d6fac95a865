"""How anything is timed, on a device whose clock the test turns; the lock that keeps measurements apart, for real."""

import os
import random
import select
import statistics
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline.core.accuracy import relative_error
from roofline.devices.cpu import device as cpu
from roofline.measure import timing as measuring
from roofline.measure.timing import (
    StateLog,
    a_layer,
    flagged,
    held_back_by,
    require_right,
    time_caller,
    time_device,
    time_until_precise,
)
from roofline.records.timing import DeviceState, Timing

SCRIPTS = Path(measuring.__file__).parents[1]


class FakeDevice:
    """Its steps take what `duration(step number)` says, on a clock of its own."""

    def __init__(self, duration):
        self.now, self.numbers = 0.0, []
        self._duration = duration if callable(duration) else lambda number: duration

    def step_times(self, step, count, first=0):
        times = []
        for number in range(first, first + count):
            step(number)
            self.numbers.append(number)
            times.append(self._duration(number))
            self.now += times[-1]
        return times

    def device_times(self, step, count, first=0):
        return [0.5 * time for time in self.step_times(step, count, first)]


def timed(duration, **options):
    device = FakeDevice(duration)
    options = {"warmup": 3, "iterations": 100, "time_budget_s": 1.0} | options
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "time", SimpleNamespace(monotonic=lambda: device.now))
        return time_caller(device, lambda number: None, **options), device


# ---------------------------------------------------------------------------------------------- what a caller gets


def test_all_iterations_where_the_budget_allows():
    timing, _ = timed(scattered)
    assert (len(timing.samples_s), timing.requested, timing.warmup) == (100, 100, 3)
    assert timing.stopped_by == "iterations"
    assert timing.samples_s == pytest.approx([scattered(number) for number in range(3, 103)])
    assert timing.median_s == pytest.approx(1.0495e-3)
    assert timing.ci95_s == pytest.approx((1.039e-3, 1.060e-3))  # the 40th and the 61st of 100


def scattered(number):
    """Any hundred in a row take 1.000, 1.001, ... 1.099 ms, in an order without memory."""
    return 1e-3 + 1e-6 * (61 * number % 100)


def test_the_warm_up_is_not_among_the_samples():
    timing, _ = timed(lambda number: 0.1 if number < 3 else 1e-3)
    assert set(timing.samples_s) == {1e-3}
    assert len(timing.samples_s) == 100


def test_the_budget_stops_a_slow_device():
    timing, device = timed(0.1, time_budget_s=1.05)
    assert (len(timing.samples_s), timing.requested, timing.stopped_by) == (7, 100, "time_budget")
    assert device.now <= 1.05


def test_a_very_slow_step_is_warmed_up_once_and_timed_once():
    timing, device = timed(10.0)
    assert (timing.warmup, timing.samples_s, timing.ci95_s) == (1, [10.0], None)
    assert (timing.requested, timing.stopped_by) == (100, "time_budget")
    assert device.now == 20


def test_a_slow_check_was_the_warm_up():
    timing, device = timed(10.0, checked_s=10.0)
    assert (timing.warmup, timing.samples_s) == (1, [10.0])
    assert device.now == 10


@pytest.mark.parametrize(("checked_s", "took_s"), [(0.6, 0.6), (0.4, 1.2)])
def test_the_check_was_the_warm_up_where_it_took_most_of_the_budget(checked_s, took_s):
    timing, device = timed(0.6, warmup=1, checked_s=checked_s)
    assert (timing.warmup, len(timing.samples_s)) == (1, 1)
    assert device.now == pytest.approx(took_s)


def test_nothing_is_timed_without_a_warm_up():
    timing, device = timed(1e-3, warmup=0)
    assert (timing.warmup, len(timing.samples_s), len(device.numbers)) == (1, 100, 101)


def test_a_quick_check_is_no_warm_up():
    timing, device = timed(1e-3, checked_s=0.4)
    assert (timing.warmup, len(timing.samples_s), len(device.numbers)) == (3, 100, 103)


def test_a_slow_first_step_does_not_cost_the_samples():
    """The first step of all compiles and allocates; judged by it, hardly any step would fit."""
    timing, device = timed(lambda number: 0.9 if number == 0 else 1e-3, iterations=1000)
    assert len(timing.samples_s) == 99
    assert set(timing.samples_s) == {1e-3}
    assert device.now <= 1


def test_step_numbers_run_on_so_that_a_rotation_is_never_cut_short():
    """A block that began again at 0 would find the buffers of the block before it in the cache."""
    timing, device = timed(lambda number: 0.3 if number < 3 else 1e-3, iterations=50)
    assert timing.warmup == 3
    assert device.numbers == list(range(53))


@given(
    st.floats(1e-4, 20),
    st.integers(0, 20),
    st.integers(1, 300),
    st.floats(0.01, 5),
    st.none() | st.floats(1e-6, 30),
)
def test_whatever_is_asked_there_is_a_sample_and_the_budget_holds(step_s, warmup, iterations, budget_s, checked_s):
    timing, device = timed(step_s, warmup=warmup, iterations=iterations, time_budget_s=budget_s, checked_s=checked_s)
    assert 1 <= len(timing.samples_s) <= iterations
    assert timing.warmup >= 1
    assert (timing.stopped_by == "iterations") == (len(timing.samples_s) == iterations)
    assert device.now <= max(budget_s, step_s) + step_s + 1e-6  # the one step that must be


# ---------------------------------------------------------------------------------------------- the device's part


def caller(median_s, requested):
    return Timing(
        method="made up",
        warmup=3,
        requested=requested,
        stopped_by="iterations",
        samples_s=[median_s],
        median_s=median_s,
        ci95_s=None,
    )


def test_the_devices_part_keeps_to_half_of_the_budget():
    device = FakeDevice(0.01)
    timing = time_device(device, lambda number: None, caller(0.01, 1000), time_budget_s=1.0)
    assert device.numbers == list(range(4, 54))  # on from three of warm-up and the caller's one
    assert timing.stopped_by == "time_budget"
    assert timing.median_s == 0.005
    assert timing.method != measuring.CALLER_METHOD


def test_the_devices_part_is_of_a_fourth_of_the_steps():
    timing = time_device(FakeDevice(1e-6), lambda number: None, caller(1e-6, 1000), time_budget_s=1.0)
    assert (len(timing.samples_s), timing.requested, timing.stopped_by) == (250, 250, "iterations")


def test_the_devices_part_of_a_slow_step_is_one_sample():
    timing = time_device(FakeDevice(10.0), lambda number: None, caller(10.0, 100), time_budget_s=1.0)
    assert len(timing.samples_s) == 1


def test_a_cpu_has_no_part_apart_from_its_caller():
    device = cpu.Device(cpu.discover()[0])
    ran = []
    assert time_device(device, ran.append, caller(1e-3, 100), time_budget_s=1.0) is None
    assert ran == []


# ---------------------------------------------------------------------------------------------- one of many layers


def test_the_times_of_a_layer_are_the_steps_over_its_layers():
    timing, _ = timed(scattered)
    layer = a_layer(timing, 4)
    assert layer.samples_s == pytest.approx([sample / 4 for sample in timing.samples_s])
    assert layer.median_s == pytest.approx(timing.median_s / 4)
    assert layer.ci95_s == pytest.approx([end / 4 for end in timing.ci95_s])
    assert layer.method == f"{timing.method}; a step is 4 layers, and times are of one"
    rest = ("warmup", "requested", "stopped_by", "throttled_samples_s", "all_throttled")
    assert [getattr(layer, name) for name in rest] == [getattr(timing, name) for name in rest]
    assert Timing.model_validate(layer.model_dump()) == layer


def test_of_one_layer_or_without_a_time_there_is_nothing_to_divide():
    timing, _ = timed(scattered)
    assert a_layer(timing, 1) is timing
    assert a_layer(None, 6) is None


def test_a_single_sample_of_many_layers_has_no_interval():
    assert a_layer(caller(6.0, 100), 6).ci95_s is None
    assert a_layer(caller(6.0, 100), 6).samples_s == [1.0]


@given(st.lists(st.floats(1e-7, 10), min_size=1), st.integers(2, 128))
def test_the_median_of_a_layer_is_that_of_the_samples_that_are_written(samples, layers):
    """A record whose figures do not follow from its samples is refused (roofline.consistency)."""
    middle = statistics.median(samples)
    layer = a_layer(caller(middle, 100).model_copy(update={"samples_s": samples}), layers)
    assert layer.median_s == statistics.median(layer.samples_s)
    assert layer.median_s == pytest.approx(middle / layers, abs=1e-11)
    low, high = layer.ci95_s or (layer.median_s, layer.median_s)
    assert low <= layer.median_s <= high


# ---------------------------------------------------------------------------------------------- until it is precise

HOT, POWER = ["sw_thermal_slowdown"], ["sw_power_cap"]


class FakeCard(FakeDevice):
    """Tells `reasons(its clock)` of what slows it down; a step under any takes twice as long. A longer block is looked
    at in its middle."""

    def __init__(self, duration, reasons=lambda now: []):
        super().__init__(duration)
        self._full_speed, self._duration = self._duration, self._slowed
        self._reasons = reasons

    def _slowed(self, number):
        return self._full_speed(number) * (2 if self._reasons(self.now) else 1)

    def watched_times(self, step, count, first, look):
        early = self.step_times(step, count // 2, first)
        look()
        return early + self.step_times(step, count - count // 2, first + count // 2)

    def state(self):
        reasons = self._reasons(self.now)
        return {} if reasons is None else {"throttle_reasons": reasons}


def noisy(median_s, spread):
    """Steps without memory, as far from the median as `spread`, of it, says."""
    return lambda number: median_s * (1 + spread * random.Random(number).uniform(-1, 1))


def until_precise(duration, reasons=lambda now: [], **options):
    device = FakeCard(duration, reasons)
    options = {"warmup": 3, "most": 1024, "time_budget_s": 100.0} | options
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "time", SimpleNamespace(monotonic=lambda: device.now))
        log = StateLog(device)
        return time_until_precise(device, lambda number: None, log, **options), device, log


def test_sampling_ends_once_the_median_is_precise():
    timing, device, _ = until_precise(noisy(1e-3, 0.001))
    assert (timing.stopped_by, len(timing.samples_s), timing.requested) == ("precision", 64, 1024)
    assert timing.median_s == pytest.approx(1e-3, rel=1e-3)
    assert device.numbers == list(range(3 + 64))


def test_noise_takes_more_samples_until_the_interval_is_as_narrow():
    timing, _, _ = until_precise(noisy(1e-3, 0.03))
    assert timing.stopped_by == "precision"
    assert 64 < len(timing.samples_s) < 1024
    low, high = timing.ci95_s
    assert max(timing.median_s - low, high - timing.median_s) <= 0.005 * timing.median_s


@pytest.mark.parametrize("most", [1, 5, 64, 200])
def test_what_never_becomes_precise_ends_with_its_most_samples(most):
    timing, device, _ = until_precise(noisy(1e-3, 0.9), most=most)
    assert (timing.stopped_by, len(timing.samples_s)) == ("iterations", most)
    assert device.numbers == list(range(3 + most))


def test_the_budget_ends_it_and_holds():
    timing, device, _ = until_precise(noisy(0.01, 0.2), time_budget_s=1.0)
    assert timing.stopped_by == "time_budget"
    assert 64 <= len(timing.samples_s) < 100  # of a hundred that would fit were nothing warmed up
    assert device.now <= 1.0 + 0.012


def test_a_step_slower_than_the_budget_is_timed_once():
    timing, device, _ = until_precise(10.0, warmup=1, time_budget_s=1.0)
    assert (timing.samples_s, timing.stopped_by, device.now) == ([10.0], "time_budget", 20)


def test_the_warm_up_is_not_among_the_samples_of_a_stream():
    timing, _, _ = until_precise(lambda number: 0.5 if number < 3 else 1e-3)
    assert set(timing.samples_s) == {1e-3}


def test_a_device_is_looked_at_before_and_after_and_during_longer_batches_alone():
    """Batches of 64 to 512: those of 50 ms or more are looked at while they run."""
    _, _, log = until_precise(noisy(1e-3, 0.9))
    assert [state.when for state in log.states] == ["before", *["during"] * 5, "after"]
    _, _, log = until_precise(noisy(1e-5, 0.9))
    assert [state.when for state in log.states] == ["before", "after"]


def test_batches_in_which_the_card_was_too_hot_are_set_apart():
    """Too hot from 0.15 s on for a moment: of batches of 64, 64, 128, 256 and 512 ms the third alone saw it."""
    timing, _, log = until_precise(noisy(1e-3, 0.3), lambda now: HOT if 0.15 < now < 0.3 else [])
    assert len(timing.throttled_samples_s) == 128
    assert len(timing.samples_s) == 1024 - 128
    assert max(timing.samples_s) < 1.31e-3  # none of those that heat slowed down
    assert timing.median_s == pytest.approx(1e-3, rel=0.05)
    assert not timing.all_throttled
    assert log.held_back_by() == HOT


def test_where_it_was_too_hot_all_along_a_figure_is_kept_and_flagged():
    timing, _, log = until_precise(noisy(1e-3, 0.001), lambda now: HOT)
    assert timing.all_throttled
    assert timing.median_s == pytest.approx(2e-3, rel=1e-3)
    assert (len(timing.samples_s), timing.throttled_samples_s) == (64, [])
    assert log.throttle_told()


@pytest.mark.parametrize(
    ("reasons", "throttled"),
    [
        (lambda now: HOT, True),
        (lambda now: [], False),
        (lambda now: HOT if now > 1e-5 else [], True),
        (lambda now: HOT if now < 1e-5 else [], False),
    ],
    ids=["all along", "never", "afterwards alone", "before alone"],
)
def test_batches_too_short_for_a_look_go_by_what_is_read_after_them(reasons, throttled):
    """What is read before tells of the load before."""
    timing, _, log = until_precise(noisy(1e-6, 0.001), reasons)
    assert [state.when for state in log.states] == ["before", "after"]
    assert (timing.all_throttled, timing.throttled_samples_s) == (throttled, [])
    assert log.held_back_by() == (HOT if throttled else [])


def test_short_batches_are_set_apart_where_longer_ones_were_seen_to_be_free():
    """Two batches of 64 at 0.45 ms a step are too short for a look; the reading after all of them tells of heat."""
    timing, _, log = until_precise(noisy(4.5e-4, 0.3), lambda now: HOT if now > 0.45 else [])
    assert [state.when for state in log.states] == ["before", *["during"] * 3, "after"]
    assert (len(timing.samples_s), len(timing.throttled_samples_s)) == (1024 - 128, 128)
    assert not timing.all_throttled
    timing, _, _ = until_precise(noisy(4.5e-4, 0.3), lambda now: HOT if now < 0.01 else [])
    assert (len(timing.samples_s), timing.throttled_samples_s) == (1024, [])


def test_the_power_limit_is_no_throttling_but_is_told():
    timing, _, log = until_precise(noisy(1e-3, 0.001), lambda now: POWER)
    assert (timing.all_throttled, timing.throttled_samples_s) == (False, [])
    assert log.held_back_by() == POWER


def test_what_tells_nothing_has_nothing_set_apart():
    timing, _, log = until_precise(noisy(1e-3, 0.001), lambda now: None)
    assert (timing.all_throttled, timing.throttled_samples_s, len(timing.samples_s)) == (False, [], 64)
    assert (log.throttle_told(), log.held_back_by()) == (False, [])


@given(st.floats(1e-5, 20), st.integers(1, 5), st.integers(1, 500), st.floats(0.01, 5), st.floats(0, 1))
def test_whatever_is_asked_of_a_stream_there_is_a_sample_and_the_budget_holds(step_s, warmup, most, budget_s, spread):
    timing, device, _ = until_precise(noisy(step_s, spread), warmup=warmup, most=most, time_budget_s=budget_s)
    assert 1 <= len(timing.samples_s) <= most
    assert (timing.stopped_by == "time_budget") <= (len(timing.samples_s) < most)
    assert device.numbers == list(range(warmup + len(timing.samples_s)))


@pytest.mark.parametrize(
    ("told", "throttled"),
    [
        ({"after": None}, False),
        ({"before": [], "after": []}, False),
        ({"after": POWER}, False),
        ({"before": [], "after": HOT}, True),
        ({"before": [], "after": None, "during": HOT}, True),
        ({"before": HOT, "after": [], "during": POWER}, False),
    ],
)
def test_a_short_block_is_flagged_where_a_reading_under_it_or_after_was_of_heat(told, throttled):
    """Nothing is judged by what was read before it."""
    timing = caller(1e-3, 1)
    states = [DeviceState(at_s=0, when=when, throttle_reasons=reasons) for when, reasons in told.items()]
    assert flagged(timing, states) == timing.model_copy(update={"all_throttled": throttled})


def test_who_held_it_back_is_who_did_so_under_the_load_or_after():
    told = {"before": ["hw_slowdown"], "during": POWER, "after": ["gpu_idle", *HOT]}
    states = [DeviceState(at_s=0, when=when, throttle_reasons=reasons) for when, reasons in told.items()]
    assert held_back_by(states) == sorted([*POWER, *HOT])
    assert held_back_by(states[:1]) == held_back_by([]) == []


# ---------------------------------------------------------------------------------------------- its state


def test_states_are_told_with_their_moments(monkeypatch):
    moments = iter([100.0, 100.25, 103.5])
    monkeypatch.setattr(measuring, "time", SimpleNamespace(monotonic=lambda: next(moments)))
    log = StateLog(SimpleNamespace(state=lambda: {"power_w": 300}))
    assert log.read("before").power_w == 300
    log.read("after")
    assert [(state.when, state.at_s) for state in log.states] == [("before", 0.25), ("after", 3.5)]


# ---------------------------------------------------------------------------------------------- wrong results


def test_relative_error_is_the_norm_of_the_difference_over_the_norm():
    assert relative_error([3.0, 0.0], [3.0, 4.0]) == pytest.approx(0.8)
    assert relative_error(numpy.float16([1, 2]), numpy.float64([1, 2])) == 0


@pytest.mark.parametrize("wrong", [numpy.nan, numpy.inf])
def test_what_is_not_finite_is_no_result(wrong):
    for result, reference in (([1.0, wrong], [1.0, 2.0]), ([1.0, 2.0], [1.0, wrong]), ([wrong], [wrong])):
        assert relative_error(result, reference) == numpy.inf


@pytest.mark.parametrize("error", [numpy.nan, numpy.inf, 1.01e-3])
def test_a_wrong_result_is_a_failed_job(error):
    with pytest.raises(ArithmeticError, match=r"fp16 matmul differs .*, allowed 1e-03"):
        require_right("fp16 matmul", error, 1e-3)


def test_a_right_result_passes():
    require_right("fp16 matmul", 1e-3, 1e-3)


# ---------------------------------------------------------------------------------------------- one at a time

HOLD = """
import pathlib, sys
from roofline import measuring
measuring.HOST_LOCK = pathlib.Path(sys.argv[1])
with measuring.host_lock():
    print("held", flush=True)
    sys.stdin.readline()
"""


def holder(path):
    """Another process that takes the lock, says so, and keeps it until it is sent a line."""
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        env={**os.environ, "PYTHONPATH": str(SCRIPTS)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def lock(tmp_path, monkeypatch):
    monkeypatch.setattr(measuring, "HOST_LOCK", tmp_path / "measuring.lock")
    return measuring.HOST_LOCK


def test_two_processes_cannot_measure_at_once(lock):
    with measuring.host_lock():
        other = holder(lock)
        assert other.stderr.readline() == "waiting for another measurement on this machine to end\n"
        said_within_a_moment, _, _ = select.select([other.stdout], [], [], 0.3)
        assert said_within_a_moment == []
    told, errors = other.communicate("\n", timeout=20)
    assert (told, errors, other.returncode) == ("held\n", "", 0)


def test_it_is_silent_where_nobody_waits(lock, capfd):
    for _ in range(2):
        with measuring.host_lock():
            pass
    assert capfd.readouterr() == ("", "")


def test_a_killed_measurement_does_not_block_the_next(lock):
    other = holder(lock)
    assert other.stdout.readline() == "held\n"
    other.kill()
    other.communicate(timeout=20)
    with measuring.host_lock():
        pass


def test_a_failed_measurement_lets_go(lock):
    with pytest.raises(ArithmeticError), measuring.host_lock():
        raise ArithmeticError
    other = holder(lock)
    assert other.communicate("\n", timeout=20) == ("held\n", "")


def test_a_lock_of_another_user_is_told_in_one_line(lock, monkeypatch):
    """In /tmp with its sticky bit the kernel refuses even to open another user's file."""
    import filelock

    def refused(*arguments, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(filelock.FileLock, "acquire", refused)
    with pytest.raises(PermissionError, match="belongs to another user: remove it"), measuring.host_lock():
        pass
