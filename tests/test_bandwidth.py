"""Memory ceilings and sweeps, on a device whose clock the test turns."""

from types import SimpleNamespace

import bandwidth
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_run import BANDWIDTH, VENDOR, device_record

from roofline.analysis.consistency import contradictions
from roofline.devices import Stream, SweepSeries
from roofline.measure import search
from roofline.measure import timing as measuring
from roofline.measure.levels import Level
from roofline.records.compute import Search
from roofline.records.device import VendorBandwidth
from roofline.records.memory import BandwidthRecord

HOT = ["hw_thermal_slowdown"]
GB = 10**9
KIB, MIB = 1 << 10, 1 << 20
JOB = {"device": "gpu0", "seal_sha256": "0" * 64, "started_at": "2026-11-05T12:00:00+00:00", "elapsed_s": 1.0}


class FakeDevice:
    """Its steps say how long they take; the first of all runs takes ten times as long."""

    kind = "gpu"

    def __init__(self, reasons=()):
        self.now, self._reasons, self._warm = 0.0, reasons, set()

    def step_times(self, step, count, first=0):
        times = []
        for number in range(first, first + count):
            times.append(step(number) * (1 if step in self._warm else 10))
            self._warm.add(step)
        self.now += sum(times)
        return times

    def watched_times(self, step, count, first, look):
        times = self.step_times(step, count, first)
        look()
        return times

    def state(self):
        return {} if self._reasons is None else {"throttle_reasons": list(self._reasons)}


def takes(seconds):
    return lambda number: seconds


def stream(grids, name="hbm_read", level="hbm", **fields):
    """Grids by the seconds that a run takes, each over 4.8 GB."""
    verified = []

    def verify(grid):
        verified.append(grid)
        return f"compared with {grid}"

    known = {
        "mix": "read",
        "counted": "made up",
        "counted_bytes": 48 * GB // 10,
        "grids": {grid: takes(seconds) for grid, seconds in grids.items()},
        "verify": verify,
        "threads": lambda grid: None,
    }
    return Stream(name=name, level=level, **known | fields), verified


def measured(one, device=None, **options):
    device = device or FakeDevice()
    promised = VendorBandwidth(gb_per_s=4800, source="made up", verified=True, derived=False)
    vendor = VENDOR.model_copy(update={"bandwidth": promised})
    record = device_record("gpu0", vendor=vendor, hardware={"multiprocessors": 100})
    options = {"warmup": 1, "iterations": 200, "time_budget_s": 10.0} | options
    with pytest.MonkeyPatch.context() as patch:
        for module in (measuring, search):
            patch.setattr(module, "time", SimpleNamespace(monotonic=lambda: device.now))
        return bandwidth.measure(device, record, one, **options)


# ---------------------------------------------------------------------------------------------- one stream


def test_of_several_blocks_the_fastest_counts_and_all_are_kept():
    tried, of_blocks = [1e-3] * (1 + search.TRIALS), (1e-3, 2e-3, 0.8e-3, 1.6e-3)
    seconds = iter(tried + [each for each in of_blocks for _ in range(1 + 3)])  # a warm-up and three samples each
    one, _ = stream({"the driver's copy": 0}, blocks=4)
    one.grids["the driver's copy"] = lambda number: next(seconds)
    found = measured(one, iterations=3)
    edited = found.model_copy(update={"blocks_gb_per_s": [4800, 2400, 5900, 3000]})
    for record, told in ((found, []), (edited, ["hbm_read fastest block is 5900 and its samples give 6000"])):
        assert contradictions(BandwidthRecord(level="hbm", bandwidths=[record], **JOB)) == told
    assert found.blocks_gb_per_s == pytest.approx([4800, 2400, 6000, 3000])
    assert found.gb_per_s == pytest.approx(6000)
    assert found.latency.samples_s == pytest.approx([0.8e-3] * 3)


@pytest.mark.parametrize(
    ("step_s", "blocks", "samples"),
    [
        (5e-3, 8, 19),  # 0.1 s a block, of which one step in twenty warms up
        (25e-3, 8, 3),
        (40e-3, 5, 3),  # of fewer blocks each still has time for four steps
        (0.5, 1, 1),
    ],
)
def test_blocks_share_twice_the_budget_and_each_has_samples(step_s, blocks, samples):
    one, _ = stream({"the driver's copy": step_s}, blocks=8)
    device = FakeDevice()
    found = measured(one, device, iterations=1000, time_budget_s=0.4)
    assert len(found.blocks_gb_per_s) == blocks
    assert abs(len(found.latency.samples_s) - samples) <= 1
    of_search = (10 + search.TRIALS) * step_s
    assert device.now - of_search <= 0.8 + 2 * step_s


