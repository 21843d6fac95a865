"""The ceilings against the vendor's figures, the clock, and the issue rate of the schedulers."""

from roofline.core.disturbance import throttle_reasons_text
from roofline.core.formatting import join_words, number, percent
from roofline.core.levels import main_memory_ceiling
from roofline.records.device_record import DeviceRecord
from roofline.table.checks.card import CHANGE_CARD
from roofline.table.checks.judge import Evidence, Outcome, Result, register_check

# The share of the vendor's bandwidth that reads of HBM must reach. Five H200s read 96 to 98 %. GDDR keeps the codes of
# its error correction among the data, and no card with it has been measured here.
MEMORY_READ = 0.85
# The share of multiprocessors x rate x counted clock that register-only kernels must reach: 98 to 99.5 % on an H200.
REGISTERS_OF_CLOCK = 0.90
# The share of the highest clock that register-only kernels must run at: they draw little power, and on an H200 run at
# 99.9 % of it. On GeForce, NVML reports a maximum that no load reaches; the boost clock of the datasheet is then lower.
CLOCK = 0.95
HBM_BUS_BITS = 1024  # the interface of one stack, wider than any GDDR's
POWER_REASONS = {"sw_power_cap"}  # these explain a lower clock, and are normal
PEAK_DEVIATION = 0.30  # of a burst from the vendor's peak, up or down
ISSUED = 0.97  # the share of four warp instructions per multiprocessor and cycle
TIMER_DEVIATION = 0.003  # of events from the host's clock: within 0.00005 on two H100s

TIMER = f"events agree with the host's clock within {100 * TIMER_DEVIATION:.1f} %"
NEAR_MAXIMUM = f"clock within {100 * (1 - CLOCK):.0f} % of its maximum under light load"
READS = f"memory reads at {percent(MEMORY_READ)} of the vendor's bandwidth or more"
REGISTERS = f"register-only kernels at {percent(REGISTERS_OF_CLOCK)} or more of what their clock allows"
MATMULS = f"matrix products within {percent(PEAK_DEVIATION)} of the vendor's peak"
ISSUE_RATE = f"warp instructions are issued at {percent(ISSUED)} or more of what the schedulers can"

UNLOCK = f"unlock it with nvidia-smi -rgc and -rac if you may, or {CHANGE_CARD}"


@register_check(NEAR_MAXIMUM, doubts_figures=True, action=UNLOCK)
def check_clock(evidence: Evidence) -> Outcome:
    """Check the clock of the fastest register-only kernel against its maximum: not all of them are a light load."""
    highest, boost = evidence.device.hardware.get("sm_clock_max_mhz"), evidence.device.datasheet.boost_clock_mhz
    kernels = [(mhz, row) for row in evidence.compute_ceilings if row.workload == "fma" and (mhz := row.sm_clock_mhz)]
    if not kernels or not highest:
        return Outcome("not_applicable", "no clock was counted under light load, or its maximum is not known")
    if not boost and not _has_hbm(evidence.device):
        return Outcome("not_applicable", f"{highest} MHz may be out of reach, and no boost clock is known")
    highest = min(highest, boost or highest)
    clock_mhz, fastest = max(kernels, key=lambda kernel: kernel[0])
    share = clock_mhz / highest
    words = f"{fastest.name} ran at {clock_mhz:.0f} of {highest:.0f} MHz"
    if share >= CLOCK:
        return Outcome("pass", words, share, CLOCK)
    reasons = set(fastest.throttle_reasons)
    if reasons and reasons <= POWER_REASONS:
        return Outcome("not_applicable", f"{words}, limited by the power cap: no load of this card is light")
    causes = throttle_reasons_text(sorted(reasons - POWER_REASONS))
    words += f": limited by {causes}" if reasons else ": it may be locked"
    return Outcome("fail", words, share, CLOCK)


@register_check(TIMER, doubts_figures=True, action=CHANGE_CARD)
def check_timer(evidence: Evidence) -> Outcome | None:
    """Check the GPU's timer against the host's clock.

    It explains a counted clock above the maximum: the timer is wrong, or the card exceeds the maximum that it reports.
    """
    ratio, highest = evidence.device.timer_ratio, evidence.device.hardware.get("sm_clock_max_mhz")
    if ratio is None:
        return None
    words = f"of half a second they are {100 * (ratio - 1):+.3f} % apart"
    if abs(ratio - 1) > TIMER_DEVIATION:
        return Outcome("fail", words, ratio - 1, TIMER_DEVIATION)
    clocks_mhz = {row.name: row.sm_clock_mhz for row in evidence.compute_ceilings if row.sm_clock_mhz}
    name, clock_mhz = max(clocks_mhz.items(), key=lambda clock: clock[1], default=("", 0.0))
    if highest and clock_mhz > (1 + TIMER_DEVIATION) * highest:
        clocks = f"{clock_mhz:.0f} of {highest:.0f} MHz in {name}"
        words += f": the card itself exceeds the maximum that it reports ({clocks})"
    return Outcome("pass", words, ratio - 1, TIMER_DEVIATION)


