"""Whether a device was whole, alone and undisturbed while it was measured: criteria with causes, from the records.

Thresholds stand in the table below. A figure that a card does not report, or for which no threshold is known, is
`not_applicable`, with the reason.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from roofline.analysis.table import Criterion
from roofline.core.contention import disturbances
from roofline.core.formatting import counted, number, percent
from roofline.core.throttling import limiting_words
from roofline.operators.about import name_of
from roofline.records.compute import PeakFlopsRecord
from roofline.records.device import DeviceRecord
from roofline.records.instructions import InstructionsRecord
from roofline.records.memory import BandwidthRecord
from roofline.records.operator import JobRecord
from roofline.records.timing import Contention, DeviceState, Timing

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

# GB/s of a lane by PCIe's generation, in one direction: a link that carried more than it says said wrong.
GB_PER_S_OF_LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.97, 5: 3.94, 6: 7.56}
NAMED = 3  # blocks in a reason
POWER = {"sw_power_cap"}  # as a card is meant to: it explains a lower clock, and is no fault

READS = "memory reads at 85 % of the vendor's bandwidth or more"
REGISTERS = "register-only kernels at 90 % or more of what their clock allows"
ALONE = "no other process on the GPU during measurements"
LINK = "host link at its full width and generation under load"
MEMORY = "no uncorrected memory errors, no repair pending or failed"
NEAR_MAXIMUM = "clock within 5 % of its maximum under light load"
QUIET = "no other load during measurements"
ISSUE = "instruction issue"
UNTHROTTLED = "no ceiling measured only under thermal throttling"
PASSING = (ALONE, QUIET, UNTHROTTLED)  # of what may be over when it is measured again
OF_ALL = (QUIET, UNTHROTTLED)  # kinds of devices; the others are of GPUs

Verdict = tuple[str, str]  # result and reason


class Block(NamedTuple):
    """One timed block of a record."""

    name: str
    sensitive: str  # to what, by core.contention
    contention: Contention | None
    states: Sequence[DeviceState] = ()


def criteria(device: DeviceRecord, records: Sequence[JobRecord]) -> list[Criterion]:
    """Of one device, by the records that were measured on it; what may be behind others first."""
    asked = {MEMORY: _memory_errors, ALONE: _alone, QUIET: _quiet, UNTHROTTLED: _unthrottled}
    asked |= {NEAR_MAXIMUM: _clock, LINK: _link, READS: _reads, REGISTERS: _registers}
    found = []
    for criterion, judge in asked.items():
        if device.device_kind == "gpu" or criterion in OF_ALL:
            result, reason = judge(device, records)
            found.append(Criterion(device=device.device, criterion=criterion, result=result, reason=reason))
    return found


def faults(device: DeviceRecord, records: Sequence[JobRecord]) -> list[Criterion]:
    """What failed of these records alone; of the device itself where there are none."""
    found = [one for one in criteria(device, records) if one.result == "fail"]
    return [one for one in found if one.criterion != MEMORY] if records else found


def told(found: Sequence[Criterion]) -> str:
    """Faults as the end of a job's line."""
    return "".join(f"; FAIL: {one.reason}" for one in found)


# ---------------------------------------------------------------- what ran


def _reads(device: DeviceRecord, records: Sequence[JobRecord]) -> Verdict:
    reads = next((one for one in _bandwidths(records) if one.name == "hbm_read"), None)
    if reads is None:
        return "not_applicable", "hbm_read was not measured"
    kind = memory_type(device)
    least = MEMORY_READ.get(kind)
    if least is None:
        return "not_applicable", f"no threshold is known for {kind or 'a memory of unknown type'}"
    if reads.fraction_of_vendor is None:
        return "not_applicable", "the vendor's bandwidth is not known"
    share = percent(reads.fraction_of_vendor)
    reason = f"hbm_read reaches {share} of the vendor's {number(reads.vendor_gb_per_s)} GB/s"
    if reads.fraction_of_vendor >= least:
        return "pass", reason
    fastest, clocks = device.hardware.get("memory_clock_max_mhz"), [s.memory_clock_mhz for s in _loaded(reads.states)]
    clock = max((clock for clock in clocks if clock), default=None)
    slow = f"the memory clock is {clock:.0f} of {fastest} MHz" if fastest and clock and clock < CLOCK * fastest else ""
    return "fail", f"{reason}: {slow or _cause(reads.states, reads.latency.contention)}"


def memory_type(device: DeviceRecord) -> str | None:
    bits = device.hardware.get("memory_bus_width_bits")
    return ("HBM" if bits >= HBM_BUS_BITS else "GDDR") if bits else None


