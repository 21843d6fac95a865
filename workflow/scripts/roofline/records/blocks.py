"""The timed blocks of a record, and which of them other load disturbed."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from roofline.core.disturbance import LoadSensitivity, find_disturbances, find_hidden_load
from roofline.core.terms import DEVICE_TRAITS, DeviceKind
from roofline.records.bandwidth_record import BandwidthRecord
from roofline.records.calibration_record import CalibrationRecord
from roofline.records.compute import PeakFlopsRecord
from roofline.records.instructions_record import InstructionsRecord
from roofline.records.operator_record import JobRecord
from roofline.records.timing_record import Contention, DeviceState

Measured = JobRecord | CalibrationRecord


class TimedBlock(NamedTuple):
    """`sensitive` is to what, by core.contention."""

    name: str
    sensitive: LoadSensitivity
    contention: Contention | None
    states: Sequence[DeviceState] = ()
    throttled: bool | None = False  # thermally, in every sample

    @property
    def other_processes(self) -> int | None:
        """On the GPU; None if not known."""
        counts = [state.other_processes for state in self.states]
        counts += [self.contention.other_processes] if self.contention else []
        return max((count for count in counts if count is not None), default=None)

    @property
    def host_load(self) -> list[str]:
        alone = {"other_processes": None}
        return find_disturbances(self.contention.model_copy(update=alone), self.sensitive) if self.contention else []


def blocks(record: Measured, kind: DeviceKind) -> Iterator[TimedBlock]:
    """Every timed block of a record of a device of this kind."""
    host = DEVICE_TRAITS[kind].load_sensitivity
    if isinstance(record, CalibrationRecord):
        yield TimedBlock("calibration", host, record.contention)
        return
    if isinstance(record, PeakFlopsRecord) and record.peak:
        burst, sustained = record.peak.burst, record.peak.sustained
        yield TimedBlock(record.dtype, host, burst.latency.contention, burst.states, record.peak.throttled)
        if sustained:
            yield TimedBlock(f"{record.dtype} sustained", "device", sustained.contention)
    if isinstance(record, BandwidthRecord):
        for one in record.bandwidths:
            yield TimedBlock(one.name, host, one.latency.contention, one.states, one.throttled)
        for one in record.sweeps:
            yield TimedBlock(f"sweep {one.series}", host, one.contention, one.states)
    if isinstance(record, InstructionsRecord):
        for name, one in (("instruction issue", record.issue), *((wall.pattern, wall) for wall in record.walls)):
            yield TimedBlock(name, host, one.latency.contention, record.issue.states, one.latency.all_throttled)
    for one in record.measurements:
        name = f"{one.operator} {one.implementation} {one.dtype}"
        yield TimedBlock(name, host, one.latency.contention, one.states, one.latency.all_throttled)
        if one.device_latency:
            yield TimedBlock(name, "device", one.device_latency.contention)


def host_load(record: Measured, kind: DeviceKind) -> list[str]:
    """What disturbed a record: each disturbed block, or else load that only the whole job could see."""
    found = [f"{one.name}: {words[0]}" for one in blocks(record, kind) if (words := one.host_load)]
    return found or find_hidden_load(getattr(record, "whole_job", None), DEVICE_TRAITS[kind].load_sensitivity)


def disturbed_share(record: Measured, kind: DeviceKind) -> float:
    """The share of disturbed blocks; 1 if one was throttled throughout, or if only the whole job shows other load."""
    timed = list(blocks(record, kind))
    disturbed = sum(bool(one.other_processes or one.host_load) for one in timed)
    if any(one.throttled for one in timed) or (not disturbed and host_load(record, kind)):
        return 1.0
    return disturbed / max(1, len(timed))
