"""The timed blocks of a record, and which of them other load disturbed."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from roofline.core.disturbance import LoadSensitivity, find_disturbances, find_hidden_load
from roofline.core.terms import DEVICE_TRAITS, DeviceKind
from roofline.records.all_reduce_record import AllReduceRecord
from roofline.records.bandwidth_record import BandwidthRecord
from roofline.records.calibration_record import CalibrationRecord
from roofline.records.compute import PeakFlopsRecord
from roofline.records.instructions_record import InstructionsRecord
from roofline.records.operator_record import JobRecord
from roofline.records.timing_record import Contention, DeviceState

MeasuredRecord = JobRecord | CalibrationRecord


class TimedBlock(NamedTuple):
    """A timed block of a record, with what was known of other load during it."""

    name: str
    sensitivity: LoadSensitivity  # which load disturbs it, by core/disturbance.py
    contention: Contention | None
    states: Sequence[DeviceState] = ()
    throttled: bool | None = False  # thermally, in every sample

    @property
    def other_processes(self) -> int | None:
        """The largest number of other processes that was seen on the GPU; None if it was never known."""
        counts = [state.other_processes for state in self.states]
        counts += [self.contention.other_processes] if self.contention else []
        return max((count for count in counts if count is not None), default=None)

    @property
    def host_load(self) -> list[str]:
        """The disturbances of the block by the host, in words; processes on the GPU are left out."""
        if not self.contention:
            return []
        on_host = self.contention.model_copy(update={"other_processes": None})
        return find_disturbances(on_host, self.sensitivity)


def timed_blocks(record: MeasuredRecord, kind: DeviceKind) -> Iterator[TimedBlock]:
    """Yield every timed block of a record of a device of this kind."""
    host = DEVICE_TRAITS[kind].load_sensitivity
    if isinstance(record, CalibrationRecord):
        yield TimedBlock("calibration", host, record.contention)
        return
    if isinstance(record, PeakFlopsRecord) and record.peak:
        burst, sustained = record.peak.burst, record.peak.sustained
        yield TimedBlock(record.name, host, burst.timing.contention, burst.states, record.peak.all_throttled)
        if sustained:
            yield TimedBlock(f"{record.name} sustained", "device", sustained.contention)
    if isinstance(record, BandwidthRecord):
        for bandwidth in record.bandwidths:
            contention = bandwidth.timing.contention
            yield TimedBlock(bandwidth.name, host, contention, bandwidth.states, bandwidth.all_throttled)
        for sweep in record.sweeps:
            yield TimedBlock(f"sweep {sweep.series}", host, sweep.contention, sweep.states)
    if isinstance(record, InstructionsRecord):
        timings = [("instruction issue", record.issue.timing), *((wall.pattern, wall.timing) for wall in record.walls)]
        for name, timing in timings:
            yield TimedBlock(name, host, timing.contention, record.issue.states, timing.all_throttled)
    if isinstance(record, AllReduceRecord):
        for timed in (timed for timed in record.all_reduces if timed.timing.contention):
            name = f"all-reduce {timed.implementation} {timed.size_bytes}"
            yield TimedBlock(name, host, timed.timing.contention, timed.states, timed.timing.all_throttled)
    for measurement in record.measurements:
        name = f"{measurement.operator} {measurement.implementation} {measurement.dtype}"
        cpu_time = measurement.cpu_time
        yield TimedBlock(name, host, cpu_time.contention, measurement.states, cpu_time.all_throttled)
        if measurement.gpu_time:
            yield TimedBlock(name, "device", measurement.gpu_time.contention)


def describe_host_load(record: MeasuredRecord, kind: DeviceKind) -> list[str]:
    """Return a line for each block that the host disturbed, or else for load that only the whole job could see."""
    lines = [f"{block.name}: {block.host_load[0]}" for block in timed_blocks(record, kind) if block.host_load]
    return lines or find_hidden_load(getattr(record, "whole_job", None), DEVICE_TRAITS[kind].load_sensitivity)


def disturbed_share(record: MeasuredRecord, kind: DeviceKind) -> float:
    """Return the share of disturbed blocks, from 0 to 1.

    It is 1 if a block was throttled throughout, or if only the whole job shows other load.
    """
    blocks = list(timed_blocks(record, kind))
    disturbed = sum(bool(block.other_processes or block.host_load) for block in blocks)
    if any(block.throttled for block in blocks) or (not disturbed and describe_host_load(record, kind)):
        return 1.0
    return disturbed / max(1, len(blocks))