def _registers(device: DeviceRecord, records: Sequence[JobRecord]) -> Verdict:
    shares = {one.dtype: one.peak for one in _in_registers(records) if one.peak.fraction_of_clock}
    if not shares:
        return "not_applicable", "no register-only kernel was measured whose clock and rate are known"
    slow = {dtype: peak for dtype, peak in shares.items() if peak.fraction_of_clock < REGISTERS_OF_CLOCK}
    if not slow:
        return "pass", ", ".join(f"{dtype} {percent(peak.fraction_of_clock)}" for dtype, peak in shares.items())
    return "fail", "; ".join(
        f"{dtype} reaches {percent(peak.fraction_of_clock)} of what {peak.clock_mhz:.0f} MHz allow: "
        f"{_cause(peak.burst.states, peak.burst.latency.contention)}"
        for dtype, peak in slow.items()
    )


def _clock(device: DeviceRecord, records: Sequence[JobRecord]) -> Verdict:
    """The fastest of the register-only kernels counts: not all of them are a light load."""
    highest, boost = device.hardware.get("sm_clock_max_mhz"), device.vendor.boost_clock_mhz
    kernels = [(one.dtype, one.peak) for one in _in_registers(records) if one.peak.clock_mhz]
    if not kernels or not highest:
        return "not_applicable", "no clock was counted under light load" if highest else "NVML reports no maximum clock"
    if not boost and memory_type(device) != "HBM":
        return "not_applicable", f"NVML's maximum of {highest} MHz may be out of reach, and no boost clock is known"
    highest = min(highest, boost or highest)
    dtype, peak = max(kernels, key=lambda one: one[1].clock_mhz)
    reason = f"{dtype} ran at {peak.clock_mhz:.0f} of {highest:.0f} MHz"
    if peak.clock_mhz >= CLOCK * highest:
        return "pass", reason
    limits = set(peak.limited_by)
    if limits and limits <= POWER:
        return "not_applicable", f"{reason}, limited by the power cap: no load of this card is light"
    if limits:
        return "fail", f"{reason}: limited by {limiting_words(sorted(limits - POWER))}"
    short = ", or too short a load for NVML to tell" if peak.burst_limited_by is None else ""
    return "fail", f"{reason}: no reason is reported; it may be locked{short}"


def _unthrottled(device: DeviceRecord, records: Sequence[JobRecord]) -> Verdict:
    ceilings = {one.dtype: one.peak.throttled for one in records if isinstance(one, PeakFlopsRecord) and one.peak}
    ceilings |= {one.name: one.throttled for one in _bandwidths(records)}
    for one in records:
        if isinstance(one, InstructionsRecord):
            told = any(state.throttle_reasons is not None for state in one.issue.states)
            ceilings |= {name: latency.all_throttled if told else None for name, latency in _issued(one)}
    throttled = [name for name, value in ceilings.items() if value]
    unknown = [name for name, value in ceilings.items() if value is None]
    if throttled:
        return "fail", f"of {len(ceilings)} ceilings, throttled in every sample: {', '.join(throttled)}"
    if device.device_kind == "cpu":
        return "not_applicable", "a CPU does not report throttling"
    if len(unknown) == len(ceilings):
        return "not_applicable", "the device does not report throttling"
    unreported = f"; not reported for {', '.join(unknown)}" if unknown else ""
    return "pass", f"{len(ceilings) - len(unknown)} ceilings{unreported}"


# ---------------------------------------------------------------- what ran beside it


def _quiet(device: DeviceRecord, records: Sequence[JobRecord]) -> Verdict:
    """On the host. A GPU's ceilings bear a busy one; what a caller measures does not."""
    blocks = [block for block in _blocks(device, records) if block.contention and block.sensitive != "device"]
    known = [block for block in blocks if {block.contention.other_cores, block.contention.waiting_share} != {None}]
    if not known:
        return "not_applicable", "what else ran on the host is not known"
    disturbed = [(block.name, found) for block in known if (found := _disturbed(block))]
    if not disturbed:
        again = sum(block.contention.measured_again for block in known)
        return "pass", f"{counted(len(known), 'block')}" + (f", {again} of them measured again" if again else "")
    what = "caller's times of " if device.device_kind == "gpu" else ""
    (name, found), *others = disturbed
    more = f"; and {len(others)} more" if others else ""
    told = f"{what}{len(disturbed)} of {counted(len(known), 'timed block')} disturbed"
    return "fail", f"a busy host: {told} ({name}: {found[0]}{more})"


