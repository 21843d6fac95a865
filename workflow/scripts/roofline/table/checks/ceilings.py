"""Checks of the ceilings: against the vendor's figures, the clock, and what the hardware can issue."""

from collections.abc import Iterable, Sequence

from roofline.core.disturbance import limiting_words
from roofline.core.formatting import counted, flops_unit, number, percent
from roofline.core.statistics import FEWEST_SAMPLES, few
from roofline.core.terms import MIXES
from roofline.devices.datasheets import DTYPES
from roofline.records.compute import PeakFlops, PeakFlopsRecord
from roofline.records.device import DeviceRecord
from roofline.records.operator import JobRecord
from roofline.records.timing import Contention, DeviceState
from roofline.table.checks.card import ANOTHER
from roofline.table.checks.conditions import Block, bandwidths, other_processes, others, peaks
from roofline.table.checks.registry import Evidence, Outcome, check

# Of the vendor's bandwidth that reads reach at least, by type of memory; None where none is known. Five H200s read 96
# to 98 %. GDDR keeps the codes of its error correction among the data, and no card with it has been measured here.
MEMORY_READ: dict[str, float | None] = {"HBM": 0.85, "GDDR": None}
# Of multiprocessors x rate x counted clock that register-only kernels reach at least: an H200's reach 98 to 99.5 %. The
# rates are of the architecture, so it holds for each whose rates are known.
REGISTERS_OF_CLOCK = 0.90
# Of the highest clock: register-only kernels draw little power, and on an H200 run at 99.9 % of it. GeForce's NVML
# reports a maximum that no load reaches; the boost clock of the datasheet is then the lower of the two.
CLOCK = 0.95
HBM_BUS_BITS = 1024  # the interface of one stack, wider than any GDDR's
POWER = {"sw_power_cap"}  # as a card is meant to: it explains a lower clock, and is no fault
AWAY = 0.30  # how far a burst may be from the vendor's peak
ENOUGH_DTYPES = 3
ISSUED = 0.97
HBM_MIXES = tuple(f"hbm_{mix}" for mix in MIXES)

NEAR_MAXIMUM = "clock within 5 % of its maximum under light load"
READS = "memory reads at 85 % of the vendor's bandwidth or more"
REGISTERS = "register-only kernels at 90 % or more of what their clock allows"
MATMULS = f"matrix products within {percent(AWAY)} of the vendor's peak"
DTYPES_MEASURED = f"{ENOUGH_DTYPES} or more dtypes measured against the vendor's peak"
ENVELOPE = "the HBM envelope is complete"
ISSUE_RATE = f"warp instructions are issued at {percent(ISSUED)} or more of what the schedulers can"

# Cards of 70 to 150 W, such as T4 and L4, have not the power for the vendor's peak.
AT_POWER_LIMIT = f"compare it with other cards of its model: many reach no more; if this one is slower, {ANOTHER}"


@check(
    NEAR_MAXIMUM,
    looks_at="measurements",
    doubts_figures=True,
    action=f"unlock it with nvidia-smi -rgc and -rac where you may, else {ANOTHER}",
)
def clock(known: Evidence) -> Outcome | None:
    """The fastest of the register-only kernels counts: not all of them are a light load."""
    device = known.record
    highest, boost = device.hardware.get("sm_clock_max_mhz"), device.vendor.boost_clock_mhz
    kernels = [(one.dtype, one.peak) for one in _in_registers(known.records) if one.peak.clock_mhz]
    if not kernels or not highest:
        why = "no clock was counted under light load" if highest else "NVML reports no maximum clock"
        return Outcome("not_applicable", why)
    if not boost and memory_type(device) != "HBM":
        why = f"NVML's maximum of {highest} MHz may be out of reach, and no boost clock is known"
        return Outcome("not_applicable", why)
    highest = min(highest, boost or highest)
    dtype, peak = max(kernels, key=lambda one: one[1].clock_mhz)
    reason, share = f"{dtype} ran at {peak.clock_mhz:.0f} of {highest:.0f} MHz", peak.clock_mhz / highest
    if share >= CLOCK:
        return Outcome("pass", reason, share, CLOCK)
    limits = set(peak.limited_by)
    if limits and limits <= POWER:
        return Outcome("not_applicable", f"{reason}, limited by the power cap: no load of this card is light")
    if limits:
        return Outcome("fail", f"{reason}: limited by {limiting_words(sorted(limits - POWER))}", share, CLOCK)
    short = ", or too short a load for NVML to tell" if peak.burst_limited_by is None else ""
    return Outcome("fail", f"{reason}: no reason is reported; it may be locked{short}", share, CLOCK)


