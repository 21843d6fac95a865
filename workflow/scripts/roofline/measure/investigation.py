"""Why a GEMM stays below half of the datasheet's peak: its size, a clock that still rises, or the unit that ran."""

from roofline.devices.base import Device
from roofline.measure.protocol import time_caller
from roofline.measure.undisturbed import THROTTLE_REPORT_LAG_S
from roofline.operators.gemm.gemm_arithmetic import gemm_flops, square_gemm_bytes
from roofline.operators.gemm.operator import workloads_module
from roofline.records.compute import Investigation, InvestigationTrial, KernelIdentity, Sustained

LOW_PEAK_SHARE = 0.5
LARGER_SIZE = 8192
EXPLAINING_GAIN = 1.10  # a trial explains the gap when it is this much faster; from block to block a rate moves less


def investigate(
    device: Device,
    dtype: str,
    burst_tflops: float,
    load: Sustained | None,
    vendor,
    kernel: KernelIdentity,
    budget_s: float,
) -> Investigation:
    """Which of the three it was, the unit first, or what is ruled out. `vendor`: figures of the datasheet."""
    peak = vendor.peaks[dtype]
    size = _try_larger_size(device, dtype, burst_tflops, peak, budget_s)
    trials = [size, _judge_sustained(load, burst_tflops, peak), _judge_tensor_cores(peak, kernel)]
    causes = [one for one in trials if one.explains]
    cause = max(causes, key=lambda one: (one.hypothesis == "tensor_cores", one.tflops or 0), default=None)
    whose = "formula's" if peak.derived else "vendor's"
    return Investigation(
        reason=f"{burst_tflops:.3g} TFLOPS is below {100 * LOW_PEAK_SHARE:.3g} % of the {whose} {peak.tflops:.4g}",
        trials=trials,
        verdict=cause.hypothesis if cause else "none",
        ruled_out=_list_ruled_out(load, vendor, peak),
    )


def _try_larger_size(
    device: Device, dtype: str, measured_tflops: float, peak, time_budget_s: float
) -> InvestigationTrial:
    size, product = f"{LARGER_SIZE} x {LARGER_SIZE}", gemm_flops(LARGER_SIZE, LARGER_SIZE, LARGER_SIZE)
    too_large = square_gemm_bytes(LARGER_SIZE, dtype) > device.identity.memory_free_bytes // 2
    if too_large or 3 * product / measured_tflops / 1e12 > max(time_budget_s, 2):
        why = "it needs more than half of the free memory" if too_large else "it takes longer than the time budget"
        return InvestigationTrial(hypothesis="size", finding=f"{size} was not tried: {why}", explains=None)
    larger = workloads_module(device).reference_workload(device, dtype, LARGER_SIZE, seed=7)
    larger.run_and_check()
    timing = time_caller(device, larger.step, warmup=1, iterations=20, time_budget_s=time_budget_s)
    tflops = product / timing.median_s / 1e12
    finding, explains = f"{size} gives {_rate_text(tflops, peak)}", tflops >= EXPLAINING_GAIN * measured_tflops
    return InvestigationTrial(hypothesis="size", tflops=tflops, finding=finding, explains=explains)


def _judge_sustained(load: Sustained | None, burst: float, peak) -> InvestigationTrial:
    """Until the clock stopped rising: the load that gives the sustained rate."""
    if load is None:
        return InvestigationTrial(hypothesis="sustained", finding="sustained load was not measured", explains=None)
    clocks = [one.sm_clock_mhz for one in load.curve if one.sm_clock_mhz]
    clock = f"the clock from {clocks[0]:.0f} to {clocks[-1]:.0f} MHz" if clocks else "the clock is not known"
    finding, explains = (
        f"sustained load gives {_rate_text(load.tflops, peak)} ({clock})",
        load.tflops >= EXPLAINING_GAIN * burst,
    )
    return InvestigationTrial(
        hypothesis="sustained", tflops=load.tflops, sm_clocks_mhz=clocks, finding=finding, explains=explains
    )


def _rate_text(tflops: float, peak) -> str:
    return f"{tflops:.3g} TFLOPS, {100 * tflops / peak.tflops:.3g} % of the peak"


def _judge_tensor_cores(peak, kernel: KernelIdentity) -> InvestigationTrial:
    if peak.compute_unit != "tensor_core":
        finding, explains = "tensor cores have no part in this peak", False
    elif kernel.tensor_cores is None:
        finding, explains = f"whether tensor cores ran is not known ({kernel.how_known})", None
    else:
        used = "used" if kernel.tensor_cores else "did not use"
        finding, explains = f"the kernel {kernel.name} {used} tensor cores", not kernel.tensor_cores
    return InvestigationTrial(hypothesis="tensor_cores", finding=finding, explains=explains)


def _list_ruled_out(load: Sustained | None, vendor, peak) -> list[str]:
    """The power limit if nothing limits the clock under load; the rate class if the peak is sure."""
    reported = load and any(
        one.throttle_reasons is not None and one.at_s >= THROTTLE_REPORT_LAG_S for one in load.curve
    )
    found = ["power limit"] if reported and not load.throttle_reasons else []
    sure = vendor.peaks_by == "datasheet" or peak.compute_unit == "cuda_core"  # the class concerns tensor cores alone
    return [*found, "rate class of the card"] if sure else found
