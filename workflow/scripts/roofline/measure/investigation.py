"""Why a GEMM stays below half of the vendor's peak: tries a larger product, sustained load, and the unit that ran."""

import time

from roofline.core import statistics
from roofline.core.contention import disturbances
from roofline.core.device_kinds import KINDS
from roofline.devices.base import Device
from roofline.measure.timing import time_caller
from roofline.operators.gemm import products_on
from roofline.operators.gemm.products import flops, workspace_bytes
from roofline.records.compute import Investigation, Kernel, Trial
from roofline.records.timing import Contention

THRESHOLD = 0.5
LARGER_SIZE = 8192
BETTER = 1.10  # a trial explains the gap when it is this much faster; from block to block a rate moves less
LOAD_CHUNK_S = 0.25
LOAD_LIMIT_S = 4.0
LOOK_S = 0.05  # of load around a reading: long enough for NVML to see it
STEADY = 1.01


def investigate(
    device,
    dtype: str,
    small,
    measured_tflops: float,
    vendor,
    kernel: Kernel,
    time_budget_s: float,
    contention: Contention | None = None,
) -> Investigation:
    """Try what else ran, the product's size, a clock still rising, no tensor cores. Which it was, or what is ruled out.

    `small` is the Workload that stayed below half of the dtype's peak among the device's vendor figures, `contention`
    what ran beside its block. Where several causes hold, contention goes first, since it may be behind all the others,
    then the unit, since neither size nor clock makes up for it, and then what gave most.
    """
    peak = vendor.peaks[dtype]
    larger = _larger_size(device, dtype, measured_tflops, peak, time_budget_s)
    sustained, states = _sustained(device, small, measured_tflops, peak)
    trials = [larger, sustained, _tensor_cores(peak, kernel), _contention(device, contention)]
    others = (
        [_power_limit(states), _rate_class(vendor, peak)] if KINDS[device.kind].reports_power else [_library(device)]
    )
    findings = [(trial.finding, trial.explains) for trial in trials] + others
    causes = [trial for trial in trials if trial.explains]
    causes.sort(key=lambda trial: (trial.what == "contention", trial.what == "tensor_cores", trial.tflops or 0))
    whose = "formula's" if peak.derived else "vendor's"
    return Investigation(
        reason=f"{measured_tflops:.3g} TFLOPS is below {100 * THRESHOLD:.3g} % of the {whose} {peak.tflops:.4g}",
        trials=trials,
        verdict=causes[-1].what if causes else "none",
        ruled_out=[finding for finding, explains in findings if explains is False],
        not_ruled_out=[finding for finding, explains in findings if explains is None],
    )


def _contention(device: Device, contention: Contention | None) -> Trial:
    found = disturbances(contention, KINDS[device.kind].sensitive) if contention else []
    told = contention and (contention.other_cores, contention.other_processes) != (None, None)
    finding = f"the block was disturbed: {', '.join(found)}" if found else "contention: nothing ran beside the block"
    if not told and not found:
        finding = "contention: what else ran is not known"
    explains = bool(found) if told or found else None
    return Trial(what="contention", size=None, tflops=None, clocks_mhz=[], finding=finding, explains=explains)


def _larger_size(device: Device, dtype: str, measured_tflops: float, peak, time_budget_s: float) -> Trial:
    size, needed = LARGER_SIZE, workspace_bytes(LARGER_SIZE, dtype)
    expected_s = flops(size, size, size) / measured_tflops / 1e12
    why_not = None
    if needed > device.identity.memory_free_bytes // 2:
        why_not = f"{size} x {size} was not tried: it needs {needed:,} bytes, more than half of what is free"
    elif 3 * expected_s > max(time_budget_s, 2):
        why_not = f"{size} x {size} was not tried: it would take {3 * expected_s:.0f} s, over the time budget"
    if why_not:
        return Trial(what="size", size=size, tflops=None, clocks_mhz=[], finding=why_not, explains=None)
    larger = products_on(device).reference_product(device, dtype, size, seed=7)
    larger.check()
    timing = time_caller(device, larger.step, warmup=1, iterations=20, time_budget_s=time_budget_s)
    tflops = flops(size, size, size) / timing.median_s / 1e12
    explains = tflops >= BETTER * measured_tflops
    finding = f"{size} x {size} {_gives(explains, tflops, measured_tflops, peak)}"
    return Trial(what="size", size=size, tflops=tflops, clocks_mhz=[], finding=finding, explains=explains)


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
    finding = f"sustained load {_gives(explains, max(rates), measured_tflops, peak)} ({clock})"
    trial = Trial(
        what="sustained",
        size=small.product.shape["m"],
        tflops=max(rates),
        clocks_mhz=clocks,
        finding=finding,
        explains=explains,
    )
    return trial, states


def _gives(explains: bool, tflops: float, measured_tflops: float, peak) -> str:
    much = f"{tflops:.3g} TFLOPS, {100 * tflops / peak.tflops:.3g} % of the peak"
    if explains:
        return f"gives more, {much}"
    return f"gives {'no' if tflops <= STEADY * measured_tflops else 'hardly'} more, {much}"


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
    return Trial(what="tensor_cores", size=None, tflops=None, clocks_mhz=[], finding=finding, explains=explains)


# ---------------------------------------------------------------- other causes: what is said, and False if ruled out


def _power_limit(states: list[dict]) -> tuple[str, bool | None]:
    told = [state["throttle_reasons"] for state in states if state.get("throttle_reasons") is not None]
    if not told:
        return "power limit: NVML does not report throttle reasons here", None
    held = sorted({reason for reasons in told for reason in reasons} - {"gpu_idle"})
    if held:
        return f"under load the clock is limited by {', '.join(held)}", None
    return "power limit: under load no throttle reason is set", False


def _rate_class(vendor, peak) -> tuple[str, bool | None]:
    if peak.unit != "tensor_core":
        return "rate class of the card: it concerns tensor cores alone", False
    if vendor.match == "exact":
        return "rate class of the card: the peak is the vendor's for this very card", False
    assumed = f"'{vendor.rate_class}' is assumed from its name"
    return f"rate class of the card: {assumed}, and at half the rate half of the peak would be all", None


def _library(device) -> tuple[str, None]:
    blas = device.software()
    built = f"{blas['blas']} {blas['blas_version']} with kernels for {blas['blas_architecture']}"
    return f"the BLAS is {built} on {blas['blas_threads']} threads", None
