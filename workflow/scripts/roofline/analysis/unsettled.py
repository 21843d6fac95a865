"""When a CPU's product is no figure to divide by: another guest of its host may have slowed one block, or all."""

from roofline.core.formatting import flops_unit, number, percent
from roofline.records.compute import PeakFlops, PeakFlopsRecord

APART = 0.10  # of blocks of one product


def no_ratio(record: PeakFlopsRecord, registers: PeakFlops | None) -> str | None:
    """Why a product carries no ratio; None where it may. `registers` is the register-only peak of its dtype."""
    peak = record.peak
    if peak.unit != "cpu" or peak.method != "gemm":
        return None
    unit, blocks = flops_unit(record.dtype), blocks_of(peak)
    if max(blocks) > (1 + APART) * min(blocks):
        ends = f"{number(min(blocks))} to {number(max(blocks))} {unit}"
        return f"its blocks differ by more than {percent(APART)}, {ends}"
    if registers and peak.tflops > registers.tflops:
        return f"it exceeds the register-only peak, {number(peak.tflops)} to {number(registers.tflops)} {unit}"
    return None


def blocks_of(peak: PeakFlops) -> list[float]:
    """TFLOPS of every block of the fastest product."""
    again = [one.tflops for one in peak.slower_remeasurements if one.product == peak.burst.product]
    chosen = [one.block_tflops for one in peak.candidates if one.product == peak.burst.product and one.block_tflops]
    return [peak.burst_tflops, *again, *chosen]
