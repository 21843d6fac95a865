"""Memory ceilings and sweeps, on a device whose clock the test turns."""

import re
from dataclasses import replace

import pytest
from factories import FakeDevice, clock_of, datasheet_figures, device_record

from roofline.core.plateaus import SweepLevel
from roofline.core.terms import UnsupportedError
from roofline.core.units import KIB, MIB
from roofline.devices.base import BandwidthBenchmark, SweepBenchmark
from roofline.measure import loaded_together, memory_ceiling, search
from roofline.measure.protocol import TimingBudget
from roofline.records.device_record import DatasheetBandwidth
from roofline.records.timing_record import Search

GB = 10**9


class ColdDevice(FakeDevice):
    """The first run of every step takes ten times as long."""

    def __init__(self, reasons=lambda now: []):
        super().__init__(reasons=reasons)
        self._warm = set()

    def time_steps(self, step, count, first=0, read_during=None):
        times = super().time_steps(step, count, first, read_during)
        if times and step not in self._warm:
            self._warm.add(step)
            self.now += 9 * times[0]
            times[0] *= 10
        return times


def stream(grids, name="hbm_read", level="hbm", **fields):
    """Grids by the seconds that a run takes, each over 4.8 GB; and a list of the grids that were verified."""
    verified = []

    def verify(grid):
        verified.append(grid)
        return f"compared with {grid}"

    known = {
        "mix": "read",
        "counting_rule": "made up",
        "counted_bytes": 48 * GB // 10,
        "steps_by_grid": {grid: lambda number, seconds=seconds: seconds for grid, seconds in grids.items()},
        "verify": verify,
        "threads_of_grid": lambda grid: None,
        "cores": int(fewer[1]) if (fewer := re.search(r"_(\d+)_cores$", name)) else None,
    }
    return BandwidthBenchmark(name=name, level=level, **known | fields), verified


def promised(gb_per_s):
    return DatasheetBandwidth(gb_per_s=gb_per_s, source="made up", verified=True, derived=False)


def measured(one, device=None, **options):
    device = device or ColdDevice()
    record = device_record(datasheet=datasheet_figures(bandwidth=promised(4800)), hardware={"multiprocessors": 100})
    budget = TimingBudget(**{"warmup": 1, "iterations": 200, "time_budget_s": 10.0} | options)
    with clock_of(device):
        return memory_ceiling.measure_bandwidth(device, record, one, budget)


# ---------------------------------------------------------------------------------------------- one stream


def test_the_fastest_grid_is_timed_and_all_that_were_tried_are_kept():
    one, verified = stream({"132 blocks": 1.2e-3, "264 blocks": 1.0e-3, "528 blocks": 1.1e-3})
    found, rates = measured(one), {"132 blocks": 4000, "264 blocks": 4800, "528 blocks": 4364}
    assert (found.grid, found.gb_per_s) == ("264 blocks", pytest.approx(4800))
    assert {trial.grid: round(trial.gb_per_s) for trial in found.trials} == rates
    assert found.search == Search(offered=3, tried=3, refused=[])
    assert (verified, found.checked_against) == (["264 blocks"], "compared with 264 blocks")
    assert found.ci95_gb_per_s == pytest.approx((4800, 4800))
    assert found.datasheet_gb_per_s == 4800
    l2 = measured(stream({"a grid": 0.5e-3}, name="l2", level="l2")[0])
    assert l2.datasheet_gb_per_s is None, "of memory alone"


def test_a_grid_that_was_fast_in_its_trial_alone_gives_way_to_the_next():
    one, verified = stream({"264 blocks": 1.1e-3, "528 blocks": 1.2e-3})
    trial = iter([1.0e-3] * (1 + search.RUNS_PER_TRIAL))
    one.steps_by_grid["132 blocks"] = lambda number: next(trial, 1.3e-3)
    found = measured(one, FakeDevice())
    assert (found.grid, verified) == ("264 blocks", ["264 blocks"]) and found.gb_per_s == pytest.approx(4800 / 1.1)