def test_the_fastest_grid_is_timed_and_all_that_were_tried_are_kept():
    one, verified = stream({"132 blocks": 1.2e-3, "264 blocks": 1.0e-3, "528 blocks": 1.1e-3})
    found = measured(one)
    assert (found.grid, found.gb_per_s) == ("264 blocks", pytest.approx(4800))
    assert [(trial.grid, round(trial.gb_per_s)) for trial in found.trials] == [
        ("132 blocks", 4000),
        ("264 blocks", 4800),
        ("528 blocks", 4364),
    ]
    assert found.search == Search(offered=3, tried=3, refused=[])
    assert (verified, found.verified) == (["264 blocks"], "compared with 264 blocks")
    assert found.ci95 == pytest.approx((4800, 4800))
    assert contradictions(BandwidthRecord(level="hbm", bandwidths=[found], **JOB)) == []


def test_a_stream_is_held_against_the_vendors_only_where_it_is_of_that_memory():
    hbm = measured(stream({"a grid": 1.25e-3})[0])
    assert (hbm.vendor_gb_per_s, hbm.fraction_of_vendor) == (4800, pytest.approx(0.8))
    l2 = measured(stream({"a grid": 0.5e-3}, name="l2", level="l2")[0])
    assert (l2.vendor_gb_per_s, l2.fraction_of_vendor) == (None, None)


def test_levels_on_the_chip_are_told_by_the_clock():
    """9600 GB/s of 100 multiprocessors at 1500 MHz: 64 bytes a clock each."""
    fields = {"name": "l1", "level": "l1", "clock_mhz": lambda: 1500.0}
    found = measured(stream({"a grid": 0.5e-3}, on_chip=True, **fields)[0])
    assert (found.sm_clock_mhz, found.bytes_per_clock_per_multiprocessor) == (1500, pytest.approx(64))
    assert measured(stream({"a grid": 0.5e-3}, **fields)[0]).bytes_per_clock_per_multiprocessor is None
    untold = fields | {"clock_mhz": lambda: None}
    assert measured(stream({"a grid": 0.5e-3}, on_chip=True, **untold)[0]).bytes_per_clock_per_multiprocessor is None


def test_the_threads_are_those_of_the_fastest():
    one, _ = stream({"1 thread": 2e-3, "2 threads": 1e-3}, threads=lambda grid: int(grid.split()[0]))
    assert measured(one).threads == 2


def test_a_first_grid_that_spends_the_budget_is_the_ceiling():
    found = measured(stream({"slow": 20.0, "fast": 1e-3})[0], time_budget_s=0.1)
    assert (found.grid, len(found.trials), found.latency.stopped_by) == ("slow", 1, "time_budget")
    assert found.search == Search(offered=2, tried=1, refused=[])


@pytest.mark.parametrize(("reasons", "throttled", "held"), [(HOT, True, HOT), ([], False, []), (None, None, [])])
def test_heat_is_flagged_where_it_is_told(reasons, throttled, held):
    found = measured(stream({"a grid": 1e-3})[0], FakeDevice(reasons))
    assert (found.throttled, found.held_back_by, found.latency.all_throttled) == (throttled, held, throttled is True)


def test_what_arrived_wrong_fails_the_job():
    def verify(grid):
        raise ArithmeticError("hbm_read: wrong")

    with pytest.raises(ArithmeticError, match="hbm_read: wrong"):
        measured(stream({"a grid": 1e-3}, verify=verify)[0])


# ---------------------------------------------------------------------------------------------- the envelope


def ceiling(name, gb_per_s):
    mix = name.split("_")[1]
    return BANDWIDTH.model_copy(update={"name": name, "mix": mix, "gb_per_s": gb_per_s})


ALL = [ceiling("dram_read", 100), ceiling("dram_write", 60), ceiling("dram_copy", 110), ceiling("dram_triad", 90)]


def test_the_envelope_is_the_highest_of_all_mixes():
    found = bandwidth.envelope(ALL)
    assert (found.gb_per_s, found.mix, found.of) == (110, "copy", ["read", "write", "copy", "triad"])


@pytest.mark.parametrize("missing", range(4))
def test_an_envelope_with_a_hole_is_none(missing):
    assert bandwidth.envelope(ALL[:missing] + ALL[missing + 1 :]) is None
    assert bandwidth.envelope([]) is None


def test_one_core_is_no_part_of_the_envelope():
    """Neither for a mix that the whole lacks, nor where chance has it a little above the whole."""
    assert bandwidth.envelope([*ALL[1:], ceiling("dram_read_one_core", 12)]) is None
    every = [*ALL, ceiling("dram_copy_one_core", 111)]
    record = BandwidthRecord(level="dram", bandwidths=every, envelope=bandwidth.envelope(every), **JOB)
    assert record.envelope.gb_per_s == 110
    assert not [told for told in contradictions(record) if told.startswith("envelope")]


def test_an_envelope_that_was_edited_contradicts_its_streams():
    edited = bandwidth.envelope(ALL).model_copy(update={"gb_per_s": 120.0})
    record = BandwidthRecord(level="dram", bandwidths=ALL, envelope=edited, **JOB)
    assert "envelope is 120 and its samples give 110" in contradictions(record)


# ---------------------------------------------------------------------------------------------- names of levels


def level(gb_per_s, first, last, knee=None):
    return Level(gb_per_s=gb_per_s, first_bytes=first, last_bytes=last, knee_bytes=knee)


