"""What disturbed a timed block: readings of the device around it, other load on the host, and repeats after a rest."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from roofline.core.disturbance import collect_throttle_reasons, find_disturbances, is_throttled
from roofline.core.terms import DEVICE_TRAITS, LoadSensitivity
from roofline.devices import host
from roofline.devices.base import Device
from roofline.records.timing_record import Contention, DeviceState, Timing

ResultT = TypeVar("ResultT")

MOST_ATTEMPTS = 4
MOST_BLOCK_REPEATS_S = 1.0  # of one block's repeats
MOST_JOB_REPEATS_S = 3.0  # of all repeats for a record: some hosts are always busy
FIRST_REST_S = 0.1  # doubled before each further attempt
LEAST_TICK_WINDOW_S = 1.0  # least window for /proc/stat, which counts hundredths of a second for each CPU
THROTTLE_REPORT_LAG_S = 0.2  # NVML's reasons for a clock were 0.1 to 0.2 s behind the load on an H200

spent_on_repeats_s = 0.0  # by this process, for the record in progress


class StateLog:
    """The readings of a device during one measurement, in seconds since it began.

    A power that equals the last one to the milliwatt has not been refreshed, and is stored as null.
    """

    def __init__(self, device: Device):
        self._device, self._start = device, time.monotonic()
        self._power_w: float | None = None
        self.states: list[DeviceState] = []

    def read(self, when: str, **more_fields: Any) -> DeviceState:
        """Read the device now, keep the reading together with `more_fields`, and return it."""
        at_s = round(time.monotonic() - self._start, 4)
        state = self._device.read_state()
        last_power_w, self._power_w = self._power_w, state.get("power_w")
        if last_power_w is not None and self._power_w == last_power_w:
            state = state | {"power_w": None}
        self.states.append(DeviceState(at_s=at_s, when=when, **state, **more_fields))
        return self.states[-1]


def was_throttled(timing: Timing, states: list[DeviceState]) -> bool | None:
    """Return whether heat or the power brake held a block back, by a reading; None if the device reports no reasons."""
    return timing.all_throttled if any(state.throttle_reasons is not None for state in states) else None


def throttle_reasons_after(states: list[DeviceState]) -> list[str]:
    """Return the throttle reasons read under a load and after it. A reading before it is of the load before."""
    return collect_throttle_reasons(state.throttle_reasons for state in states if state.when != "before")


def flag_throttled(timing: Timing, states: list[DeviceState]) -> Timing:
    """Return a short block's timing, flagged where a reading under its load or after it reports that heat or the power
    brake throttled it."""
    throttled = any(is_throttled(state.throttle_reasons) for state in states if state.when != "before")
    return timing.model_copy(update={"all_throttled": True}) if throttled else timing


def repeat_until_undisturbed(
    device: Device,
    block: Callable[[], ResultT],
    slowness: Callable[[ResultT], float],
    sensitivity: LoadSensitivity = "caller",
    list_processes: bool = True,
) -> tuple[ResultT, Contention]:
    """Return a block's result and the load on the host next to it.

    A disturbed block is repeated after a rest: the first undisturbed one counts, else the fastest. Without
    `list_processes` the host's processes are not listed: a caller of a GPU needs one core.
    """
    global spent_on_repeats_s
    traits = DEVICE_TRAITS[device.kind]
    if traits.synchronous:
        sensitivity, list_processes = traits.load_sensitivity, True
    result, load = observe_block(device, block, list_processes)
    attempts, rest_s, start = 1, FIRST_REST_S, time.monotonic()
    allowed_s = min(MOST_BLOCK_REPEATS_S, MOST_JOB_REPEATS_S - spent_on_repeats_s)
    while (
        result is not None
        and find_disturbances(load, sensitivity)
        and attempts < MOST_ATTEMPTS
        and time.monotonic() + rest_s - start < allowed_s
    ):
        time.sleep(rest_s)
        new_result, new_load = observe_block(device, block, list_processes)
        attempts, rest_s = attempts + 1, 2 * rest_s
        if new_result is None:
            continue
        if not find_disturbances(new_load, sensitivity) or slowness(new_result) < slowness(result):
            result, load = new_result, new_load
    spent_on_repeats_s += time.monotonic() - start
    return result, load.model_copy(update={"attempts": attempts})


def observe_block(device: Device, block: Callable[[], ResultT], list_processes: bool) -> tuple[ResultT, Contention]:
    """Run a block once and return its result and its contention.

    The host and the device's other processes are read before and after it.
    """
    process_counts = [device.count_other_processes()]
    before = host.read_usage(list_processes)
    result = block()
    after = host.read_usage(list_processes)
    process_counts.append(device.count_other_processes())
    return result, contention_between(before, after, len(host.usable_cpus()), process_counts)


def contention_between(
    before: host.HostUsage, after: host.HostUsage, cores: int, process_counts: list[int | None]
) -> Contention:
    """Return the contention in the time between two readings of the host.

    `process_counts` are the numbers of other processes on the device, None where it is not known.
    """
    wall_s, own_s = max(after.monotonic_s - before.monotonic_s, 1e-9), max(0.0, after.own_s - before.own_s)
    run_s, waited_s = _seconds_between(before.run_s, after.run_s), _seconds_between(before.waited_s, after.waited_s)
    others_s = hidden_s = stolen_share = None
    if before.other_processes and after.other_processes:
        others_s = after.other_processes.seconds_since(before.other_processes)
    busy_s, idle_s = _seconds_between(before.busy_s, after.busy_s), _seconds_between(before.idle_s, after.idle_s)
    stolen_s = _seconds_between(before.stolen_s, after.stolen_s)
    # Some containers show a file of zeros.
    if busy_s is not None and idle_s is not None and stolen_s is not None and busy_s + idle_s > 0:
        # In a block shorter than the ticks in which it is counted, more may seem stolen than there was.
        stolen_share = min(1.0, stolen_s / wall_s / cores)
        if wall_s >= LEAST_TICK_WINDOW_S and others_s is not None:
            # By idle time, which kernels count exactly; the rest is sampled at ticks.
            hidden_s = max(0.0, wall_s * cores - idle_s - stolen_s - own_s - (run_s or 0.0) - others_s)
        elif wall_s >= LEAST_TICK_WINDOW_S:
            others_s = max(0.0, busy_s - own_s - (run_s or 0.0))
    return Contention(
        wall_s=wall_s,
        cores=cores,
        own_cores=own_s / wall_s,
        other_cores=_divided(others_s, wall_s),
        hidden_cores=_divided(hidden_s, wall_s),
        run_cores=_divided(run_s, wall_s),
        waiting_share=None if waited_s is None else waited_s / max(own_s + waited_s, 1e-9),
        stolen_share=stolen_share,
        quota_throttled_share=_divided(_seconds_between(before.throttled_s, after.throttled_s), wall_s),
        other_processes=max((count for count in process_counts if count is not None), default=None),
    )


def _seconds_between(first: float | None, last: float | None) -> float | None:
    """Return the time between two readings; None where the system does not report it."""
    return None if first is None or last is None else max(0.0, last - first)


def _divided(seconds: float | None, wall_s: float) -> float | None:
    """Return the quotient; None where the seconds are not known."""
    return None if seconds is None else seconds / wall_s
