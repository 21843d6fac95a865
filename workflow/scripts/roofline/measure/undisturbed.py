"""What disturbed a timed block: readings of the device around it, other load on the host, and repeats after a rest."""

import time
from collections.abc import Callable
from typing import TypeVar

from roofline.core.disturbance import collect_throttle_reasons, find_disturbances, is_throttled
from roofline.core.terms import DEVICE_TRAITS, LoadSensitivity
from roofline.devices import host
from roofline.devices.base import Device
from roofline.records.timing_record import Contention, DeviceState, Timing

T = TypeVar("T")

MOST_ATTEMPTS = 4
MOST_BLOCK_REPEATS_S = 1.0  # of one block's repeats
MOST_JOB_REPEATS_S = 3.0  # of all repeats for a record: some hosts are always busy
FIRST_REST_S = 0.1  # doubled before each further attempt
LEAST_TICK_WINDOW_S = 1.0  # least window for /proc/stat, which counts hundredths of a second for each CPU
THROTTLE_REPORT_LAG_S = 0.2  # NVML's reasons for a clock were 0.1 to 0.2 s behind the load on an H200

spent_on_repeats_s = 0.0  # by this process, for the record in progress


class StateLog:
    def __init__(self, device):
        self._device = device
        self._start = time.monotonic()
        self._power_w: float | None = None
        self.states: list[DeviceState] = []

    def read(self, when: str, **more) -> DeviceState:
        """A reading now, with more fields. Power equal to the milliwatt has not been refreshed, and is null."""
        at_s = round(time.monotonic() - self._start, 4)
        found = self._device.read_state()
        power_w, self._power_w = self._power_w, found.get("power_w")
        if power_w is not None and self._power_w == power_w:
            found = found | {"power_w": None}
        self.states.append(DeviceState(at_s=at_s, when=when, **found, **more))
        return self.states[-1]


def was_throttled(timing: Timing, states: list[DeviceState]) -> bool | None:
    """Whether heat or the power brake acted in a block; None if the device reports no reasons."""
    return timing.all_throttled if any(state.throttle_reasons is not None for state in states) else None


def throttle_reasons_after(states: list[DeviceState]) -> list[str]:
    """Throttle reasons under a load and after it; what was read before speaks of the load before."""
    return collect_throttle_reasons(state.throttle_reasons for state in states if state.when != "before")


def throttle_reasons_if_known(states: list[DeviceState], load_s: float) -> list[str] | None:
    """Throttle reasons of a load that lasted so long; None where NVML cannot have reported it yet."""
    after = [state for state in states if state.when != "before" and state.throttle_reasons is not None]
    return throttle_reasons_after(after) if after and load_s >= THROTTLE_REPORT_LAG_S else None


def flag_throttled(timing: Timing, states: list[DeviceState]) -> Timing:
    """A short block's timing, flagged where a reading under its load or after it reports thermal throttling."""
    throttled = any(is_throttled(state.throttle_reasons) for state in states if state.when != "before")
    return timing.model_copy(update={"all_throttled": True}) if throttled else timing


def repeat_until_undisturbed(
    device: Device,
    block: Callable[[], T],
    slowness: Callable[[T], float],
    sensitive: LoadSensitivity | None = None,
    others: bool = True,
) -> tuple[T, Contention]:
    """A block's result and the load next to it. A disturbed block is repeated: the first undisturbed one counts, else
    the fastest. Without `others` no other processes of the host are looked for: a caller of a GPU needs one core.
    """
    global spent_on_repeats_s
    kind = DEVICE_TRAITS[device.kind]
    sensitive = kind.load_sensitivity if kind.synchronous else sensitive or kind.load_sensitivity
    others = others or kind.synchronous
    result, load = observe_block(device, block, others)
    attempts, rest, start = 1, FIRST_REST_S, time.monotonic()
    allowed = min(MOST_BLOCK_REPEATS_S, MOST_JOB_REPEATS_S - spent_on_repeats_s)
    while (
        result is not None
        and find_disturbances(load, sensitive)
        and attempts < MOST_ATTEMPTS
        and time.monotonic() + rest - start < allowed
    ):
        time.sleep(rest)
        again, load_again = observe_block(device, block, others)
        attempts, rest = attempts + 1, 2 * rest
        if again is not None and (not find_disturbances(load_again, sensitive) or slowness(again) < slowness(result)):
            result, load = again, load_again
    spent_on_repeats_s += time.monotonic() - start
    return result, load.model_copy(update={"attempts": attempts})


def observe_block(device: Device, block: Callable[[], T], others: bool = True) -> tuple[T, Contention]:
    processes = [device.count_other_processes()]
    before = host.read_usage(others)
    result = block()
    after = host.read_usage(others)
    processes.append(device.count_other_processes())
    return result, contention_between(before, after, len(host.usable_cpus()), processes)


def contention_between(
    before: host.HostUsage, after: host.HostUsage, cores: int, processes: list[int | None]
) -> Contention:
    """What two readings of the host, and the numbers of other processes on the device, say of the time between."""

    def spent(name: str) -> float | None:
        first, last = getattr(before, name), getattr(after, name)
        return None if first is None or last is None else max(0.0, last - first)

    wall_s, own_s, run_s = max(spent("monotonic_s"), 1e-9), spent("own_s"), spent("run_s")
    busy_s, waited_s = spent("busy_s"), spent("waited_s")
    known = busy_s is not None and busy_s + spent("idle_s") > 0  # some containers show a file of zeros
    long = wall_s >= LEAST_TICK_WINDOW_S
    by_ticks_s = max(0.0, busy_s - own_s - (run_s or 0.0)) if known and long else None
    exact = before.other_processes is not None and after.other_processes is not None
    others_s = after.other_processes.seconds_since(before.other_processes) if exact else by_ticks_s
    hidden_s = None
    if known and exact and long:
        # By idle time, which kernels count exactly; the rest is sampled at ticks.
        used_s = wall_s * cores - spent("idle_s") - spent("stolen_s")
        hidden_s = max(0.0, used_s - own_s - (run_s or 0.0) - others_s)
    return Contention(
        wall_s=wall_s,
        cores=cores,
        own_cores=own_s / wall_s,
        other_cores=None if others_s is None else others_s / wall_s,
        hidden_cores=None if hidden_s is None else hidden_s / wall_s,
        run_cores=None if run_s is None else run_s / wall_s,
        waiting_share=None if waited_s is None else waited_s / max(own_s + waited_s, 1e-9),
        # In a block shorter than the ticks in which it is counted, more may seem stolen than there was.
        stolen_share=min(1.0, spent("stolen_s") / wall_s / cores) if known else None,
        quota_throttled_share=None if spent("throttled_s") is None else spent("throttled_s") / wall_s,
        other_processes=max((count for count in processes if count is not None), default=None),
    )
