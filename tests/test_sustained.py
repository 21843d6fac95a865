"""What a card still gives under sustained load, from curves made by hand and on a fake device."""

import io
import math
from types import SimpleNamespace

import load_server
import pytest
from factories import HEAT, POWER_CAP, FakeDevice, product
from hypothesis import given
from hypothesis import strategies as st
from records_factory import loaded_work

from roofline.measure.memory_load import measure_memory_load
from roofline.measure.sustained import summarise_load
from roofline.records.compute import LoadPoint

BRAKE = ["hw_power_brake_slowdown"]
CHUNK_S = 0.05


def curve(rates, clocks=None, watts=None, reasons=None):
    """One point every CHUNK_S; None where NVML reports nothing."""
    unknown = [None] * len(rates)
    points = zip(rates, clocks or unknown, watts or unknown, reasons or unknown, strict=True)
    return [
        LoadPoint(
            at_s=round(CHUNK_S * (i + 1), 4), tflops=rate, sm_clock_mhz=clock, power_w=power, throttle_reasons=why
        )
        for i, (rate, clock, power, why) in enumerate(points)
    ]


def summary(points, **fields):
    return summarise_load(points, loaded_work(product(), **fields), CHUNK_S * len(points))


def dipping(seconds, every=18, phase=17):
    """Power control that lowers the clock for three chunks now and then, as an H200's does, after an opening burst."""
    chunks = range(round(seconds / CHUNK_S))
    return [580.0 if (i - phase) % every < 3 else 770.0 if i < 2 else 670.0 for i in chunks]


def over_time(rates):
    return len(rates) / sum(1 / rate for rate in rates)


def test_a_steady_load_counts_from_the_first_second_on():
    points = curve([600.0] * 60, [1500] * 60, [690] * 60, [POWER_CAP] * 3 + [[]] * 57)
    for degrees, point in enumerate(points):
        point.temperature_c = degrees
    found = summary(points)
    assert (found.temperature_c, found.throttle_reasons) == (59, []), "the first reasons are of before the load"
    assert found.settled_after_s == pytest.approx(1.0) and found.cycle_s is None
    assert (found.tflops, found.sm_clock_mhz, found.power_w) == (pytest.approx(600), 1500, 690)
    assert found.drift == pytest.approx(0) and found.ci95_tflops == pytest.approx((600, 600))


@pytest.mark.parametrize(("every", "phase"), [(12, 0), (18, 4), (20, 8)])
def test_of_a_clock_that_dips_whole_cycles_count_wherever_they_begin(every, phase):
    points = dipping(4, every, phase=phase)
    found = summary(curve(points))
    assert found.cycle_s == pytest.approx(every * CHUNK_S, rel=1e-3)
    assert found.tflops == pytest.approx(over_time(points[40 : 40 + every]), rel=1e-3)
    for seconds in (3, 30):
        again = summary(curve(dipping(seconds, every, phase=phase)))
        assert again.tflops == pytest.approx(found.tflops, rel=5e-3), "however long the load is"


@given(st.lists(st.floats(1, 1000), min_size=1, max_size=80))
def test_the_figure_is_of_what_counts(rates):
    found = summary(curve(rates))
    kept = [point.tflops for point in found.curve if point.at_s > found.settled_after_s]
    assert min(kept) * (1 - 1e-9) <= found.tflops <= max(kept) * (1 + 1e-9)
    assert len(kept) >= len(rates) / 3
    assert found.ci95_tflops is None or found.ci95_tflops[0] <= found.tflops <= found.ci95_tflops[1]


@pytest.mark.parametrize("why", [HEAT, BRAKE])
def test_points_under_heat_and_the_power_brake_are_set_apart(why):
    clocks, watts, reasons = [1500] * 40 + [1450] * 20, [700] * 40 + [680] * 20, [POWER_CAP] * 40 + [why] * 20
    found = summary(curve([600.0] * 40 + [580.0] * 20, clocks, watts, reasons))
    assert (found.tflops, found.sm_clock_mhz, found.power_w) == (pytest.approx(600), 1500, 700)
    assert (found.throttled_points, found.all_throttled, len(found.curve)) == (20, False, 60)
    assert found.throttle_reasons == sorted([*POWER_CAP, *why])


