"""What a card still gives under sustained load, from curves made by hand and on a fake device."""

from types import SimpleNamespace

import pytest
from factories import HEAT, POWER_CAP, product
from hypothesis import given
from hypothesis import strategies as st

from roofline.measure.sustained import WINDOW, settled_from, summarise, sustain
from roofline.records.compute import LoadPoint

BRAKE = ["hw_power_brake_slowdown"]
CHUNK_S = 0.05
FELL_S = 20 * CHUNK_S


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


def falling(count=60, high=800.0, low=600.0, after=20):
    """Flat, then down at once: a power limit that looks back over a second."""
    return [high if i < after else low for i in range(count)]


def summary(points):
    return summarise(points, product(), CHUNK_S * len(points))


# ---------------------------------------------------------------------------------------------- when it has settled


def test_a_steady_load_has_settled_at_once():
    found = summary(curve([600.0] * 30, [1500] * 30, [690] * 30, [[]] * 30))
    assert found.settled_after_s == 0
    assert (found.tflops, found.sm_clock_mhz, found.power_w) == (600, 1500, 690)


def test_the_burst_before_the_power_limit_acts_is_no_sustained_rate():
    rates = falling()
    found = summary(curve(rates, [2.5 * rate for rate in rates], [700] * 60, [POWER_CAP] * 60))
    assert found.settled_after_s == pytest.approx(FELL_S, abs=WINDOW * CHUNK_S)
    assert (found.tflops, found.sm_clock_mhz) == (600, 1500)
    assert found.limited_by == POWER_CAP
    assert (found.throttled_points, found.all_throttled) == (0, False)


def test_the_last_of_clock_power_and_rate_to_settle_counts():
    late = settled_from(curve([600] * 60, falling(after=30), [700] * 60))
    early = settled_from(curve([600] * 60, falling(after=10), [700] * 60))
    assert late - early == 20
    by_power = settled_from(curve([600] * 60, [1500] * 60, falling(after=30)))
    by_rate = settled_from(curve(falling(after=30), [1500] * 60, [700] * 60))
    assert by_power == by_rate == late


def test_what_still_falls_in_the_last_third_has_never_settled():
    rates = [800 * 0.98**i for i in range(60)]
    found = summary(curve(rates))
    assert found.settled_after_s is None
    assert found.tflops == pytest.approx((rates[49] + rates[50]) / 2)  # the last third all the same
    assert settled_from(curve([600] * 60, [1900 - 20 * i for i in range(60)], [700] * 60)) is None


@pytest.mark.parametrize(("count", "first"), [(1, None), (WINDOW - 1, None), (WINDOW, 0)])
def test_fewer_points_than_a_window_give_a_figure_and_have_not_settled(count, first):
    found = summary(curve([600.0] * count))
    assert (found.tflops, found.settled_after_s, len(found.curve)) == (600, first, count)
    assert settled_from(curve([600.0] * 60, [1500] * count + [None] * (60 - count))) == first


@given(st.lists(st.floats(1, 1000), min_size=1, max_size=80))
def test_the_figure_is_of_what_was_seen_since_it_settled(rates):
    found = summary(curve(rates))
    first = settled_from(curve(rates))
    kept = rates[2 * len(rates) // 3 :] if first is None else rates[first:]
    assert min(kept) <= found.tflops <= max(kept)
    assert first is None or first <= 2 * len(rates) // 3


# ---------------------------------------------------------------------------------------------- thermal throttling


@pytest.mark.parametrize("why", [HEAT, BRAKE])
def test_points_under_heat_and_the_power_brake_are_set_apart(why):
    """They are a part of the settled stretch, and the rate is near, so that it stays settled."""
    clocks, watts, reasons = [1500] * 30 + [1450] * 30, [700] * 30 + [680] * 30, [POWER_CAP] * 30 + [why] * 30
    found = summary(curve([600.0] * 30 + [580.0] * 30, clocks, watts, reasons))
    assert (found.tflops, found.sm_clock_mhz, found.power_w) == (600, 1500, 700)
    assert (found.throttled_points, found.all_throttled, len(found.curve)) == (30, False, 60)
    assert found.limited_by == sorted([*POWER_CAP, *why])


def test_a_load_throttled_throughout_leaves_a_figure_that_says_so():
    found = summary(curve([450.0] * 40, [1100] * 40, [500] * 40, [HEAT] * 40))
    assert (found.tflops, found.throttled_points, found.all_throttled) == (450, 40, True)
    assert found.limited_by == HEAT


# ---------------------------------------------------------------------------------------------- on a device


class Loaded:
    """Runs chunks of a millisecond a step; is looked at once per chunk, but for the first."""

    kind = "gpu"

    def __init__(self, chunks):
        self.counts, self.looks = [], 0
        self._chunks = chunks

    def load_times(self, step, count, seconds, singly):
        for chunk in range(self._chunks):
            self.counts.append(count)
            yield (chunk + 1) * count * 1e-3, [1e-3] * (count if chunk < singly else 1), 1000.0 + chunk

    def other_processes(self):
        return 0

    def state(self):
        self.looks += 1
        return {"sm_clock_mhz": 1000 + self.looks, "power_w": 300, "other_processes": 0, "throttle_reasons": []}


WORKLOAD = SimpleNamespace(product=product(), flops=2e9, step=lambda index: None)


def test_each_chunk_is_a_point_of_rate_clock_and_power():
    device = Loaded(4)
    found = sustain(device, WORKLOAD, 0.2, step_s=1e-3)
    assert device.counts == [50] * 4  # 50 ms per chunk
    assert [point.tflops for point in found.curve] == pytest.approx([2.0] * 4)
    assert [point.sm_clock_mhz for point in found.curve] == [1000, 1001, 1002, 1003]
    assert [point.at_s for point in found.curve] == pytest.approx([0.05, 0.1, 0.15, 0.2])
    assert (found.product, found.seconds, found.tflops) == (product(), 0.2, pytest.approx(2.0))
    assert found.first_products_s == [1e-3] * 100, "one by one over the first 0.1 s"


def test_power_that_nvml_has_not_refreshed_does_not_count():
    device = Loaded(4)
    found = sustain(device, WORKLOAD, 0.2, step_s=1e-3)
    assert [point.power_w for point in found.curve] == [None] * 4, "to the milliwatt what it was before the load"
    device.state = lambda: Loaded.state(device) | {"power_w": 300 + device.looks}
    assert None not in [point.power_w for point in sustain(device, WORKLOAD, 0.2, step_s=1e-3).curve]


def test_reasons_that_nvml_tells_in_the_first_moments_are_of_before_the_load():
    early = summary(curve([600.0] * 60, [1500] * 60, [700] * 60, [POWER_CAP] * 3 + [[]] * 57))
    assert early.limited_by == []


def test_a_step_longer_than_a_chunk_is_one_chunk_and_no_chunk_is_no_figure():
    device = Loaded(2)
    sustain(device, WORKLOAD, 2.0, step_s=1.0)
    assert device.counts == [1, 1]
    assert sustain(Loaded(0), WORKLOAD, 1.0, step_s=1e-3) is None
