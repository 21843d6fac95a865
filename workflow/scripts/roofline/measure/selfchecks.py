"""What a compute ceiling must satisfy, whatever the card: a figure that does not is no figure."""

from roofline.core.terms import KINDS
from roofline.devices.datasheets import clock_peak_tflops
from roofline.records.device import DeviceRecord, VendorPeak

ROUNDING = 1.005  # of clocks and timers: an H100 ran fp64_fma at 33.50 TFLOPS, and 1980 MHz allow 33.45
COUNTED = 1.05  # a block may run a little faster than the one over which the clock was counted


def require_possible(
    ceiling: str, tflops: float, peak: VendorPeak | None, record: DeviceRecord, counted_mhz: float | None = None
) -> list[str]:
    """Doubts about a figure. Raises ArithmeticError for one that the card's multiprocessors cannot reach at their rate:
    not at the highest clock, and not at 1.05 x the clock counted over such a block.

    Where the device reports no clock, or no rate is known, that it was not asked is the doubt; a CPU has neither.

    Where the rate is by formula, from a card's name, the rate may be what is wrong: then it is a doubt.
    """
    highest_mhz, rate = record.hardware.get("sm_clock_max_mhz"), peak and peak.operations_per_clock_per_multiprocessor
    clock_mhz = min((mhz for mhz in (highest_mhz, counted_mhz and COUNTED * counted_mhz) if mhz), default=None)
    if not (rate and clock_mhz):
        clocked = KINDS[record.device_kind].reports_power
        return [f"{ceiling}: not held against the highest clock, which is not known"] if clocked else []
    multiprocessors = record.hardware["multiprocessors"]
    limit = clock_peak_tflops(rate, multiprocessors, clock_mhz)
    if tflops <= limit * ROUNDING:
        return []
    counted = f" (1.05 x the {counted_mhz:g} counted)" if clock_mhz != highest_mhz else ""
    what = (
        f"{ceiling}: {tflops:.4g} TFLOPS is above {multiprocessors} multiprocessors x "
        f"{rate:g} operations a clock x {clock_mhz:g} MHz{counted} = {limit:.4g}"
    )
    if record.vendor.match == "exact":
        raise ArithmeticError(what)
    return [f"{what}; the rate is by formula ({record.vendor.reason})"]