def _disturbed(block: Block) -> list[str]:
    """By the host alone; other processes on the GPU have a criterion of their own."""
    return disturbances(block.contention.model_copy(update={"other_processes": None}), block.sensitive)


def _alone(device: DeviceRecord, records: Sequence[JobRecord]) -> Verdict:
    blocks = [(block.name, _other_processes(block)) for block in _blocks(device, records)]
    known = [count for _, count in blocks if count is not None]
    if not known:
        return "not_applicable", "NVML reports no process numbers that can be told from our own"
    shared = list(dict.fromkeys(name for name, count in blocks if count))
    if not shared:
        return "pass", counted(len(known), "block")
    more = f" and {len(shared) - NAMED} more" if len(shared) > NAMED else ""
    return "fail", f"{others(max(known))} used the GPU during {', '.join(shared[:NAMED])}{more}"


def _other_processes(block: Block) -> int | None:
    counts = [state.other_processes for state in block.states]
    counts += [block.contention.other_processes] if block.contention else []
    return max((count for count in counts if count is not None), default=None)


def _blocks(device: DeviceRecord, records: Sequence[JobRecord]) -> Iterator[Block]:
    sensitive = "cpu" if device.device_kind == "cpu" else "caller"
    for record in records:
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


# ---------------------------------------------------------------- the card


def _link(device: DeviceRecord, records: Sequence[JobRecord]) -> Verdict:
    widest, newest = (device.hardware.get(f"pcie_{what}_max") for what in ("width", "generation"))
    copies = [one for one in _bandwidths(records) if one.level == "pcie"]
    readings = [state for one in copies for state in one.states if state.pcie_width and state.pcie_generation]
    if not readings or not widest or not newest:
        why = "the link was not read while host copies ran" if widest and newest else "NVML does not report the link"
        return "not_applicable", why
    width, generation = (max(getattr(one, f"pcie_{what}") for one in readings) for what in ("width", "generation"))
    reason = f"x{width} of x{widest}, generation {generation} of {newest}"
    if width >= widest and generation >= newest:
        return "pass", reason
    fastest = max(one.gb_per_s for one in copies)
    if fastest > width * GB_PER_S_OF_LANE.get(generation, float("inf")):
        return "not_applicable", f"NVML reports {reason}, and the link carried {number(fastest)} GB/s: more than that"
    return "fail", f"the host link runs at {reason}"


def _memory_errors(device: DeviceRecord, records: Sequence[JobRecord]) -> Verdict:
    """Errors since the driver was loaded: what was mended before that is no fault."""
    found = device.hardware
    errors = found.get("ecc_uncorrected_errors")
    states = {
        "a row remap is pending: reset the GPU": found.get("row_remap_pending"),
        "a row remap failed: the memory is defective": found.get("row_remap_failed"),
        "a page retirement is pending: reset the GPU": found.get("page_retirement_pending"),
    }
    bad = [counted(errors, "uncorrected memory error")] if errors else []
    bad += [words for words, state in states.items() if state]
    if bad:
        return "fail", "; ".join(bad)
    if errors is None and set(states.values()) == {None}:
        return "not_applicable", "NVML reports neither errors of the memory nor repairs"
    return "pass", "none since the driver was loaded" if errors is not None else "no repair pending"


# ---------------------------------------------------------------- parts


def _bandwidths(records: Sequence[JobRecord]) -> list:
    return [one for record in records if isinstance(record, BandwidthRecord) for one in record.bandwidths]


def _issued(record: InstructionsRecord) -> list[tuple[str, Timing]]:
    walls = [(f"{wall.pattern} {wall.of}", wall.latency) for wall in record.walls]
    return [(ISSUE, record.issue.latency), *walls]


def _in_registers(records: Sequence[JobRecord]) -> list[PeakFlopsRecord]:
    return [one for one in records if isinstance(one, PeakFlopsRecord) and one.peak and one.peak.method == "fma"]


def _loaded(states: Sequence[DeviceState]) -> list[DeviceState]:
    return [state for state in states if state.when != "before"]


def others(count: int) -> str:
    return f"{count} other process{'' if count == 1 else 'es'}"


def _cause(states: Sequence[DeviceState], contention: Contention | None) -> str:
    """What a block's own readings say of why it is slow."""
    shared = _other_processes(Block("", "device", contention, states))
    if shared:
        return f"{others(shared)} used the GPU"
    reasons = limiting_words(sorted({reason for one in _loaded(states) for reason in one.throttle_reasons or []}))
    return f"limited by {reasons}" if reasons else "no cause is in the record: neither other processes nor throttling"