def names(found, capacities):
    return [(one.name, one.knee_bytes, one.reported_bytes) for one in bandwidth.named(found, capacities)]


L1 = level(400, 4 * KIB, 32 * KIB, 45.4 * KIB)
L2 = level(100, 64 * KIB, 1 * MIB, 1.6 * MIB)
BEYOND = level(12, 4 * MIB, 64 * MIB)


def test_knees_are_named_by_the_capacities_next_to_them():
    assert names([L1, L2, BEYOND], {"l1": 48 * KIB, "l2": 2 * MIB}) == [
        ("l1", round(45.4 * KIB), 48 * KIB),
        ("l2", round(1.6 * MIB), 2 * MIB),
        (None, None, None),
    ]


@pytest.mark.parametrize("size", [22 * KIB, 92 * KIB])
def test_a_knee_more_than_twice_away_belongs_to_no_capacity(size):
    assert names([L1, BEYOND], {"l1": size})[0] == (None, round(45.4 * KIB), None)


def test_no_capacity_is_given_to_two_knees():
    near = level(300, 48 * KIB, 50 * KIB, 60 * KIB)
    assert [name for name, _, _ in names([L1, near, BEYOND], {"l1": 48 * KIB})] == ["l1", None, None]


def test_a_level_that_the_sweep_did_not_leave_is_named_by_where_it_begins():
    """Through L1 a sweep may end within the L2: its last plateau has no knee."""
    within_l2 = level(98, 512 * KIB, 4 * MIB)
    assert names([L1, within_l2], {"l1": 48 * KIB, "l2": 15 * MIB})[1] == ("l2", None, 15 * MIB)
    assert names([L1, within_l2], {"l1": 48 * KIB, "l2": 256 * KIB})[1] == (None, None, None)


@pytest.mark.parametrize(("size", "name"), [(160 * KIB, None), (96 * KIB, "l2"), (700 * KIB, "l2")])
def test_a_plateau_that_runs_on_past_a_capacity_is_of_no_one_level(size, name):
    """From 64 KiB to 1 MiB: one of 160 KiB ends well within it; what is within a factor of two of an end may be it."""
    assert [found[0] for found in names([L1, L2, BEYOND], {"l1": 48 * KIB, "other": size, "l2": 2 * MIB})][1] == name


def test_without_capacities_levels_have_no_names():
    assert [name for name, _, _ in names([L1, L2, BEYOND], {})] == [None, None, None]


@given(st.dictionaries(st.sampled_from(["l1", "l2", "l3"]), st.integers(1 * KIB, 64 * MIB)))
def test_whatever_the_device_reports_every_plateau_is_kept_and_no_name_given_twice(capacities):
    found = bandwidth.named([L1, L2, BEYOND], capacities)
    assert [(one.gb_per_s, one.first_bytes, one.last_bytes) for one in found] == [
        (one.gb_per_s, one.first_bytes, one.last_bytes) for one in (L1, L2, BEYOND)
    ]
    given_names = [one.name for one in found if one.name]
    assert len(set(given_names)) == len(given_names)
    assert all(one.reported_bytes == capacities.get(one.name) for one in found)


# ---------------------------------------------------------------------------------------------- a sweep

SIZES = [4 * KIB * 2**i for i in range(14)]


def rate(size):
    return 400 if size <= 48 * KIB else 100 if size <= 2 * MIB else 12


def swept(disturbed=()):
    """A series whose sets are read eight times a step; every third run of those disturbed takes five times as long."""

    def step(size):
        read = 8 * size
        runs = []

        def once(number):
            runs.append(number)
            slow = 5 if size in disturbed and len(runs) % 3 == 0 else 1
            return slow * read / rate(size) / 1e9

        return once, read

    series = SweepSeries(
        series="one_core",
        reader="one core",
        counted="made up",
        sizes=SIZES,
        step=step,
        levels={"l1": 48 * KIB, "l2": 2 * MIB},
    )
    return bandwidth.sweep(FakeDevice(HOT), series)


def test_a_sweep_finds_the_levels_and_names_them():
    found = swept()
    assert [point.size_bytes for point in found.points] == SIZES
    assert [point.gb_per_s for point in found.points] == pytest.approx([rate(size) for size in SIZES])
    assert [(one.name, pytest.approx(one.gb_per_s)) for one in found.levels] == [("l1", 400), ("l2", 100), (None, 12)]
    assert (found.series, found.reader, found.counted) == ("one_core", "one core", "made up")
    assert [(state.when, state.throttle_reasons) for state in found.states] == [("before", HOT), ("after", HOT)]


def test_what_disturbs_a_sweep_only_slows_so_that_the_fastest_run_counts():
    assert swept(disturbed=SIZES[3:9]).points == swept().points


def test_the_line_tells_streams_and_levels():
    record = BandwidthRecord(level="dram", bandwidths=[ceiling("dram_read", 100.0)], sweeps=[swept()], **JOB)
    streams, series = "dram_read 100 GB/s", "one_core l1 400 GB/s > l2 100 GB/s > beyond 12 GB/s"
    assert bandwidth.line(record).startswith(f"bandwidth gpu0 dram: {streams}, {series}, ")
