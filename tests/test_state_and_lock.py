"""Readings of a device around a block, and the lock that keeps measurements apart, for real."""

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest
from factories import HEAT, POWER_CAP, FakeDevice, clock_of

from roofline.measure import lock
from roofline.measure.state import StateLog, flagged, limited_by
from roofline.records.timing import DeviceState, Timing

SCRIPTS = Path(lock.__file__).parents[2]
TIMING = Timing(
    method="made up", warmup=1, requested=1, stopped_by="iterations", samples_s=[1e-3], median_s=1e-3, ci95_s=None
)


def states(reported: dict) -> list[DeviceState]:
    return [DeviceState(at_s=0, when=when, throttle_reasons=reasons) for when, reasons in reported.items()]


@pytest.mark.parametrize(
    ("reported", "throttled"),
    [
        ({"after": None}, False),
        ({"before": [], "after": []}, False),
        ({"after": POWER_CAP}, False),
        ({"before": [], "after": HEAT}, True),
        ({"before": [], "after": None, "during": HEAT}, True),
        ({"before": HEAT, "after": [], "during": POWER_CAP}, False),
    ],
)
def test_a_short_block_is_flagged_where_a_reading_during_or_after_it_reports_heat(reported, throttled):
    assert flagged(TIMING, states(reported)) == TIMING.model_copy(update={"all_throttled": throttled})


def test_what_limited_a_load_was_reported_during_or_after_it():
    reported = states({"before": ["hw_slowdown"], "during": POWER_CAP, "after": ["gpu_idle", *HEAT]})
    assert limited_by(reported) == sorted([*POWER_CAP, *HEAT])
    assert limited_by(reported[:1]) == limited_by([]) == []


def test_readings_carry_the_seconds_since_the_measurement_began():
    device = FakeDevice(reasons=lambda now: HEAT if now else [])
    with clock_of(device):
        log = StateLog(device)
        assert log.read("before").throttle_reasons == []
        device.now = 3.5
        log.read("after")
    assert [(state.when, state.at_s) for state in log.states] == [("before", 0), ("after", 3.5)]
    assert log.states[-1].throttle_reasons == HEAT


# ---------------------------------------------------------------------------------------------- one at a time

HOLD = """
import pathlib, sys
from roofline.measure import lock
lock.HOST_LOCK = pathlib.Path(sys.argv[1])
with lock.host_lock():
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
def path(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "HOST_LOCK", tmp_path / "measuring.lock")
    return lock.HOST_LOCK


def test_two_processes_cannot_measure_at_once(path, capfd):
    with lock.host_lock():
        other = holder(path)
        assert other.stderr.readline() == "waiting for another measurement on this machine to end\n"
        said_within_a_moment, _, _ = select.select([other.stdout], [], [], 0.3)
        assert said_within_a_moment == []
    output, errors = other.communicate("\n", timeout=20)
    assert (output, errors, other.returncode) == ("held\n", "", 0)
    assert capfd.readouterr() == ("", ""), "nothing is said where nobody waits"


TURN = """
import runpy, sys
from roofline.measure import lock

def taken():
    print(*sys.modules)
    sys.exit(0)

lock.take_host_lock = taken
runpy.run_path(sys.argv[1], run_name="__main__")
"""


@pytest.mark.parametrize("script", ["device_query", "peak_flops", "bandwidth", "measure_operator"])
def test_a_job_that_waits_for_its_turn_has_loaded_and_opened_nothing_yet(script):
    """It would disturb the one that measures."""
    command = [sys.executable, "-c", TURN, str(SCRIPTS / f"{script}.py")]
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS)}
    loaded = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
    assert "roofline.run.turn" in loaded
    assert not {"numpy", "pydantic", "psutil", "pynvml", "cupy", "roofline.devices", "roofline.records"} & set(loaded)


def test_a_killed_or_failed_measurement_does_not_block_the_next(path):
    other = holder(path)
    assert other.stdout.readline() == "held\n"
    other.kill()
    other.communicate(timeout=20)
    with pytest.raises(ArithmeticError), lock.host_lock():
        raise ArithmeticError
    with lock.host_lock():
        pass


def test_a_lock_of_another_user_is_an_error_in_one_line(path, monkeypatch):
    """In /tmp with its sticky bit the kernel refuses even to open another user's file."""

    def refused(*arguments, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(lock.os, "open", refused)
    with pytest.raises(PermissionError, match="belongs to another user: remove it"), lock.host_lock():
        pass
