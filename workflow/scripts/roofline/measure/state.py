"""Readings of a device around a measurement, each with its moment."""

import time

from roofline.core.disturbance import is_throttled, limiting_reasons
from roofline.records.timing import DeviceState, Timing

LAG_S = 0.2  # NVML's reasons for a clock were 0.1 to 0.2 s behind the load on an H200


class StateLog:
    def __init__(self, device):
        self._device = device
        self._start = time.monotonic()
        self._power_w: float | None = None
        self.states: list[DeviceState] = []

    def read(self, when: str, **more) -> DeviceState:
        """A reading now; `more` are fields that the device's usual state leaves out.

        Power that is to the milliwatt what it was has not been refreshed since, and is null.
        """
        at_s = round(time.monotonic() - self._start, 4)
        found = self._device.state()
        power_w, self._power_w = self._power_w, found.get("power_w")
        if power_w is not None and self._power_w == power_w:
            found = found | {"power_w": None}
        self.states.append(DeviceState(at_s=at_s, when=when, **found, **more))
        return self.states[-1]

    def reports_throttling(self) -> bool:
        return any(state.throttle_reasons is not None for state in self.states)

    def limited_by(self) -> list[str]:
        return limited_by(self.states)


def limited_by(states: list[DeviceState]) -> list[str]:
    """Throttle reasons under a load and after it; what was read before speaks of the load before."""
    return limiting_reasons(state.throttle_reasons for state in states if state.when != "before")


def limited_during(states: list[DeviceState], load_s: float) -> list[str] | None:
    """Throttle reasons of a load that lasted so long; None where NVML cannot have told of it yet."""
    after = [state for state in states if state.when != "before" and state.throttle_reasons is not None]
    return limited_by(after) if after and load_s >= LAG_S else None


def flagged(timing: Timing, states: list[DeviceState]) -> Timing:
    """A short block's timing, flagged where a reading under its load or after it reports thermal throttling."""
    throttled = any(is_throttled(state.throttle_reasons) for state in states if state.when != "before")
    return timing.model_copy(update={"all_throttled": True}) if throttled else timing
