"""Why a GEMM stays below half of the vendor's peak: tries a larger product, sustained load, and the unit that ran."""

import time

from roofline.core import statistics
from roofline.devices.base import Device
from roofline.measure.protocol import time_caller
from roofline.operators.gemm.operator import products_on
from roofline.operators.gemm.products import flops, workspace_bytes
from roofline.records.compute import Investigation, Kernel, Trial

THRESHOLD = 0.5
LARGER_SIZE = 8192
BETTER = 1.10  # a trial explains the gap when it is this much faster; from block to block a rate moves less
LOAD_CHUNK_S = 0.25
LOAD_LIMIT_S = 4.0
LOOK_S = 0.05  # of load around a reading: long enough for NVML to see it
STEADY = 1.01


def investigate(
    device: Device, dtype: str, small, measured_tflops: float, vendor, kernel: Kernel, time_budget_s: float
) -> Investigation:
    """Try the product's size, a clock still rising, no tensor cores. Which of them it was, or what is ruled out.

    `small` is the Workload that stayed below half of the dtype's peak among the device's vendor figures. Where several
    causes hold, the unit goes first, since neither size nor clock makes up for it, and then what gave most.
    """
    peak = vendor.peaks[dtype]
    larger = _larger_size(device, dtype, measured_tflops, peak, time_budget_s)
    sustained, states = _sustained(device, small, measured_tflops, peak)
    trials = [larger, sustained, _tensor_cores(peak, kernel)]
    causes = [trial for trial in trials if trial.explains]
    causes.sort(key=lambda trial: (trial.what == "tensor_cores", trial.tflops or 0))
    whose = "formula's" if peak.derived else "vendor's"
    return Investigation(
        reason=f"{measured_tflops:.3g} TFLOPS is below {100 * THRESHOLD:.3g} % of the {whose} {peak.tflops:.4g}",
        trials=trials,
        verdict=causes[-1].what if causes else "none",
        ruled_out=_ruled_out(states, vendor, peak),
    )


def _larger_size(device: Device, dtype: str, measured_tflops: float, peak, time_budget_s: float) -> Trial:
    size, product = f"{LARGER_SIZE} x {LARGER_SIZE}", flops(LARGER_SIZE, LARGER_SIZE, LARGER_SIZE)
    too_large = workspace_bytes(LARGER_SIZE, dtype) > device.identity.memory_free_bytes // 2
    if too_large or 3 * product / measured_tflops / 1e12 > max(time_budget_s, 2):
        why = "it needs more than half of the free memory" if too_large else "it takes longer than the time budget"
        return Trial(what="size", finding=f"{size} was not tried: {why}", explains=None)
    larger = products_on(device).reference_product(device, dtype, LARGER_SIZE, seed=7)
    larger.check()
    timing = time_caller(device, larger.step, warmup=1, iterations=20, time_budget_s=time_budget_s)
    tflops = product / timing.median_s / 1e12
    finding, explains = f"{size} gives {_rate(tflops, peak)}", tflops >= BETTER * measured_tflops
    return Trial(what="size", tflops=tflops, finding=finding, explains=explains)


def _sustained(device: Device, small, measured_tflops: float, peak) -> tuple[Trial, list[dict]]:
    """Load until the clock stops rising, or the rate where the clock is not reported; and what was read under it."""
    work = small.flops
    per_step = device.step_times(small.step, 1)[0]
    count = max(1, int(LOAD_CHUNK_S / per_step))
    rates, states = [], []
    deadline = time.monotonic() + LOAD_LIMIT_S
    while not rates or time.monotonic() < deadline:
        rates.append(work / statistics.median(device.step_times(small.step, count)) / 1e12)
        device.while_busy(small.step, per_step, LOOK_S, lambda: states.append(device.state()))
        if _settled(_clocks(states) or rates):
            break
    clocks = _clocks(states)
    explains = max(rates) >= BETTER * measured_tflops
    clock = f"the clock from {clocks[0]:.0f} to {clocks[-1]:.0f} MHz" if clocks else "the clock is not known"
    finding = f"sustained load gives {_rate(max(rates), peak)} ({clock})"
    trial = Trial(what="sustained", tflops=max(rates), clocks_mhz=clocks, finding=finding, explains=explains)
    return trial, states


def _rate(tflops: float, peak) -> str:
    return f"{tflops:.3g} TFLOPS, {100 * tflops / peak.tflops:.3g} % of the peak"


def _clocks(states: list[dict]) -> list[float]:
    return [float(state["sm_clock_mhz"]) for state in states if state.get("sm_clock_mhz")]


def _settled(readings: list[float]) -> bool:
    """Whether the last three readings no longer rise above what came before."""
    return len(readings) >= 4 and max(readings[-3:]) <= STEADY * max(readings[:-3])


def _tensor_cores(peak, kernel: Kernel) -> Trial:
    if peak.unit != "tensor_core":
        finding, explains = "tensor cores have no part in this peak", False
    elif kernel.tensor_cores is None:
        finding, explains = f"whether tensor cores ran is not known ({kernel.how_known})", None
    else:
        used = "used" if kernel.tensor_cores else "did not use"
        finding, explains = f"the kernel {kernel.name} {used} tensor cores", not kernel.tensor_cores
    return Trial(what="tensor_cores", finding=finding, explains=explains)


def _ruled_out(states: list[dict], vendor, peak) -> list[str]:
    """The power limit, where nothing limits the clock under load, and the rate class, where the peak is sure."""
    told = [state["throttle_reasons"] for state in states if state.get("throttle_reasons") is not None]
    limits = {reason for reasons in told for reason in reasons} - {"gpu_idle"}
    found = ["power limit"] if told and not limits else []
    sure = vendor.match == "exact" or peak.unit == "cuda_core"  # the class concerns tensor cores alone
    return [*found, "rate class of the card"] if sure else found
