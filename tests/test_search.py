"""The fastest of many ways, on a device whose clock the test turns."""

import pytest
from factories import FakeDevice, clock_of
from hypothesis import given
from hypothesis import strategies as st

from roofline.devices.base import Refused
from roofline.measure.search import try_all
from roofline.records.timing import Search


class Step:
    """Of a way, which is the seconds that each of its steps takes, in turn; beyond the last the last one's."""

    def __init__(self, way):
        self.way = way

    def __call__(self, number):
        return self.way[min(number, len(self.way) - 1)]


def tried(*ways, budget_s=1.0, step_of=Step, kind="gpu", **options):
    device = FakeDevice(kind)
    with clock_of(device):
        found, searched = try_all(device, ways, step_of, budget_s, **options)
    return found, searched, device


def test_every_way_is_tried_in_the_order_given():
    slow, fast, between = (3e-3,), (1e-3,), (2e-3,)
    found, searched, _ = tried(slow, fast, between)
    assert found == [(slow, 3e-3), (fast, 1e-3), (between, 2e-3)]
    assert searched == Search(offered=3, tried=3, refused=[])


def test_a_trial_is_the_median_of_three_runs_after_one_to_warm_up():
    found, _, device = tried((0.15, 1e-3, 9e-3, 2e-3))
    assert found[0][1] == 2e-3
    assert device.numbers == [0, 1, 2, 3]


def test_a_cpu_does_not_repeat_the_only_way_nor_one_far_behind():
    """Its first run compiles nothing. A GPU's may, and is no trial."""
    alone, behind, near = (2e-3, 1e-3), (9e-3, 5e-4), (1.3e-3, 8e-4)
    found, _, device = tried(alone, kind="cpu")
    assert (found, device.numbers) == ([(alone, 2e-3)], [0])
    found, _, device = tried(alone, behind, near, kind="cpu")
    assert found == [(alone, 1e-3), (behind, 9e-3), (near, 8e-4)]
    assert device.numbers == [0, 1, 2, 3, 0, 0, 1, 2, 3]
    found, _, device = tried(alone, behind, near)
    assert found == [(alone, 1e-3), (behind, 5e-4), (near, 8e-4)]


def test_the_first_way_is_tried_however_long_it_takes():
    found, searched, device = tried((50.0,), (1e-3,), budget_s=0.5)
    assert (found, searched) == ([((50.0,), 50.0)], Search(offered=2, tried=1, refused=[]))
    assert device.now == 100  # warmed up once, timed once
    assert tried((1e-3,), (1e-3,), budget_s=0.0)[0] == [((1e-3,), 1e-3)]


@pytest.mark.parametrize(("warm_s", "runs"), [(0.19, 3), (0.2, 1)])
def test_a_trial_that_would_take_a_fifth_of_the_budget_is_not_repeated(warm_s, runs):
    _, _, device = tried((warm_s, 1e-3), budget_s=1.0)
    assert len(device.numbers) == 1 + runs


def test_a_way_beyond_the_budget_is_not_even_made():
    """Operands of gigabytes are drawn when a way's step is asked for."""
    made = []

    def step_of(way):
        made.append(way)
        return Step(way)

    _, searched, _ = tried((0.5,), (0.6,), (0.7,), budget_s=1.0, step_of=step_of)
    assert made == [(0.5,)]
    assert searched == Search(offered=3, tried=1, refused=[])


@given(st.lists(st.floats(1e-6, 3).map(lambda s: (s,)), min_size=1, max_size=20), st.floats(0.01, 5))
def test_no_trial_begins_after_the_budget_and_what_was_tried_is_kept(ways, budget_s):
    found, searched, device = tried(*ways, budget_s=budget_s)
    assert [way for way, _ in found] == ways[: len(found)] and found
    assert (searched.offered, searched.tried, searched.refused) == (len(ways), len(found), [])
    assert all(seconds == way[0] for way, seconds in found)
    last = 4 * found[-1][0][0]
    assert len(found) == 1 or device.now < budget_s + last + 1e-9


# ---------------------------------------------------------------------------------------------- what is refused


def refusing(refused, after=0):
    """Steps of which the ways that are named do not run, from one of their runs on."""

    def step_of(way):
        def step(number):
            if way in refused and number >= after:
                raise Refused(f"{way[0]:g} s: not supported")
            return way[0]

        return step

    return step_of


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("place", range(3))
def test_what_was_offered_and_does_not_run_is_passed_over_and_named(place, after):
    """Whether it is refused as it warms up or later."""
    ways = [(1e-3,), (2e-3,), (3e-3,)]
    found, searched, _ = tried(*ways, step_of=refusing([ways[place]], after))
    left = ways[:place] + ways[place + 1 :]
    assert found == [(way, way[0]) for way in left]
    assert searched == Search(offered=3, tried=2, refused=[f"{ways[place][0]:g} s: not supported"])


def test_where_none_runs_that_is_an_error_with_the_first_reason():
    with pytest.raises(Refused, match=r"^0.001 s: not supported$"):
        tried((1e-3,), (2e-3,), step_of=refusing([(1e-3,), (2e-3,)]))
    with pytest.raises(Refused, match=r"^nothing is offered$"):
        tried()


@pytest.mark.parametrize("failure", [ArithmeticError, MemoryError])
def test_any_other_failure_is_no_refusal(failure):
    def step_of(way):
        def step(number):
            raise failure

        return step

    with pytest.raises(failure):
        tried((1e-3,), (2e-3,), step_of=step_of)