@register_check(READS, doubts_figures=True, action=CHANGE_CARD)
def check_reads(evidence: Evidence) -> Outcome:
    """Check reads of HBM against the vendor's bandwidth: at least MEMORY_READ of it, and not more than all."""
    reads = next((row for row in evidence.memory_ceilings if row.name == main_memory_ceiling("gpu", "read")), None)
    if reads is None or not reads.fraction_of_datasheet or not reads.datasheet_gb_per_s:
        return Outcome("not_applicable", "hbm_read was not measured undisturbed, or the vendor's rate is not known")
    if not _has_hbm(evidence.device):
        return Outcome("not_applicable", "no threshold is known for memory other than HBM")
    share = reads.fraction_of_datasheet
    words = f"hbm_read reaches {percent(share)} of the vendor's {number(reads.datasheet_gb_per_s)} GB/s"
    words += "" if share <= 1 else ", more than its memory can give: the measurement or the datasheet is wrong"
    return Outcome("pass" if MEMORY_READ <= share <= 1 else "fail", words, share, MEMORY_READ)


@register_check(REGISTERS, doubts_figures=True, action=CHANGE_CARD)
def check_registers(evidence: Evidence) -> Outcome:
    """Check the slowest register-only kernel against the FLOPs that its counted clock allows."""
    kernels = [row for row in evidence.compute_ceilings if row.workload == "fma"]
    shares = {row.name: row.fraction_of_clock for row in kernels if row.fraction_of_clock}
    if not shares:
        return Outcome("not_applicable", "no register-only kernel was measured whose clock and rate are known")
    lowest = min(shares.values())
    words = ", ".join(f"{name} {percent(share)}" for name, share in shares.items())
    return Outcome("pass" if lowest >= REGISTERS_OF_CLOCK else "fail", words, lowest, REGISTERS_OF_CLOCK)


@register_check(MATMULS, action=CHANGE_CARD)
def check_matmuls(evidence: Evidence) -> Outcome:
    """Check that the burst of each dtype is near the vendor's peak, above or below, and possible.

    A burst under the power cap that is not near is noted only.
    """
    shares = datasheet_shares(evidence)
    impossible = [row.name for row in evidence.compute_ceilings if row.doubt == "impossible"]
    if impossible:
        words = f"{join_words(impossible)}: above what the clock allows, or below the reference GEMM"
        return Outcome("fail", words, None, 1 - PEAK_DEVIATION)
    if not shares:
        return Outcome("not_applicable", "no product was measured whose peak is known")
    furthest = max(shares.values(), key=lambda share: abs(share - 1))
    words = ", ".join(f"{name} {percent(share)}" for name, share in shares.items())
    words += " of peaks by formula" if evidence.device.datasheet.peaks_by == "formula" else ""
    far = [row for row in evidence.compute_ceilings if row.name in shares and not is_near(shares[row.name])]
    result: Result = "fail" if far else "pass"
    if far and all(set(row.throttle_reasons) & POWER_REASONS for row in far):
        result = "note"  # a low power limit is normal
    return Outcome(result, words, furthest, 1 - PEAK_DEVIATION)


def datasheet_shares(evidence: Evidence) -> dict[str, float]:
    """Return the burst of each dtype's product over the vendor's peak, of undoubted ceilings with a known peak."""
    products = [row for row in evidence.compute_ceilings if row.workload == "gemm" and not row.doubt]
    return {row.name: row.burst_tflops / row.datasheet_tflops for row in products if row.datasheet_tflops}


def is_near(share: float) -> bool:
    """Return whether a burst's share of the vendor's peak is within PEAK_DEVIATION of 1."""
    return 1 - PEAK_DEVIATION <= share <= 1 + PEAK_DEVIATION


@register_check(ISSUE_RATE)
def check_issue_rate(evidence: Evidence) -> Outcome | None:
    """Check the issue rate against the schedulers' peak at the clock that was counted."""
    rooflines = evidence.of_device(evidence.table.instructions)
    if not rooflines:
        return None
    share, doubt = rooflines[0].fraction_of_issue_peak, rooflines[0].doubt
    if share is None or doubt:
        return Outcome("not_applicable", doubt or "the clock was not counted", share, ISSUED)
    words = f"{percent(share)} of 4 per multiprocessor and cycle"
    return Outcome("pass" if share >= ISSUED else "fail", words, share, ISSUED)


def _has_hbm(device: DeviceRecord) -> bool:
    return (device.hardware.get("memory_bus_width_bits") or 0) >= HBM_BUS_BITS
