"""Who else used the device and its host while it was measured, and whether it was too hot."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from roofline.core.disturbance import THERMAL_REASONS, disturbances, hidden_load, limiting_words
from roofline.core.formatting import counted
from roofline.core.terms import KINDS, DeviceKind
from roofline.operators.about import name_of
from roofline.records.calibration import CalibrationRecord
from roofline.records.compute import PeakFlopsRecord
from roofline.records.instructions import InstructionsRecord
from roofline.records.memory import BandwidthRecord
from roofline.records.operator import JobRecord
from roofline.records.timing import Contention, DeviceState, Timing
from roofline.table.checks.judge import Evidence, Outcome, check

ALONE = "no other process on the GPU during measurements"
QUIET = "no other load during measurements"
COOL = "no thermal throttling under load"


class Block(NamedTuple):
    """One timed block of a record; `sensitive` is to what, by core.contention."""

    name: str
    sensitive: str
    contention: Contention | None
    states: Sequence[DeviceState] = ()

    @property
    def other_processes(self) -> int | None:
        """On the GPU; None if not known."""
        counts = [state.other_processes for state in self.states]
        counts += [self.contention.other_processes] if self.contention else []
        return max((count for count in counts if count is not None), default=None)

    @property
    def host_load(self) -> list[str]:
        alone = {"other_processes": None}
        return disturbances(self.contention.model_copy(update=alone), self.sensitive) if self.contention else []


@check(
    ALONE,
    doubts_figures=True,
    action="end the other process (nvidia-smi shows it), or ask for a card of your own; then make AGAIN=1",
)
def alone(known: Evidence) -> Outcome:
    seen = {path: [block.other_processes for block in _blocks(known, path)] for path in known.records}
    counts = [count for found in seen.values() for count in found if count is not None]
    if not counts:
        return Outcome("not_applicable", "NVML does not report the processes on the GPU")
    shared = [path for path, found in seen.items() if any(found)]
    words = f"{counted(len(shared), 'record')} of {len(seen)} shared the GPU" if shared else f"{len(counts)} blocks"
    return Outcome("fail" if shared else "pass", words, max(counts), 0, shared)


@check(QUIET, doubts_figures=True, of_cpus=True, action="make AGAIN=1 while the host is idle")
def quiet(known: Evidence) -> Outcome:
    """On the host. It disturbs the CPU and the CPU times of a GPU, but not GPU times."""
    blocks = [block for path in known.records for block in _blocks(known, path)]
    readings = [one.contention for one in blocks if one.contention and one.sensitive != "device"]
    if all(one.other_cores is None and one.waiting_share is None for one in readings):
        return Outcome("not_applicable", "the load on the host is not known")
    found = {path: host_load(one, known.device.device_kind) for path, one in known.records.items()}
    disturbed = [path for path, words in found.items() if words]
    if not disturbed:
        return Outcome("pass", counted(len(readings), "block"), 0, 0)
    words = f"a busy host disturbed {len(disturbed)} of {counted(len(found), 'record')} ({found[disturbed[0]][0]})"
    return Outcome("fail", words, len(disturbed), 0, disturbed)


@check(COOL, doubts_figures=True, action="let it cool, then make AGAIN=1; if it comes back, ask for another card")
def cool(known: Evidence) -> Outcome:
    """Heat, the power brake or a hardware slowdown at any moment; the power cap is normal. Figures are doubtful only
    if every sample of a record was throttled."""
    mine = known.mine(known.table.ceilings)
    compute, memory = ([one for one in mine if one.kind == kind] for kind in ("compute", "memory"))
    reported = [one for one in compute if (one.burst_limited_by, one.sustained_limited_by) != (None, None)]
    reported += [one for one in memory if one.throttled is not None]
    hot = {one.name: why for one in reported if (why := THERMAL_REASONS.intersection(one.limited_by))}
    always = dict.fromkeys(one.record for one in (*compute, *memory) if one.throttled)
    always |= dict.fromkeys(path for path, one in known.records.items() if _throttled(one))
    if hot or always:
        words = "; ".join(f"{name}: {limiting_words(sorted(why))}" for name, why in hot.items())
        words = words or f"{', '.join(always)}: throttled in every sample"
        return Outcome("fail", words, records=list(always), doubts=bool(always))
    if not reported:
        return Outcome("not_applicable", "NVML does not report clock event reasons")
    return Outcome("pass", counted(len(reported), "ceiling"))


def host_load(record: JobRecord | CalibrationRecord, kind: DeviceKind) -> list[str]:
    """What disturbed a record: each disturbed block, or else load that only the whole job could see."""
    found = [f"{one.name}: {words[0]}" for one in blocks(record, kind) if (words := one.host_load)]
    return found or hidden_load(getattr(record, "whole_job", None), KINDS[kind].sensitive)


def disturbed_share(record: JobRecord, kind: DeviceKind) -> float:
    """The share of disturbed blocks; 1 if all was throttled, or if other load shows only in the whole job."""
    timed = list(blocks(record, kind))
    disturbed = sum(bool(one.other_processes or one.host_load) for one in timed)
    if _throttled(record) or (not disturbed and host_load(record, kind)):
        return 1.0
    return disturbed / max(1, len(timed))


def _throttled(record: JobRecord | CalibrationRecord) -> bool:
    """Whether every sample of a ceiling was thermally throttled."""
    if isinstance(record, PeakFlopsRecord):
        return bool(record.peak and record.peak.throttled)
    if isinstance(record, BandwidthRecord):
        return any(one.throttled for one in record.bandwidths)
    return isinstance(record, InstructionsRecord) and any(one.all_throttled for _, one in _issued(record))


def _blocks(known: Evidence, path: str) -> Iterator[Block]:
    return blocks(known.records[path], known.device.device_kind)


def blocks(record: JobRecord | CalibrationRecord, kind: DeviceKind) -> Iterator[Block]:
    """Every timed block of a record."""
    sensitive = KINDS[kind].sensitive
    if isinstance(record, CalibrationRecord):
        yield Block("calibration", sensitive, record.contention)
        return
    if isinstance(record, PeakFlopsRecord) and record.peak:
        burst, sustained = record.peak.burst, record.peak.sustained
        yield Block(record.dtype, sensitive, burst.latency.contention, burst.states)
        if sustained:
            yield Block(f"{record.dtype} sustained", "device", sustained.contention)
    if isinstance(record, BandwidthRecord):
        for one in record.bandwidths:
            yield Block(one.name, sensitive, one.latency.contention, one.states)
        for one in record.sweeps:
            yield Block(f"sweep {one.series}", sensitive, one.contention, one.states)
    if isinstance(record, InstructionsRecord):
        for name, latency in _issued(record):
            yield Block(name, sensitive, latency.contention, record.issue.states)
    for one in record.measurements:
        yield Block(name_of(one), sensitive, one.latency.contention, one.states)
        if one.device_latency:
            yield Block(name_of(one), "device", one.device_latency.contention)


def _issued(record: InstructionsRecord) -> list[tuple[str, Timing]]:
    limits = [(f"{one.pattern} {one.of}", one.latency) for one in record.walls]
    return [("instruction issue", record.issue.latency), *limits]
