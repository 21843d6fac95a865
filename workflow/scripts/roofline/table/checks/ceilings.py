"""The ceilings against the vendor's figures, the clock, and what the hardware can issue."""

from roofline.core.disturbance import throttle_reasons_text
from roofline.core.formatting import join_words, number, percent
from roofline.records.device_record import DeviceRecord
from roofline.table.checks.card import ANOTHER
from roofline.table.checks.judge import Evidence, Outcome, register_check

# Share of the vendor's bandwidth that reads must reach, of HBM. Five H200s read 96 to 98 %. GDDR keeps the codes of its
# error correction among the data, and no card with it has been measured here.
MEMORY_READ = 0.85
# Of multiprocessors x rate x counted clock that register-only kernels must reach: an H200's reach 98 to 99.5 %.
REGISTERS_OF_CLOCK = 0.90
# Share of the highest clock: register-only kernels draw little power, and on an H200 run at 99.9 % of it. On GeForce,
# NVML reports a maximum that no load reaches; the boost clock of the datasheet is then the lower of the two.
CLOCK = 0.95
HBM_BUS_BITS = 1024  # the interface of one stack, wider than any GDDR's
POWER = {"sw_power_cap"}  # explains a lower clock, and is normal
AWAY = 0.30  # how far a burst may be from the vendor's peak
ISSUED = 0.97
TIMERS = 0.003  # within 0.00005 on two H100s

TIMER = "events agree with the host's clock within 0.3 %"
NEAR_MAXIMUM = "clock within 5 % of its maximum under light load"
READS = "memory reads at 85 % of the vendor's bandwidth or more"
REGISTERS = "register-only kernels at 90 % or more of what their clock allows"
MATMULS = f"matrix products within {percent(AWAY)} of the vendor's peak"
ISSUE_RATE = f"warp instructions are issued at {percent(ISSUED)} or more of what the schedulers can"


@register_check(
    NEAR_MAXIMUM, doubts_figures=True, action=f"unlock it with nvidia-smi -rgc and -rac if you may, or {ANOTHER}"
)
def check_clock(known: Evidence) -> Outcome:
    """The fastest of the register-only kernels counts: not all of them are a light load."""
    highest, boost = known.device.hardware.get("sm_clock_max_mhz"), known.device.datasheet.boost_clock_mhz
    kernels = [one for one in known.compute if one.workload == "fma" and one.sm_clock_mhz]
    if not kernels or not highest:
        return Outcome("not_applicable", "no clock was counted under light load, or its maximum is not known")
    if not boost and not _has_hbm(known.device):
        return Outcome("not_applicable", f"{highest} MHz may be out of reach, and no boost clock is known")
    highest = min(highest, boost or highest)
    one = max(kernels, key=lambda one: one.sm_clock_mhz)
    words, share = f"{one.name} ran at {one.sm_clock_mhz:.0f} of {highest:.0f} MHz", one.sm_clock_mhz / highest
    if share >= CLOCK:
        return Outcome("pass", words, share, CLOCK)
    limits = set(one.throttle_reasons)
    if limits and limits <= POWER:
        return Outcome("not_applicable", f"{words}, limited by the power cap: no load of this card is light")
    words += f": limited by {throttle_reasons_text(sorted(limits - POWER))}" if limits else ": it may be locked"
    return Outcome("fail", words, share, CLOCK)


@register_check(TIMER, doubts_figures=True, action=ANOTHER)
def check_timer(known: Evidence) -> Outcome | None:
    """It explains a counted clock above the maximum: the timer is wrong, or the card exceeds what it reports."""
    ratio, highest = known.device.timer_ratio, known.device.hardware.get("sm_clock_max_mhz")
    if ratio is None:
        return None
    words = f"of half a second they are {100 * (ratio - 1):+.3f} % apart"
    if abs(ratio - 1) > TIMERS:
        return Outcome("fail", words, ratio - 1, TIMERS)
    one = max((one for one in known.compute if one.sm_clock_mhz), key=lambda one: one.sm_clock_mhz, default=None)
    if one and highest and one.sm_clock_mhz > (1 + TIMERS) * highest:
        words += (
            f": the card itself exceeds the maximum that it reports ({one.sm_clock_mhz:.0f} of {highest:.0f} MHz in "
        )
        words += f"{one.name})"
    return Outcome("pass", words, ratio - 1, TIMERS)