def test_of_several_blocks_the_fastest_counts_and_all_are_kept():
    trials, of_blocks = [1e-3] * (1 + search.RUNS_PER_TRIAL), (1e-3, 2e-3, 0.8e-3, 1.6e-3)
    seconds = iter(trials + [each for each in of_blocks for _ in range(1 + 3)])  # a warm-up and three samples each
    one, _ = stream({}, most_timed_blocks=4)
    one.steps_by_grid["the driver's copy"] = lambda number: next(seconds)
    found = measured(one, FakeDevice(), iterations=3)
    assert found.repeats_gb_per_s == pytest.approx([4800, 2400, 6000, 3000])
    assert found.gb_per_s == pytest.approx(6000)
    assert found.timing.samples_s == pytest.approx([0.8e-3] * 3)


# ---------------------------------------------------------------------------------------------- names of levels


def level(gb_per_s, first, last, knee=None):
    return SweepLevel(gb_per_s=gb_per_s, first_bytes=first, last_bytes=last, knee_bytes=knee)


L1 = level(400, 4 * KIB, 32 * KIB, 45.4 * KIB)
L2 = level(100, 64 * KIB, 1 * MIB, 1.6 * MIB)
BEYOND = level(12, 4 * MIB, 64 * MIB)
WITHIN = level(98, 512 * KIB, 4 * MIB)


@pytest.mark.parametrize(
    ("found", "capacities", "expected"),
    [
        ([L1, L2, BEYOND], {"l1": 48 * KIB, "l2": 2 * MIB}, ["l1", "l2", None]),  # by the nearest knee
        ([L1, BEYOND], {"l1": 22 * KIB}, [None, None]),  # more than a factor of two away
        ([L1, WITHIN], {"l1": 48 * KIB, "l2": 15 * MIB}, ["l1", "l2"]),  # the sweep did not leave it: where it ends
        ([L1, WITHIN], {"l1": 48 * KIB, "l2": 3 * MIB}, ["l1", None]),  # it begins within, and is the memory's
        # A plateau from 64 KiB to 1 MiB that runs on past a capacity is not of one level.
        ([L1, L2, BEYOND], {"l1": 48 * KIB, "other": 160 * KIB, "l2": 2 * MIB}, ["l1", None, None]),
    ],
)
def test_levels_are_named_by_the_capacities_that_the_device_reports(found, capacities, expected):
    named = memory_ceiling.name_levels(found, capacities)
    assert [one.name for one in named] == expected
    assert [one.reported_bytes for one in named] == [capacities.get(name) for name in expected]
    assert named[0].knee_bytes == round(45.4 * KIB)


# ---------------------------------------------------------------------------------------------- a sweep


def test_the_memory_of_a_sweep_has_no_rate_of_sets_that_still_hit_a_cache():
    steps = {size: size / 1e9 / (4 if size > 60 else 10 if size < 8 else 5) for size in (1, 2, 4, 8, 16, 32, 64, 128)}
    steps |= {256: 256 / 9e9}  # above the datasheet
    series = SweepBenchmark("past L1", "the device", "", list(steps), lambda size: (lambda _: steps[size], size), {})
    series = replace(series, memory_from_bytes=33)
    record = device_record(datasheet=datasheet_figures(bandwidth=promised(4.8)))
    (*_, memory) = memory_ceiling.measure_sweep(FakeDevice(), record, series).plateaus
    assert (memory.gb_per_s, memory.first_bytes) == (pytest.approx(4), 64)


LOADED = """
import sys
import next_to_it
print("ready", flush=True)
for rate in sys.argv[1], 0.9 * float(sys.argv[1]):
    sys.stdin.readline()
    assert rate != "0"
    print(rate, flush=True)
"""


def test_each_gpu_bears_the_load_alone_and_then_all_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(loaded_together, "PAUSE_S", 0)
    (tmp_path / "next_to_it.py").touch()  # its own folder is searched
    program = tmp_path / "loaded.py"
    program.write_text(LOADED)
    found = loaded_together.measure_together(["700", "650"], str(program))
    assert [(one.device, one.alone_tflops, one.together_tflops) for one in found] == [
        ("700", 700, 630),
        ("650", 650, 585),
    ]
    with pytest.raises(UnsupportedError):
        loaded_together.measure_together(["700", "0"], str(program))
