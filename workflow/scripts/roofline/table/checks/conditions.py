"""Checks of the conditions of a measurement: who else used the card and its host, and whether it was throttled."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from roofline.core.disturbance import THERMAL_REASONS, disturbances, limiting_words
from roofline.core.formatting import counted
from roofline.core.terms import KINDS
from roofline.operators.about import name_of
from roofline.records.compute import PeakFlopsRecord
from roofline.records.instructions import InstructionsRecord
from roofline.records.memory import BandwidthRecord
from roofline.records.operator import JobRecord
from roofline.records.timing import Contention, DeviceState, Timing
from roofline.table.checks.registry import Evidence, Outcome, check

NAMED = 3  # blocks in a reason
ISSUE = "instruction issue"

ALONE = "no other process on the GPU during measurements"
QUIET = "no other load during measurements"
UNTHROTTLED = "no ceiling measured only under thermal throttling"
COOL = "no thermal throttling under load"

OWN_CARD = "ask for a card of your own"


class Block(NamedTuple):
    """One timed block of a record."""

    name: str
    sensitive: str  # to what, by core.disturbance
    contention: Contention | None
    states: Sequence[DeviceState] = ()


@check(
    ALONE,
    looks_at="measurements",
    doubts_figures=True,
    passing=True,
    action=f"end the other process (nvidia-smi shows it), or {OWN_CARD}; then make AGAIN=1",
)
def alone(known: Evidence) -> Outcome:
    blocks = [(block.name, other_processes(block)) for block in _blocks(known)]
    judged = [count for _, count in blocks if count is not None]
    if not judged:
        return Outcome("not_applicable", "NVML reports no process numbers that can be told from our own")
    shared = list(dict.fromkeys(name for name, count in blocks if count))
    if not shared:
        return Outcome("pass", counted(len(judged), "block"), 0, 0)
    more = f" and {len(shared) - NAMED} more" if len(shared) > NAMED else ""
    reason = f"{others(max(judged))} used the GPU during {', '.join(shared[:NAMED])}{more}"
    return Outcome("fail", reason, max(judged), 0)


@check(
    QUIET,
    looks_at="measurements",
    doubts_figures=True,
    of_cpus=True,
    passing=True,
    action="make AGAIN=1 while the host is idle",
)
def quiet(known: Evidence) -> Outcome:
    """On the host. A GPU's ceilings bear a busy one; what a caller measures does not."""
    blocks = [block for block in _blocks(known) if block.contention and block.sensitive != "device"]
    judged = [block for block in blocks if {block.contention.other_cores, block.contention.waiting_share} != {None}]
    hidden = [found for record in known.records for found in _hidden(record, KINDS[known.record.device_kind].sensitive)]
    if not judged:
        return Outcome("not_applicable", "what else ran on the host is not known")
    disturbed = [(block.name, found) for block in judged if (found := _disturbed(block))]
    if hidden and not disturbed:
        return Outcome("fail", f"a busy host: {hidden[0]}", len(hidden), 0)
    if not disturbed:
        again = sum(block.contention.attempts > 1 for block in judged)
        reason = f"{counted(len(judged), 'block')}" + (f", {again} of them measured again" if again else "")
        return Outcome("pass", reason, 0, 0)
    what = "" if KINDS[known.record.device_kind].synchronous else "end-to-end times of "
    (name, found), *rest = disturbed
    more = f"; and {len(rest)} more" if rest else ""
    reason = f"{what}{len(disturbed)} of {counted(len(judged), 'timed block')} disturbed ({name}: {found[0]}{more})"
    return Outcome("fail", f"a busy host: {reason}", len(disturbed), 0)


@check(UNTHROTTLED, looks_at="measurements", doubts_figures=True, of_cpus=True, passing=True)
def unthrottled(known: Evidence) -> Outcome:
    ceilings = {one.dtype: one.peak.throttled for one in peaks(known.records)}
    ceilings |= {one.name: one.throttled for one in bandwidths(known.records)}
    for one in known.records:
        if isinstance(one, InstructionsRecord):
            reported = any(state.throttle_reasons is not None for state in one.issue.states)
            ceilings |= {name: latency.all_throttled if reported else None for name, latency in _issued(one)}
    throttled = [name for name, value in ceilings.items() if value]
    unknown = [name for name, value in ceilings.items() if value is None]
    if throttled:
        return Outcome("fail", f"of {len(ceilings)} ceilings, throttled in every sample: {', '.join(throttled)}")
    if not KINDS[known.record.device_kind].reports_power:
        return Outcome("not_applicable", "a CPU does not report throttling")
    if len(unknown) == len(ceilings):
        return Outcome("not_applicable", "the device does not report throttling")
    unreported = f"; not reported for {', '.join(unknown)}" if unknown else ""
    return Outcome("pass", f"{len(ceilings) - len(unknown)} ceilings{unreported}")


