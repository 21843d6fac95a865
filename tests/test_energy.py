"""Joules of loads, from looks at an energy counter made by hand, and on stand-ins."""

import pytest

from roofline.devices import energy_counter
from roofline.devices.energy_counter import EnergyReading
from roofline.measure import energy
from roofline.measure.energy import compute_load_energy

START, TICK_S, LOOK_S = 100.0, 0.1, 0.002
WORK_PER_S, WATTS, CHUNK_S = 6e14, 690.0, 0.05


def looks(seconds=3.0, watts=WATTS, readings=None, before_w=120.0):
    """Every LOOK_S: a counter that ticks every TICK_S, idle until START, and power readings."""
    found = []
    for place in range(-100, round(seconds / LOOK_S)):
        ticked = (place * LOOK_S + 1e-9) // TICK_S * TICK_S
        joules = (watts if ticked > 0 else before_w) * ticked
        found.append(EnergyReading(START + place * LOOK_S, 5e6 + joules, readings or watts))
    return found


def points(seconds=3.0):
    count = round(seconds / CHUNK_S)
    return [(CHUNK_S * (place + 1), WORK_PER_S * CHUNK_S * (place + 1)) for place in range(count)]


def test_joules_are_from_tick_to_tick_of_what_counts():
    found = compute_load_energy(looks(), START, 1.0, points())
    assert found.joules / found.work * WORK_PER_S == pytest.approx(WATTS, rel=2e-3)
    assert (found.power_w, found.nvml_power_w) == (pytest.approx(WATTS, rel=2e-3), pytest.approx(WATTS))
    assert (found.ticks, found.duration_s) == (pytest.approx(19, abs=1), pytest.approx(0.1 * found.ticks, rel=2e-3))
    assert found.reason is None


def test_the_work_of_a_slower_second_half_is_counted_as_it_was_done():
    slow = [(at_s, work if at_s <= 2 else WORK_PER_S * (2 + (at_s - 2) / 2)) for at_s, work in points()]
    found = compute_load_energy(looks(), START, 1.0, slow)
    assert found.work == pytest.approx(0.75 * WORK_PER_S * found.duration_s, rel=0.05)


def test_ticks_that_were_found_late_are_placed_by_the_others():
    late = [look for look in looks() if not any(begun < look.at - START < begun + 0.07 for begun in (1.09, 2.79))]
    found = compute_load_energy(late, START, 1.05, points())
    assert found.joules / found.work * WORK_PER_S == pytest.approx(WATTS, rel=1e-2)


@pytest.mark.parametrize(("readings", "relied_on"), [(700.0, True), (715.0, False), (None, True)])
def test_two_methods_have_to_agree(readings, relied_on):
    assert (compute_load_energy(looks(readings=readings), START, 1.0, points()).reason is None) == relied_on


def test_a_short_load_and_a_card_without_a_counter_have_a_reason():
    short = compute_load_energy(looks(1.5), START, 1.0, points(1.5))
    assert short.reason and short.joules is None and compute_load_energy([], START, 1.0, points()).reason


class Counting:
    """A device that draws 100 W."""

    at = 0.0

    def read_energy_j(self):
        self.at += 0.01
        return round(self.at, 1) * 100.0

    def read_power_w(self):
        return 101.0

    def synchronize(self):
        pass

    def read_state(self):
        return {"sm_clock_mhz": 345, "temperature_c": 31}


def test_idle_power_is_of_an_empty_queue(monkeypatch):
    device, now = Counting(), iter(place * 0.01 for place in range(10**6))
    monkeypatch.setattr(energy_counter.time, "monotonic", lambda: next(now))
    monkeypatch.setattr(energy.time, "sleep", lambda seconds: energy_counter.Event().wait(0.8))
    found = energy.measure_idle_power(device)
    assert found.power_w == pytest.approx(100, rel=0.02)
    assert (found.sm_clock_mhz, found.temperature_c) == (345, 31)
