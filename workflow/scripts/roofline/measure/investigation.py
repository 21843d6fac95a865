"""Why a GEMM stays below half of the datasheet's peak: its size, a clock that still rises, or the unit that ran."""

from roofline.devices.base import Device
from roofline.measure.protocol import TimingBudget, time_caller
from roofline.measure.undisturbed import THROTTLE_REPORT_LAG_S
from roofline.operators.gemm.gemm_arithmetic import gemm_flops, square_gemm_bytes
from roofline.operators.gemm.operator import workloads_module
from roofline.records.compute import Investigation, InvestigationTrial, KernelIdentity, PeakFlops, Sustained
from roofline.records.device_record import DatasheetFigures, DatasheetPeak

LOW_PEAK_SHARE = 0.5
LARGER_SIZE = 8192
LARGER_WARMUP, LARGER_ITERATIONS, LARGER_SEED = 1, 20, 7
EXPLAINING_GAIN = 1.10  # a trial explains the gap when it is this much faster; from block to block a rate moves less


def investigate(
    device: Device, dtype: str, measured: PeakFlops, figures: DatasheetFigures, time_budget_s: float
) -> Investigation:
    """Return which of the three causes explains a low peak, the unit before the others, and what is ruled out."""
    peak, burst_tflops, load = figures.peaks[dtype], measured.burst_tflops, measured.sustained
    trials = [
        _try_larger_size(device, dtype, burst_tflops, peak, time_budget_s),
        _judge_sustained(load, burst_tflops, peak),
        _judge_tensor_cores(peak, measured.kernel),
    ]
    causes = [trial for trial in trials if trial.explains]
    cause = max(causes, key=lambda trial: (trial.hypothesis == "tensor_cores", trial.tflops or 0), default=None)
    source_word = "formula's" if peak.derived else "vendor's"
    peak_text = f"{100 * LOW_PEAK_SHARE:.3g} % of the {source_word} {peak.tflops:.4g}"
    return Investigation(
        reason=f"{burst_tflops:.3g} TFLOPS is below {peak_text}",
        trials=trials,
        verdict=cause.hypothesis if cause else "none",
        ruled_out=_list_ruled_out(load, figures, peak),
    )


def _try_larger_size(
    device: Device, dtype: str, burst_tflops: float, peak: DatasheetPeak, time_budget_s: float
) -> InvestigationTrial:
    """Time the reference GEMM of LARGER_SIZE, if it fits the memory and three of it fit the budget."""
    size_text, flops = f"{LARGER_SIZE} x {LARGER_SIZE}", gemm_flops(LARGER_SIZE, LARGER_SIZE, LARGER_SIZE)
    reason = None
    if square_gemm_bytes(LARGER_SIZE, dtype) > device.identity.memory_free_bytes // 2:
        reason = "it needs more than half of the free memory"
    elif 3 * flops / burst_tflops / 1e12 > max(time_budget_s, 2):
        reason = "it takes longer than the time budget"
    if reason:
        return InvestigationTrial(hypothesis="size", finding=f"{size_text} was not tried: {reason}", explains=None)
    larger = workloads_module(device).reference_workload(device, dtype, LARGER_SIZE, seed=LARGER_SEED)
    larger.run_and_check()
    timing = time_caller(device, larger.step, TimingBudget(LARGER_WARMUP, LARGER_ITERATIONS, time_budget_s))
    tflops = flops / timing.median_s / 1e12
    return InvestigationTrial(
        hypothesis="size",
        tflops=tflops,
        finding=f"{size_text} gives {_rate_text(tflops, peak)}",
        explains=tflops >= EXPLAINING_GAIN * burst_tflops,
    )


def _judge_sustained(load: Sustained | None, burst_tflops: float, peak: DatasheetPeak) -> InvestigationTrial:
    """Judge by sustained load whether the clock was still rising in the burst."""
    if load is None:
        return InvestigationTrial(hypothesis="sustained", finding="sustained load was not measured", explains=None)
    clocks_mhz = [point.sm_clock_mhz for point in load.curve if point.sm_clock_mhz]
    clock_text = "the clock is not known"
    if clocks_mhz:
        clock_text = f"the clock from {clocks_mhz[0]:.0f} to {clocks_mhz[-1]:.0f} MHz"
    return InvestigationTrial(
        hypothesis="sustained",
        tflops=load.tflops,
        sm_clocks_mhz=clocks_mhz,
        finding=f"sustained load gives {_rate_text(load.tflops, peak)} ({clock_text})",
        explains=load.tflops >= EXPLAINING_GAIN * burst_tflops,
    )


def _rate_text(tflops: float, peak: DatasheetPeak) -> str:
    return f"{tflops:.3g} TFLOPS, {100 * tflops / peak.tflops:.3g} % of the peak"


def _judge_tensor_cores(peak: DatasheetPeak, kernel: KernelIdentity) -> InvestigationTrial:
    if peak.compute_unit != "tensor_core":
        finding, explains = "tensor cores have no part in this peak", False
    elif kernel.tensor_cores is None:
        finding, explains = f"whether tensor cores ran is not known ({kernel.how_known})", None
    else:
        used = "used" if kernel.tensor_cores else "did not use"
        finding, explains = f"the kernel {kernel.name} {used} tensor cores", not kernel.tensor_cores
    return InvestigationTrial(hypothesis="tensor_cores", finding=finding, explains=explains)


def _list_ruled_out(load: Sustained | None, figures: DatasheetFigures, peak: DatasheetPeak) -> list[str]:
    """Rule out the power limit if nothing limits the clock under load, and the rate class if the peak is sure."""
    ruled_out = []
    if load and not load.throttle_reasons and _reports_throttling(load):
        ruled_out.append("power limit")
    if figures.peaks_by == "datasheet" or peak.compute_unit == "cuda_core":  # the class concerns tensor cores alone
        ruled_out.append("rate class of the card")
    return ruled_out


def _reports_throttling(load: Sustained) -> bool:
    """Return whether NVML reported the throttle reasons of this load, which it does after THROTTLE_REPORT_LAG_S."""
    return any(point.throttle_reasons is not None and point.at_s >= THROTTLE_REPORT_LAG_S for point in load.curve)
