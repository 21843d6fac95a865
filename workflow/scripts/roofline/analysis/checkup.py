"""What `make health` says of a card: the criteria of every run, and what it alone looks at, each with what to do.

docs/health.md has the source of every threshold.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from roofline.analysis import health
from roofline.analysis.acceptance import AWAY
from roofline.analysis.distribution import OTHERS, Standing, sentence
from roofline.analysis.quantities import Quantity
from roofline.core.formatting import counted, flops_unit, number, percent
from roofline.core.throttling import THERMAL_REASONS, limiting_words
from roofline.records.compute import PeakFlops, PeakFlopsRecord
from roofline.records.device import DeviceRecord
from roofline.records.health import CardHealth, Finding, HealthFigure, HealthStatus, RepeatabilityRecord, Unused, Xid
from roofline.records.memory import BandwidthRecord
from roofline.records.operator import JobRecord

# Of what the host link's lanes carry, that copies from and to pinned memory reach at least: azurehpc-health-checks asks
# for 21 GB/s of 31.5 (generation 4) and 48 of 63 (generation 5); the lower share of both.
COPIES_OF_LINK = 0.66
MOST_REMAPPED_ROWS = 512  # azurehpc-health-checks fails a card with more
MOST_RETIRED_PAGES = 10  # Meta's gcm
BUSY, USED = 0.05, 0.05  # of a card that nobody uses: an idle H200 reports 0 % utilisation and 0.4 % of memory used
# That azurehpc-health-checks fails a machine for, and by NVIDIA's list of Xid errors uncorrectable memory errors from
# Ampere on (94 contained, 95 not); the others are, or may be, a program's own doing.
HARDWARE_XIDS = {48, 56, 57, 58, 62, 63, 64, 65, 68, 69, 73, 74, 79, 80, 81, 92, 94, 95, 119, 120}
KILLED_XID = 45  # what a program leaves that is killed, as ours are where time runs out

MEASURED = "every measurement went through"
UNUSED = "nobody else uses the GPU"
REPAIRS = "few rows or pages of memory taken out of use"
XIDS = "no Xid errors of the hardware"
COOL = "no thermal throttling under load"
COPIES = f"host copies at {percent(COPIES_OF_LINK)} or more of what the link's lanes carry"
PRODUCTS = f"matrix products at {percent(1 - AWAY)} or more of the vendor's peak"
REPEATABLE = "the same product gives the same bits every time"
POWER_LIMIT = "power limit as the vendor's"

ANOTHER, ANOTHER_HOST = "ask for another card", "ask for another host"
ADVICE = {
    MEASURED: f"run again; if it fails again, {ANOTHER}",
    health.MEMORY: f"reset the GPU or restart the machine; if it comes back, {ANOTHER}",
    REPAIRS: ANOTHER,
    XIDS: f"reset the GPU or restart the machine; if it comes back, {ANOTHER}",
    UNUSED: "end the other process (of other containers nvidia-smi shows none), or ask for a card of your own",
    health.ALONE: "end the other process (nvidia-smi shows it), or ask for a card of your own; then run again",
    health.QUIET: "run again while the host is quiet, before you trust the host copies",
    COOL: f"let it cool and run again; if it comes back, {ANOTHER}",
    health.NEAR_MAXIMUM: f"unlock it with nvidia-smi -rgc and -rac where you may, else {ANOTHER}",
    health.LINK: f"{ANOTHER_HOST}: the card is not seated well, or its slot has fewer lanes",
    COPIES: f"run again; if it stays so, {ANOTHER_HOST}",
    health.READS: ANOTHER,
    health.REGISTERS: ANOTHER,
    PRODUCTS: ANOTHER,
    REPEATABLE: f"do not compute on this card: results would be wrong unseen; {ANOTHER}",
    POWER_LIMIT: "ask the provider whether that is meant: sustained products get slower by about as much",
}
# Cards of 70 to 150 W, such as T4 and L4, have not the power for the vendor's peak.
AT_POWER_LIMIT = f"compare it with other cards of its model: many reach no more; if this one is slower, {ANOTHER}"
TIMED = (health.READS, health.REGISTERS, PRODUCTS, OTHERS)


@dataclass(frozen=True)
class Evidence:
    """What is known of one card. Of what was not measured there is no record."""

    name: str
    uuid: str
    device: DeviceRecord | None = None
    records: Sequence[JobRecord] = ()
    repeated: RepeatabilityRecord | None = None
    failures: Mapping[str, str] = field(default_factory=dict)  # of the card, by what was measured
    not_measured: Mapping[str, str] = field(default_factory=dict)  # what else kept it from being measured
    unused: Unused | None = None
    xids: list[Xid] | None = None
    earlier_xids: bool = True  # whether the kernel's log could be read
    quantities: Sequence[Quantity] = ()
    standing: Standing | None = None  # among other cards of its model; None where none is known


def check(device: str, known: Evidence) -> CardHealth:
    found = list(_findings(known))
    return CardHealth(
        device=device,
        name=known.name,
        uuid=known.uuid,
        status=_status(found),
        findings=found,
        figures=[
            HealthFigure(name=q.name, value=q.value, unit=q.unit, clock_mhz=q.clock_mhz) for q in known.quantities
        ],
        unused=known.unused,
        xids=known.xids,
    )


def overall(cards: Iterable[HealthStatus]) -> HealthStatus:
    """Of several cards: one that is not healthy decides, then one of which it cannot be told."""
    found = set(cards)
    return next((one for one in ("not healthy", "cannot tell") if one in found), "healthy" if found else "cannot tell")


def _status(findings: Sequence[Finding]) -> HealthStatus:
    if any(one.result == "fail" for one in findings):
        return "not healthy"
    by_check = {one.check: one.result for one in findings}
    judged = any(by_check.get(one) == "pass" for one in TIMED)
    return "healthy" if judged and by_check[MEASURED] == "pass" else "cannot tell"


def _findings(known: Evidence) -> Iterable[Finding]:
    yield _measured(known)
    if known.device:
        yield from _criteria(known, [health.MEMORY])
        yield _repairs(_after(known).hardware)
    yield _xids(known.xids, known.earlier_xids)
    yield _unused(known.unused)
    if not known.device:
        return
    yield from _criteria(known, [health.ALONE, health.QUIET])
    yield _cool(known.records)
    yield from _criteria(known, [health.NEAR_MAXIMUM, health.LINK])
    yield _copies(known.records)
    yield from _criteria(known, [health.READS, health.REGISTERS])
    yield _products(known.records)
    yield _repeatable(known.repeated)
    yield _power_limit(known.device)
    if known.standing:
        yield _others(known.name, known.standing)


def _finding(check: str, result: str, found: str) -> Finding:
    return Finding(
        check=check, result=result, found=found, advice=ADVICE[check] if result in ("fail", "note") else None
    )


def _criteria(known: Evidence, wanted: Sequence[str]) -> Iterable[Finding]:
    """Those of every run. A busy host is no fault of the card."""
    results = {"pass": "pass", "fail": "fail", "not_applicable": "unknown"}
    for one in health.criteria(_after(known), known.records):
        if one.criterion in wanted:
            result = "note" if (one.criterion, one.result) == (health.QUIET, "fail") else results[one.result]
            yield _finding(one.criterion, result, one.reason)


def _after(known: Evidence) -> DeviceRecord:
    """The device with the memory errors that it reported after the load."""
    later = known.repeated.memory_errors if known.repeated else {}
    return known.device.model_copy(update={"hardware": known.device.hardware | later})


def _measured(known: Evidence) -> Finding:
    lacking = {**known.failures, **known.not_measured}
    if lacking:
        told = "; ".join(f"{what}: {why}" for what, why in lacking.items())
        return _finding(MEASURED, "fail" if known.failures else "unknown", told)
    return _finding(MEASURED, "pass", counted(len(known.records) + (known.repeated is not None), "measurement"))


def _repairs(hardware: Mapping) -> Finding:
    kinds = (
        ("remapped_rows", "row", "remapped", MOST_REMAPPED_ROWS),
        ("retired_pages", "page", "retired", MOST_RETIRED_PAGES),
    )
    told = [(f"{counted(hardware[key], what)} {how}", hardware[key] > most, most)
            for key, what, how, most in kinds if hardware.get(key) is not None]  # fmt: skip
    if not told:
        return _finding(REPAIRS, "unknown", "not readable: NVML reports neither remapped rows nor retired pages")
    words = ", ".join(f"{words} (more than {most})" if many else words for words, many, most in told)
    return _finding(REPAIRS, "fail" if any(many for _, many, _ in told) else "pass", words)


def _xids(xids: list[Xid] | None, earlier: bool) -> Finding:
    """Of those in the log an earlier program may be the cause; while we measure, nothing of ours may raise one, except
    by being killed."""
    if xids is None:
        return _finding(XIDS, "unknown", "not readable: NVML takes no listener, and the kernel's log may not be read")
    grave = [one for one in xids if one.code in HARDWARE_XIDS or (one.when == "during" and one.code != KILLED_XID)]
    if not xids:
        since = "in two hours and" if earlier else "earlier ones are not readable; none"
        return _finding(XIDS, "pass", f"{'none ' if earlier else ''}{since} while it was measured")
    words = "; ".join(_xid_words(one) for one in grave or xids)
    return _finding(XIDS, "fail" if grave else "note", words)


def _xid_words(one: Xid) -> str:
    when = "while it was measured" if one.when == "during" else f"{number((one.age_s or 0) / 60)} minutes ago"
    return f"Xid {one.code} {when}" + (f" ({one.text})" if one.text else "")


def _unused(unused: Unused | None) -> Finding:
    """Before anything was measured. A process of another container is not listed, but its load and memory show."""
    if unused is None or {unused.processes, unused.utilisation, unused.memory_used_share} == {None}:
        return _finding(UNUSED, "unknown", "not readable: NVML reports neither processes nor utilisation")
    found = [health.others(unused.processes)] if unused.processes else []
    if (unused.utilisation or 0) > BUSY:
        found.append(f"busy for {percent(unused.utilisation)} of the time")
    if (unused.memory_used_share or 0) > USED:
        found.append(f"{percent(unused.memory_used_share)} of its memory in use")
    if found:
        return _finding(UNUSED, "fail", f"before anything was measured: {', '.join(found)}")
    return _finding(UNUSED, "pass", "neither a process nor load before anything was measured")


def _cool(records: Sequence[JobRecord]) -> Finding:
    limits: dict[str, list[str] | None] = {}
    for record in records:
        if isinstance(record, PeakFlopsRecord) and record.peak:
            told = record.peak.burst_limited_by is not None or record.peak.sustained_limited_by is not None
            limits[record.dtype] = record.peak.limited_by if told else None
        if isinstance(record, BandwidthRecord):
            limits |= {one.name: one.limited_by if one.throttled is not None else None for one in record.bandwidths}
    hot = {name: found for name, reasons in limits.items() if (found := THERMAL_REASONS.intersection(reasons or []))}
    if hot:
        return _finding(COOL, "fail", "; ".join(f"{name}: {limiting_words(sorted(why))}" for name, why in hot.items()))
    if not limits or set(map(type, limits.values())) == {type(None)}:
        return _finding(COOL, "unknown", "not readable: NVML reports no clock event reasons")
    hottest = max((degrees for record in records for degrees in _temperatures(record)), default=None)
    told = "" if hottest is None else f", {hottest:.0f} degrees Celsius at most"
    known = [name for name, reasons in limits.items() if reasons is not None]
    return _finding(COOL, "pass", f"none reported under {', '.join(known)}{told}")


def _temperatures(record: JobRecord) -> Iterable[float]:
    states = []
    if isinstance(record, PeakFlopsRecord) and record.peak:
        states = [*record.peak.burst.states, *(record.peak.sustained.curve if record.peak.sustained else [])]
    if isinstance(record, BandwidthRecord):
        states = [state for one in record.bandwidths for state in one.states]
    return (state.temperature_c for state in states if state.temperature_c is not None)


def _copies(records: Sequence[JobRecord]) -> Finding:
    streams = [one for record in records if isinstance(record, BandwidthRecord) for one in record.bandwidths]
    pinned = [one for one in streams if one.level == "pcie" and not one.name.endswith("_pageable")]
    lanes = [(state.pcie_width or 0) * health.GB_PER_S_OF_LANE.get(state.pcie_generation, 0)
             for one in pinned for state in one.states]  # fmt: skip
    carried = max(lanes, default=0)
    told = ", ".join(f"{one.name} {number(one.gb_per_s)} GB/s" for one in pinned)
    if not pinned or not carried:
        return _finding(
            COPIES, "unknown", f"{told or 'no host copy was measured'}{'; the link was not read' if told else ''}"
        )
    slow = [one for one in pinned if one.gb_per_s < COPIES_OF_LINK * carried]
    return _finding(COPIES, "fail" if slow else "pass", f"{told} of {number(carried)} GB/s, {_shares(pinned, carried)}")


def _shares(streams: Sequence, whole: float) -> str:
    return " and ".join(percent(one.gb_per_s / whole) for one in streams)


def _products(records: Sequence[JobRecord]) -> Finding:
    peaks = {one.dtype: one.peak for one in records if isinstance(one, PeakFlopsRecord) and one.peak}
    products = {dtype: peak for dtype, peak in peaks.items() if peak.method == "gemm"}
    known = {dtype: peak for dtype, peak in products.items() if peak.vendor_tflops}
    if not known:
        why = "the vendor's peak is not known" if products else "no product was measured"
        return _finding(PRODUCTS, "unknown", why)
    words = ", ".join(
        f"{dtype} {number(peak.burst_tflops)} {flops_unit(dtype)}, "
        f"{percent(peak.burst_tflops / peak.vendor_tflops)} of the vendor's {number(peak.vendor_tflops)}"
        for dtype, peak in known.items()
    )
    slow = [peak for peak in known.values() if peak.burst_tflops < (1 - AWAY) * peak.vendor_tflops]
    if slow and all(map(_at_power_limit, slow)):
        return Finding(check=PRODUCTS, result="note", found=f"{words}, at its power limit", advice=AT_POWER_LIMIT)
    return _finding(PRODUCTS, "fail" if slow else "pass", words)


def _at_power_limit(peak: PeakFlops) -> bool:
    """Whether only the clock is low, and only for power: at that clock the units do what they should."""
    return set(peak.limited_by) == health.POWER and (peak.sustained_fraction_of_clock or 0) >= 1 - AWAY


def _repeatable(repeated: RepeatabilityRecord | None) -> Finding:
    if repeated is None:
        return _finding(REPEATABLE, "unknown", "not measured")
    over = f"{repeated.products:,} {repeated.dtype} products over {number(repeated.memory_bytes / 1e9)} GB of memory"
    if repeated.fault:
        return _finding(REPEATABLE, "fail", f"the first product is wrong: {repeated.fault}")
    if repeated.wrong_words:
        differing = (
            f"{counted(repeated.wrong_words, 'word')} differed from the first, in {repeated.wrong_places} of its copies"
        )
        return _finding(REPEATABLE, "fail", f"silent corruption in {over}: {differing}")
    return _finding(REPEATABLE, "pass", f"{over}, no bit differed")


def _power_limit(device: DeviceRecord) -> Finding:
    limit, vendor = device.hardware.get("power_limit_w"), device.vendor.power_limit_w
    if not limit or not vendor:
        return _finding(
            POWER_LIMIT, "unknown", "not reported" if not limit else f"{limit:.0f} W; the vendor's is not known"
        )
    return _finding(POWER_LIMIT, "note" if limit < vendor else "pass", f"{limit:.0f} W of {vendor:.0f} W")


def _others(card: str, found: Standing) -> Finding:
    result = "unknown" if found.why else ("pass", "note", "fail", "fail")[found.band]
    of_host = all(one.of_host for one in found.graded if one.band > 1)
    another = ANOTHER_HOST if of_host else ANOTHER
    advice = {"note": "nothing, unless another run shows the same and it matters to you", "fail": another}
    return Finding(check=OTHERS, result=result, found=sentence(card, found), advice=advice.get(result))