@check(
    COOL,
    looks_at="measurements",
    action="let it cool and run again; if it comes back, ask for another card",
)
def cool(known: Evidence) -> Outcome:
    """Heat, the power brake or a hardware slowdown, at any moment; the power cap is no fault."""
    limits: dict[str, list[str] | None] = {}
    for one in peaks(known.records):
        reported = one.peak.burst_limited_by is not None or one.peak.sustained_limited_by is not None
        limits[one.dtype] = one.peak.limited_by if reported else None
    limits |= {one.name: one.limited_by if one.throttled is not None else None for one in bandwidths(known.records)}
    hot = {name: found for name, reasons in limits.items() if (found := THERMAL_REASONS.intersection(reasons or []))}
    if hot:
        return Outcome("fail", "; ".join(f"{name}: {limiting_words(sorted(why))}" for name, why in hot.items()))
    judged = [name for name, reasons in limits.items() if reasons is not None]
    if not judged:
        return Outcome("not_applicable", "not readable: NVML reports no clock event reasons")
    hottest = max(_temperatures(known.records), default=None)
    degrees = "" if hottest is None else f", {hottest:.0f} degrees Celsius at most"
    return Outcome("pass", f"none reported under {', '.join(judged)}{degrees}")


def disturbed_share(known: Evidence) -> float:
    """The share of timed blocks of a record during which other load ran; 1 if a ceiling was throttled in every sample,
    or if other load shows in the whole job alone."""
    blocks = list(_blocks(known))
    disturbed = sum(bool(other_processes(one) or (one.contention and _disturbed(one))) for one in blocks)
    if unthrottled(known).result == "fail" or (not disturbed and quiet(known).result == "fail"):
        return 1.0
    return disturbed / max(1, len(blocks))


# ---------------------------------------------------------------- the records' parts


def peaks(records: Sequence[JobRecord]) -> list[PeakFlopsRecord]:
    return [one for one in records if isinstance(one, PeakFlopsRecord) and one.peak]


def bandwidths(records: Sequence[JobRecord]) -> list:
    return [one for record in records if isinstance(record, BandwidthRecord) for one in record.bandwidths]


def others(count: int) -> str:
    return f"{count} other process{'' if count == 1 else 'es'}"


def other_processes(block: Block) -> int | None:
    counts = [state.other_processes for state in block.states]
    counts += [block.contention.other_processes] if block.contention else []
    return max((count for count in counts if count is not None), default=None)


def _disturbed(block: Block) -> list[str]:
    """By the host alone; other processes on the GPU have a check of their own."""
    return disturbances(block.contention.model_copy(update={"other_processes": None}), block.sensitive)


def _hidden(record: JobRecord, sensitive: str) -> list[str]:
    """Of a whole job: its blocks are too short to tell of load that is hidden from this process."""
    if record.whole_job is None:
        return []
    seen = dict.fromkeys(("other_cores", "waiting_share", "stolen_share", "throttled_share", "other_processes"))
    return disturbances(record.whole_job.model_copy(update=seen), sensitive)


def _temperatures(records: Sequence[JobRecord]) -> Iterable[float]:
    states = [state for one in bandwidths(records) for state in one.states]
    for one in peaks(records):
        states += [*one.peak.burst.states, *(one.peak.sustained.curve if one.peak.sustained else [])]
    return (state.temperature_c for state in states if state.temperature_c is not None)


def _blocks(known: Evidence) -> Iterator[Block]:
    sensitive = KINDS[known.record.device_kind].sensitive
    if known.calibration:
        yield Block("calibration", sensitive, known.calibration.contention)
    for record in known.records:
        if isinstance(record, PeakFlopsRecord) and record.peak:
            burst = record.peak.burst
            yield Block(record.dtype, sensitive, burst.latency.contention, burst.states)
            if record.peak.sustained:
                yield Block(f"{record.dtype} sustained", "device", record.peak.sustained.contention)
        if isinstance(record, BandwidthRecord):
            for one in record.bandwidths:
                yield Block(one.name, sensitive, one.latency.contention, one.states)
            for one in record.sweeps:
                yield Block(f"sweep {one.series}", sensitive, one.contention, one.states)
        if isinstance(record, InstructionsRecord):
            for name, latency in _issued(record):
                yield Block(name, sensitive, latency.contention, record.issue.states if name == ISSUE else ())
        for one in record.measurements:
            name = name_of(one)
            yield Block(name, sensitive, one.latency.contention, one.states)
            if one.device_latency:
                yield Block(name, "device", one.device_latency.contention)


def _issued(record: InstructionsRecord) -> list[tuple[str, Timing]]:
    walls = [(f"{wall.pattern} {wall.of}", wall.latency) for wall in record.walls]
    return [(ISSUE, record.issue.latency), *walls]