@check(READS, looks_at="measurements", doubts_figures=True, action=ANOTHER)
def reads(known: Evidence) -> Outcome | None:
    device = known.record
    one = next((one for one in bandwidths(known.records) if one.name == "hbm_read"), None)
    if one is None:
        return Outcome("not_applicable", "hbm_read was not measured")
    kind = memory_type(device)
    least = MEMORY_READ.get(kind)
    if least is None:
        return Outcome("not_applicable", f"no threshold is known for {kind or 'a memory of unknown type'}")
    share = one.fraction_of_vendor
    if share is None:
        return Outcome("not_applicable", "the vendor's bandwidth is not known")
    reason = f"hbm_read reaches {percent(share)} of the vendor's {number(one.vendor_gb_per_s)} GB/s"
    if share >= least:
        return Outcome("pass", reason, share, least)
    fastest, clocks = device.hardware.get("memory_clock_max_mhz"), [s.memory_clock_mhz for s in _loaded(one.states)]
    mhz = max((one for one in clocks if one), default=None)
    slow = f"the memory clock is {mhz:.0f} of {fastest} MHz" if fastest and mhz and mhz < CLOCK * fastest else ""
    return Outcome("fail", f"{reason}: {slow or _cause(one.states, one.latency.contention)}", share, least)


def memory_type(device: DeviceRecord) -> str | None:
    bits = device.hardware.get("memory_bus_width_bits")
    return ("HBM" if bits >= HBM_BUS_BITS else "GDDR") if bits else None


@check(REGISTERS, looks_at="measurements", doubts_figures=True, action=ANOTHER)
def registers(known: Evidence) -> Outcome | None:
    shares = {one.dtype: one.peak for one in _in_registers(known.records) if one.peak.fraction_of_clock}
    if not shares:
        return Outcome("not_applicable", "no register-only kernel was measured whose clock and rate are known")
    least = min(peak.fraction_of_clock for peak in shares.values())
    slow = {dtype: peak for dtype, peak in shares.items() if peak.fraction_of_clock < REGISTERS_OF_CLOCK}
    if not slow:
        reason = ", ".join(f"{dtype} {percent(peak.fraction_of_clock)}" for dtype, peak in shares.items())
        return Outcome("pass", reason, least, REGISTERS_OF_CLOCK)
    reason = "; ".join(
        f"{dtype} reaches {percent(peak.fraction_of_clock)} of what {peak.clock_mhz:.0f} MHz allow: "
        f"{_cause(peak.burst.states, peak.burst.latency.contention)}"
        for dtype, peak in slow.items()
    )
    return Outcome("fail", reason, least, REGISTERS_OF_CLOCK)


@check(MATMULS, looks_at="measurements", action=ANOTHER)
def matmuls(known: Evidence) -> Outcome | None:
    """The burst of each dtype; the peaks of a CPU are a formula, and no vendor's."""
    products = {one.dtype: one.peak for one in peaks(known.records) if one.peak.method == "gemm"}
    judged = {
        dtype: peak
        for dtype, peak in products.items()
        if peak.vendor_tflops and not few(len(peak.burst.latency.samples_s))
    }
    if not judged:
        return Outcome("not_applicable", _unknown_peak(products))
    shares = {dtype: peak.burst_tflops / peak.vendor_tflops for dtype, peak in judged.items()}
    furthest = max(shares.values(), key=lambda share: abs(share - 1))
    far = [judged[dtype] for dtype, share in shares.items() if not 1 - AWAY <= share <= 1 + AWAY]
    reason = ", ".join(f"{dtype} {_burst(dtype, peak)}" for dtype, peak in judged.items())
    reason += "; the peaks are by formula" if known.record.vendor.match == "formula" else ""
    if far and all(map(_at_power_limit, far)):
        return Outcome("note", f"{reason}, at its power limit", furthest, 1 - AWAY, AT_POWER_LIMIT)
    return Outcome("fail" if far else "pass", reason, furthest, 1 - AWAY)


