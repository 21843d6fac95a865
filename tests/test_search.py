"""The fastest of many ways, on a device whose clock the test turns."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline import search


class FakeDevice:
    """A way is the seconds that each of its steps takes, in turn; beyond the last the last one's."""

    def __init__(self):
        self.now, self.runs = 0.0, []

    def step_times(self, step, count, first=0):
        times = [step(number) for number in range(first, first + count)]
        self.runs += [(step.way, number) for number in range(first, first + count)]
        self.now += sum(times)
        return times


class Step:
    def __init__(self, way):
        self.way = way

    def __call__(self, number):
        return self.way[min(number, len(self.way) - 1)]


def tried(*ways, budget_s=1.0, step_of=Step):
    device = FakeDevice()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "time", SimpleNamespace(monotonic=lambda: device.now))
        found, ended_by = search.try_all(device, ways, step_of, budget_s)
    return found, ended_by, device


def test_every_way_is_tried_in_the_order_given():
    slow, fast, between = (3e-3,), (1e-3,), (2e-3,)
    found, ended_by, _ = tried(slow, fast, between)
    assert found == [(slow, 3e-3), (fast, 1e-3), (between, 2e-3)]
    assert ended_by == "all"


def test_a_trial_is_the_median_of_three_after_one_to_warm_up():
    """The first run of all compiles and allocates; one that something disturbed is not the way's own."""
    found, _, device = tried((0.15, 1e-3, 9e-3, 2e-3))
    assert found[0][1] == 2e-3
    assert [number for _, number in device.runs] == [0, 1, 2, 3]


def test_the_budget_ends_the_search_and_what_was_tried_is_kept():
    """Four runs of 0.1 s each: the third trial begins within the second, the fourth would not."""
    ways = [(0.1, 0.1, 0.1, 0.1 + place / 1e3) for place in range(9)]
    found, ended_by, device = tried(*ways, budget_s=1.0)
    assert [way for way, _ in found] == ways[:3]
    assert ended_by == "time_budget"
    assert device.now == pytest.approx(1.2, abs=0.01)


def test_the_first_way_is_tried_however_long_it_takes():
    found, ended_by, device = tried((50.0,), (1e-3,), budget_s=0.5)
    assert (found, ended_by) == ([((50.0,), 50.0)], "time_budget")
    assert device.now == 100  # warmed up once, timed once
    assert tried((1e-3,), (1e-3,), budget_s=0.0)[:2] == ([((1e-3,), 1e-3)], "time_budget")


@pytest.mark.parametrize(("warm_s", "runs"), [(0.19, 3), (0.2, 1)])
def test_what_would_take_a_fifth_of_the_budget_is_not_repeated(warm_s, runs):
    _, _, device = tried((warm_s, 1e-3), budget_s=1.0)
    assert len(device.runs) == 1 + runs


def test_a_way_beyond_the_budget_is_not_even_made():
    """Operands of gigabytes are drawn when a way's step is asked for."""
    made = []

    def step_of(way):
        made.append(way)
        return Step(way)

    tried((0.5,), (0.6,), (0.7,), budget_s=1.0, step_of=step_of)
    assert made == [(0.5,)]


@given(st.lists(st.floats(1e-6, 3).map(lambda s: (s,)), min_size=1, max_size=20), st.floats(0.01, 5))
def test_no_trial_begins_after_the_budget(ways, budget_s):
    found, ended_by, device = tried(*ways, budget_s=budget_s)
    assert [way for way, _ in found] == ways[: len(found)] and found
    assert (ended_by == "all") == (len(found) == len(ways))
    assert all(seconds == way[0] for way, seconds in found)
    last = 4 * found[-1][0][0]
    assert len(found) == 1 or device.now < budget_s + last + 1e-9
