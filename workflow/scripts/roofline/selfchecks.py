"""What a compute ceiling must satisfy, whatever the card: a figure that does not is no figure."""

from roofline import statistics
from roofline.datasheets import clock_peak_tflops
from roofline.records import DeviceRecord, Product, VendorPeak
from roofline.reporting import number

ROUNDING = 1.001
RUNS = 5


def require_possible(ceiling: str, tflops: float, peak: VendorPeak | None, record: DeviceRecord) -> list[str]:
    """Doubts about a figure. Raises ArithmeticError for one above multiprocessors x rate x the card's highest clock.

    Where the rate is by formula, from a card's name, the rate may be what is wrong: then it is a doubt.
    """
    clock_mhz = record.hardware.get("sm_clock_max_mhz")
    if not (peak and peak.operations_per_clock_per_multiprocessor and clock_mhz):
        return []
    multiprocessors = record.hardware["multiprocessors"]
    limit = clock_peak_tflops(peak.operations_per_clock_per_multiprocessor, multiprocessors, clock_mhz)
    if tflops <= limit * ROUNDING:
        return []
    what = (
        f"{ceiling}: {number(tflops)} TFLOPS is above {multiprocessors} multiprocessors x "
        f"{peak.operations_per_clock_per_multiprocessor:g} operations a clock x {clock_mhz:g} MHz = {number(limit)}"
    )
    if record.vendor.match == "exact":
        raise ArithmeticError(what)
    return [f"{what}; the rate is by formula ({record.vendor.reason})"]


def require_above_fp32(device, product: Product, tf32_tflops: float) -> None:
    """Raises ArithmeticError where the same product in fp32 is no slower: then tf32 was not what ran."""
    workload = device.product_of_shape("fp32", product.shape)
    times = device.step_times(workload.step, RUNS + 1)[1:]
    fp32_tflops = workload.flops / statistics.median(times) / 1e12
    if tf32_tflops <= fp32_tflops:
        raise ArithmeticError(
            f"tf32: {number(tf32_tflops)} TFLOPS is not above the {number(fp32_tflops)} of the same product in fp32"
        )