def _unknown_peak(products: dict) -> str:
    return "the vendor's peak is not known, or the samples are few" if products else "no product was measured"


def _burst(dtype: str, peak: PeakFlops) -> str:
    burst = f"{number(peak.burst_tflops)} of {number(peak.vendor_tflops)} {flops_unit(dtype)}"
    shares = [percent(peak.burst_tflops / peak.vendor_tflops)]
    shares += [f"sustained {percent(peak.sustained_tflops / peak.vendor_tflops)}"] if peak.sustained_tflops else []
    return f"{burst} ({', '.join(shares)})"


def _at_power_limit(peak: PeakFlops) -> bool:
    """Whether only the clock is low, and only for power: at that clock the units do what they should."""
    return set(peak.limited_by) == POWER and (peak.sustained_fraction_of_clock or 0) >= 1 - AWAY


@check(DTYPES_MEASURED, looks_at="table")
def dtypes_measured(known: Evidence) -> Outcome | None:
    judged = [
        c.name
        for c in known.table.ceilings
        if c.device == known.device and c.kind == "compute" and c.method == "gemm"
        if c.fraction_of_datasheet and not c.doubt
    ]
    enough, supported = len(judged) >= ENOUGH_DTYPES, sum(name in known.record.vendor.peaks for name in DTYPES)
    result = "pass" if enough else "fail" if supported >= ENOUGH_DTYPES else "not_applicable"
    return Outcome(result, ", ".join(judged) or "none", len(judged), ENOUGH_DTYPES)


@check(ENVELOPE, looks_at="table")
def envelope(known: Evidence) -> Outcome | None:
    memory = [c for c in known.table.ceilings if c.device == known.device and c.kind == "memory"]
    found = {c.name: c.gb_per_s for c in memory if c.name in HBM_MIXES}
    missing = [name for name in HBM_MIXES if name not in found]
    if not found:
        return Outcome("not_applicable", "none of its mixes was requested")
    if missing:
        return Outcome("fail", f"missing: {', '.join(missing)}", len(found), len(HBM_MIXES))
    highest = max(found, key=found.get)
    reason = f"{', '.join(found)}; the highest: {highest}, {number(found[highest])} GB/s"
    return Outcome("pass", reason, len(found), len(HBM_MIXES))


@check(ISSUE_RATE, looks_at="table")
def issue_rate(known: Evidence) -> Iterable[Outcome]:
    """Against the clock that was counted."""
    for own in _instructions(known):
        share = own.fraction_of_peak
        judged = share is not None and not few(own.samples)
        reason = "the clock was not counted" if share is None else f"{percent(share)} of 4 per multiprocessor and cycle"
        if few(own.samples):
            reason += f", of {counted(own.samples, 'sample')}: fewer than {FEWEST_SAMPLES}"
        result = "not_applicable" if not judged else "pass" if share >= ISSUED else "fail"
        yield Outcome(result, reason, share, ISSUED)


def _instructions(known: Evidence) -> list:
    return [one for one in known.table.instructions if one.device == known.device]


def _in_registers(records: Sequence[JobRecord]) -> list[PeakFlopsRecord]:
    return [one for one in peaks(records) if one.peak.method == "fma"]


def _loaded(states: Sequence[DeviceState]) -> list[DeviceState]:
    return [state for state in states if state.when != "before"]


def _cause(states: Sequence[DeviceState], contention: Contention | None) -> str:
    """What a block's own readings say of why it is slow."""
    shared = other_processes(Block("", "device", contention, states))
    if shared:
        return f"{others(shared)} used the GPU"
    reasons = limiting_words(sorted({reason for one in _loaded(states) for reason in one.throttle_reasons or []}))
    return f"limited by {reasons}" if reasons else "no cause is in the record: neither other processes nor throttling"