@register_check(READS, doubts_figures=True, action=ANOTHER)
def check_reads(known: Evidence) -> Outcome:
    one = next((one for one in known.memory if one.name == "hbm_read"), None)
    if one is None or one.fraction_of_datasheet is None:
        return Outcome("not_applicable", "hbm_read was not measured undisturbed, or the vendor's rate is not known")
    if not _has_hbm(known.device):
        return Outcome("not_applicable", "no threshold is known for memory other than HBM")
    share = one.fraction_of_datasheet
    words = f"hbm_read reaches {percent(share)} of the vendor's {number(one.datasheet_gb_per_s)} GB/s"
    words += "" if share <= 1 else ", more than its memory can give: the measurement or the datasheet is wrong"
    return Outcome("pass" if MEMORY_READ <= share <= 1 else "fail", words, share, MEMORY_READ)


@register_check(REGISTERS, doubts_figures=True, action=ANOTHER)
def check_registers(known: Evidence) -> Outcome:
    shares = {
        one.name: one.fraction_of_clock for one in known.compute if one.workload == "fma" and one.fraction_of_clock
    }
    if not shares:
        return Outcome("not_applicable", "no register-only kernel was measured whose clock and rate are known")
    least = min(shares.values())
    words = ", ".join(f"{name} {percent(share)}" for name, share in shares.items())
    return Outcome("pass" if least >= REGISTERS_OF_CLOCK else "fail", words, least, REGISTERS_OF_CLOCK)


@register_check(MATMULS, action=ANOTHER)
def check_matmuls(known: Evidence) -> Outcome:
    """The burst of each dtype."""
    shares = datasheet_shares(known)
    if impossible := [one.name for one in known.compute if one.doubt == "impossible"]:
        words = f"{join_words(impossible)}: above what the clock allows, or below the reference GEMM"
        return Outcome("fail", words, None, 1 - AWAY)
    if not shares:
        return Outcome("not_applicable", "no product was measured whose peak is known")
    furthest = max(shares.values(), key=lambda share: abs(share - 1))
    words = ", ".join(f"{name} {percent(share)}" for name, share in shares.items())
    words += " of peaks by formula" if known.device.datasheet.peaks_by == "formula" else ""
    far = [one for one in known.compute if one.name in shares and not is_near(shares[one.name])]
    capped = all(set(one.throttle_reasons) & POWER for one in far)  # normal of a card with a low power limit
    result = "pass" if not far else "note" if capped else "fail"
    return Outcome(result, words, furthest, 1 - AWAY)


def datasheet_shares(known: Evidence) -> dict[str, float]:
    """The burst of each dtype's product as a share of the vendor's peak."""
    products = [one for one in known.compute if one.workload == "gemm" and one.datasheet_tflops and not one.doubt]
    return {one.name: one.burst_tflops / one.datasheet_tflops for one in products}


def is_near(share: float) -> bool:
    return 1 - AWAY <= share <= 1 + AWAY


@register_check(ISSUE_RATE)
def check_issue_rate(known: Evidence) -> Outcome | None:
    """Against the clock that was counted."""
    one = next(iter(known.mine(known.table.instructions)), None)
    if one is None:
        return None
    share = one.fraction_of_issue_peak
    if share is None or one.doubt:
        return Outcome("not_applicable", one.doubt or "the clock was not counted", share, ISSUED)
    words = f"{percent(share)} of 4 per multiprocessor and cycle"
    return Outcome("pass" if share >= ISSUED else "fail", words, share, ISSUED)


def _has_hbm(device: DeviceRecord) -> bool:
    return (device.hardware.get("memory_bus_width_bits") or 0) >= HBM_BUS_BITS
