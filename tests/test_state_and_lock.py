"""Readings of a device around a block, and the locks that keep measurements apart, for real."""

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest
from factories import HEAT, POWER_CAP

from roofline.core.disturbance import RUN_PROCESS_VARIABLE
from roofline.measure import lock
from roofline.measure.lock import HOST_LOCK, HOST_PATH_LOCK
from roofline.measure.undisturbed import flag_throttled, throttle_reasons_after
from roofline.records.timing_record import DeviceState, Timing

SCRIPTS = Path(lock.__file__).parents[2]
TIMING = Timing(
    timed_by="made up", warmup=1, requested=1, stopped_by="iterations", samples_s=[1e-3], median_s=1e-3, ci95_s=None
)


def states(reported: dict) -> list[DeviceState]:
    return [DeviceState(at_s=0, when=when, throttle_reasons=reasons) for when, reasons in reported.items()]


@pytest.mark.parametrize(
    ("reported", "throttled"),
    [
        ({"after": None}, False),
        ({"before": [], "after": HEAT}, True),
        ({"before": [], "after": None, "during": HEAT}, True),
        ({"before": HEAT, "after": [], "during": POWER_CAP}, False),
    ],
)
def test_a_short_block_is_flagged_where_a_reading_during_or_after_it_reports_heat(reported, throttled):
    assert flag_throttled(TIMING, states(reported)) == TIMING.model_copy(update={"all_throttled": throttled})


def test_what_limited_a_load_was_reported_during_or_after_it():
    reported = states({"before": ["hw_slowdown"], "during": POWER_CAP, "after": ["gpu_idle", *HEAT]})
    assert throttle_reasons_after(reported) == sorted([*POWER_CAP, *HEAT])
    assert throttle_reasons_after(reported[:1]) == throttle_reasons_after([]) == []


# ---------------------------------------------------------------------------------------------- who waits for whom

HOLD = """
import pathlib, sys
from roofline.measure import lock
lock.LOCK_FOLDER = pathlib.Path(sys.argv[1])
with lock.hold_locks(sys.argv[2:]):
    print("held", flush=True)
    sys.stdin.readline()
"""
CARD, OTHER = "GPU-1", "GPU-2"


def holder(folder, *uses, run=None):
    """Another process that takes locks, says so, and keeps them until it is sent a line."""
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), *uses],
        env={**os.environ, "PYTHONPATH": str(SCRIPTS)} | ({RUN_PROCESS_VARIABLE: run} if run else {}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def waits(process, seconds: float = 0.3) -> bool:
    said, _, _ = select.select([process.stdout], [], [], seconds)
    return not said


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "LOCK_FOLDER", tmp_path / "locks")
    return lock.LOCK_FOLDER


@pytest.mark.parametrize(
    ("held", "wanted", "together"),
    [
        ([CARD], [CARD], False),
        ([CARD], [OTHER], True),
        ([CARD], [HOST_LOCK], False),
        ([HOST_LOCK], [CARD], False),
        ([CARD, HOST_PATH_LOCK], [OTHER, HOST_PATH_LOCK], False),
        ([CARD, OTHER], [OTHER], False),
    ],
)
def test_what_two_processes_may_measure_at_once(folder, held, wanted, together):
    with lock.hold_locks(held):
        other = holder(folder, *wanted)
        assert waits(other, 5 if together else 0.3) != together
    output, errors = other.communicate("\n", timeout=20)
    assert (output, bool(errors), other.returncode) == ("held\n", not together, 0)
