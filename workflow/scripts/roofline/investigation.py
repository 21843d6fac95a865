"""Why a GEMM stays below half of the vendor's peak: tries a larger product, sustained load, and the unit that ran."""

import time

from roofline import statistics
from roofline.measuring import time_caller
from roofline.operators.gemm import Gemm, flops, workspace_bytes
from roofline.records import Investigation, Kernel, Trial

THRESHOLD = 0.5
LARGER_SIZE = 8192
BETTER = 1.10  # a trial explains the gap when it is this much faster, or reaches the threshold
LOAD_CHUNK_S = 0.25
LOAD_LIMIT_S = 4.0
STEADY = 1.01


def investigate(
    device, dtype: str, small: Gemm, measured_tflops: float, peak, kernel: Kernel, time_budget_s: float
) -> Investigation:
    """Try the three causes of row A2 in turn and say which it was, or what was ruled out.

    `peak` is the vendor's (with `.tflops`); `small` the product that stayed below it.
    """
    goal = min(measured_tflops * BETTER, peak.tflops * THRESHOLD)
    trials = [
        _larger_size(device, dtype, measured_tflops, goal, time_budget_s),
        _sustained(device, small, goal),
        _tensor_cores(peak, kernel),
    ]
    verdict = next((trial.what for trial in trials if trial.explains), "none")
    return Investigation(
        reason=f"{measured_tflops:.3g} TFLOPS is below {THRESHOLD:.0%} of the vendor's {peak.tflops:.4g}",
        trials=trials,
        verdict=verdict,
        ruled_out=[trial.finding for trial in trials if not trial.explains] + _other_causes(device, peak),
    )


def _larger_size(device, dtype: str, measured_tflops: float, goal: float, time_budget_s: float) -> Trial:
    size, needed = LARGER_SIZE, workspace_bytes(LARGER_SIZE, dtype)
    expected_s = flops(size, size, size) / measured_tflops / 1e12
    why_not = None
    if needed > device.identity.memory_free_bytes // 2:
        why_not = f"{size} x {size} needs {needed:,} bytes, more than half of what is free: not tried"
    elif 3 * expected_s > max(time_budget_s, 2):
        why_not = f"{size} x {size} would take {3 * expected_s:.0f} s, over the time budget: not tried"
    if why_not:
        return Trial(what="size", size=size, tflops=None, clocks_mhz=[], finding=why_not, explains=False)
    larger = Gemm(device, size, dtype, seed=7)
    larger.check()
    timing = time_caller(device, larger.step, warmup=1, iterations=20, time_budget_s=time_budget_s)
    tflops = flops(size, size, size) / timing.median_s / 1e12
    explains = tflops >= goal and tflops > measured_tflops * BETTER
    finding = f"{size} x {size} gives {tflops:.3g} TFLOPS: size {'was' if explains else 'is not'} the cause"
    return Trial(what="size", size=size, tflops=tflops, clocks_mhz=[], finding=finding, explains=explains)


def _sustained(device, small: Gemm, goal: float) -> Trial:
    work = flops(small.size, small.size, small.size)
    per_step = statistics.median(device.step_times(small.step, 1))
    count = max(1, int(LOAD_CHUNK_S / per_step))
    rates, clocks = [], []
    deadline = time.monotonic() + LOAD_LIMIT_S
    while not rates or time.monotonic() < deadline:
        rates.append(work / statistics.median(device.step_times(small.step, count)) / 1e12)
        clocks.append(device.state().get("sm_clock_mhz"))
        if _settled([clock for clock in clocks if clock] or rates):
            break
    known = [float(clock) for clock in clocks if clock]
    explains = max(rates) >= goal
    rise = f"the clock went {known[0]:.0f} to {known[-1]:.0f} MHz" if known else "the clock is not known"
    finding = f"under sustained load {rise} and {max(rates):.3g} TFLOPS at best"
    return Trial(
        what="sustained", size=small.size, tflops=max(rates), clocks_mhz=known, finding=finding, explains=explains
    )


def _settled(readings: list[float]) -> bool:
    """Whether the last three readings no longer rise above what came before."""
    return len(readings) >= 4 and max(readings[-3:]) <= STEADY * max(readings[:-3])


def _tensor_cores(peak, kernel: Kernel) -> Trial:
    if peak.unit != "tensor_core":
        finding, explains = f"the vendor's peak is not of tensor cores ({peak.unit}): no such path to miss", False
    elif kernel.tensor_cores is None:
        finding, explains = f"whether tensor cores ran is not known ({kernel.how_known})", False
    else:
        used = "used" if kernel.tensor_cores else "did not use"
        finding, explains = f"the kernel {kernel.name} {used} tensor cores", not kernel.tensor_cores
    return Trial(what="tensor_cores", size=None, tflops=None, clocks_mhz=[], finding=finding, explains=explains)


def _other_causes(device, peak) -> list[str]:
    reasons = device.state().get("throttle_reasons")
    if device.kind == "cpu":
        blas = device.software()
        return [
            f"the BLAS is {blas['blas']} {blas['blas_version']} with kernels for {blas['blas_architecture']} on "
            f"{blas['blas_threads']} threads; the peak is a formula ({peak.source})"
        ]
    if reasons is None:
        return ["power limit: NVML does not tell the throttle reasons here"]
    held = [reason for reason in reasons if reason != "gpu_idle"]
    power = f"clocks are held back by {', '.join(held)}" if held else "power limit: no throttle reason is set"
    return [power, f"rate class of the card: the vendor's figure is {peak.source}"]
