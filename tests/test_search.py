"""The search for the fastest implementation, on a device whose clock the test advances."""

import pytest
from factories import FakeDevice, clock_of

from roofline.core.terms import UnsupportedError
from roofline.measure.search import try_candidates
from roofline.records.timing_record import Search


def steps_of(way):
    """Of a way, which is the seconds that each of its steps takes, in turn; beyond the last the last one's."""
    return lambda number: way[min(number, len(way) - 1)]


def tried(*ways, budget_s=1.0, step_of=steps_of, kind="gpu", **options):
    device = FakeDevice(kind)
    with clock_of(device):
        found, searched = try_candidates(device, ways, step_of, budget_s, **options)
    return [(trial.candidate, trial.seconds) for trial in found], searched, device


def test_every_way_is_tried_in_the_order_given_by_the_median_of_three_runs():
    slow, fast, between = (3e-3,), (1e-3,), (2e-3,)
    found, searched, _ = tried(slow, fast, between)
    assert found == [(slow, 3e-3), (fast, 1e-3), (between, 2e-3)]
    assert searched == Search(offered=3, tried=3, refused=[])
    found, _, device = tried((0.15, 1e-3, 9e-3, 2e-3))
    assert (found[0][1], device.numbers) == (2e-3, [0, 1, 2, 3]), "after one to warm up"


def test_a_cpu_does_not_repeat_the_only_way_nor_one_far_behind():
    """Its first run compiles nothing. That of a GPU may, and is not a trial."""
    alone, behind, near = (2e-3, 1e-3), (9e-3, 5e-4), (1.3e-3, 8e-4)
    found, _, device = tried(alone, kind="cpu")
    assert (found, device.numbers) == ([(alone, 2e-3)], [0])
    found, _, device = tried(alone, behind, near, kind="cpu")
    assert found == [(alone, 1e-3), (behind, 9e-3), (near, 8e-4)]
    assert device.numbers == [0, 1, 2, 3, 0, 0, 1, 2, 3]
    found, _, device = tried(alone, behind, near)
    assert found == [(alone, 1e-3), (behind, 5e-4), (near, 8e-4)]


def test_the_budget_ends_the_trials_but_the_first_way_is_tried():
    found, searched, device = tried((50.0,), (1e-3,), budget_s=0.5)
    assert (found, searched) == ([((50.0,), 50.0)], Search(offered=2, tried=1, refused=[]))
    assert device.now == 100, "warmed up once, timed once"
    for warm_s, runs in ((0.19, 3), (0.2, 1)):  # not repeated if that would take a fifth of the budget
        assert len(tried((warm_s, 1e-3), budget_s=1.0)[2].numbers) == 1 + runs
    made = []  # operands of gigabytes are drawn for each step
    tried((0.5,), (0.6,), (0.7,), budget_s=1.0, step_of=lambda way: made.append(way) or steps_of(way))
    assert made == [(0.5,)]


def failing(ways, error, after=0):
    """Steps of which these ways fail, from one of their runs on."""

    def step_of(way):
        def step(number):
            if way in ways and number >= after:
                raise error
            return way[0]

        return step

    return step_of


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("place", range(3))
def test_a_way_that_is_refused_is_skipped_and_named(place, after):
    ways = [(1e-3,), (2e-3,), (3e-3,)]
    found, searched, _ = tried(*ways, step_of=failing([ways[place]], UnsupportedError("not supported"), after))
    assert found == [(way, way[0]) for way in ways if way != ways[place]]
    assert searched == Search(offered=3, tried=2, refused=["not supported"])


@pytest.mark.parametrize("error", [UnsupportedError("not supported"), ArithmeticError("wrong"), MemoryError("full")])
def test_if_all_are_refused_or_one_fails_that_is_an_error(error):
    with pytest.raises(type(error), match=str(error)):
        tried((1e-3,), (2e-3,), step_of=failing([(1e-3,), (2e-3,)], error))
    with pytest.raises(UnsupportedError):
        tried()