CLOCKS = {670.0: 1350.0, 580.0: 1170.0, 770.0: 1550.0}  # of dipping(): the rate follows the clock


def late(places):
    """Load whose clock dips, and at some places a queue that ran dry: the device waits, and its clock rises."""
    rates = dipping(3)
    clocks = [1400.0 if place in places else CLOCKS[rate] for place, rate in enumerate(rates)]
    return curve([0.8 * rate if place in places else rate for place, rate in enumerate(rates)], clocks)


@pytest.mark.parametrize("places", [[24], [24, 25, 26, 27], range(30, 48), [28, 33, 34, 45, 57]])
def test_moments_in_which_the_queue_ran_dry_are_left_out_and_counted(places):
    found, without = summary(late(places)), summary(late([]))
    assert found.starved_points == len(places) and len(found.curve) == 60
    assert found.tflops == pytest.approx(without.tflops, rel=0.01)


def test_of_memory_no_moment_is_left_out_for_its_clock():
    reads = curve([4.6] * 60, [1700] * 50 + [1980] * 10)
    assert summary(reads, follows_clock=False).starved_points == 0 < summary(reads).starved_points


def test_a_cycle_that_fades_is_found():
    fading = [600 + 50 * math.exp(-i / 60) * math.sin(2 * math.pi * i / 36) for i in range(140)]
    assert summary(curve(fading)).cycle_s == pytest.approx(36 * CHUNK_S, rel=0.1)


class DippingCard(FakeDevice):
    """Load whose rate dips every cycle of 18 chunks, in the second cycle by more or less than in the others."""

    def __init__(self, second_dip, queued=0):
        super().__init__("gpu")
        self.second_dip, self.queued = second_dip, queued

    def time_load_chunks(self, step, count, limit, singly):
        chunk = 0
        while CHUNK_S * chunk < limit.seconds:
            cycle, place = divmod(chunk, 18)
            rate = 1.0 if place else self.second_dip if cycle == 2 else 0.9
            chunk += 1
            yield CHUNK_S * chunk, [CHUNK_S / count / rate] * count, None
        for _ in range(self.queued):  # the rest of the queue, slow enough to widen the interval
            chunk += 1
            yield CHUNK_S * chunk, [9 * CHUNK_S / count] * count, None
        self.now = CHUNK_S * chunk


@pytest.mark.parametrize(("second_dip", "seconds"), [(1.0, 3.0), (0.9, 4.0), (0.3, 5.0)])
def test_a_load_goes_on_while_its_mean_is_uncertain_and_keeps_its_samples(second_dip, seconds):
    """Two cycles of 0.9 s that agree do not end it, three do."""
    device = DippingCard(second_dip)
    load = measure_memory_load(device, lambda index: None, 1e9, 0.01, 3.0)
    assert (load.duration_s, len(load.curve)) == (seconds, round(seconds / CHUNK_S))
    low, high = load.ci95_gb_per_s
    assert low <= load.gb_per_s <= high and load.drift is not None
    assert min(point.gb_per_s for point in load.curve) < load.gb_per_s < max(point.gb_per_s for point in load.curve)


def test_a_load_that_may_end_is_not_extended_once_its_queue_runs_dry():
    load = measure_memory_load(DippingCard(0.9, queued=3), lambda index: None, 1e9, 0.01, 4.0)
    assert load.duration_s == 4.0


def test_a_load_beside_others_ends_with_them_however_uncertain_its_mean_is(monkeypatch):
    device, product_of_device = DippingCard(0.3), {"product": product(), "flops": 1e12, "step": lambda index: 0.01}
    gemm = SimpleNamespace(**product_of_device, run_and_check=lambda: None, compare=lambda: None)
    workloads = SimpleNamespace(reference_workload=lambda *_: gemm)
    monkeypatch.setattr(load_server, "end_with_run", lambda: None)
    monkeypatch.setattr(load_server.discovery, "open_device", lambda name: device)
    monkeypatch.setattr(load_server, "workloads_module", lambda device: workloads)
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    load_server.serve_loads("gpu0")
    assert device.now == pytest.approx(load_server.LOAD_S)
