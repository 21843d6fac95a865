"""The calibration of a host: what work costs it, measured before any operator is timed."""

import time
from collections.abc import Callable, Iterable

from roofline.core import host_costs, statistics
from roofline.core.terms import KINDS
from roofline.devices.base import Device
from roofline.measure import lock
from roofline.measure.undisturbed import undisturbed
from roofline.records.calibration import CalibrationRecord, HostCost
from roofline.records.device import DeviceRecord

BLOCK_S, FEWEST, MOST = 0.015, 4, 60  # of a block's samples
# Over all blocks: what disturbs a host only adds. It comes and goes within a second or so, and rounds on an accelerator
# take a moment alone.
ROUNDS, ROUNDS_OF_CALLS, PAUSE_S = 2, 6, 0.4


def calibrate(device: Device, record: DeviceRecord, now: Callable[[], str]) -> CalibrationRecord:
    """Every cost of the host, sealed at the moment when the last was timed."""
    start = time.monotonic()
    with lock.measuring([lock.HOST_PATH] if KINDS[device.kind].accelerator else []):
        blocks, beside = undisturbed(device, lambda: timed_blocks(device), whole_s, sensitive="caller")
    return CalibrationRecord(
        device=record.device,
        device_kind=record.device_kind,
        sealed_at=now(),
        elapsed_s=round(time.monotonic() - start, 3),
        contention=beside,
        blocks=blocks,
        constants=host_costs.constants(one.block for one in blocks),
    )


def whole_s(blocks: Iterable[HostCost]) -> float:
    """Of one step of each."""
    return sum(one.median_s for one in blocks)


def timed_blocks(device: Device) -> list[HostCost]:
    """Of each, the round with the lower median."""
    works = list(device.host_costs())
    own_caller = KINDS[device.kind].synchronous
    rounds = []
    for place in range(ROUNDS if own_caller else ROUNDS_OF_CALLS):
        time.sleep(0 if own_caller or not place else PAUSE_S)
        rounds.append([_timed(device, work) for work in works])
    return faster(*rounds)


def faster(*rounds: list[HostCost]) -> list[HostCost]:
    """Of each block the round with the lowest median."""
    return [min(some, key=lambda one: one.median_s) for some in zip(*rounds, strict=True)]


def _timed(device: Device, work) -> HostCost:
    """A first step apart, the median of what follows counts."""
    device.step_times(work.step, 1)
    samples, end = [], time.monotonic() + BLOCK_S
    while len(samples) < FEWEST or (len(samples) < MOST and time.monotonic() < end):
        samples += [round(one, 10) for one in device.step_times(work.step, 1, len(samples) + 1)]
    return HostCost(
        name=work.name,
        count=work.count,
        amount=work.amount,
        calls=work.calls,
        threads=work.threads,
        samples_s=samples,
        median_s=statistics.median(samples),
    )
