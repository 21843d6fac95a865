"""Readings of a device around a measurement, each with its moment."""

import time

from roofline.core.throttling import is_throttled, limiting_reasons
from roofline.records.timing import DeviceState, Timing


class StateLog:
    def __init__(self, device):
        self._device = device
        self._start = time.monotonic()
        self.states: list[DeviceState] = []

    def read(self, when: str, **more) -> DeviceState:
        """`more` are fields that the device's usual state leaves out."""
        at_s = round(time.monotonic() - self._start, 4)
        self.states.append(DeviceState(at_s=at_s, when=when, **self._device.state(), **more))
        return self.states[-1]

    def reports_throttling(self) -> bool:
        return any(state.throttle_reasons is not None for state in self.states)

    def limited_by(self) -> list[str]:
        return limited_by(self.states)


def limited_by(states: list[DeviceState]) -> list[str]:
    """Throttle reasons under a load and after it; what was read before speaks of the load before."""
    return limiting_reasons(state.throttle_reasons for state in states if state.when != "before")


def flagged(timing: Timing, states: list[DeviceState]) -> Timing:
    """A short block's timing, flagged where a reading under its load or after it reports thermal throttling."""
    throttled = any(is_throttled(state.throttle_reasons) for state in states if state.when != "before")
    return timing.model_copy(update={"all_throttled": True}) if throttled else timing
